//! What a program does around every run: open and close things, measure, carry context along.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{JobError, Run};

/// Called around every run of every job of a worker, batches included: [`Worker::hook`](crate::Worker::hook).
///
/// Several are called in the order in which they were added before a run, and in the reverse order after it, all within
/// the run's span and under its lease: what they do is work of the run.
#[async_trait]
pub trait RunHook: Send + Sync + 'static {
    /// Before the run's own work. It counts into the run's time limit, and is dropped like the work when the run is told
    /// to stop and does not end.
    ///
    /// # Errors
    /// The run does not begin, and the error is its outcome: tried again or not, as with [`Job::run`](super::Job::run).
    /// The same for a panic. Hooks that were added later are not called.
    async fn before(&self, run: &Run) -> Result<(), JobError> {
        let _ = run;
        Ok(())
    }

    /// After the run has ended, however it did: also when it was dropped, has panicked, or was refused by this hook or one
    /// that was added later. Called once for every [`RunHook::before`] that was begun, unless the process dies.
    ///
    /// What has not returned after the job's `grace`, or before its lease ends, is dropped at its next `.await`: so close
    /// what must be closed first. A panic is a warning in the log, and changes nothing.
    async fn after(&self, run: &Run, end: &RunEnd) {
        let _ = (run, end);
    }
}

/// How a run has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunEnd {
    /// A bounded word, as in the history: `done`, `skipped`, `retry`, `failed`, `timeout`, `cancelled`, `panicked`.
    pub outcome: &'static str,
    /// Why; empty when there is nothing to say.
    pub detail: String,
    /// From the first hook to the end of the work.
    pub took: Duration,
}

/// All hooks of a worker, in their order. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Hooks(Arc<[Arc<dyn RunHook>]>);

// === impl RunEnd, Hooks ===

impl RunEnd {
    pub(crate) fn new(outcome: &'static str, detail: String, took: Duration) -> Self {
        Self {
            outcome,
            detail,
            took,
        }
    }
}

impl Hooks {
    pub(crate) fn new(hooks: impl IntoIterator<Item = Arc<dyn RunHook>>) -> Self {
        Self(hooks.into_iter().collect())
    }

    pub(crate) fn all(&self) -> &[Arc<dyn RunHook>] {
        &self.0
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hooks({})", self.0.len())
    }
}
