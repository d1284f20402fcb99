//! What to lock, and what came of it.

use std::time::Duration;

use super::{LockError, NodeTroubles};
use crate::{lease::Lease, node::Kind, settings::Timing};

/// What to lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The lock's key.
    pub key: String,
    /// Named lock or short claim.
    pub kind: Kind,
    /// Time to live; `None` for the default.
    pub ttl: Option<Duration>,
}

/// How an attempt at one claim ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum Claimed {
    /// It is ours until the lease ends.
    Acquired(Lease),
    /// Another owner holds it.
    Held {
        /// The holder's owner value.
        by: Option<String>,
        /// The longest remaining life a node reported.
        for_at_most: Option<Duration>,
    },
    /// Too few nodes answered.
    NoQuorum(NodeTroubles),
    /// Won too late to be worth having; released.
    TooSlow,
}

// === impl Claim ===

impl Claim {
    /// A short claim of a batch or message. Its key must not be that of a named lock: a claim knows keys only, and a named
    /// lock may be held although its key has vanished.
    #[must_use]
    pub fn short(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            kind: Kind::Claim,
            ttl: None,
        }
    }

    /// A named lock with a record.
    #[must_use]
    pub fn named(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            kind: Kind::Lock,
            ttl: None,
        }
    }

    pub(crate) fn ttl_or(&self, timing: &Timing) -> Duration {
        self.ttl.unwrap_or(timing.ttl)
    }
}

// === impl Claimed ===

impl Claimed {
    /// The lease, or why there is none.
    pub(crate) fn into_lease(self) -> Result<Lease, LockError> {
        match self {
            Self::Acquired(lease) => Ok(lease),
            Self::Held { by, for_at_most } => Err(LockError::Held { by, for_at_most }),
            Self::NoQuorum(troubles) => Err(LockError::NoQuorum(troubles)),
            Self::TooSlow => Err(LockError::TooSlow),
        }
    }
}
