//! Writes the history of runs, in the background: [`crate::fleet::history`] says what it consists of.
//!
//! Nothing here is waited for by a run, by the loop that leads a job, or by a lease. Writings wait in a short queue for
//! one task that carries them out, those of one moment together: a thousand jobs cost a call every now and then, and a
//! run that ends at once is written once. When the queue is full the oldest is left out. A writing that fails is a debug
//! line in the log; it is tried again a few times. What is told of terms (`terms`) has a way of its own: a thousand that begin at one
//! instant leave no run out.

mod live;
mod live_runs;
mod tellings;
mod terms;
mod write;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use jiff::Timestamp;

use self::{live_runs::LiveRuns, tellings::Tellings};
use crate::{
    clock::{Clock, Moment},
    job::{self, Run},
    latest,
    ledger::OpenRun,
    lock::Locks,
    run::Ended,
    spawn::Spawn,
    status::{
        RunRecord,
        runs::{RUNNING, Resumed, Stage},
    },
};

/// Writings that may wait: some thousand jobs that are due at one instant, or what ends while a store does not answer.
const MAX_WAITING: usize = 4096;
/// Bytes of a reason that are kept.
const MAX_DETAIL: usize = 1024;

/// The history as this replica writes it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct History(Arc<Inner>);

/// The replica that writes.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    /// The replica's id.
    pub(crate) id: String,
    /// Its name.
    pub(crate) name: String,
    /// The same over restarts, so that jobs that run everywhere do not leave a ring for every process there ever was.
    pub(crate) ring: String,
}

struct Inner {
    author: Author,
    locks: Locks,
    clock: Clock,
    spawn: Spawn,
    waiting: Mutex<Waiting>,
    /// The number of the last record of batches, by job; read from the store first, where an earlier process left it.
    numbers: tokio::sync::Mutex<BTreeMap<String, u64>>,
    /// Writings that wait or are under way. Changed only while `waiting` is locked.
    left: latest::Sender<usize>,
    /// Terms that wait to be told.
    tellings: Mutex<Tellings>,
    /// Runs in flight, whose texts are told.
    live: Mutex<LiveRuns>,
    /// Ends of terms that are being told.
    ends: latest::Sender<usize>,
}

/// Writings in the order in which they were asked for.
#[derive(Default)]
struct Waiting {
    writings: BTreeMap<u64, Writing>,
    last: u64,
    /// Whether a task sees to them.
    attended: bool,
}

/// An attempt in flight.
pub(super) struct Entry {
    history: History,
    /// The place of what tells that it runs.
    place: u64,
    record: RunRecord,
    since: Moment,
    /// What it leaves is told for as long as this is there.
    in_flight: Arc<()>,
}

/// Something to write.
enum Writing {
    Record {
        record: Box<RunRecord>,
        stage: Stage,
        output: Option<String>,
    },
    /// Unlike a record it depends on what is there.
    Interrupt(Box<RunRecord>),
    /// Of batches, whose numbers this replica counts by itself.
    Batch {
        record: Box<RunRecord>,
        /// Set at the first try, so that another one does not tell it twice; 0 before.
        seq: AtomicU64,
    },
}

// === impl History ===

impl History {
    pub(crate) fn new(locks: Locks, clock: Clock, spawn: Spawn, author: Author) -> Self {
        Self(Arc::new(Inner {
            author,
            locks,
            clock,
            spawn,
            waiting: Mutex::default(),
            numbers: tokio::sync::Mutex::default(),
            left: latest::Sender::new(0),
            tellings: Mutex::default(),
            live: Mutex::default(),
            ends: latest::Sender::new(0),
        }))
    }

