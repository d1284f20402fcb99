//! What a job is to be from the end of its present run on: put down by a reload, taken up by the job's engine between two
//! runs.

use std::sync::Arc;

use jiff::Timestamp;

use crate::{
    due::Policy,
    job::{Job, Spec},
    latest,
    schedule::Schedule,
};

/// Everything of a job that a reload may change.
#[derive(Clone)]
pub(crate) struct Definition {
    pub(crate) job: Arc<dyn Job>,
    pub(crate) spec: Arc<Spec>,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) policy: Policy,
    /// When it was loaded, by the fleet's time.
    pub(crate) loaded: Timestamp,
}

/// The place of the next definition; the latest one wins. Cheap to clone.
#[derive(Clone)]
pub(crate) struct NextDefinition(Arc<latest::Sender<Option<Box<Definition>>>>);

// === impl NextDefinition ===

impl Default for NextDefinition {
    fn default() -> Self {
        Self(Arc::new(latest::Sender::new(None)))
    }
}

impl NextDefinition {
    pub(crate) fn put(&self, next: Definition) {
        self.0.send_replace(Some(Box::new(next)));
    }

    pub(crate) fn is_there(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Completes while one is there. Cancel-safe.
    pub(super) async fn there(&self) {
        let mut news = self.0.subscribe();
        if news.wait_for(Option::is_some).await.is_err() {
            std::future::pending().await
        }
    }

    pub(super) fn take(&self) -> Option<Box<Definition>> {
        self.0.send_replace(None)
    }
}
