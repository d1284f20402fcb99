//! Why a lock was not acquired, or a record not written: who holds it, or which node failed how.

use std::{fmt, time::Duration};

use crate::{human::Brief, lease::Loss, node::NodeError};

/// Slots of one semaphore at most: all are looked at in one call.
pub const MOST_SLOTS: usize = 250;

/// Why no lease was handed out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another owner holds it.
    #[error("held{} for at most {}", by.as_ref().map(|b| format!(" by {b}")).unwrap_or_default(),
        for_at_most.map_or_else(|| "an unknown time".to_owned(), |d| Brief(d).to_string()))]
    Held {
        /// The holder's random owner value, as most nodes show it.
        by: Option<String>,
        /// The longest remaining life that a node reported, unless it is extended or released.
        for_at_most: Option<Duration>,
    },
    /// Too few nodes answered.
    #[error("no quorum: {0}")]
    NoQuorum(NodeTroubles),
    /// Won, but so late that too little of the lease was left; it was released.
    #[error("the nodes answered too slowly: too little of the lease would have been left")]
    TooSlow,
    /// A lease of this length would outlive what the nodes are told to expect.
    #[error("a ttl of {} is longer than max_ttl ({})", Brief(*ttl), Brief(*max_ttl))]
    TtlTooLong {
        /// What was asked for.
        ttl: Duration,
        /// The limit.
        max_ttl: Duration,
    },
    /// A semaphore has from 1 to [`MOST_SLOTS`] slots.
    #[error("{slots} is no number of slots: give one from 1 to {}", MOST_SLOTS)]
    SlotCount {
        /// What was asked for.
        slots: usize,
    },
    /// The lock service of this process has ended.
    #[error("the lock service of this process has ended")]
    Closed,
}

/// Which nodes gave no answer, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTroubles {
    /// The nodes that failed.
    pub nodes: Vec<(String, NodeError)>,
    /// Nodes configured.
    pub configured: usize,
    /// Nodes needed.
    pub needed: usize,
}

/// Why a record was not written.
#[doc(hidden)] // for the worker
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The lease is over.
    #[error("the lease is over: {0}")]
    Lost(Loss),
    /// A majority of nodes says that its `not_before` has not come: our wall clock is ahead of theirs.
    #[error("a majority of nodes is more than the allowed skew behind: {} to go", Brief(*ahead))]
    TooEarly {
        /// How far the median of those nodes is behind.
        ahead: Duration,
    },
    /// The lock service of this process has ended.
    #[error("the lock service of this process has ended")]
    Closed,
}

// === impl LockError ===

impl LockError {
    /// Whether it is trouble of the nodes, which may be over a moment later.
    #[doc(hidden)] // for the worker
    pub fn passes(&self) -> bool {
        matches!(self, Self::NoQuorum(_) | Self::TooSlow)
    }
}

impl fmt::Display for NodeTroubles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reached = self.configured.saturating_sub(self.nodes.len());
        write!(
            f,
            "{reached} of {} nodes answered, {} needed",
            self.configured, self.needed
        )?;
        for (name, trouble) in &self.nodes {
            write!(f, "; {name}: {trouble}")?;
        }
        Ok(())
    }
}
