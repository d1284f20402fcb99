//! What the renewals of many leases cost, counted at one of the nodes.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::{
    chance::Chance,
    lock::{Claim, Claimed, Locks},
    node::{Node, Op, memory::MemoryNode},
    sim_clock::SimTime,
    spawn::Spawn,
};

const LEASES: usize = 600;
/// How many of them are acquired at a time.
const PART: usize = 50;

#[tokio::test(start_paused = true)]
async fn six_hundred_leases_are_renewed_in_three_calls_a_round() {
    let time = SimTime::new();
    let node = |n| MemoryNode::new(format!("n{n}"), time.clock());
    let nodes: Vec<MemoryNode> = (0..3).map(node).collect();
    let lines = nodes.iter().map(|n| Arc::new(n.clone()) as Arc<dyn Node>);
    let locks = Locks::over(lines.collect())
        .clock(time.clock())
        .chance(Chance::seeded(1))
        .keeper_here(Spawn::system())
        .start()
        .unwrap();
    let mut leases = Vec::new();
    for part in 0..LEASES / PART {
        let claims = (0..PART).map(|n| Claim::short(format!("batch/b/{part}-{n}")));
        let claimed = locks.claim(claims.collect()).await.unwrap().into_iter();
        leases.extend(claimed.filter_map(|claimed| match claimed {
            Claimed::Acquired(lease) => Some(lease),
            _ => None,
        }));
        time.clock().sleep(Duration::from_millis(37)).await;
    }
    assert_eq!(leases.len(), LEASES);
    // In their first rounds those that were acquired one after the other come together.
    let ttl = locks.timing().ttl;
    time.clock().sleep(ttl * 2).await;
    let counts = Arc::new(Mutex::new((0, 0)));
    let seen = counts.clone();
    nodes[0].observe(move |executed| {
        let ops = executed.call.ops.iter();
        let extended = ops.filter(|op| matches!(op, Op::Extend { .. })).count();
        let mut seen = seen.lock().unwrap();
        seen.0 += extended;
        seen.1 += usize::from(extended > 0);
    });
    time.clock().sleep(ttl * 4).await;
    let (extended, calls) = *counts.lock().unwrap();
    assert!(extended >= LEASES * 11, "{extended} renewals");
    let rounds = extended.div_ceil(LEASES);
    assert!(calls <= rounds * 3 + 1, "{calls} calls for {rounds} rounds");
    assert!(leases.iter().all(|lease| lease.is_held()));
}
