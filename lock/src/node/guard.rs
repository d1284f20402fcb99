//! The restart guard: which incarnation of a node may vote.
//!
//! A server that loses its memory, or comes back with an old copy of it, has forgotten leases and must not vote before
//! they have ended. An *admission marker* in its data names the incarnation that may. Clients put a *nomination* beside
//! it, watch it stay for the longest lease, read what the other nodes know, and only then write the marker.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::Token;

/// How often a node is asked whether it is still the incarnation that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RestartGuard {
    /// Never: a node that has lost its memory votes at once. For tests, and for nodes that cannot lose their memory. What its
    /// programs must have in common is compared all the same.
    #[default]
    Off,
    /// With the first call of every connection; later calls see to it that the marker is still the same.
    ///
    /// What this gives up: a server that becomes a replica and a master again (`REPLICAOF` there and back) while a
    /// connection lives, and its marker is there again or still. Over that connection it goes on to vote, although it may
    /// have missed votes or show another server's; a call of ours that it meets as a replica is refused, and only then the
    /// connection is looked at anew. A restart ends every connection and is noticed, and so is a lost marker.
    Connection,
    /// In each millisecond in which it executes a call: no server loads the memory of another within one.
    Call,
}

/// Which incarnations of a node may vote, told to it at construction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct GuardSettings {
    /// How often the node is asked.
    pub mode: RestartGuard,
    /// The fleet's configuration in a line: a node that keeps locks for another one does not vote. Without a line, and without
    /// the guard, every node votes for this caller.
    pub config: String,
}

/// What a node knows of its admission.
#[doc(hidden)] // between the lock and its nodes
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Admission {
    /// Tells this life of the node's memory from every other, as far as the server can; empty when unguarded.
    pub incarnation: String,
    /// The standing nomination of the present incarnation.
    pub nonce: Option<String>,
    /// The configuration of the fleet that has nominated it; unguarded, of any that has.
    pub nominated_for: Option<String>,
    /// Whether the marker names the present incarnation; unguarded, whether there is one of a fleet without a guard. Always true
    /// for a caller that compares nothing.
    pub admitted: bool,
    /// The nonce under which the node was last admitted; empty when never, and for a fleet without a guard.
    pub inc: String,
    /// The whole marker, which votes are compared with: that nonce and the stamp of the roster; empty when there is none.
    pub marker: String,
    /// What tells this memory from every other: the nonce of its first nomination. Empty before that.
    pub id: String,
    /// Who the nodes of its fleet are, or, while it is not admitted, are to be: see `admission::roster`. Its first
    /// [`STAMP`] letters are its stamp. Empty when nothing was written.
    pub roster: String,
    /// The configuration in the marker, also in that of another incarnation.
    pub config: Option<String>,
    /// The node's counter.
    pub counter: Token,
    /// Unix milliseconds: what was known before this may be lost here and on the nodes it was merged from.
    pub memory_loss: Option<i64>,
}

/// Letters of an incarnation in a marker.
pub(crate) const INC: usize = 16;

/// What stands at the end of the configuration of a fleet in whose node one server takes the place of another.
pub(crate) const FAILOVER: &str = " failover";

/// A server in whose place another one was put may be asked for leases for almost so long after that.
pub(crate) const LATE: Duration = Duration::from_secs(6);

/// Letters of a roster's stamp.
pub(crate) const STAMP: usize = 16;

/// The marker of a node that was admitted under `inc` with this roster.
pub(crate) fn marker(inc: &str, roster: &str) -> String {
    let stamp = roster.get(..STAMP).unwrap_or("0000000000000000");
    format!("{inc:-<INC$}{stamp}")
}

// === impl Admission ===

impl Admission {
    /// What of it a later write is compared with.
    #[must_use]
    pub fn card(&self) -> Card {
        Card {
            marker: self.marker.clone(),
            nonce: self.nonce.clone().unwrap_or_default(),
            id: self.id.clone(),
            roster: self.roster.clone(),
        }
    }
}

/// What was read of a node that is to be enrolled or closed: nothing is written where anything else stands there now.
#[doc(hidden)] // between the lock and its nodes
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Card {
    /// Its marker; empty for none.
    pub marker: String,
    /// The nomination that stands; empty for none.
    pub nonce: String,
    /// Its identity; empty for none.
    pub id: String,
    /// Its roster; empty for none.
    pub roster: String,
}

/// A configuration that no fleet has: a node that was admitted for it votes for none. Leases of up to `max_ttl_ms`
/// milliseconds may have been granted before.
#[must_use]
pub fn closed(max_ttl_ms: u64) -> String {
    format!("{CLOSED}{max_ttl_ms}")
}

/// The same, by a fleet with this configuration for itself: it is about to be founded anew.
pub(crate) fn closed_for(max_ttl_ms: u64, fleet: &str) -> String {
    format!("{}{FOR}{fleet}", closed(max_ttl_ms))
}

/// The limit of the leases that may have been granted, when this is the configuration that no fleet has.
#[must_use]
pub fn closed_since(config: &str) -> Option<u64> {
    let said = config.strip_prefix(CLOSED)?;
    let limit = said.split_once(FOR).map_or(said, |(limit, _)| limit);
    limit.parse().ok()
}

/// The fleet that has closed it for itself.
pub(crate) fn closed_by(config: &str) -> Option<&str> {
    let (_, fleet) = config.strip_prefix(CLOSED)?.split_once(FOR)?;
    Some(fleet)
}

const CLOSED: &str = "closed max_ttl=";

const FOR: &str = " for ";

/// Whether a node may vote, as it was when it executed a call.
#[doc(hidden)] // between the lock and its nodes
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Eligibility {
    /// It is not guarded: it votes. With the first vote it is marked as one of this fleet.
    #[default]
    Unguarded,
    /// The marker, which this is, names this incarnation and this configuration. Its votes count with those of nodes that show the
    /// same roster.
    Admitted(Arc<str>),
    /// There is no marker, or it names another incarnation.
    Unadmitted,
    /// It keeps locks for a fleet that is configured differently, or is about to: that one's configuration.
    Configured(String),
}

// === impl Eligibility ===

impl Eligibility {
    /// Whether the marker names the present incarnation and the caller's configuration.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        matches!(self, Self::Admitted(_))
    }
}
