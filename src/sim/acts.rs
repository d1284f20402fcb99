//! What the tests of terms, runs and batches have in common: jobs, and what they note.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use jiff::Timestamp;

use crate::{
    batch::BatchJob,
    job::{Health, Job, JobError, Outcome, Run},
    node::memory::MemoryNode,
    testing::{cluster::Cluster, members::Member},
};

/// A job made of a closure.
pub(crate) struct Act<F>(pub(crate) F);

pub(crate) type Ran = BoxFuture<'static, Result<Outcome, JobError>>;

#[async_trait]
impl<F: Fn(Run) -> Ran + Send + Sync + 'static> Job for Act<F> {
    async fn run(&self, run: Run) -> Result<Outcome, JobError> {
        (self.0)(run).await
    }
}

/// A job, or a batch job, whose fitness a test decides.
pub(crate) struct Moody<J> {
    pub(crate) job: J,
    pub(crate) unfit: Arc<Mutex<Option<String>>>,
}

impl<J> Moody<J> {
    fn mood(&self) -> Health {
        let unfit = self.unfit.lock().unwrap().clone();
        unfit.map_or(Health::Fit, Health::Unfit)
    }
}

#[async_trait]
impl<J: Job> Job for Moody<J> {
    async fn run(&self, run: Run) -> Result<Outcome, JobError> {
        self.job.run(run).await
    }

    async fn health(&self) -> Health {
        self.mood()
    }
}

#[async_trait]
impl<J: BatchJob> BatchJob for Moody<J> {
    async fn pending(&self, limit: usize) -> Result<Vec<String>, JobError> {
        self.job.pending(limit).await
    }

    async fn process(&self, batch: &str, run: Run) -> Result<Outcome, JobError> {
        self.job.process(batch, run).await
    }

    async fn health(&self) -> Health {
        self.mood()
    }
}

/// Who holds `lock/x` on a node.
pub(crate) fn holder(node: &MemoryNode) -> Option<String> {
    let now = node.time();
    node.inspect(|state| state.holder("lock/x", now).map(str::to_owned))
}

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Runs until told to stop.
pub(crate) fn patient() -> impl Job {
    Act(|run: Run| {
        Box::pin(async move {
            run.cancelled().await;
            Err(JobError::from("stopped"))
        }) as _
    })
}

/// Goes on for ever, whatever it is told.
pub(crate) fn deaf() -> impl Job {
    Act(|run: Run| {
        Box::pin(async move {
            let lease = run.lease().ok_or("no lease")?.clone();
            while lease.clock().wall().as_second() > 0 {
                lease.clock().sleep(ms(10)).await;
            }
            Ok(Outcome::Done)
        }) as _
    })
}

/// Takes so long, and notes that it begins.
pub(crate) fn slow(starts: &Starts, takes: Duration) -> impl Job + use<> {
    let starts = starts.clone();
    Act(move |run: Run| {
        starts.note(&run);
        Box::pin(async move {
            let clock = run.lease().ok_or("no lease")?.clock().clone();
            clock.sleep(takes).await;
            Ok(Outcome::Done)
        }) as _
    })
}

/// Does nothing, at once, and notes it.
pub(crate) fn quick(starts: &Starts) -> impl Job + use<> {
    let starts = starts.clone();
    Act(move |run: Run| {
        starts.note(&run);
        Box::pin(async { Ok(Outcome::Done) }) as _
    })
}

/// Waits for this second of the story.
pub(crate) async fn until(fleet: &Cluster, second: u64) {
    let at = Duration::from_secs(second);
    fleet.sleep(at.saturating_sub(fleet.time.elapsed())).await;
}

pub(crate) async fn leader<'a>(fleet: &Cluster, of: &[&'a Member]) -> &'a Member {
    for _ in 0..10_000 {
        if let Some(leader) = of.iter().find(|m| m.leads()) {
            return leader;
        }
        fleet.sleep(ms(5)).await;
    }
    panic!("no replica leads");
}

/// Every start of every run, over a whole fleet: `(tick, attempt)` and the replicas that started it.
#[derive(Clone, Default)]
pub(crate) struct Starts(Arc<Mutex<Started>>);

/// By tick and attempt.
type Started = BTreeMap<(Timestamp, u32), Vec<String>>;

impl Starts {
    pub(crate) fn note(&self, run: &Run) {
        let mut starts = self.0.lock().unwrap();
        let who = run.facts().replica.clone();
        starts
            .entry((run.tick(), run.attempt()))
            .or_default()
            .push(who);
    }

    /// P4: nothing was started twice.
    pub(crate) fn assert_once(&self) {
        for ((tick, attempt), who) in &*self.0.lock().unwrap() {
            assert_eq!(
                who.len(),
                1,
                "{tick}, attempt {attempt}: started by {who:?}"
            );
        }
    }

    pub(crate) fn ticks(&self) -> Vec<Timestamp> {
        let mut ticks: Vec<_> = self
            .0
            .lock()
            .unwrap()
            .keys()
            .map(|(tick, _)| *tick)
            .collect();
        ticks.dedup();
        ticks
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}
