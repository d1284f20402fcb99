//! What ends the lease of a holder that has fallen silent, and how a named lock is taken.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Node;

/// What decides that the lease of a silent holder is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expiry {
    /// Its end by the node's clock.
    #[default]
    Server,
    /// The record, watched unchanged for its whole ttl by the contender's own clock. The node's clock decides nothing.
    Observed,
}

// === impl Expiry ===

impl Expiry {
    /// What suits all of these nodes: one whose clock may jump is enough to believe none.
    #[doc(hidden)] // for the tests of the worker
    pub fn over(nodes: &[Arc<dyn Node>]) -> Self {
        if nodes.iter().any(|node| node.expiry() == Self::Observed) {
            Self::Observed
        } else {
            Self::Server
        }
    }
}

/// A holder's record as a contender has seen it: what stands there must be exactly this when it is taken.
#[doc(hidden)] // between the lock and its nodes
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The incarnation of the record.
    pub inc: String,
    /// Its owner.
    pub owner: String,
    /// The owner's round.
    pub seq: u64,
}

/// How a named lock is taken.
#[doc(hidden)] // between the lock and its nodes
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub enum Take {
    /// Only what has ended by the node's clock.
    #[default]
    Server,
    /// By the take rule (N3): no record, one of another incarnation, a release, or exactly this. The sender has watched it unchanged for the record's ttl, or knows that its owner is over.
    Observed(Option<Seen>),
}
