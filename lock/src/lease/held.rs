//! A held lock: its one owner, who hands it back.

use std::fmt;

use super::{LeaseView, Loss, Note, ReleaseReport, Returned, SharedLease};
use crate::node::Record;

/// A held lock. Dropping it hands the release to the keeper, in the background; [`Lease::release`] waits and reports.
pub struct Lease {
    view: LeaseView,
    record: Record,
    handed_back: bool,
}

// === impl Lease ===

impl Lease {
    pub(crate) fn new(view: LeaseView, record: Record) -> Self {
        Self {
            view,
            record,
            handed_back: false,
        }
    }

    /// A handle for several parts of a program that hold the lock together: it is released with the last one.
    #[must_use]
    pub fn share(self) -> SharedLease {
        SharedLease::new(self)
    }

    /// What may be read of this lease, to be handed on.
    #[must_use]
    pub fn view(&self) -> &LeaseView {
        &self.view
    }

    /// What the predecessors left beside the lock, as it stood at the acquisition.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Ends the belief, then releases on all nodes and reports how many confirmed. Waits at most about one node
    /// timeout; nodes that did not answer are told again in the background until a ttl has passed.
    ///
    /// # Cancellation
    /// A dropped call has ended the belief all the same, and the release goes on in the background.
    pub async fn release(mut self) -> ReleaseReport {
        let here = self.view.0.keeper.takes_back.as_ref();
        let here = here.and_then(std::sync::Weak::upgrade);
        let report = here.and_then(|here| here.take_back(&self.view));
        if let Some(report) = report {
            self.handed_back = true;
            return report.await;
        }
        let (done, report) = tokio::sync::oneshot::channel();
        self.hand_back(Some(done));
        report.await.unwrap_or(ReleaseReport { nodes: 0, of: 0 })
    }

    fn hand_back(&mut self, done: Option<tokio::sync::oneshot::Sender<ReleaseReport>>) {
        if !std::mem::replace(&mut self.handed_back, true) {
            // The return first: a keeper that saw the lease ended before would release it without knowing which caller waits for
            // the report. Belief ends before anything is released, here or where the keeper reads this.
            // A keeper that is gone has nothing left to release with; the lease expires by itself.
            self.view.0.keeper.send(Note::Back(Returned {
                view: self.view.clone(),
                done,
            }));
            self.view.end_unheard(Loss::Released);
        }
    }
}

impl std::ops::Deref for Lease {
    type Target = LeaseView;
    fn deref(&self) -> &LeaseView {
        &self.view
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt(f)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.hand_back(None);
    }
}
