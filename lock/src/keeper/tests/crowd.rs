//! Ten thousand leases in one keeper.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::{
    acquire::Locks,
    chance::Chance,
    clock::{Clock, Moment},
    node::{Announcements, Call, Node, NodeError, Op, Reply, memory::MemoryNode},
    quorum::{Claim, Claimed},
    sim_clock::SimTime,
    spawn::Spawn,
};

const LEASES: usize = 10_000;
const TTL: Duration = Duration::from_secs(30);
const NODES: usize = 3;

/// When each call with extensions was executed on a node, and how many it carried.
type Rounds = Arc<Mutex<Vec<(Moment, usize)>>>;

fn watch(node: &MemoryNode, clock: &Clock) -> Rounds {
    let (seen, clock) = (Rounds::default(), clock.clone());
    let rounds = seen.clone();
    node.observe(move |executed| {
        let ops = executed.call.ops.iter();
        let some = ops.filter(|op| matches!(op, Op::Extend { .. })).count();
        if some > 0 {
            seen.lock().unwrap().push((clock.now(), some));
        }
    });
    rounds
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_leases_cost_forty_calls_per_node_and_round() {
    let time = SimTime::new();
    let clock = time.clock();
    let nodes: Vec<_> = (0..NODES)
        .map(|n| MemoryNode::new(format!("n{n}"), time.clock()))
        .collect();
    let lines = nodes.iter().map(|n| Arc::new(n.clone()) as Arc<dyn Node>);
    let locks = Locks::over(lines.collect())
        .clock(clock.clone())
        .chance(Chance::seeded(7))
        .keeper_here(Spawn::system())
        .start()
        .unwrap();
    let start = clock.now();
    let claims = (0..LEASES).map(|n| Claim {
        ttl: Some(TTL),
        ..Claim::named(format!("lock/{n}"))
    });
    let mut leases = Vec::new();
    for claimed in locks.claim(claims.collect()).await.unwrap() {
        match claimed {
            Claimed::Acquired(lease) => leases.push(lease),
            other => panic!("{other:?}"),
        }
    }
    let rounds: Vec<_> = nodes.iter().map(|node| watch(node, &clock)).collect();
    // Three rounds, and a little.
    clock.sleep(TTL + TTL / 20).await;
    assert!(leases.iter().all(|lease| lease.is_held()));
    assert!(leases.iter().all(|lease| lease.rounds() == 3));
    for seen in rounds {
        let mut seen = std::mem::take(&mut *seen.lock().unwrap()).into_iter();
        let mut before = (start, start);
        for _ in 0..3 {
            let calls: Vec<_> = seen.by_ref().take(LEASES.div_ceil(250)).collect();
            assert!(calls.iter().all(|(_, extended)| *extended == 250));
            let (first, last) = (calls[0].0, calls[calls.len() - 1].0);
            // Early, by a twentieth at most, and never late: not the first, and not the last of them.
            assert!(
                first >= (before.0 + TTL / 3).back(TTL / 20),
                "{:?}",
                first - before.0
            );
            assert!(last <= before.1 + TTL / 3, "{:?}", last - before.1);
            before = (first, last);
        }
        assert_eq!(seen.next(), None, "and no call more");
    }
    // All of them go at once, and nothing is left.
    drop(leases);
    locks.settle().await;
    for node in &nodes {
        assert_eq!(node.inspect(|state| state.held().count()), 0);
    }
}

/// A node that takes many extensions in one call.
struct Roomy(MemoryNode);

#[async_trait::async_trait]
impl Node for Roomy {
    fn name(&self) -> &str {
        self.0.name()
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        self.0.call(call).await
    }

    fn most_extensions(&self) -> usize {
        500
    }

    async fn announcements(&self) -> Option<Announcements> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn where_all_nodes_take_more_extensions_in_a_call_a_round_has_fewer_of_them() {
    let time = SimTime::new();
    let clock = time.clock();
    for (of_first, expected) in [(500, [500, 500].as_slice()), (250, &[250; 4])] {
        let nodes: Vec<_> = (0..NODES)
            .map(|n| MemoryNode::new(format!("n{n}"), clock.clone()))
            .collect();
        let line = |node: &MemoryNode| match (of_first, node.name()) {
            (250, "n0") => Arc::new(node.clone()) as Arc<dyn Node>,
            _ => Arc::new(Roomy(node.clone())),
        };
        let locks = Locks::over(nodes.iter().map(line).collect())
            .clock(clock.clone())
            .chance(Chance::seeded(7))
            .keeper_here(Spawn::system())
            .start()
            .unwrap();
        let claims = (0..1_000).map(|n| Claim {
            ttl: Some(TTL),
            ..Claim::named(format!("lock/{n}"))
        });
        let leases = locks.claim(claims.collect()).await.unwrap();
        let rounds: Vec<_> = nodes.iter().map(|node| watch(node, &clock)).collect();
        clock.sleep(TTL / 2).await;
        for seen in rounds {
            let seen = std::mem::take(&mut *seen.lock().unwrap());
            let sizes: Vec<usize> = seen.into_iter().map(|(_, extended)| extended).collect();
            assert_eq!(sizes, expected);
        }
        drop(leases);
        locks.settle().await;
    }
}

/// A node remembers one grant per owner of claims: what comes with a later call needs an owner of its own.
#[tokio::test(start_paused = true)]
async fn claims_that_do_not_fit_into_one_call_are_attempts_of_their_own() {
    let time = SimTime::new();
    let node = MemoryNode::new("n", time.clock());
    let locks = Locks::over(vec![Arc::new(node)])
        .clock(time.clock())
        .chance(Chance::seeded(7))
        .keeper_here(Spawn::system())
        .start()
        .unwrap();
    let claims = (0..600).map(|n| Claim::short(n.to_string())).collect();
    let mut owners = std::collections::BTreeMap::<String, usize>::new();
    for claimed in locks.claim(claims).await.unwrap() {
        let Claimed::Acquired(lease) = claimed else {
            panic!("{claimed:?}")
        };
        *owners.entry(lease.owner().to_owned()).or_default() += 1;
    }
    let mut sizes: Vec<_> = owners.into_values().collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [100, 250, 250]);
}
