//! Claims of batches: how many a second, and what many claimers ask of the masters for nothing.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use watchkeeper::{BatchJob, JobError, Outcome, Run, Spec, batch::BatchLimits, clock::Clock};

use crate::{
    Plan,
    asked::Asked,
    fleet::{Masters, until},
    table::{Goal, Row, Table},
};

/// Batches that are done as soon as they are claimed, or after a while.
#[derive(Clone)]
struct Synthetic {
    claim: usize,
    concurrency: usize,
    work: Duration,
    /// Those that are left are known to all replicas, as a database would.
    left: Arc<Mutex<BTreeSet<u64>>>,
    next: Arc<AtomicU64>,
    done: Arc<AtomicU64>,
    clock: Clock,
}

impl Synthetic {
    fn new(claim: usize, concurrency: usize, work: Duration) -> Self {
        Self {
            claim,
            concurrency,
            work,
            left: Arc::default(),
            next: Arc::default(),
            done: Arc::default(),
            clock: Clock::system(),
        }
    }

    fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl BatchJob for Synthetic {
    async fn pending(&self, limit: usize) -> Result<Vec<String>, JobError> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        // There is always more than anybody can claim.
        while left.len() < 2_000 {
            left.insert(self.next.fetch_add(1, Ordering::Relaxed));
        }
        Ok(left.iter().take(limit).map(u64::to_string).collect())
    }

    async fn process(&self, batch: &str, _run: Run) -> Result<Outcome, JobError> {
        if !self.work.is_zero() {
            self.clock.sleep(self.work).await;
        }
        let number = batch.parse().map_err(JobError::fatal)?;
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if left.remove(&number) {
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Outcome::Done)
    }

    fn limits(&self) -> BatchLimits {
        BatchLimits {
            claim: self.claim,
            concurrency: self.concurrency,
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn a_second(n: u64, time: Duration) -> f64 {
    n as f64 / time.as_secs_f64()
}

pub(crate) async fn section(plan: Plan, table: &mut Table) {
    table.section("claims", &["calls a node for each batch"]);
    let masters = Masters::start(3);
    let clock = Clock::system();
    for k in [1, 10, 100, 250] {
        let job = Synthetic::new(k, k, Duration::ZERO);
        let make = || job.clone();
        let fleet = masters.replicas(1, &format!("k-{k}"), make, &Spec::continuous());
        until("the first batch", Duration::from_secs(90), || {
            job.done() > 0
        })
        .await;
        let (began, before, asked) = (clock.now(), job.done(), Asked::of(&masters.servers));
        clock.sleep(Duration::from_secs(plan.seconds)).await;
        let (time, done) = (clock.now().since(began), job.done() - before);
        let calls = Asked::of(&masters.servers).since(asked).scripts;
        fleet.end().await;
        let each = a_second(calls, Duration::from_secs(3 * done.max(1)));
        let row = Row::new(
            format!("{k} in a call: batches claimed, done and released a second"),
            3,
        )
        .ours(format!("{:.0}", a_second(done, time)))
        .columns([format!("{each:.2}")]);
        table.add(row);
    }
}

/// Thirty-two claimers of the same batches on five masters.
pub(crate) async fn crowd(plan: Plan, table: &mut Table) {
    table.section("crowd", &["batches a second"]);
    let masters = Masters::start(5);
    let clock = Clock::system();
    let job = Synthetic::new(4, 4, Duration::from_millis(100));
    let make = || job.clone();
    let fleet = masters.replicas(32, "crowd", make, &Spec::continuous());
    until("the first batches", Duration::from_secs(120), || {
        job.done() > 500
    })
    .await;
    let (began, before, asked) = (clock.now(), job.done(), Asked::of(&masters.servers));
    clock.sleep(Duration::from_secs(plan.seconds)).await;
    let (time, done) = (clock.now().since(began), job.done() - before);
    let calls = Asked::of(&masters.servers).since(asked).scripts;
    fleet.end().await;
    let each = a_second(calls, Duration::from_secs(5 * done.max(1)));
    // One call claims and one releases; what is above that is for nothing, or for the fleet itself.
    let row = Row::new(
        "32 claimers: calls a node for each batch, less its claim and release",
        5,
    )
    .ours(format!("{:.2}", each - 2.0))
    .figure(each - 2.0)
    .goal(Goal::AtMost(2.0))
    .columns([format!("{:.0}", a_second(done, time))]);
    table.add(row);
}
