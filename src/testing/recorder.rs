//! What happened in a simulated fleet: the runs of its jobs as their code saw them, and everything that was told.
//!
//! # Invariants
//! - B1 A run is recorded once per attempt, with the state it came to last: running, ended, or interrupted by the
//!   death of its process.   (a_killed_run_is_interrupted_and_the_next_attempt_finds_its_checkpoint)

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;

use super::Replica;
use crate::{
    batch::{BatchJob, BatchLimits},
    clock::Clock,
    event::Event,
    job::{Health, Job, JobError, Outcome, Run},
    latest,
    status::{
        RunRecord,
        runs::{INTERRUPTED, RUNNING},
    },
    worker::ready::Body,
};

/// An event of a simulated fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// When, by the true time of the simulation.
    pub at: Timestamp,
    /// Who told it.
    pub replica: Replica,
    /// What.
    pub event: Event,
}

/// One attempt at a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRecord {
    /// The job.
    pub job: String,
    /// The batch.
    pub batch: String,
    /// Who claimed it.
    pub replica: Replica,
    /// The claim's fencing token.
    pub token: u64,
    /// `running`, then `done`, `skipped`, `retry` or `failed`, as the job's code returned; `interrupted` when it was
    /// dropped before it did, or its process died.
    pub outcome: String,
    /// When its code began, by the true time of the simulation.
    pub started: Timestamp,
    /// When it was over; `None` while it runs.
    pub ended: Option<Timestamp>,
}

/// A line of the story: what was told, or what the test did.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    Told(Told),
    Did(Timestamp, String),
}

/// The record of one simulation. Cheap to clone.
#[derive(Clone)]
pub(super) struct Recorder {
    recorded: Arc<Mutex<Recorded>>,
    truth: Clock,
    news: Arc<latest::Sender<u64>>,
}

#[derive(Default)]
pub(super) struct Recorded {
    pub(super) runs: Vec<RunRecord>,
    pub(super) batches: Vec<BatchRecord>,
    pub(super) story: Vec<Entry>,
    /// What must not happen and did, with the job it happened to.
    pub(super) violations: Vec<(String, String)>,
    /// Where a run of this id stands, and which attempt it is.
    places: BTreeMap<(String, u32), usize>,
    /// Every attempt at every tick of every job, and who started it.
    attempts: BTreeMap<(String, Timestamp, u32), String>,
    acting: Vec<Acting>,
    acted: u64,
}

/// Code of a job that has begun and was not dropped.
struct Acting {
    number: u64,
    job: String,
    batch: Option<String>,
    replica: Replica,
    what: String,
    /// Its process was frozen meanwhile: for what it does then, nothing is promised but the refusal of its token.
    frozen: bool,
}

/// Lives as long as the code of one run.
struct Begun {
    recorder: Recorder,
    number: u64,
    run: Run,
    batch: Option<usize>,
}

/// A job, watched.
struct Watched<J: ?Sized> {
    job: Arc<J>,
    recorder: Recorder,
    replica: Replica,
    most: usize,
}

// === impl Recorder ===

impl Recorder {
    pub(super) fn new(truth: Clock) -> Self {
        Self {
            recorded: Arc::default(),
            truth,
            news: Arc::default(),
        }
    }

    /// The same work, noted here. No more than `most` runs of it may be under way at a time.
    pub(super) fn watch(&self, body: Body, replica: Replica, most: usize) -> Body {
        let (recorder, job) = (self.clone(), body);
        match job {
            Body::Job(job) => Body::Job(Arc::new(Watched {
                job,
                recorder,
                replica,
                most,
            })),
            Body::Batch(job) => Body::Batch(Arc::new(Watched {
                job,
                recorder,
                replica,
                most,
            })),
        }
    }

    pub(super) fn read(&self) -> MutexGuard<'_, Recorded> {
        // A panic leaves what is recorded as whole as it was.
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes after the next entry.
    pub(super) fn news(&self) -> latest::Receiver<u64> {
        self.news.subscribe()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.truth.wall()
    }

