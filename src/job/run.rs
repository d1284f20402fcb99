//! One run: what it is for, until when it may act, and how it hears of its end.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::{Clock, Moment},
    job::{HowFar, JobError, output, params, progress::Progress},
    lease::{LeaseView, VerifyError},
    node::Token,
};

/// One run of a job (or of one batch). Cheap to clone.
#[derive(Clone)]
pub struct Run(Arc<Inner>);

/// What a run is for. `Debug` tells neither parameters nor checkpoint: they may hold secrets.
#[derive(Clone)]
pub struct RunFacts {
    /// The job's name.
    pub job: String,
    /// A sortable unique id.
    pub id: String,
    /// The scheduled instant; the start of the term for `continuous`.
    pub tick: Timestamp,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// The name of this replica.
    pub replica: String,
    /// The batch that is processed, for `batch` jobs.
    pub batch: Option<String>,
    /// The job's parameters: as configured, with those of its trigger laid over them.
    pub params: serde_json::Value,
    /// What the last attempt left by [`Run::save_checkpoint`].
    pub checkpoint: Option<serde_json::Value>,
}

/// The run was told to stop, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped: {0}")]
pub struct Stopped(pub String);

/// Where checkpoints go.
#[async_trait]
pub trait Checkpoints: Send + Sync + 'static {
    /// Stores the checkpoint beside the lock, on a majority of nodes.
    ///
    /// # Errors
    /// When it could not be stored while the lease was held.
    async fn save(&self, checkpoint: serde_json::Value) -> Result<(), JobError>;
}

struct Inner {
    facts: RunFacts,
    clock: Clock,
    lease: Option<LeaseView>,
    /// How long before the end of the lease the run is told to stop.
    margin: Duration,
    /// The run's own time limit.
    until: Moment,
    cancel: CancellationToken,
    why: Mutex<Option<String>>,
    progress: Mutex<Progress>,
    /// Pieces of blocking work that go on, also when the run was dropped.
    blocking: watch::Sender<usize>,
    output: Mutex<Option<String>>,
    /// Items by what became of them.
    items: Mutex<BTreeMap<&'static str, u64>>,
    checkpoints: Option<Arc<dyn Checkpoints>>,
    /// From being told to stop to being dropped.
    grace: Duration,
    /// Another lease that nothing of this run may outlive: the replica's, in failover mode.
    also: Option<LeaseView>,
    /// Names of the parameters that its trigger gave it.
    given: Vec<String>,
    /// When the checkpoint was left.
    checkpoint_at: Option<Timestamp>,
}

/// A piece of blocking work, until it is dropped.
struct Blocking(Run);

impl Blocking {
    fn begin(run: &Run) -> Self {
        run.0.blocking.send_modify(|pieces| *pieces += 1);
        Self(run.clone())
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        self.0.0.blocking.send_modify(|pieces| *pieces -= 1);
    }
}

/// Words for what became of items that are kept.
const MOST_OUTCOMES: usize = 16;
const TIME_LIMIT: &str = "the run's time limit has passed";

// === impl Run ===

impl Run {
    /// A run under `lease` (none for jobs that run everywhere), told to stop `margin` before the lease ends and at
    /// `until` at the latest. The engine makes these; tests of a job may, too.
    #[must_use]
    pub fn new(
        facts: RunFacts,
        clock: Clock,
        lease: Option<LeaseView>,
        margin: Duration,
        until: Moment,
    ) -> Self {
        let progress = Mutex::new(Progress::begun(clock.now()));
        Self(Arc::new(Inner {
            facts,
            clock,
            lease,
            margin,
            until,
            cancel: CancellationToken::new(),
            why: Mutex::new(None),
            progress,
            output: Mutex::new(None),
            items: Mutex::default(),
            blocking: watch::Sender::new(0),
            checkpoints: None,
            grace: Duration::from_secs(10),
            also: None,
            given: Vec::new(),
            checkpoint_at: None,
        }))
    }

