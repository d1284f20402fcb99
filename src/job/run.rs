//! One run: what it is for, until when it may act, and how it hears of its end.

mod says;
mod traced;

use std::{
    fmt,
    future::Future,
    sync::{Arc, Mutex, OnceLock, Weak},
    time::Duration,
};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::{Clock, Moment},
    job::{JobError, RunFacts, RunSetup, params, run_report::RunReport},
    latest,
    lease::{LeaseView, VerifyError},
    lock::Locks,
    node::Token,
};

/// One run of a job (or of one batch). Cheap to clone.
#[derive(Clone)]
pub struct Run(Arc<Inner>);

/// The run was told to stop, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped: {0}")]
pub struct Stopped(pub String);

/// A run that may have gone.
pub(crate) struct WeakRun(Weak<Inner>);

struct Inner {
    setup: RunSetup,
    cancel: CancellationToken,
    why: OnceLock<String>,
    /// What it says of itself.
    report: Mutex<RunReport>,
    /// Pieces of blocking work that go on, also when the run was dropped.
    blocking: latest::Sender<usize>,
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

const TIME_LIMIT: &str = "the run's time limit has passed";

// === impl Run ===

impl WeakRun {
    /// The run, if any of it is left.
    pub(crate) fn upgrade(&self) -> Option<Run> {
        self.0.upgrade().map(Run)
    }
}

impl Run {
    /// For one that is not to keep it.
    pub(crate) fn downgrade(&self) -> WeakRun {
        WeakRun(Arc::downgrade(&self.0))
    }

    /// A run under `lease` (none for jobs that run everywhere), told to stop `margin` before the lease ends and at
    /// `until` at the latest: for tests of a job.
    #[doc(hidden)] // for the tests of the stock jobs; `testing::run` is for yours
    #[must_use]
    pub fn new(
        facts: RunFacts,
        clock: Clock,
        lease: Option<LeaseView>,
        margin: Duration,
        until: Moment,
    ) -> Self {
        Self::of(RunSetup {
            lease,
            margin,
            until,
            ..RunSetup::new(facts, clock)
        })
    }

    pub(crate) fn of(setup: RunSetup) -> Self {
        Self(Arc::new(Inner {
            report: Mutex::new(RunReport::begun(setup.begins)),
            setup,
            cancel: CancellationToken::new(),
            why: OnceLock::new(),
            blocking: latest::Sender::new(0),
        }))
    }

    /// The job's name.
    #[must_use]
    pub fn job(&self) -> &str {
        &self.0.setup.facts.job
    }

    /// A sortable unique id of this run.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.setup.facts.id
    }

    /// The scheduled instant, in UTC.
    #[must_use]
    pub fn tick(&self) -> Timestamp {
        self.0.setup.facts.tick
    }