    /// The test did something.
    pub(super) fn did(&self, what: String) {
        let entry = Entry::Did(self.now(), what);
        self.write(|recorded| recorded.story.push(entry));
    }

    pub(super) fn told(&self, replica: Replica, event: Event) {
        let at = self.now();
        self.write(|recorded| {
            recorded.take(&event, replica, at);
            let told = Told { at, replica, event };
            recorded.story.push(Entry::Told(told));
        });
    }

    /// What the process of this replica did is not under way any more.
    pub(super) fn died(&self, replica: Replica, why: &str) {
        let now = self.now();
        let name = replica.to_string();
        self.write(|recorded| {
            let runs = recorded.runs.iter_mut();
            for run in runs.filter(|run| run.replica_name == name && run.outcome == RUNNING) {
                INTERRUPTED.clone_into(&mut run.outcome);
                (run.detail, run.ended) = (why.to_owned(), Some(now));
            }
            recorded.acting.retain(|acting| acting.replica != replica);
        });
    }

    pub(super) fn froze(&self, replica: Replica) {
        self.write(|recorded| {
            let of = recorded.acting.iter_mut().filter(|a| a.replica == replica);
            of.for_each(|acting| acting.frozen = true);
        });
    }

    fn write<T>(&self, f: impl FnOnce(&mut Recorded) -> T) -> T {
        let done = f(&mut self.read());
        self.news.send_modify(|news| *news += 1);
        done
    }

    fn begins(&self, replica: Replica, run: &Run, most: usize) -> Begun {
        let now = self.now();
        let (number, batch) = self.write(|recorded| recorded.begins(replica, run, most, now));
        let (recorder, run) = (self.clone(), run.clone());
        Begun {
            recorder,
            number,
            run,
            batch,
        }
    }
}

// === impl Recorded ===

impl Recorded {
    fn begins(
        &mut self,
        replica: Replica,
        run: &Run,
        most: usize,
        now: Timestamp,
    ) -> (u64, Option<usize>) {
        let what = format!(
            "{} at {now} (tick {}, attempt {}, token {})",
            replica,
            run.tick(),
            run.attempt(),
            run.token()
        );
        let (job, batch) = (run.job().to_owned(), run.batch().map(str::to_owned));
        let same = |a: &&Acting| a.job == job && a.batch == batch && !a.frozen;
        let others: Vec<_> = self
            .acting
            .iter()
            .filter(same)
            .map(|a| a.what.clone())
            .collect();
        if others.len() >= most {
            let (of, others) = (batch.as_deref().unwrap_or("job"), others.join(", "));
            let number = match most {
                1 => "two".to_owned(),
                more => format!("more than {more}"),
            };
            let found = format!("{number} runs at once of {of}: {others}, and {what}");
            self.violations.push((job.clone(), found));
        }
        self.acted += 1;
        self.acting.push(Acting {
            number: self.acted,
            job: job.clone(),
            batch: batch.clone(),
            replica,
            what: what.clone(),
            frozen: false,
        });
        let Some(batch) = batch else {
            self.note_start(replica, run, now, &what, most < usize::MAX);
            return (self.acted, None);
        };
        self.batches.push(BatchRecord {
            job,
            batch,
            replica,
            token: run.token().0,
            outcome: RUNNING.to_owned(),
            started: now,
            ended: None,
        });
        (self.acted, Some(self.batches.len() - 1))
    }

    fn note_start(&mut self, replica: Replica, run: &Run, now: Timestamp, what: &str, alone: bool) {
        let attempt = (run.job().to_owned(), run.tick(), run.attempt());
        let before = self.attempts.insert(attempt, what.to_owned());
        if let Some(before) = before.filter(|_| alone) {
            let found = format!("one attempt started twice: {before}, and {what}");
            self.violations.push((run.job().to_owned(), found));
        }
        let record = RunRecord {
            run_id: run.id().to_owned(),
            job: run.job().to_owned(),
            tick: run.tick(),
            attempt: run.attempt(),
            token: run.lease().map(|lease| lease.token()),
            replica: run.facts().replica.clone(),
            replica_name: replica.to_string(),
            outcome: RUNNING.to_owned(),
            started: Some(now),
            seq: self.runs.len() as u64 + 1,
            ..RunRecord::default()
        };
        let place = (run.id().to_owned(), run.attempt());
        self.places.insert(place, self.runs.len());
        self.runs.push(record);
    }