    /// Attempt `seq` of a job has started at this moment, and by the fleet's time at this one.
    pub(super) fn started(&self, run: &Run, seq: u64, (since, at): (Moment, Timestamp)) -> Entry {
        let author = &self.0.author;
        let record = RunRecord {
            run_id: run.id().to_owned(),
            job: run.job().to_owned(),
            tick: run.tick(),
            attempt: run.attempt(),
            token: run.lease().map(|_| run.token()),
            replica: author.id.clone(),
            replica_name: author.name.clone(),
            outcome: RUNNING.to_owned(),
            started: Some(at),
            params: run.given().to_vec(),
            resumed: run.checkpoint().map(|left| Resumed {
                bytes: left.to_string().len() as u64,
                saved: run.checkpoint_at(),
            }),
            seq,
            trace_id: run.trace_id(),
            ..RunRecord::default()
        };
        let place = self.add(Writing::Record {
            record: Box::new(record.clone()),
            stage: Stage::Running,
            output: None,
        });
        let in_flight = self.follow(run, &record);
        Entry {
            in_flight,
            history: self.clone(),
            place,
            record,
            since,
        }
    }

    /// The attempt was found dead.
    pub(super) fn interrupted(&self, job: &str, dead: &OpenRun) {
        if dead.seq == 0 {
            // Started by a version that wrote no history.
            return;
        }
        // For an attempt whose replica died before it could tell.
        let record = RunRecord {
            job: job.to_owned(),
            tick: dead.tick,
            attempt: dead.attempt,
            token: Some(dead.token),
            params: dead.given.names(),
            seq: dead.seq,
            ..RunRecord::default()
        };
        self.add(Writing::Interrupt(Box::new(record)));
    }

    /// One batch, or several that are told together, as this replica worked on them.
    pub(crate) fn batch(&self, mut record: RunRecord) {
        let author = &self.0.author;
        record.replica.clone_from(&author.id);
        record.replica_name.clone_from(&author.name);
        record.detail = job::cut(record.detail, MAX_DETAIL);
        self.add(Writing::Batch {
            record: Box::new(record),
            seq: AtomicU64::new(0),
        });
    }

    /// Waits until everything is written, but no longer than `limit`.
    pub(crate) async fn flush(&self, limit: Duration) {
        let mut left = self.0.left.subscribe();
        let mut ends = self.0.ends.subscribe();
        let written = async {
            // Their senders are there as long as this history is.
            let _ = left.wait_for(|left| *left == 0).await;
            let _ = ends.wait_for(|left| *left == 0).await;
        };
        if self.0.clock.timeout(limit, written).await.is_err() {
            tracing::debug!("the history of the last runs could not be written in time");
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Every change is complete before the lock is given back.
        self.0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Says its place.
    fn add(&self, writing: Writing) -> u64 {
        let mut waiting = self.waiting();
        if waiting.writings.len() >= MAX_WAITING {
            waiting.writings.pop_first();
            self.0.left.send_modify(|left| *left -= 1);
            tracing::debug!("too much history waits for the store: the oldest is left out");
        }
        waiting.last += 1;
        let place = waiting.last;
        waiting.writings.insert(place, writing);
        let attended = std::mem::replace(&mut waiting.attended, true);
        self.0.left.send_modify(|left| *left += 1);
        drop(waiting);
        if !attended {
            self.0.spawn.spawn(self.clone().write_all());
        }
        place
    }

    /// The later state of an attempt takes the place of the earlier one, if that still waits.
    fn replace(&self, place: u64, writing: Writing) {
        if let Some(earlier) = self.waiting().writings.get_mut(&place) {
            *earlier = writing;
            return;
        }
        self.add(writing);
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("History").field(&self.0.author).finish()
    }
}

// === impl Entry ===

impl Entry {
    /// The attempt has ended.
    pub(super) fn ended(mut self, run: &Run, ended: &Ended) {
        drop(self.in_flight);
        let Inner { clock, locks, .. } = &*self.history.0;
        let took = clock.now().since(self.since).as_millis();
        let output = run.kept_output().filter(|text| !text.is_empty());
        let record = &mut self.record;
        ended.word().clone_into(&mut record.outcome);
        record.detail = job::cut(ended.detail(), MAX_DETAIL);
        record.ended = Some(locks.wall());
        record.took_ms = Some(u64::try_from(took).unwrap_or(u64::MAX));
        record.output_bytes = output.as_ref().map_or(0, |text| text.len() as u64);
        let ended = Writing::Record {
            record: Box::new(self.record),
            stage: Stage::Ended,
            output,
        };
        self.history.replace(self.place, ended);
    }
}

#[cfg(test)]
mod tests;
