//! Units of work that replicas claim by lock: no "taken" flag in the data.
//!
//! ```
//! use watchkeeper::{BatchJob, JobError, Outcome, Run, Spec, Worker};
//!
//! /// Sends the mail of a day at a time.
//! struct Mail;
//!
//! #[async_trait::async_trait]
//! impl BatchJob for Mail {
//!     async fn pending(&self, limit: usize) -> Result<Vec<String>, JobError> {
//!         // Days with mail that is not sent, from the database.
//!         Ok(["2026-03-27", "2026-03-28"].map(str::to_owned).into_iter().take(limit).collect())
//!     }
//!
//!     async fn process(&self, day: &str, run: Run) -> Result<Outcome, JobError> {
//!         println!("the mail of {day}, under token {}", run.token());
//!         Ok(Outcome::Done)
//!     }
//! }
//!
//! # fn configured(worker: Worker) -> Worker {
//! worker.batch_job("mail", Mail, Spec::continuous())
//! # }
//! ```

pub(crate) mod engine;
mod hold;
mod kept;
mod order;
mod pressure;
mod record;

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::job::{Health, JobError, Outcome, Run};

/// Work that comes in batches. Every replica runs the job; each batch is processed by the one that claimed it.
#[async_trait]
pub trait BatchJob: Send + Sync + 'static {
    /// Ids of batches that have work now, at most `limit`, the same id for the same batch on every replica.
    /// May name batches that another replica is working on: those are not claimed again. What it names may be claimed up to
    /// a quarter of a second later, without being asked for again.
    ///
    /// # Errors
    /// Any; asked again after a pause.
    async fn pending(&self, limit: usize) -> Result<Vec<String>, JobError>;

    /// Processes one batch under its claim; `run.token()` is the claim's. **Read the batch's work again here**: what
    /// `pending` saw may have been done by the last holder meanwhile. When the claim is lost only this run is
    /// cancelled.
    ///
    /// What became of its items is said by [`Run::item`]. When batches end with [`Outcome::RetryAfter`] several times in a
    /// row, this replica works on half as many at a time, and on one more after each that is done.
    ///
    /// # Errors
    /// Any; the batch is released and comes back through `pending`.
    async fn process(&self, batch: &str, run: Run) -> Result<Outcome, JobError>;

    /// Returns when there may be new work: the next look begins then, and not after its pause. May be dropped and called
    /// again at any time; what comes meanwhile is to end the next call. Without it looks alone find work.
    async fn woken(&self) {
        std::future::pending().await
    }

    /// Told once, before anything else, under which name this replica has the job.
    fn named(&self, _job: &str) {}

    /// Is this replica fit to do this job?
    async fn health(&self) -> Health {
        Health::Fit
    }

    /// How many batches to claim in one go (`claim`) and to work on at once (`concurrency`).
    fn limits(&self) -> BatchLimits {
        BatchLimits::default()
    }

    /// For how long a final record of each batch is kept, where a batch cannot be read again to see whether it was done: each is a
    /// message of [`Once`](crate::once::Once) then, under the name of the job and of its source.
    #[doc(hidden)] // for the stock jobs: it may still change
    fn retention(&self) -> Option<Duration> {
        None
    }

    /// Where its messages come from, with a retention: equal ids of another source are other messages.
    #[doc(hidden)] // for the stock jobs: it may still change
    fn source(&self) -> &str {
        ""
    }

    /// The date that the batch carries, with a retention.
    #[doc(hidden)] // for the stock jobs: it may still change
    fn produced_at(&self, _batch: &str) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    /// Puts a batch that is too old to know whether it was done where a person finds it, with a retention; called in place of
    /// [`BatchJob::process`], under its claim. The batch is done then.
    ///
    /// # Errors
    /// As there.
    #[doc(hidden)] // for the stock jobs: it may still change
    async fn refused(&self, _batch: &str, _run: Run) -> Result<Outcome, JobError> {
        Ok(Outcome::Done)
    }

    /// Told when this replica works on no batches any more, for now or for good: what is still to be said is said here, within
    /// two seconds.
    #[doc(hidden)] // for the stock jobs: it may still change
    async fn stopped(&self) {}

    /// Told of a batch that needs no work any more, with a retention: it was done or refused, here or by another replica.
    #[doc(hidden)] // for the stock jobs: it may still change
    fn settled(&self, _batch: &str) {}
}

/// How many batches one replica claims and works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Batches claimed in one round trip per node, at most.
    pub claim: usize,
    /// Batches worked on at the same time.
    pub concurrency: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self {
            claim: 4,
            concurrency: 4,
        }
    }
}
