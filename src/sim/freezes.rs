//! Replicas that were frozen for less than their lease: what they do when they wake up.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{
    acts::{Starts, leader, ms, patient, quick},
    world::TTL,
};
use crate::{
    event::Event,
    job::Spec,
    lease::{Lease, Loss},
    node::{Call, Kind, Node, Op, memory::MemoryNode},
    testing::{cluster::Cluster, members::Member},
};

/// Shorter than the time to the first renewal.
const FREEZE: Duration = Duration::from_millis(250);

/// A process whose jobs do nothing.
fn idle(fleet: &Cluster, name: &str) -> Member {
    fleet.join(name, patient(), Spec::continuous().enabled(false))
}

async fn lease(member: &Member) -> Lease {
    member.ctx.locks.lock("x").acquire().await.unwrap()
}

/// What each node executes from now on: one letter per operation on the lock or job.
fn watch(nodes: &[MemoryNode]) -> Arc<Mutex<String>> {
    let told = Arc::new(Mutex::new(String::new()));
    for node in nodes {
        let told = told.clone();
        node.observe(move |executed| {
            for op in &executed.call.ops {
                told.lock().unwrap().push(match op {
                    Op::Read { .. } => 'r',
                    Op::Extend { .. } => 'x',
                    Op::Write { key, .. } if key.starts_with("job/") => 'w',
                    _ => continue,
                });
            }
        });
    }
    told
}

#[tokio::test(start_paused = true)]
async fn after_a_freeze_nothing_starts_before_the_lease_is_verified() {
    let fleet = Cluster::new(3);
    let member = idle(&fleet, "a");
    let lease = lease(&member).await;
    for node in &fleet.nodes {
        node.faults().delay_replies(ms(10), ms(10));
    }
    fleet.sleep(ms(20)).await;
    assert!(lease.may_start());
    let told = watch(&fleet.nodes);
    member.tasks.freeze();
    fleet.sleep(FREEZE).await;
    // A task that wakes up before the keeper does is told by the clock.
    assert!(lease.is_held() && lease.is_open());
    assert!(!lease.may_start(), "the keeper has not looked yet");
    assert!(told.lock().unwrap().is_empty());
    member.tasks.thaw();
    tokio::task::yield_now().await;
    assert!(!lease.may_start() && lease.is_held());
    let thawed = fleet.time.elapsed();
    assert_eq!(lease.startable().await, Ok(()));
    assert!(
        fleet.time.elapsed() - thawed >= ms(10),
        "an answer takes so long"
    );
    assert!(told.lock().unwrap().matches('r').count() >= 2);
    assert!(lease.may_start() && lease.cordoned().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_taken_during_a_freeze_starts_nothing() {
    let fleet = Cluster::new(3);
    let (member, other) = (idle(&fleet, "a"), idle(&fleet, "b"));
    let mine = lease(&member).await;
    fleet.sleep(ms(20)).await;
    member.tasks.freeze();
    // Two believe, as they never should.
    for node in &fleet.nodes {
        let release = Op::Release {
            key: "lock/x".to_owned(),
            owner: mine.owner().to_owned(),
            kind: Kind::Lock,
            marked: TTL,
            retention: TTL,
        };
        let call = Call {
            not_after: None,
            ops: vec![release],
        };
        node.call(call).await.unwrap();
    }
    let _theirs = lease(&other).await;
    fleet.sleep(FREEZE).await;
    assert!(mine.is_held(), "as far as its clock knows");
    member.tasks.thaw();
    let view = mine.view().clone();
    let started = Arc::new(Mutex::new(false));
    let seen = started.clone();
    member.ctx.spawn.spawn(async move {
        let may = view.startable().await;
        *seen.lock().unwrap() = may.is_ok();
    });
    assert_eq!(mine.lost().await, Loss::Taken);
    fleet.sleep(ms(50)).await;
    assert!(!*started.lock().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_confirms_after_a_freeze_is_given_up() {
    let fleet = Cluster::new(3);
    let member = idle(&fleet, "a");
    let lease = lease(&member).await;
    let _work = lease.begin_work();
    fleet.sleep(ms(20)).await;
    member.tasks.freeze();
    fleet.sleep(FREEZE).await;
    fleet.nodes.iter().for_each(|n| n.faults().fail_all());
    member.tasks.thaw();
    let thawed = fleet.time.elapsed();
    let Loss::Unfit(why) = lease.closing().await else {
        panic!("{:?}", lease.loss());
    };
    assert!(why.contains("frozen"), "{why}");
    let took = fleet.time.elapsed() - thawed;
    assert!(took >= TTL / 3 && took < TTL / 2, "{took:?}");
    assert!(lease.is_held(), "its work has time to end");
}

#[tokio::test(start_paused = true)]
async fn a_frozen_leader_goes_on_when_its_lease_still_stands() {
    let fleet = Cluster::new(3);
    let member = fleet.join("a", patient(), Spec::continuous());
    leader(&fleet, &[&member]).await;
    // The heart of its runtime stands still, too.
    let (locks, fitness) = (member.ctx.locks.clone(), member.ctx.locks.fitness().clone());
    fitness.beat();
    fitness.expect_beats(Some(TTL / 4));
    member.ctx.spawn.spawn(async move {
        loop {
            locks.fitness().beat();
            locks.clock().sleep(ms(50)).await;
        }
    });
    for _ in 0..5 {
        fleet.sleep(ms(400)).await;
        member.tasks.freeze();
        fleet.sleep(ms(300)).await;
        member.tasks.thaw();
    }
    fleet.sleep(TTL * 3).await;
    assert!(member.leads());
    assert!(!member.heard(|e| matches!(
        e,
        Event::StandingBy { .. } | Event::RunEnded { .. } | Event::Fitness { .. }
    )));
}

#[tokio::test(start_paused = true)]
async fn no_tick_starts_after_a_freeze_before_the_lease_is_verified() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let member = fleet.join("a", quick(&starts), Spec::every(Duration::from_secs(1)));
    leader(&fleet, &[&member]).await;
    for node in &fleet.nodes {
        node.faults().delay_replies(ms(10), ms(10));
    }
    let written = Arc::new(Mutex::new(Vec::new()));
    for node in &fleet.nodes {
        let (written, time) = (written.clone(), fleet.time.clone());
        node.observe(move |executed| {
            let starts = |op: &Op| matches!(op, Op::Write { key, .. } if key.starts_with("job/"));
            if executed.call.ops.iter().any(starts) {
                written.lock().unwrap().push(time.elapsed());
            }
        });
    }
    for _ in 0..10 {
        let before = starts.len();
        // To shortly before a tick, and over it.
        let wall = member.ctx.clock.wall().as_millisecond();
        let to_tick = u64::try_from(1_000 - wall.rem_euclid(1_000)).unwrap();
        fleet.sleep(ms(to_tick + 900)).await;
        member.tasks.freeze();
        fleet.sleep(FREEZE).await;
        written.lock().unwrap().clear();
        member.tasks.thaw();
        let thawed = fleet.time.elapsed();
        while starts.len() < before + 2 {
            fleet.sleep(ms(1)).await;
        }
        // What a majority says takes so long to come.
        let first = written.lock().unwrap()[0] - thawed;
        assert!(first >= ms(10), "a start was written after {first:?}");
    }
}
