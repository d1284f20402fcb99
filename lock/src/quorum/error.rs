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
    #[error("held{} for at most {}", by.as_ref().map(|by| format!(" by {}", by.escape_debug())).unwrap_or_default(),
        for_at_most.map_or_else(|| "an unknown time".to_owned(), |d| Brief(d).to_string()))]
    Held {
        /// The holder's random owner value, as most nodes show it. Other programs may have written anything: shown as one line.
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
    /// Nodes keep no record for so long.
    #[error("final records can be kept for {} at most: shorten the retention, or raise locks.retention", Brief(*longest))]
    RetentionTooLong {
        /// The limit.
        longest: Duration,
    },
    /// A semaphore has from 1 to [`MOST_SLOTS`] slots.
    #[error("{slots} is no number of slots: give one from 1 to {}", MOST_SLOTS)]
    SlotCount {
        /// What was asked for.
        slots: usize,
    },
    /// A rate is above zero and finite.
    #[error("this is no rate: give a number of acts a second that is above 0")]
    Rate,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_program_wrote_as_its_owner_is_shown_on_one_line() {
        let held = LockError::Held {
            by: Some("ü/1\nno: \u{1b}[2J".to_owned()),
            for_at_most: None,
        };
        assert_eq!(
            held.to_string(),
            r"held by ü/1\nno: \u{1b}[2J for at most an unknown time"
        );
    }
}
