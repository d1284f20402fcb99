//! A leadership: this replica may act, until its lease ends.
//!
//! # Example
//! ```
//! # use std::sync::Arc;
//! # use watchkeeper_lock::{Elector, Locks, clock::Clock, node::memory::MemoryNode};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let node = MemoryNode::new("one", Clock::system());
//! # let locks = Locks::over(vec![Arc::new(node)]).start()?;
//! let term = Elector::new(&locks, "reconciler").campaign().await?;
//! // A term answers by the clock: ask it before each step.
//! assert!(term.is_leading() && term.remaining() <= term.ttl());
//! // Another candidate leads at once, under a larger token.
//! term.resign().await;
//! # Ok(())
//! # }
//! ```

use std::{fmt, ops::Deref};

use crate::{
    lease::{Lease, LeaseView, ReleaseReport},
    node::Record,
};

/// A leadership. It ends with its lease; dropping it resigns in the background, once the work under it has ended.
///
/// # Invariants
/// - E1 A term ends no later than the lease behind it.   (term_ends_with_its_lease)
#[derive(Debug)]
pub struct Term {
    lease: Lease,
}

impl Term {
    pub(crate) fn new(lease: Lease) -> Self {
        Self { lease }
    }

    /// Whether this replica leads now, by the clock.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.lease.is_held()
    }

    /// The lease behind the term.
    #[doc(hidden)] // for the worker and the programs of the command
    #[must_use]
    pub fn lease(&self) -> &LeaseView {
        self.lease.view()
    }

    /// What the predecessors left beside the lock.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn record(&self) -> &Record {
        self.lease.record()
    }

    /// The lease itself, for code that treats locks and terms alike.
    #[doc(hidden)] // for the worker and the programs of the command
    #[must_use]
    pub fn into_lease(self) -> Lease {
        self.lease
    }

    /// Hands over at once: stands down, releases on all nodes and wakes the candidates that wait.
    ///
    /// # Cancellation
    /// A dropped call has ended the term all the same, and the release goes on in the background.
    pub async fn resign(self) -> ReleaseReport {
        self.lease.release().await
    }
}

impl Deref for Term {
    type Target = LeaseView;
    fn deref(&self) -> &LeaseView {
        self.lease.view()
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} under token {}", self.lease.key(), self.lease.token())
    }
}