    /// The same run with its grace, 10 seconds unless said, and with another lease that it must not outlive. Call it
    /// before the run is shared.
    #[must_use]
    pub(crate) fn within(mut self, grace: Duration, also: Option<LeaseView>) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            (inner.grace, inner.also) = (grace, also);
        }
        self
    }

    /// The same run that begins at this moment, made a little before. Call it before the run is shared.
    #[must_use]
    pub(crate) fn begins_at(mut self, at: Moment) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.progress = Mutex::new(Progress::begun(at));
        }
        self
    }

    /// The same run with what its ledger keeps: the names of the parameters that its trigger gave it, and when its
    /// checkpoint was left. Call it before the run is shared.
    #[must_use]
    pub(crate) fn kept(mut self, given: Vec<String>, checkpoint_at: Option<Timestamp>) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            (inner.given, inner.checkpoint_at) = (given, checkpoint_at);
        }
        self
    }

    /// The same run with a place for checkpoints. Call it before the run is shared.
    #[must_use]
    pub fn with_checkpoints(mut self, checkpoints: Arc<dyn Checkpoints>) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.checkpoints = Some(checkpoints);
        }
        self
    }

    /// The job's name.
    #[must_use]
    pub fn job(&self) -> &str {
        &self.0.facts.job
    }

    /// A sortable unique id of this run.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.facts.id
    }

    /// The scheduled instant, in UTC.
    #[must_use]
    pub fn tick(&self) -> Timestamp {
        self.0.facts.tick
    }

    /// 1 for the first attempt at this tick.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.facts.attempt
    }

    /// The batch that is processed, for `batch` jobs.
    #[must_use]
    pub fn batch(&self) -> Option<&str> {
        self.0.facts.batch.as_deref()
    }

    /// Everything known of this run.
    #[must_use]
    pub fn facts(&self) -> &RunFacts {
        &self.0.facts
    }

    /// The job's parameters: those of its configuration, with what its trigger gave in the place of those of the same
    /// name.
    ///
    /// # Errors
    /// A fatal one when they do not fit the type. It names the key and what was expected, and no value: it goes to the
    /// history.
    pub fn params<P: DeserializeOwned>(&self) -> Result<P, JobError> {
        params::read(&self.0.facts.params).map_err(JobError::fatal)
    }

    /// Names of the parameters that its trigger gave it, sorted; none for the run of a tick.
    #[must_use]
    pub fn given(&self) -> &[String] {
        &self.0.given
    }

    /// The fencing token of the lease behind this run: give it to whatever the run changes, and let that refuse
    /// smaller ones. Zero for jobs that run without a lock.
    #[must_use]
    pub fn token(&self) -> Token {
        self.0.lease.as_ref().map_or(Token(0), LeaseView::token)
    }

    /// The lease behind this run; `None` for jobs that run without a lock.
    #[must_use]
    pub fn lease(&self) -> Option<&LeaseView> {
        self.0.lease.as_ref()
    }

    /// Every lease that this run must not outlive: its own, and that of the replica in failover mode. For work that
    /// goes on outside of this process.
    #[must_use]
    pub fn leases(&self) -> Vec<LeaseView> {
        self.0.lease.iter().chain(&self.0.also).cloned().collect()
    }

    /// How long this run may go on after it was told to stop; less when its lease ends before.
    #[must_use]
    pub fn grace(&self) -> Duration {
        self.0.grace
    }

    /// Time until this run is told to stop, as things stand: extensions of the lease move it on.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.0.cancel.is_cancelled() {
            return Duration::ZERO;
        }
        self.stop_at().since(self.0.clock.now())
    }

    /// Completes when the run is to stop: the lease is about to end or is over, the time limit has passed, the
    /// replica drains or is unfit. Cancel-safe.
    pub async fn cancelled(&self) {
        loop {
            if self.check().is_err() {
                return;
            }
            let at = self.stop_at();
            tokio::select! {
                biased;
                () = self.0.cancel.cancelled() => return,
                () = self.lease_closing() => {}
                () = self.0.clock.sleep_until(at) => {}
            }
        }
    }

    /// An error once the run is to stop; for loops that do not await. Reads the clock, so that a process that was
    /// frozen learns of its end here first.
    ///
    /// # Errors
    /// [`Stopped`], with the reason.
    pub fn check(&self) -> Result<(), Stopped> {
        if let Some(why) = self.stop_reason() {
            self.stop(&why);
        }
        if self.0.cancel.is_cancelled() {
            return Err(Stopped(self.why()));
        }
        Ok(())
    }

    /// Runs blocking work on a thread for such work. Unlike with `tokio::task::spawn_blocking` alone, the run is not over and
    /// the lease is not let go while it lasts, even when the run was dropped: no other run of the job takes its place. Look at
    /// [`Run::check`] now and then, because a process whose work outlives its lease is aborted.
    ///
    /// # Errors
    /// What the work returns; a panic of it, worth retrying.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, JobError> {
        let run = self.clone();
        let held = (
            Blocking::begin(self),
            self.lease().map(LeaseView::begin_work),
        );
        // Lines of the work belong to the run on that thread, too.
        let span = tracing::Span::current();
        let done = tokio::task::spawn_blocking(move || {
            let done = span.in_scope(|| work(&run));
            drop(held);
            done
        });
        match done.await {
            Ok(done) => done,
            Err(panic) => Err(JobError::retry(panic)),
        }
    }

    /// Says how far the run is; shown in the status, with the pace and the time that is left. Every call counts as
    /// progress, also one with the numbers of the last, and so does the start: a run that says nothing for longer than
    /// its job's `progress_deadline` is stopped.
    pub fn progress(&self, done: u64, total: u64) {
        let now = self.0.clock.now();
        self.said().say(done, Some(total), now);
    }

    /// The same where the total may be unknown, with a message as in [`Run::message`].
    pub fn progress_with(&self, done: u64, total: Option<u64>, message: &str) {
        let now = self.0.clock.now();
        let mut said = self.said();
        said.say(done, total, now);
        said.message(message, now);
    }

    /// Says what the run is at, in a few words: 200 bytes are kept. It stays until another one, or none, is said, and
    /// counts as progress. Whoever may read the store can read it: keep secrets out.
    pub fn message(&self, message: &str) {
        let now = self.0.clock.now();
        self.said().message(message, now);
    }

    /// How far the run is, as it last said, and how it goes on from there.
    #[must_use]
    pub fn how_far(&self) -> HowFar {
        let now = self.0.clock.now();
        self.said().how_far(now)
    }

    /// The last progress that was said, where the total is known.
    #[must_use]
    pub fn last_progress(&self) -> Option<(u64, u64)> {
        let (done, total) = self.said().said()?;
        Some((done, total?))
    }

    /// When the run last said anything of itself; its start before that.
    #[must_use]
    pub fn progress_at(&self) -> Moment {
        self.said().at()
    }

    fn said(&self) -> MutexGuard<'_, Progress> {
        let progress = &self.0.progress;
        progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the nodes whether every lease of this run still stands, as [`LeaseView::verify`] does: its own, and that of the
    /// replica in failover mode. For the moment before something that cannot be undone; read there what it does not
    /// promise. Cancel-safe.
    ///
    /// # Errors
    /// [`VerifyError`] of the first lease that was not confirmed; [`VerifyError::NoLock`] for jobs that run without a lock.
    /// Worth a retry, as long as the run is not told to stop.
    pub async fn verify(&self) -> Result<(), VerifyError> {
        let leases = self.leases();
        if leases.is_empty() {
            return Err(VerifyError::NoLock);
        }
        let asked = leases.iter().map(LeaseView::verify);
        futures_util::future::try_join_all(asked).await.map(drop)
    }

    /// Leaves text to read with this run in the history: what a command printed, what was counted. Of more than
    /// [`MAX_OUTPUT`](crate::job::MAX_OUTPUT) bytes the beginning and the end are kept, with a line between them that
    /// says how many were left out. The last call counts; one after the end of the run changes nothing. Whoever may
    /// read the store can read it: keep secrets out.
    pub fn keep_output(&self, text: impl Into<String>) {
        // Cut before the lock is taken: nobody waits for a long text.
        let kept = output::bounded(text.into());
        *self.0.output.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
    }

    /// Counts items of this batch by what became of them, for the history: `sent`, `failed`, any bounded word. One of
    /// `dead`, `failed`, `in_doubt` and `parked` makes the batch worth a record of its own. Of a run that is no batch
    /// nothing of it is kept.
    pub fn count_items(&self, outcome: &'static str, items: u64) {
        let mut counts = self.0.items.lock().unwrap_or_else(PoisonError::into_inner);
        if items > 0 && (counts.len() < MOST_OUTCOMES || counts.contains_key(outcome)) {
            let count = counts.entry(outcome).or_insert(0);
            *count = count.saturating_add(items);
        }
    }

    /// The items that were counted.
    pub(crate) fn items(&self) -> BTreeMap<String, u64> {
        let counts = self.0.items.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = counts.iter().map(|(word, n)| ((*word).to_owned(), *n));
        counts.collect()
    }

    /// What the run has left to read, as it is kept; `None` when it left nothing.
    #[must_use]
    pub fn kept_output(&self) -> Option<String> {
        let output = self.0.output.lock().unwrap_or_else(PoisonError::into_inner);
        output.clone()
    }

    /// What the last attempt at this tick left.
    #[must_use]
    pub fn checkpoint(&self) -> Option<&serde_json::Value> {
        self.0.facts.checkpoint.as_ref()
    }

    /// When the last attempt at this tick left its checkpoint, by the clock of ticks.
    #[must_use]
    pub fn checkpoint_at(&self) -> Option<Timestamp> {
        self.0.checkpoint_at
    }

    /// Leaves a checkpoint for the next attempt, should this one die. Small: it is kept beside the lock.
    ///
    /// # Errors
    /// When a majority of nodes did not take it while the lease was held, or this kind of job keeps none.
    pub async fn save_checkpoint(&self, checkpoint: serde_json::Value) -> Result<(), JobError> {
        match &self.0.checkpoints {
            Some(place) => place.save(checkpoint).await,
            None => Err(JobError::fatal("this kind of job keeps no checkpoints")),
        }
    }

    /// Tells the run to stop; the first reason stays.
    pub fn stop(&self, why: &str) {
        self.0
            .why
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert_with(|| why.to_owned());
        self.0.cancel.cancel();
    }

    /// The token that is cancelled when the run is to stop, for code that takes one. It is cancelled by the engine,
    /// before the run's code is polled again.
    #[must_use]
    pub fn cancellation_token(&self) -> CancellationToken {
        self.0.cancel.clone()
    }

    /// Whether no blocking work goes on.
    pub(crate) fn is_quiet(&self) -> bool {
        *self.0.blocking.borrow() == 0
    }

    /// Completes when no blocking work goes on.
    pub(crate) async fn quiet(&self) {
        let mut going_on = self.0.blocking.subscribe();
        // The sender is ours.
        let _ = going_on.wait_for(|pieces| *pieces == 0).await;
    }

    /// Polls `work` as long as the run may act: the deadline is checked before every poll, so that work that was
    /// frozen sees its cancellation before anything else.
    pub(crate) async fn supervise<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut cancelled = std::pin::pin!(self.cancelled());
        let mut told = false;
        std::future::poll_fn(|cx| {
            // Order matters: hear of the end first, then go on working.
            if !told && cancelled.as_mut().poll(cx).is_ready() {
                told = true;
            }
            work.as_mut().poll(cx)
        })
        .await
    }

    /// Whether the run was stopped because its own time limit has passed.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.why() == TIME_LIMIT
    }

    /// Why the run was stopped; empty while it was not.
    #[must_use]
    pub fn why(&self) -> String {
        self.0
            .why
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
            .unwrap_or_default()
    }

    async fn lease_closing(&self) {
        match &self.0.lease {
            Some(lease) => drop(lease.closing().await),
            None => std::future::pending().await,
        }
    }

    fn stop_at(&self) -> Moment {
        let lease_end = self.0.lease.as_ref().map_or(Moment::NEVER, |lease| {
            lease.valid_until().back(self.0.margin)
        });
        lease_end.min(self.0.until)
    }

    fn stop_reason(&self) -> Option<String> {
        let now = self.0.clock.now();
        if let Some(lease) = &self.0.lease {
            if let Some(loss) = lease.loss() {
                return Some(loss.to_string());
            }
            if let Some(why) = lease.cordoned() {
                return Some(why);
            }
            if now >= lease.valid_until().back(self.0.margin) {
                return Some("the lease is about to end and could not be extended".to_owned());
            }
        }
        (now >= self.0.until).then(|| TIME_LIMIT.to_owned())
    }
}

impl fmt::Debug for RunFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunFacts")
            .field("job", &self.job)
            .field("id", &self.id)
            .field("tick", &self.tick)
            .field("attempt", &self.attempt)
            .field("replica", &self.replica)
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("job", &self.job())
            .field("tick", &self.tick())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}