    /// 1 for the first attempt at this tick.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.setup.facts.attempt
    }

    /// The batch that is processed, for `batch` jobs.
    #[must_use]
    pub fn batch(&self) -> Option<&str> {
        self.0.setup.facts.batch.as_deref()
    }

    /// Everything known of this run.
    #[must_use]
    pub fn facts(&self) -> &RunFacts {
        &self.0.setup.facts
    }

    /// The job's parameters: those of its configuration, with what its trigger gave in the place of those of the same
    /// name.
    ///
    /// # Errors
    /// A fatal one when they do not fit the type. It names the key and what was expected, and no value: it goes to the
    /// history.
    pub fn params<P: DeserializeOwned>(&self) -> Result<P, JobError> {
        params::read(&self.0.setup.facts.params).map_err(JobError::fatal)
    }

    /// Names of the parameters that its trigger gave it, sorted; none for the run of a tick.
    #[must_use]
    pub fn given(&self) -> &[String] {
        &self.0.setup.given
    }

    /// The fencing token of the lease behind this run: give it to whatever the run changes, and let that refuse
    /// smaller ones. Zero for jobs that run without a lock.
    #[must_use]
    pub fn token(&self) -> Token {
        self.lease().map_or(Token(0), LeaseView::token)
    }

    /// The lease behind this run; `None` for jobs that run without a lock.
    #[must_use]
    pub fn lease(&self) -> Option<&LeaseView> {
        self.0.setup.lease.as_ref()
    }

    /// The locks of this worker, for what the run shares with other jobs and programs beside its own lock: a named lock,
    /// a semaphore, or a [`rate`](Locks::rate). `None` only for a run that was made without a worker.
    ///
    /// ```
    /// use watchkeeper::{JobError, Outcome, Run};
    ///
    /// async fn send(run: &Run, mails: &[&str]) -> Result<Outcome, JobError> {
    ///     let locks = run.locks().ok_or_else(|| JobError::fatal("needs the locks of a worker"))?;
    ///     // All jobs that name it, on all replicas, send 14 a second together.
    ///     let rate = locks.rate("mail", 14.0).map_err(JobError::retry)?;
    ///     for mail in mails {
    ///         rate.take().await;
    ///         run.check()?;
    ///         println!("{mail} goes out");
    ///     }
    ///     Ok(Outcome::Done)
    /// }
    /// ```
    #[must_use]
    pub fn locks(&self) -> Option<&Locks> {
        self.0.setup.locks.as_ref()
    }

    /// Every lease that this run must not outlive: its own, and that of the replica in failover mode. For work that
    /// goes on outside of this process.
    #[must_use]
    pub fn leases(&self) -> Vec<LeaseView> {
        let both = self.lease().into_iter().chain(&self.0.setup.also);
        both.cloned().collect()
    }

    /// How long this run may go on after it was told to stop; less when its lease ends before.
    #[must_use]
    pub fn grace(&self) -> Duration {
        self.0.setup.grace
    }

    /// Time until this run is told to stop, as things stand: extensions of the lease move it on.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.0.cancel.is_cancelled() {
            return Duration::ZERO;
        }
        self.stop_at().since(self.0.setup.clock.now())
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
                () = self.0.setup.clock.sleep_until(at) => {}
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

    /// What the last attempt at this tick left.
    #[must_use]
    pub fn checkpoint(&self) -> Option<&serde_json::Value> {
        self.0.setup.facts.checkpoint.as_ref()
    }

    /// When the last attempt at this tick left its checkpoint, by the clock of ticks.
    #[must_use]
    pub fn checkpoint_at(&self) -> Option<Timestamp> {
        self.0.setup.checkpoint_at
    }

    /// Leaves a checkpoint for the next attempt, should this one die. It is kept beside the lock: 16 KiB (16,384 bytes) of
    /// JSON at most.
    ///
    /// # Cancellation
    /// A dropped call may have left its checkpoint, or may still leave it.
    ///
    /// # Errors
    /// [`JobError::fatal`] for a checkpoint that is larger, and where this kind of job keeps none, as in batches.
    /// [`JobError::retry`] when a majority of nodes did not take it while the lease was held, or the run has ended.
    pub async fn save_checkpoint(&self, checkpoint: serde_json::Value) -> Result<(), JobError> {
        match &self.0.setup.checkpoints {
            Some(place) => place.save(checkpoint).await,
            None => Err(JobError::fatal("this kind of job keeps no checkpoints")),
        }
    }

    /// Tells the run to stop; the first reason stays.
    #[doc(hidden)] // for the tests of the stock jobs; `testing::run` is for yours
    pub fn stop(&self, why: &str) {
        self.0.why.get_or_init(|| why.to_owned());
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
        self.0.why.get().cloned().unwrap_or_default()
    }

    async fn lease_closing(&self) {
        match &self.0.setup.lease {
            Some(lease) => drop(lease.closing().await),
            None => std::future::pending().await,
        }
    }

    fn stop_at(&self) -> Moment {
        let lease_end = self.0.setup.lease.as_ref().map_or(Moment::NEVER, |lease| {
            lease.valid_until().back(self.0.setup.margin)
        });
        lease_end.min(self.0.setup.until)
    }

    fn stop_reason(&self) -> Option<String> {
        let now = self.0.setup.clock.now();
        if let Some(lease) = &self.0.setup.lease {
            if let Some(loss) = lease.loss() {
                return Some(loss.to_string());
            }
            if let Some(why) = lease.cordoned() {
                return Some(why);
            }
            if now >= lease.valid_until().back(self.0.setup.margin) {
                return Some("the lease is about to end and could not be extended".to_owned());
            }
        }
        (now >= self.0.setup.until).then(|| TIME_LIMIT.to_owned())
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
