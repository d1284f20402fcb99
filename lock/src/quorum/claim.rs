//! What to lock and how to go about it, and what came of it.

use std::time::Duration;

use super::error::{LockError, NodeTroubles};
use crate::{
    clock::Moment,
    expiry::LockState,
    lease::Lease,
    node::{Kind, NodeError, Record, Ticket, Token},
    settings::Timing,
};

/// What to lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The lock's key.
    pub key: String,
    /// Named lock or short claim.
    #[doc(hidden)] // between the lock and its nodes
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

/// How an attempt at a single named lock goes about asking the nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttemptMode {
    /// Ask one node first, and the others only when it granted: contenders for a lock then split no votes (R6).
    pub(crate) one_first: bool,
    /// A place in the lock's queue, which its primary keeps.
    pub(crate) ticket: Option<Ticket>,
    /// The caller waits: the records that refuse it say for so long that their end is to be announced (W3). Zero for a caller
    /// that does not wait.
    pub(crate) waits: Duration,
    /// Only these nodes are asked, and the one that keeps the queue if there is a ticket; `None` for all. An attempt that only
    /// tells that its caller waits spares the nodes on which nothing stands in its way: what it took and gave back there
    /// would keep the holder from healing them (E3).
    pub(crate) only: Option<Vec<usize>>,
}

/// How an attempt at one lock ended, and what it showed.
#[derive(Debug)]
pub(crate) struct Tried {
    pub(crate) attempt: Attempt,
    /// What the nodes that were asked have shown; those that granted show a free lock.
    pub(crate) seen: LockState,
    pub(crate) position: QueuePosition,
}

/// What an attempt has shown of the lock's queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueuePosition {
    /// How many are before us; `None` without a place in it.
    pub(crate) ahead: Option<u32>,
    /// The place went with the grant of the node that keeps the queue.
    pub(crate) left: bool,
    /// W2: N - q + 1 nodes with a vote have refused the attempt. So the next holder of the lock has been granted by one of them:
    /// the end of its lease is announced there, if the attempt said that it waits.
    pub(crate) told: bool,
    /// The attempt: when it is undone, that is announced, too.
    pub(crate) owner: String,
}

/// How an attempt at one lock ended.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// Held, until then.
    Won(Win),
    /// Another owner holds it.
    Held {
        by: Option<String>,
        for_at_most: Option<Duration>,
    },
    /// Too few nodes answered.
    NoQuorum(Vec<(String, NodeError)>),
    /// Won, but so late that too little of the lease was left.
    TooSlow,
}

/// A won attempt.
#[derive(Debug)]
pub(crate) struct Win {
    pub(crate) owner: String,
    pub(crate) token: Token,
    pub(crate) valid_until: Moment,
    pub(crate) kept: usize,
    /// What was left comes from these nodes.
    pub(crate) granted_by: Vec<usize>,
    pub(crate) record: Record,
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
    #[doc(hidden)] // for the tests
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
