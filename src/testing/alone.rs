//! One run of a job, without any fleet.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

use super::{process_tasks::ProcessTasks, sim::at};
use crate::{
    batch::BatchJob,
    clock::Moment,
    human::Span,
    job::{Checkpoints, Job, JobError, Outcome, Run, RunFacts, RunSetup, shard::shard_of},
    lock::Locks,
    node::{Node, memory::MemoryNode},
    sim_clock::SimTime,
};

/// One run that is to be called. See [the module](super).
#[must_use = "nothing runs before `call`"]
pub struct OneRun {
    work: Work,
    facts: RunFacts,
    tick: Option<Timestamp>,
    cancel_after: Option<Duration>,
    time_limit: Option<Duration>,
    grace: Duration,
    locked: bool,
}

enum Work {
    Job(Box<dyn Job>),
    Batch(Box<dyn BatchJob>, String),
}

/// What became of one run, and what it left.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ran {
    /// What the job's code returned; a fatal error when it was dropped because it did not end within its grace.
    pub outcome: Result<Outcome, JobError>,
    /// Every checkpoint that it saved, in order. The next attempt gets the last one.
    pub checkpoints: Vec<Value>,
    /// The last progress that it said.
    pub progress: Option<(u64, u64)>,
    /// What it left to read.
    pub output: Option<String>,
    /// Why it was told to stop; empty when it was not.
    pub stopped: String,
    /// How long it took, by the time of the runtime.
    pub took: Duration,
}

#[derive(Default)]
struct Kept(Mutex<Vec<Value>>);

#[async_trait]
impl Checkpoints for Kept {
    async fn save(&self, checkpoint: Value) -> Result<(), JobError> {
        self.all().push(checkpoint);
        Ok(())
    }
}

impl Kept {
    fn all(&self) -> std::sync::MutexGuard<'_, Vec<Value>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One run of this job: the first attempt at a tick, under a lease of its own.
pub fn run(job: impl Job) -> OneRun {
    OneRun::new(Work::Job(Box::new(job)), None)
}

/// One run of this batch of a batch job.
pub fn batch(job: impl BatchJob, batch: &str) -> OneRun {
    let work = Work::Batch(Box::new(job), batch.to_owned());
    OneRun::new(work, Some(batch.to_owned()))
}

// === impl OneRun ===

impl OneRun {
    fn new(work: Work, batch: Option<String>) -> Self {
        let facts = RunFacts {
            job: "job".to_owned(),
            id: "01900000-0000-7000-8000-000000000001".to_owned(),
            tick: Timestamp::UNIX_EPOCH,
            attempt: 1,
            replica: "r1".to_owned(),
            batch,
            shard: 0,
            shards: 1,
            params: Value::Object(serde_json::Map::new()),
            checkpoint: None,
        };
        Self {
            work,
            facts,
            tick: None,
            cancel_after: None,
            time_limit: None,
            grace: Duration::from_secs(10),
            locked: true,
        }
    }

    /// The job's name; `job` unless set. `job.3` is the last one of four shards.
    pub fn name(mut self, job: &str) -> Self {
        job.clone_into(&mut self.facts.job);
        let shard = shard_of(job).map_or(0, |(_, number)| number);
        (self.facts.shard, self.facts.shards) = (shard, shard + 1);
        self
    }

    /// The job's parameters; an empty table unless set.
    pub fn params(mut self, params: Value) -> Self {
        self.facts.params = params;
        self
    }

    /// Which attempt it is; 1 unless set.
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.facts.attempt = attempt;
        self
    }

    /// What the last attempt left.
    pub fn checkpoint(mut self, checkpoint: Value) -> Self {
        self.facts.checkpoint = Some(checkpoint);
        self
    }

    /// The scheduled instant: `"2026-03-27T08:00:00[Europe/Rome]"`, or `"2026-03-27T08:00:00+01:00"`. Unless set it is
    /// 2026-01-01T00:00:00Z.
    ///
    /// # Panics
    /// When it is neither.
    pub fn tick(mut self, tick: &str) -> Self {
        self.tick = Some(at(tick));
        self
    }

    /// Tells the run to stop after so long, as a drain does.
    pub fn cancel_after(mut self, time: Duration) -> Self {
        self.cancel_after = Some(time);
        self
    }

    /// How long the run may take, as the job's `timeout`; no limit unless set.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// How long it may go on after it was told to stop, before it is dropped; 10 seconds unless set.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Without a lock, as jobs that run everywhere: its token is zero.
    pub fn without_lock(mut self) -> Self {
        self.locked = false;
        self
    }

    /// Runs it, in the tokio runtime of the test: with `#[tokio::test(start_paused = true)]` in virtual time, else in real
    /// time. Cancel-safe: what is dropped is dropped with the run.
    ///
    /// # Panics
    /// When the job's code panics: a failed assertion in it fails the test.
    pub async fn call(self) -> Ran {
        let time = match self.tick {
            Some(tick) => SimTime::at(tick),
            None => SimTime::new(),
        };
        let clock = time.clock();
        // One node in memory, on which nothing else happens.
        let tasks = ProcessTasks::default();
        let node = MemoryNode::new("memory", clock.clone());
        let locks = Locks::over(vec![Arc::new(node) as Arc<dyn Node>])
            .clock(clock.clone())
            .keeper_here(tasks.spawn())
            .start();
        let locks = match locks {
            Ok(locks) => locks,
            Err(error) => panic!("the keeper cannot be started: {error}"),
        };
        let lease = match self.locked {
            true => match locks.lock(&self.facts.job).acquire().await {
                Ok(lease) => Some(lease),
                Err(error) => panic!("no lock on a node in memory: {error}"),
            },
            false => None,
        };
        let kept = Arc::new(Kept::default());
        let began = clock.now();
        let facts = RunFacts {
            tick: self.tick.unwrap_or_else(|| clock.wall()),
            ..self.facts
        };
        let until = self.time_limit.map_or(Moment::NEVER, |limit| began + limit);
        let view = lease.as_ref().map(|lease| lease.view().clone());
        let run = Run::of(RunSetup {
            lease: view,
            locks: Some(locks.clone()),
            until,
            grace: self.grace,
            checkpoints: Some(kept.clone()),
            ..RunSetup::new(facts, clock.clone())
        });
        let stop = async {
            match self.cancel_after {
                Some(time) => clock.sleep(time).await,
                None => std::future::pending().await,
            }
            run.stop("the test stops it");
            std::future::pending().await
        };
        let patience = async {
            run.cancelled().await;
            clock.sleep(self.grace).await;
        };
        let work = async {
            match &self.work {
                Work::Job(job) => job.run(run.clone()).await,
                Work::Batch(job, batch) => job.process(batch, run.clone()).await,
            }
        };
        let outcome = tokio::select! {
            biased;
            outcome = run.supervise(work) => outcome,
            () = stop => Err(JobError::fatal("never")),
            () = patience => Err(JobError::fatal(format!(
                "dropped: told to stop, it did not end within its grace of {}",
                Span(self.grace)
            ))),
        };
        let told = run.how_far();
        let ran = Ran {
            outcome,
            checkpoints: kept.all().clone(),
            progress: told.done.zip(told.total),
            output: run.kept_output(),
            stopped: run.why(),
            took: clock.now().since(began),
        };
        drop(lease);
        tasks.crash();
        ran
    }
}

impl fmt::Debug for OneRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneRun")
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}
