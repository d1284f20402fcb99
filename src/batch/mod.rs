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
mod order;
mod record;

use async_trait::async_trait;

use crate::job::{Health, JobError, Outcome, Run};

/// Work that comes in batches. Every replica runs the job; each batch is processed by the one that claimed it.
#[async_trait]
pub trait BatchJob: Send + Sync + 'static {
    /// Ids of batches that have work now, at most `limit`, the same id for the same batch on every replica.
    /// May name batches that another replica is working on: those are not claimed again.
    ///
    /// # Errors
    /// Any; asked again after a pause.
    async fn pending(&self, limit: usize) -> Result<Vec<String>, JobError>;

    /// Processes one batch under its claim; `run.token()` is the claim's. **Read the batch's work again here**: what
    /// `pending` saw may have been done by the last holder meanwhile. When the claim is lost only this run is
    /// cancelled.
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
