//! A lease in several hands of one owner.

use std::{fmt, sync::Arc};

use super::{Lease, LeaseView, ReleaseReport};

/// A lease that several parts of a program hold together: each has a handle, and the lock is released with the last
/// of them. Code that is handed a clone is inside the lock already and need not acquire it again.
///
/// Dropping the last handle hands the release to the keeper, in the background; [`SharedLease::release`] of the last one
/// waits and reports.
#[derive(Clone)]
pub struct SharedLease(Arc<Lease>);

/// What came of letting go of one handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetGo {
    /// It was the last one: the lock is released.
    Released(ReleaseReport),
    /// Others are left: the lock is still held, and extended.
    StillHeld {
        /// How many handles there were beside this one, a moment ago.
        others: usize,
    },
}

// === impl SharedLease ===

impl SharedLease {
    pub(super) fn new(lease: Lease) -> Self {
        Self(Arc::new(lease))
    }

    /// What may be read of this lease, to be handed on.
    #[must_use]
    pub fn view(&self) -> &LeaseView {
        self.0.view()
    }

    /// Handles of this lease, this one included.
    fn handles(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Lets go of this handle. The last one ends the belief and releases as [`Lease::release`] does, and waits for it;
    /// of handles that are released at the same moment exactly one is the last. Cancellation: a dropped call has let
    /// go, and the release goes on in the background.
    pub async fn release(self) -> LetGo {
        let others = self.handles().saturating_sub(1);
        match Arc::into_inner(self.0) {
            Some(lease) => LetGo::Released(lease.release().await),
            // The others may go at this very moment, but there was one when it was counted by `into_inner`.
            None => LetGo::StillHeld {
                others: others.max(1),
            },
        }
    }
}

impl LetGo {
    /// How the release went; `None` while others hold the lock.
    #[doc(hidden)] // for the tests
    #[must_use]
    pub fn report(&self) -> Option<ReleaseReport> {
        match self {
            Self::Released(report) => Some(*report),
            Self::StillHeld { .. } => None,
        }
    }
}

impl From<Lease> for SharedLease {
    fn from(lease: Lease) -> Self {
        lease.share()
    }
}

impl std::ops::Deref for SharedLease {
    type Target = LeaseView;
    fn deref(&self) -> &LeaseView {
        self.view()
    }
}

impl fmt::Debug for SharedLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLease")
            .field("lease", self.view())
            .field("handles", &self.handles())
            .finish()
    }
}

#[cfg(test)]
mod tests;
