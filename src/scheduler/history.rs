//! Writes the history of runs, in the background: [`crate::fleet::history`] says what it consists of.
//!
//! Nothing here is waited for by a run, by the loop that leads a job, or by a lease. Writings wait in a short queue for
//! one task that carries them out, those of one moment together: a thousand jobs cost a call every now and then, and a
//! run that ends at once is written once. When the queue is full the oldest is left out. A writing that fails is a debug
//! line in the log; it is tried again a few times.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use jiff::Timestamp;
use tokio::sync::watch;

use super::execute::Ended;
use crate::{
    clock::{Clock, Moment},
    job::{self, Run},
    ledger::OpenRun,
    lock::{LockError, Locks},
    spawn::Spawn,
    status::{
        RunRecord,
        runs::{EVERYWHERE_LIFETIME, HISTORY_LIFETIME, RUNNING, Resumed, Stage},
    },
};

/// Writings that may wait: some thousand jobs that are due at one instant, or what ends while a store does not answer.
const MAX_WAITING: usize = 4096;
/// Writings under way at a time: what is asked for at the same time shares a call to each node.
const TOGETHER: usize = 64;
/// The pause between those of one moment and the next. What comes after a calm is written at once: whoever dies a moment
/// later is shown as interrupted, with his name.
const GATHER: Duration = Duration::from_millis(50);
/// A store that does not answer is asked so often, with pauses between: without its end a run would be shown as running.
const TRIES: u32 = 5;
const BETWEEN_TRIES: Duration = Duration::from_secs(1);
/// A record of batches takes another number so often, where another process has taken the one it had.
const RENUMBERED: usize = 20;
/// Bytes of a reason that are kept.
const MAX_DETAIL: usize = 1024;

/// The history as this replica writes it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct History(Arc<Inner>);

/// Who writes.
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
    left: watch::Sender<usize>,
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
            left: watch::Sender::new(0),
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
            ..RunRecord::default()
        };
        let place = self.add(Writing::Record {
            record: Box::new(record.clone()),
            stage: Stage::Running,
            output: None,
        });
        Entry {
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
        let written = left.wait_for(|left| *left == 0);
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

    async fn write_all(self) {
        loop {
            let together = self.waiting().take_together();
            if together.is_empty() {
                return;
            }
            join_all(together.iter().map(|writing| self.write_patiently(writing))).await;
            {
                let waiting = self.waiting();
                let left = waiting.writings.len();
                self.0.left.send_modify(|now| *now = left);
            }
            self.0.clock.sleep(GATHER).await;
        }
    }

    async fn write_patiently(&self, writing: &Writing) {
        for _ in 0..TRIES {
            let Err(error) = self.write(writing).await else {
                return;
            };
            tracing::debug!(%error, "history could not be written");
            self.0.clock.sleep(BETWEEN_TRIES).await;
        }
    }

    async fn write(&self, writing: &Writing) -> Result<(), LockError> {
        match writing {
            Writing::Record {
                record,
                stage,
                output,
            } => self.put(record, *stage, output.as_deref()).await,
            Writing::Interrupt(unknown) => {
                let (name, _) = self.documents(unknown);
                let found = self.0.locks.doc(&name).await?;
                let found = found.and_then(|doc| RunRecord::from_doc(&unknown.job, &doc));
                let mut record = found
                    .filter(|found| found.seq == unknown.seq)
                    .unwrap_or_else(|| (**unknown).clone());
                record.interrupt(self.0.locks.wall());
                self.put(&record, Stage::Interrupted, None).await
            }
            Writing::Batch { record, seq } => self.put_batch(record, seq).await,
        }
    }

    /// Two replicas of one machine that have no names share a ring: the number that one of them takes may be the other's by
    /// then, and of two documents of one revision a node keeps the first. So it is looked whose it is.
    async fn put_batch(&self, record: &RunRecord, seq: &AtomicU64) -> Result<(), LockError> {
        let mut taken = None;
        for _ in 0..RENUMBERED {
            let number = match (seq.load(Ordering::Relaxed), taken) {
                (number, None) if number > 0 => number,
                (_, taken) => self.next_number(&record.job, taken).await?,
            };
            seq.store(number, Ordering::Relaxed);
            let record = RunRecord {
                seq: number,
                ..record.clone()
            };
            self.put(&record, Stage::Ended, None).await?;
            let (name, _) = self.documents(&record);
            let Some(found) = self.0.locks.doc(&name).await? else {
                return Ok(());
            };
            let whose = RunRecord::from_doc(&record.job, &found);
            if whose.is_some_and(|found| found.seq == number && found.replica == record.replica) {
                return Ok(());
            }
            taken = Some(RunRecord::attempt_of(found.rev));
        }
        tracing::debug!(
            job = record.job,
            "a record of batches found no place in the history"
        );
        Ok(())
    }

    /// The next number in this replica's ring of a job; `taken` is one that another process has used meanwhile.
    async fn next_number(&self, job: &str, taken: Option<u64>) -> Result<u64, LockError> {
        let mut numbers = self.0.numbers.lock().await;
        let known = numbers.get(job).copied();
        let last = match (known, taken) {
            (Some(last), None) => last,
            (Some(last), Some(taken)) if last > taken => last,
            _ => {
                let docs = self.0.locks.docs(&RunRecord::directory(job)).await?;
                RunRecord::last_of_ring(job, &self.0.author.ring, &docs)
                    .max(known.unwrap_or(0))
                    .max(taken.unwrap_or(0))
            }
        };
        numbers.insert(job.to_owned(), last.saturating_add(1));
        Ok(last.saturating_add(1))
    }

    async fn put(
        &self,
        record: &RunRecord,
        stage: Stage,
        output: Option<&str>,
    ) -> Result<(), LockError> {
        let locks = &self.0.locks;
        let (name, beside) = self.documents(record);
        let least = match record.is_of_replica() {
            false => HISTORY_LIFETIME,
            true => EVERYWHERE_LIFETIME,
        };
        let lifetime = locks.timing().retention.max(least);
        let rev = RunRecord::revision(record.seq, stage);
        if let Some(output) = output {
            // First what the record speaks of.
            locks
                .put_doc(&beside, rev, lifetime, output.to_owned())
                .await?;
        }
        locks.put_doc(&name, rev, lifetime, record.to_body()).await
    }

    fn documents(&self, record: &RunRecord) -> (String, String) {
        let ring = record.is_of_replica().then_some(&*self.0.author.ring);
        RunRecord::documents(&record.job, ring, record.seq)
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("History").field(&self.0.author).finish()
    }
}

