//! Which nodes vote, for people.

use std::{fmt, time::Duration};

use crate::{
    human::Span,
    node::{Admission, NodeError, guard::closed_since, unfounded},
};

use super::FleetConfig;

/// Whether one node votes: an entry of [`crate::Locks::admissions`].
#[doc(hidden)] // for the worker and the commands
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionReport {
    /// The node's name.
    pub name: String,
    /// Whether it votes.
    pub state: AdmissionState,
    /// The standing nomination, while it is on its way back to its vote: the same for every process that looks.
    pub nomination: Option<String>,
    /// Unix milliseconds: what was decided before this may have been forgotten here.
    pub memory_loss: Option<i64>,
}

/// Whether a node votes, and why not.
#[doc(hidden)] // for the worker and the commands
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdmissionState {
    /// It votes: it cannot lose its memory, or is not guarded against that.
    Unguarded,
    /// It votes.
    Admitted,
    /// It votes, but its fleet was given other addresses: should it lose its memory, it does not come back.
    Elsewhere,
    /// It is new or has lost its memory, and does not vote yet.
    Watched {
        /// How much longer at most; `None` while no process watches it.
        left: Option<Duration>,
    },
    /// It does not vote: its fleet is new, or most of its nodes have lost their memory, and others are waited for.
    Waits {
        /// The nodes that do not answer, or are of another fleet.
        waits_for: Vec<String>,
    },
    /// It keeps locks for a fleet that is configured differently, and does not vote for this one.
    Configured {
        /// In what, with both values.
        differs: String,
    },
    /// It does not tell.
    Silent(NodeError),
}

// === impl AdmissionState ===

impl AdmissionState {
    pub(crate) fn of(
        shown: &Admission,
        fleet: Option<&FleetConfig>,
        known: Option<Duration>,
        at_most: Duration,
    ) -> Self {
        let other = fleet.and_then(|ours| ours.stranger(shown).or(ours.rival(shown)));
        if let Some(differs) = other.and_then(|theirs| fleet?.differs_from(theirs)) {
            return Self::Configured { differs };
        }
        let closed = shown.config.as_deref().and_then(closed_since).is_some();
        if shown.incarnation.is_empty() && !closed {
            return Self::Unguarded;
        }
        if !shown.admitted || closed {
            let nominated = shown.nonce.is_some();
            let left = known.or(Some(at_most)).filter(|_| nominated);
            return Self::Watched { left };
        }
        Self::Admitted
    }

    /// Whether its votes count.
    #[must_use]
    pub fn votes(&self) -> bool {
        matches!(self, Self::Unguarded | Self::Admitted | Self::Elsewhere)
    }
}

impl fmt::Display for AdmissionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unguarded => f.write_str("votes, unguarded"),
            Self::Admitted => f.write_str("votes"),
            Self::Elsewhere => f.write_str(
                "votes, for a fleet that was given its nodes by other addresses: lost memory does not come back",
            ),
            Self::Watched { left: None } => {
                f.write_str("has lost its memory or is new, and no program watches it yet")
            }
            Self::Watched { left: Some(left) } => {
                let left = Span(whole_seconds(*left));
                write!(
                    f,
                    "has lost its memory or is new; votes again in {left} at most"
                )
            }
            Self::Waits { waits_for } => f.write_str(&unfounded(waits_for)),
            Self::Configured { differs } => {
                write!(
                    f,
                    "keeps locks for a fleet that is configured differently: {differs}"
                )
            }
            Self::Silent(trouble) => trouble.fmt(f),
        }
    }
}

/// Rounded up: what is said must have come true.
#[doc(hidden)] // for the commands
pub fn whole_seconds(left: Duration) -> Duration {
    Duration::from_secs(left.as_secs() + u64::from(left.subsec_nanos() > 0))
}
