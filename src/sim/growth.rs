//! How what a fleet costs its lock nodes grows with jobs and with replicas: counted, so that it can be asserted. Counted is what
//! one node of three is asked: the others are asked the same.
//!
//! Grown is in steps of two, and what is asserted is the exponent of each step: 0 where nothing grows, 1 where it grows as the
//! number does.
//!
//! | | in jobs | in replicas |
//! | --- | --- | --- |
//! | locks that are looked at | 1.1 | 0.2 |
//! | bytes, [estimated](crate::testing::counts) | 1.1 | 0.2 where the jobs cost more than the replicas themselves; else 1.0, and 1,200 a second and replica |
//! | calls | 1.1 | 1.0, and 1.5 a second and replica |
//!
//! Calls cannot be fewer: each living replica gives signs of life, asks what is wanted of it, and renews what it holds. So
//! do the bytes of these calls, which is why bytes are bounded by replica, too. A look at the others is a part of such a call and
//! costs a number, however many there are.
//! All of it takes about 40 s of a processor.
//! A replica that takes the place of another is heard of by all of them: that grows with the replicas, and a little faster.

use std::{sync::Arc, time::Duration};

use super::acts::{Starts, quick};
use crate::{
    job::{Coordination, Spec},
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

/// With nothing to do for an hour.
fn idle() -> Spec {
    Spec::every(SECOND * 3600).min_term(SECOND * 3600)
}

/// A replica that has so many jobs of this kind.
fn join(cluster: &Cluster, name: &str, jobs: usize, spec: &Spec, failover: bool) -> Member {
    let names: Vec<String> = (0..jobs).map(|n| format!("job-{n}")).collect();
    let body = || Body::Job(Arc::new(quick(&Starts::default())) as _);
    let jobs = names
        .iter()
        .map(|name| (name.as_str(), body(), spec.clone()));
    let member = cluster.join_as(name, jobs.collect(), failover, 0, true);
    member.publish();
    member
}

async fn fleet_of(
    cluster: &Cluster,
    (jobs, spec): (usize, Spec),
    replicas: usize,
    failover: bool,
) -> Vec<Member> {
    let join = |n: usize| join(cluster, &format!("r{n}"), jobs, &spec, failover);
    let mut members = vec![join(0)];
    cluster.sleep(SECOND * 12).await;
    members.extend((1..replicas).map(join));
    members
}

/// So many replicas with so many jobs that have nothing to do for an hour. The first one leads them all.
pub(super) async fn fleet(
    cluster: &Cluster,
    jobs: usize,
    replicas: usize,
    failover: bool,
) -> Vec<Member> {
    fleet_of(cluster, (jobs, idle()), replicas, failover).await
}

async fn at_rest(jobs: usize, replicas: usize, failover: bool) -> Counts {
    let cluster = cluster(7);
    let members = fleet(&cluster, jobs, replicas, failover).await;
    let counts = counted(&cluster).await;
    assert_eq!(members[0].ctx.local_status.leases().len(), jobs);
    println!("{jobs} jobs x {replicas} replicas: {counts:?}");
    counts
}

/// Jobs whose locks are taken for each tick, and their ticks.
async fn by_tick(jobs: usize, replicas: usize, failover: bool) -> Counts {
    let cluster = cluster(7);
    let spec = Spec::every(SECOND * 5).coordination(Coordination::Tick);
    let members = fleet_of(&cluster, (jobs, spec), replicas, failover).await;
    let counts = counted(&cluster).await;
    println!("{jobs} by tick x {replicas} replicas: {counts:?}");
    drop(members);
    counts
}

/// What is asked of one of so many jobs, whose locks are taken for each tick: what the fleet looks at for it.
async fn asked_of_one(jobs: usize) -> u64 {
    let cluster = cluster(7);
    let spec = idle().coordination(Coordination::Tick);
    let members = fleet_of(&cluster, (jobs, spec), 4, false).await;
    cluster.sleep(SECOND * 15).await;
    let (counters, client) = (Counters::of(&cluster), members[0].client());
    let before = counters.now();
    for paused in [true, false] {
        let asked = client.set_paused("job-0", paused, "", Duration::ZERO).await;
        asked.unwrap();
        cluster.sleep(SECOND * 5).await;
    }
    let counts = counters.now() - before;
    println!("asked of one of {jobs} jobs by tick: {counts:?}");
    counts.reads
}

/// Of a fleet that has found itself.
async fn counted(cluster: &Cluster) -> Counts {
    let counters = Counters::of(cluster);
    cluster.sleep(SECOND * 15).await;
    let before = counters.now();
    cluster.sleep(COUNTED).await;
    counters.now() - before
}

/// Each replica in turn gives way to one with other definitions: what that costs for each, with all that is asked meanwhile.
async fn rolling(replicas: usize) -> Counts {
    let cluster = cluster(7);
    let mut members = fleet(&cluster, 4, replicas, false).await;
    let counters = Counters::of(&cluster);
    cluster.sleep(SECOND * 15).await;
    let before = counters.now();
    let next = Spec::every(SECOND * 7200).min_term(SECOND * 3600);
    for (n, old) in members.iter_mut().enumerate() {
        let new = join(&cluster, &format!("s{n}"), 4, &next, false);
        cluster.sleep(SECOND * 2).await;
        let old = std::mem::replace(old, new);
        old.drain();
        cluster.sleep(SECOND).await;
        old.tasks.crash();
        cluster.sleep(SECOND * 2).await;
    }
    let counts = (counters.now() - before) / replicas as u64;
    println!("replaced one of {replicas} replicas: {counts:?}");
    counts
}

/// `log2` of how much more the second is than the first, for each doubling.
fn exponents(counts: &[Counts], of: impl Fn(&Counts) -> u64) -> Vec<f64> {
    let pairs = counts.windows(2);
    pairs
        .map(|pair| (of(&pair[1]) as f64 / of(&pair[0]) as f64).log2())
        .collect()
}

/// What is counted grows by no more than this exponent.
fn grows(counts: &[Counts], most: f64, what: &str, of: impl Fn(&Counts) -> u64) {
    let grow = exponents(counts, of);
    assert!(
        grow.iter().all(|it| *it <= most),
        "{what} grow by {grow:?}: {counts:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn reads_do_not_grow_with_the_replicas() {
    for failover in [false, true] {
        let mut counts = Vec::new();
        for replicas in [4, 8, 16] {
            counts.push(at_rest(8, replicas, failover).await);
        }
        grows(&counts, 0.2, "reads", |counts| counts.reads);
        grows(&counts, 1.0, "calls", |counts| counts.calls);
        grows(&counts, 1.0, "bytes", Counts::bytes);
        let [few, .., many] = &counts[..] else {
            panic!("{counts:?}");
        };
        // Each replica more costs its calls, and what they weigh.
        let seconds = COUNTED.as_secs_f64();
        let each = (many.calls - few.calls) as f64 / 12.0 / seconds;
        assert!(each < 1.5, "{each} calls a second: {counts:#?}");
        assert!(few.calls as f64 / 4.0 / seconds < 1.5, "{few:#?}");
        let each = (many.bytes() - few.bytes()) as f64 / 12.0 / seconds;
        assert!(each < 1_200.0, "{each} bytes a second: {counts:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_at_rest_makes_few_calls() {
    let counts = at_rest(8, 4, false).await;
    let each = counts.calls as f64 / 4.0 / COUNTED.as_secs_f64();
    assert!(each < 1.5, "{each} a second: {counts:?}");
}

/// What the jobs cost is more than what the replicas cost themselves: then bytes grow as little as reads do.
#[tokio::test(start_paused = true)]
async fn bytes_do_not_grow_with_the_replicas() {
    let mut counts = Vec::new();
    for replicas in [4, 8, 16] {
        counts.push(at_rest(150, replicas, false).await);
    }
    grows(&counts, 0.2, "bytes", Counts::bytes);
    grows(&counts, 0.2, "reads", |counts| counts.reads);
}

#[tokio::test(start_paused = true)]
async fn what_jobs_cost_grows_with_their_number_at_most() {
    jobs_cost_what_they_are(false).await;
}

#[tokio::test(start_paused = true)]
async fn what_jobs_cost_grows_with_their_number_at_most_in_failover_mode() {
    jobs_cost_what_they_are(true).await;
}

async fn jobs_cost_what_they_are(failover: bool) {
    let mut counts = Vec::new();
    for jobs in [15, 30, 60] {
        counts.push(at_rest(jobs, 6, failover).await);
    }
    grows(&counts, 1.1, "reads", |counts| counts.reads);
    grows(&counts, 1.1, "calls", |counts| counts.calls);
    grows(&counts, 1.1, "extensions", |counts| counts.extends);
    grows(&counts, 1.1, "bytes", Counts::bytes);
}

/// Ticks cost what they cost, whichever replica takes them.
#[tokio::test(start_paused = true)]
async fn ticks_without_a_leader_cost_no_more_with_more_replicas() {
    let counts = [by_tick(8, 4, false).await, by_tick(8, 8, false).await];
    grows(&counts, 0.2, "reads", |counts| counts.reads);
    grows(&counts, 1.0, "calls", |counts| counts.calls);
}

#[tokio::test(start_paused = true)]
async fn ticks_without_a_leader_cost_what_there_are_of_them() {
    let mut counts = Vec::new();
    for jobs in [4, 8, 16] {
        counts.push(by_tick(jobs, 4, false).await);
    }
    grows(&counts, 1.1, "reads", |counts| counts.reads);
    grows(&counts, 1.1, "calls", |counts| counts.calls);
    grows(&counts, 1.1, "bytes", Counts::bytes);
    let counts = [by_tick(8, 4, true).await, by_tick(8, 8, true).await];
    grows(&counts, 0.2, "reads", |counts| counts.reads);
    grows(&counts, 1.0, "calls", |counts| counts.calls);
}

/// It is no news for the others.
#[tokio::test(start_paused = true)]
async fn what_is_asked_of_one_job_costs_no_more_with_more_jobs() {
    let (few, many) = (asked_of_one(4).await, asked_of_one(16).await);
    assert!(few > 0, "it is looked at");
    assert_eq!(few, many);
}

/// All of them hear of it. What they read for it grows faster than their number does (from 8 to 16 by 1.6 in documents, 1.3 in
/// bytes, 1.1 in calls): with each newcomer others tell of themselves anew, too, and every replica reads that.
#[tokio::test(start_paused = true)]
async fn a_replica_that_is_replaced_costs_little_more_than_there_are_of_others() {
    let counts = [rolling(4).await, rolling(8).await];
    grows(&counts, 1.1, "calls", |counts| counts.calls);
    grows(&counts, 1.1, "bytes", Counts::bytes);
    grows(&counts, 1.5, "documents", |counts| counts.docs);
}

#[tokio::test(start_paused = true)]
async fn thirty_replicas_with_three_hundred_jobs_read_as_much_as_four() {
    let few = at_rest(300, 4, false).await;
    let many = at_rest(300, 30, false).await;
    assert!(many.reads * 2 <= few.reads * 3, "{few:?} and {many:?}");
}