// === impl Entry, Waiting, Writing ===

impl Entry {
    /// The attempt has ended.
    pub(super) fn ended(mut self, run: &Run, ended: &Ended) {
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

impl Waiting {
    /// The oldest writings, up to the first that depends on another one of them. Without any the task may end.
    fn take_together(&mut self) -> Vec<Writing> {
        let mut together: Vec<Writing> = Vec::new();
        while together.len() < TOGETHER
            && let Some(next) = self.writings.first_entry()
        {
            if together
                .iter()
                .any(|earlier| next.get().depends_on(earlier))
            {
                break;
            }
            together.push(next.remove());
        }
        self.attended = !together.is_empty();
        together
    }
}

impl Writing {
    /// What an interruption finds there is what was written before it, and what follows it knows more.
    fn depends_on(&self, earlier: &Self) -> bool {
        let (Self::Record { record: one, .. } | Self::Interrupt(one)) = self else {
            return false;
        };
        let (Self::Record { record: two, .. } | Self::Interrupt(two)) = earlier else {
            return false;
        };
        let interrupts =
            matches!(self, Self::Interrupt(_)) || matches!(earlier, Self::Interrupt(_));
        interrupts && one.seq == two.seq && one.job == two.job
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        chance::Chance,
        job::RunFacts,
        node::{
            Node,
            memory::{Cut, MemoryNode},
        },
        sim_clock::SimTime,
    };

    fn history() -> (History, MemoryNode, SimTime) {
        let time = SimTime::new();
        let node = MemoryNode::simulated("m", time.clock(), Spawn::system(), Chance::seeded(1));
        let nodes: Vec<Arc<dyn Node>> = vec![Arc::new(node.clone())];
        let locks = Locks::over(nodes)
            .clock(time.clock())
            .chance(Chance::seeded(2))
            .keeper_here(Spawn::system());
        let author = Author {
            id: "a-1".to_owned(),
            name: "a".to_owned(),
            ring: "a".to_owned(),
        };
        let locks = locks.start().unwrap();
        let history = History::new(locks, time.clock(), Spawn::system(), author);
        (history, node, time)
    }

    fn run(clock: &Clock) -> Run {
        let facts = RunFacts {
            job: "job".to_owned(),
            id: "id".to_owned(),
            tick: clock.wall(),
            attempt: 1,
            replica: "a-1".to_owned(),
            batch: None,
            params: serde_json::Value::Null,
            checkpoint: None,
        };
        Run::new(facts, clock.clone(), None, Duration::ZERO, Moment::NEVER)
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_does_not_answer_costs_a_bounded_queue_and_the_newest_wins() {
        let (history, node, time) = history();
        node.faults().partition(Cut::Hang);
        let run = run(&time.clock());
        let now = (time.clock().now(), time.clock().wall());
        for seq in 1..=5000 {
            history.started(&run, seq, now).ended(&run, &Ended::Done);
        }
        assert!(history.waiting().writings.len() <= MAX_WAITING);
        let began = time.clock().now();
        history.flush(Duration::from_secs(1)).await;
        let waited = time.clock().now().since(began);
        assert!(waited <= Duration::from_millis(1100), "{waited:?}");

        node.faults().heal();
        history.flush(Duration::from_secs(60)).await;
        let locks = &history.0.locks;
        let docs = locks.docs("history/job/").await.unwrap();
        let mut seqs: Vec<u64> = docs.iter().map(|d| RunRecord::attempt_of(d.rev)).collect();
        seqs.sort_unstable();
        assert!(seqs.len() <= MAX_WAITING + TOGETHER, "{seqs:?}");
        assert_eq!(seqs.last(), Some(&5000));
        // Written once for both states: the later one was known before the first was sent.
        let last = docs.iter().find(|d| d.rev / 4 == 5000).unwrap();
        assert!(last.body.contains("\"done\""), "{}", last.body);
    }

    #[tokio::test(start_paused = true)]
    async fn records_of_batches_go_on_behind_those_of_an_earlier_process() {
        let (history, node, time) = history();
        let batches = |done| RunRecord {
            job: "job".to_owned(),
            token: Some(crate::node::Token(7)),
            batches: Some(crate::fleet::history::BatchCounts {
                done,
                ..Default::default()
            }),
            ..RunRecord::default()
        };
        for done in 1..=3 {
            history.batch(batches(done));
        }
        history.flush(Duration::from_secs(1)).await;
        let successor = History::new(
            history.0.locks.clone(),
            time.clock(),
            Spawn::system(),
            history.0.author.clone(),
        );
        // The store does not answer at first: the number is asked for again, and given once.
        node.faults().partition(Cut::Hang);
        successor.batch(batches(4));
        successor.flush(Duration::from_secs(2)).await;
        node.faults().heal();
        successor.flush(Duration::from_secs(60)).await;
        let docs = successor.0.locks.docs("history/job/").await.unwrap();
        let mut found: Vec<(u64, u64)> = docs
            .iter()
            .filter_map(|doc| RunRecord::from_doc("job", doc))
            .map(|record| (record.seq, record.batches.unwrap().done))
            .collect();
        found.sort_unstable();
        assert_eq!(found, [(1, 1), (2, 2), (3, 3), (4, 4)]);
    }

    #[tokio::test(start_paused = true)]
    async fn two_replicas_without_names_on_one_machine_lose_no_record_of_batches() {
        let (first, _node, time) = history();
        let author = Author {
            id: "a-2".to_owned(),
            name: "a-2".to_owned(),
            ..first.0.author.clone()
        };
        let second = History::new(first.0.locks.clone(), time.clock(), Spawn::system(), author);
        for n in 0..20 {
            for history in [&first, &second] {
                // Some at a time, and the second is ahead or behind.
                for _ in 0..=n % 3 {
                    history.batch(RunRecord {
                        job: "job".to_owned(),
                        token: Some(crate::node::Token(7)),
                        batch: Some(format!("{n}")),
                        ..RunRecord::default()
                    });
                }
            }
            first.flush(Duration::from_secs(60)).await;
            second.flush(Duration::from_secs(60)).await;
        }
        let docs = first.0.locks.docs("history/job/").await.unwrap();
        let count = |id: &str| {
            let found = docs
                .iter()
                .filter_map(|doc| RunRecord::from_doc("job", doc));
            found.filter(|record| record.replica == id).count()
        };
        assert_eq!((count("a-1"), count("a-2")), (39, 39));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_pause_it_is_written_again() {
        let (history, _node, time) = history();
        let run = run(&time.clock());
        let now = (time.clock().now(), time.clock().wall());
        for seq in 1..=3 {
            let entry = history.started(&run, seq, now);
            history.flush(Duration::from_secs(1)).await;
            run.keep_output(format!("run {seq}"));
            entry.ended(&run, &Ended::Skipped("why".repeat(1000)));
            history.flush(Duration::from_secs(1)).await;
            let name = format!("history/job/a-{seq:02}");
            let doc = history.0.locks.doc(&name);
            let record = RunRecord::from_doc("job", &doc.await.unwrap().unwrap()).unwrap();
            assert_eq!((record.outcome.as_str(), record.seq), ("skipped", seq));
            assert!(record.detail.len() <= MAX_DETAIL, "{}", record.detail);
            let name = format!("output/job/a-{seq:02}");
            let output = history.0.locks.doc(&name);
            assert_eq!(output.await.unwrap().unwrap().body, format!("run {seq}"));
        }
    }
}
