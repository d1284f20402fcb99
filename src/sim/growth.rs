//! How what a fleet at rest costs its lock nodes grows with jobs and with replicas: counted, so that it can be asserted.

use std::{sync::Arc, time::Duration};

use super::acts::{Starts, quick};
use crate::{
    job::Spec,
    lock::Timing,
    node::Expiry,
    sim_clock::SimTime,
    testing::{
        cluster::Cluster,
        counts::{Counters, Counts},
        members::Member,
    },
    worker::ready::Body,
};

const SECOND: Duration = Duration::from_secs(1);

/// For how long is counted: some renewals.
const COUNTED: Duration = Duration::from_secs(30);

pub(super) fn cluster(seed: u64) -> Cluster {
    let (time, timing) = (SimTime::new(), Timing::default());
    Cluster::over(time, 3, seed, timing, Expiry::Observed)
}

/// So many replicas with so many jobs that have nothing to do for an hour. The first one leads them all.
pub(super) async fn fleet(
    cluster: &Cluster,
    jobs: usize,
    replicas: usize,
    failover: bool,
) -> Vec<Member> {
    let names: Vec<String> = (0..jobs).map(|n| format!("job-{n}")).collect();
    let join = |n: usize| {
        let spec = Spec::every(SECOND * 3600).min_term(SECOND * 3600);
        let body = || Body::Job(Arc::new(quick(&Starts::default())) as _);
        let jobs = names
            .iter()
            .map(|name| (name.as_str(), body(), spec.clone()));
        let member = cluster.join_as(&format!("r{n}"), jobs.collect(), failover, 0, true);
        member.publish();
        member
    };
    let mut members = vec![join(0)];
    cluster.sleep(SECOND * 12).await;
    members.extend((1..replicas).map(join));
    members
}

async fn at_rest(jobs: usize, replicas: usize, failover: bool) -> Counts {
    let cluster = cluster(7);
    let members = fleet(&cluster, jobs, replicas, failover).await;
    let counters = Counters::of(&cluster);
    cluster.sleep(SECOND * 15).await;
    let before = counters.now();
    cluster.sleep(COUNTED).await;
    let counts = counters.now() - before;
    assert_eq!(members[0].ctx.local_status.leases().len(), jobs);
    println!("{jobs} jobs x {replicas} replicas: {counts:?}");
    counts
}

/// `log2` of how much more the second is than the first, for each doubling.
fn exponents(counts: &[Counts], of: impl Fn(&Counts) -> u64) -> Vec<f64> {
    let pairs = counts.windows(2);
    pairs
        .map(|pair| (of(&pair[1]) as f64 / of(&pair[0]) as f64).log2())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn reads_do_not_grow_with_the_replicas() {
    for failover in [false, true] {
        let mut counts = Vec::new();
        for replicas in [4, 8, 16] {
            counts.push(at_rest(8, replicas, failover).await);
        }
        let reads = exponents(&counts, |counts| counts.reads);
        assert!(reads.iter().all(|it| *it <= 0.2), "{reads:?}");
        // Each replica reads wishes and documents, however little it watches: some calls a second, and not more in a larger fleet.
        let calls = exponents(&counts, |counts| counts.calls);
        assert!(calls.iter().all(|it| *it <= 1.1), "{calls:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_jobs_cost_grows_with_their_number_at_most() {
    let mut counts = Vec::new();
    for jobs in [15, 30, 60] {
        counts.push(at_rest(jobs, 6, false).await);
    }
    for of in [
        |c: &Counts| c.reads,
        |c: &Counts| c.calls,
        |c: &Counts| c.extends,
    ] {
        let grow = exponents(&counts, of);
        assert!(grow.iter().all(|it| *it <= 1.1), "{grow:?}");
    }
}

#[tokio::test(start_paused = true)]
#[ignore = "minutes: thirty replicas read each other"]
async fn thirty_replicas_with_three_hundred_jobs_read_as_much_as_four() {
    let few = at_rest(300, 4, false).await;
    let many = at_rest(300, 30, false).await;
    assert!(many.reads * 2 <= few.reads * 3, "{few:?} and {many:?}");
}
