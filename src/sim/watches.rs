//! What is watched by replicas that are no candidates just now, and what that costs the nodes.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    acts::{Moody, Starts, leader, patient, quick},
    world::TTL,
};
use crate::{
    job::{Job, Spec},
    node::Op,
    testing::cluster::Cluster,
    worker::ready::Body,
};

const JOBS: usize = 40;

/// How often a node is asked, in twenty ttl, what it shows of locks, while one replica of two leads all jobs.
async fn looks(failover: bool) -> u64 {
    let fleet = Cluster::observed(3);
    let names: Vec<String> = (0..JOBS).map(|n| format!("job-{n}")).collect();
    let jobs = || {
        let hourly = Spec::every(Duration::from_secs(3600));
        let body = || Body::Job(Arc::new(quick(&Starts::default())) as _);
        let job = |name: &'static str| (name, body(), hourly.clone());
        names
            .iter()
            .map(|name| job(name.clone().leak()))
            .collect::<Vec<_>>()
    };
    // All that can be led is led by the one with the larger priority.
    let first = fleet.join_as("a", jobs(), failover, 1, true);
    fleet.sleep(TTL).await;
    let _second = fleet.join_as("b", jobs(), failover, 0, true);
    fleet.sleep(TTL * 3).await;
    let count = Arc::new(AtomicU64::new(0));
    let counts = count.clone();
    fleet.nodes[0].observe(move |executed| {
        let looks = |op: &Op| matches!(op, Op::Read { .. });
        if executed.call.ops.iter().any(looks) {
            counts.fetch_add(1, Ordering::SeqCst);
        }
    });
    fleet.sleep(TTL * 20).await;
    assert_eq!(first.ctx.local_status.leases().len(), JOBS);
    count.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn a_failover_standby_asks_no_more_than_a_candidate() {
    let (candidate, spare) = (looks(false).await, looks(true).await);
    println!("calls in twenty ttl: {candidate} by a candidate, {spare} by a spare replica");
    assert!(
        spare <= candidate + candidate / 10,
        "{spare} and {candidate}"
    );
    // Three renewals in a ttl, each looked at once.
    assert!((40..=80).contains(&spare), "{spare}");
}

/// Fit when the test says so.
fn moody(unfit: &Arc<Mutex<Option<String>>>) -> Moody<impl Job + use<>> {
    let unfit = unfit.clone();
    Moody {
        job: patient(),
        unfit,
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_gets_well_after_the_leaders_death_takes_over_at_once() {
    let fleet = Cluster::observed(3);
    let first = fleet.join("a", patient(), Spec::continuous());
    leader(&fleet, &[&first]).await;
    let unfit = Arc::new(Mutex::new(Some("not yet".to_owned())));
    let second = fleet.join("b", moody(&unfit), Spec::continuous());
    fleet.sleep(TTL * 2).await;
    first.tasks.crash();
    fleet.sleep(TTL * 2).await;
    assert!(!second.leads());
    let well = fleet.time.elapsed();
    *unfit.lock().unwrap() = None;
    leader(&fleet, &[&second]).await;
    let took = fleet.time.elapsed() - well;
    // It is asked so often.
    assert!(took <= second.ctx.health_every() + TTL / 10, "{took:?}");
}

/// The same of a replica that is unfit as a whole.
#[tokio::test(start_paused = true)]
async fn a_replica_that_gets_well_after_the_leaders_death_takes_over_at_once() {
    let fleet = Cluster::observed(3);
    let first = fleet.join("a", patient(), Spec::continuous());
    leader(&fleet, &[&first]).await;
    let second = fleet.join("b", patient(), Spec::continuous());
    let fitness = second.ctx.locks.fitness();
    fitness.report("disk", Err("full".to_owned()));
    fleet.sleep(TTL * 2).await;
    first.tasks.crash();
    fleet.sleep(TTL * 2).await;
    assert!(!second.leads());
    let well = fleet.time.elapsed();
    fitness.report("disk", Ok(()));
    leader(&fleet, &[&second]).await;
    let took = fleet.time.elapsed() - well;
    assert!(took <= TTL / 10, "{took:?}");
}