    /// How a run ended is what its engine says.
    fn take(&mut self, event: &Event, replica: Replica, now: Timestamp) {
        let Event::RunEnded {
            job,
            run_id,
            tick,
            attempt,
            outcome,
            detail,
            took,
        } = event
        else {
            return;
        };
        let place = self.places.get(&(run_id.clone(), *attempt)).copied();
        let record = match place.and_then(|place| self.runs.get_mut(place)) {
            Some(record) => record,
            None => {
                // Its code never began: it was over before.
                self.runs.push(RunRecord {
                    run_id: run_id.clone(),
                    job: job.clone(),
                    tick: *tick,
                    attempt: *attempt,
                    replica_name: replica.to_string(),
                    ..RunRecord::default()
                });
                let Some(last) = self.runs.last_mut() else {
                    return;
                };
                last
            }
        };
        (*outcome).clone_into(&mut record.outcome);
        record.detail.clone_from(detail);
        record.ended = Some(now);
        record.took_ms = u64::try_from(took.as_millis()).ok();
    }

    fn ends(&mut self, begun: &Begun, now: Timestamp) {
        self.acting.retain(|acting| acting.number != begun.number);
        if let Some(batch) = begun.batch.and_then(|place| self.batches.get_mut(place)) {
            batch.ended = Some(now);
            if batch.outcome == RUNNING {
                INTERRUPTED.clone_into(&mut batch.outcome);
            }
        }
        let place = (begun.run.id().to_owned(), begun.run.attempt());
        let place = self.places.get(&place).copied();
        if let Some(run) = place.and_then(|place| self.runs.get_mut(place)) {
            run.output = begun.run.kept_output();
            run.output_bytes = run.output.as_ref().map_or(0, |text| text.len() as u64);
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let now = self.recorder.now();
        self.recorder.write(|recorded| recorded.ends(self, now));
    }
}

// === impl Watched ===

#[async_trait]
impl Job for Watched<dyn Job> {
    async fn run(&self, run: Run) -> Result<Outcome, JobError> {
        let _begun = self.recorder.begins(self.replica, &run, self.most);
        self.job.run(run).await
    }

    async fn health(&self) -> Health {
        self.job.health().await
    }
}

#[async_trait]
impl BatchJob for Watched<dyn BatchJob> {
    async fn pending(&self, limit: usize) -> Result<Vec<String>, JobError> {
        self.job.pending(limit).await
    }

    async fn process(&self, batch: &str, run: Run) -> Result<Outcome, JobError> {
        let begun = self.recorder.begins(self.replica, &run, self.most);
        let done = self.job.process(batch, run).await;
        let word = match &done {
            Ok(Outcome::Done) => "done",
            Ok(Outcome::Skip(_)) => "skipped",
            Ok(Outcome::RetryAfter(_)) => "retry",
            Err(_) => "failed",
        };
        self.recorder.write(|recorded| {
            let place = begun.batch;
            if let Some(batch) = place.and_then(|place| recorded.batches.get_mut(place)) {
                word.clone_into(&mut batch.outcome);
            }
        });
        done
    }

    async fn health(&self) -> Health {
        self.job.health().await
    }

    fn limits(&self) -> BatchLimits {
        self.job.limits()
    }

    fn retention(&self) -> Option<Duration> {
        self.job.retention()
    }

    fn source(&self) -> &str {
        self.job.source()
    }

    fn produced_at(&self, batch: &str) -> Timestamp {
        self.job.produced_at(batch)
    }

    async fn refused(&self, batch: &str, run: Run) -> Result<Outcome, JobError> {
        self.job.refused(batch, run).await
    }

    async fn stopped(&self) {
        self.job.stopped().await;
    }

    fn settled(&self, batch: &str) {
        self.job.settled(batch);
    }
}
