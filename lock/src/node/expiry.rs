//! What ends the lease of a holder that has fallen silent, and how a named lock is taken.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Node;

/// What decides that the lease of a silent holder is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expiry {
    /// The key's time to live, on the node's clock.
    #[default]
    Server,
    /// The record beside the key: watched unchanged for its whole ttl by the contender's own clock. The key may vanish
    /// at any time.
    Observed,
}

// === impl Expiry ===

impl Expiry {
    /// What suits all of these nodes: one whose clock may jump is enough to believe none.
    #[doc(hidden)]
    pub fn over(nodes: &[Arc<dyn Node>]) -> Self {
        if nodes.iter().any(|node| node.expiry() == Self::Observed) {
            Self::Observed
        } else {
            Self::Server
        }
    }
}

/// A holder's record as a contender has seen it: what stands there must be exactly this when it is taken.
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
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub enum Take {
    /// Only a key without a value.
    #[default]
    Server,
    /// By the take rule: no foreign value in the key, and the record is missing, of another incarnation, released, or
    /// exactly this. The sender has watched it unchanged for the record's ttl, or knows that its owner is over.
    Observed(Option<Seen>),
}
