//! What a user writes: a [`Job`], and what it gets: a [`Run`].
//!
//! ```
//! use watchkeeper::{
//!     DurationExt, Outcome, Spec, Worker,
//!     job::{Misfire, Overlap, Retry},
//! };
//!
//! let nightly = Spec::cron("30 2 * * *")
//!     .zone("Europe/Rome")
//!     .timeout(1.hours())
//!     .retry(Retry { attempts: 3, ..Retry::default() })
//!     .misfire(Misfire::Once)
//!     .overlap(Overlap::Skip);
//!
//! # fn configured(worker: Worker, nightly: Spec) -> Worker {
//! worker.job_fn("copy", nightly, |run| async move {
//!     // Where the last attempt has stopped.
//!     let done = run.checkpoint().and_then(|at| at.as_u64()).unwrap_or(0);
//!     for page in done..12 {
//!         run.check()?; // an error once this run is to stop
//!         run.save_checkpoint((page + 1).into()).await?;
//!         run.progress(page + 1, 12);
//!     }
//!     Ok(Outcome::Done)
//! })
//! # }
//! ```

mod coordination;
pub(crate) mod definition;
mod error;
mod hook;
mod item;
mod output;
mod pace;
pub(crate) mod params;
mod progress;
mod retry;
mod run;
mod run_report;
mod setup;
pub(crate) mod shard;
mod spec;

pub use coordination::{Coordination, Disagreement};
pub use error::{FailureKind, JobError};
pub(crate) use hook::Hooks;
pub use hook::{RunEnd, RunHook};
pub use item::ItemOutcome;
#[doc(hidden)] // for the stock jobs
pub use output::MAX_OUTPUT;
pub(crate) use output::cut;
pub use progress::{Rate, RunProgress};
pub use retry::Retry;
pub(crate) use run::WeakRun;
pub use run::{Run, Stopped};
pub use setup::RunFacts;
pub(crate) use setup::{Checkpoints, RunSetup};
pub use spec::Spec;

pub use crate::due::{Interrupted, Misfire, Overlap};
pub use crate::{lease::Unstoppable, schedule::Dialect};

use std::time::Duration;

use async_trait::async_trait;

/// A piece of work that Watchkeeper runs in exactly one replica at a time.
#[async_trait]
pub trait Job: Send + Sync + 'static {
    /// One run.
    ///
    /// It ends early when [`Run::cancelled`] completes: clean up and return; what has not returned after the grace
    /// period is dropped at its next `.await`. A panic is caught and counts as a failure.
    ///
    /// # Errors
    /// Any error is worth retrying unless made with [`JobError::fatal`].
    async fn run(&self, run: Run) -> Result<Outcome, JobError>;

    /// Is this replica fit to do this job? Asked a few times per ttl on the worker's runtime; no answer within half
    /// a ttl counts as unfit.
    async fn health(&self) -> Health {
        Health::Fit
    }
}

/// How a run ended well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The work is done.
    Done,
    /// There was nothing to do, and why.
    Skip(String),
    /// Not now: start the next attempt after this pause.
    RetryAfter(Duration),
}

/// Whether a replica can do a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It can.
    Fit,
    /// It cannot, and why; it stops, ends its work and hands the leadership over.
    Unfit(String),
}
