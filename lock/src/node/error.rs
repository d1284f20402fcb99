//! Why a node gave no answer.

use std::time::Duration;

use super::{NodeMs, Refusal};
use crate::human::Brief;

/// How it is called in what differs between two fleets.
pub(crate) const LAYOUT_OF_KEYS: &str = "the layout of keys";

/// Why a node gave no answer. Never a vote, never "held", never "still ours".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// No connection. Nothing was executed.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// No answer in time. It may have been executed.
    #[error("no answer within {}", Brief(*.0))]
    Timeout(Duration),
    /// More is asked of it by this process than it answers in time: the request was not sent.
    #[error("more is asked of it than it answers in time: the request was not sent")]
    Overload,
    /// The call reached the node after its sender had given up; nothing was executed.
    #[error("the call arrived too late")]
    Late {
        /// The node's clock.
        at: NodeMs,
    },
    /// No connection that can be trusted: TLS failed. Nothing was executed.
    #[error("no TLS connection: {0}")]
    Tls(String),
    /// The server answers and does not serve. Nothing was executed.
    #[error("{said}: {refusal}")]
    Refused {
        /// Which of the refusals that servers know.
        refusal: Refusal,
        /// What it said, or what it was found to be.
        said: String,
    },
    /// The node does not let us in: password, user or permissions.
    #[error("access refused: {0}")]
    Auth(String),
    /// The node cannot serve now (loading, read only, out of memory, busy, disk trouble). Nothing was executed.
    #[error("cannot serve: {0}")]
    Unfit(String),
    /// What it remembered is out of its reach for good: its file was removed, replaced or taken back from a backup. Nothing it
    /// granted stands there for others to see, so leases end.
    #[error("its memory is gone: {0}")]
    Gone(String),
    /// It is new or has lost its memory, and does not vote before it was watched for the longest lease. Nothing was
    /// granted.
    #[error("{}", unadmitted(*left))]
    Unadmitted {
        /// How much longer at most, as far as this process knows.
        left: Option<Duration>,
    },
    /// Its fleet is new, or most of its nodes have lost their memory: it does not vote before all of them answer. Nothing was
    /// granted.
    #[error("{}", unfounded(waits_for))]
    Unfounded {
        /// The nodes that do not answer, or are of another fleet.
        waits_for: Vec<String>,
    },
    /// It keeps locks for a fleet that is configured differently, and does not vote for this one. Nothing was granted.
    #[error(
        "keeps locks for a fleet that is configured differently: {differs}; {}",
        Self::to_agree(differs)
    )]
    Configured {
        /// In what, with both values.
        differs: String,
    },
    /// An answer that does not make sense: a defect, or a stranger at that address.
    #[error("unexpected answer: {0}")]
    Protocol(String),
}

// === impl NodeError ===

impl NodeError {
    /// A bounded word for metrics.
    #[doc(hidden)] // for the commands
    #[must_use]
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::Timeout(_) => "timeout",
            Self::Overload => "overload",
            Self::Late { .. } => "late",
            Self::Tls(_) => "tls",
            Self::Refused { refusal, .. } => refusal.cause(),
            Self::Auth(_) => "auth",
            Self::Unfit(_) => "unfit",
            Self::Gone(_) => "gone",
            Self::Unadmitted { .. } | Self::Unfounded { .. } => "unadmitted",
            Self::Configured { .. } => "configured",
            Self::Protocol(_) => "protocol",
        }
    }

    /// What to do about a node that keeps locks for a fleet which differs in this.
    #[doc(hidden)] // for the worker and the commands
    #[must_use]
    pub fn to_agree(differs: &str) -> &'static str {
        match differs.contains(LAYOUT_OF_KEYS) {
            // What lies there under the other names would be lost.
            true => {
                "another version keeps its locks there: use that version, or give this one a namespace of its own and carry the \
                 ledgers over (`watchkeeper move --out FILE` of that version, `move --in FILE` of this one)"
            }
            false => {
                "configure all alike, or stop all and run `watchkeeper doctor --reconfigure` with the new configuration"
            }
        }
    }

    /// Whether nothing of what was asked stands, and nothing will: it has not left, or the whole server refuses all that it is asked.
    #[must_use]
    pub(crate) fn left_nothing(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Overload | Self::Tls(_) => true,
            // Not those that a script may meet in the midst of its work.
            Self::Refused { refusal, .. } => matches!(
                refusal,
                Refusal::ReadOnly
                    | Refusal::Loading
                    | Refusal::NoAuth
                    | Refusal::WrongPass
                    | Refusal::Evicts
                    | Refusal::Version
                    | Refusal::Clients
                    | Refusal::Database
                    | Refusal::Twin
                    | Refusal::Tables
                    | Refusal::Layout
                    | Refusal::NotDurable
            ),
            _ => false,
        }
    }

    /// Whether the node as a whole is of no use now. Otherwise what was asked was refused, and the next call may
    /// succeed.
    #[doc(hidden)] // for the tests
    #[must_use]
    pub fn is_down(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Timeout(_) | Self::Tls(_) => true,
            Self::Refused { refusal, .. } => refusal.refuses_everything(),
            Self::Overload
            | Self::Late { .. }
            | Self::Auth(_)
            | Self::Unfit(_)
            | Self::Gone(_)
            | Self::Unadmitted { .. }
            | Self::Unfounded { .. }
            | Self::Configured { .. }
            | Self::Protocol(_) => false,
        }
    }
}

/// Why nodes do not vote that show no roster which most of them show, in words.
pub(crate) fn unfounded(waits_for: &[String]) -> String {
    format!(
        "does not vote: its fleet is new, or most of its nodes have lost their memory. It is founded when all of its nodes answer, \
         and none is of another fleet; it waits for {}",
        waits_for.join(", ")
    )
}

/// Seconds are rounded up: what is said must have come true.
fn unadmitted(left: Option<Duration>) -> String {
    let mut text = "has lost its memory or is new".to_owned();
    if let Some(left) = left {
        let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        text += &format!("; votes again in {seconds}s at most");
    }
    text
}
