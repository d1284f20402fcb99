//! Why a body is no ledger, and why a transition was refused.

use jiff::Timestamp;

use super::{
    limits::{MAX_CHECKPOINT, MAX_OPEN, MAX_WAITING, WITH_SPANS},
    run::RunState,
};
use crate::node::Token;

/// A body that is no ledger of ours. It is left alone: a replica that cannot read it must not write it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// Written by a newer version of this program.
    #[error("the ledger has version {found}, this program knows {WITH_SPANS}: update this replica")]
    Newer {
        /// The body's version.
        found: u64,
    },
    /// Not readable.
    #[error("the ledger cannot be read")]
    Malformed(#[source] serde_json::Error),
}

/// Why a transition was refused; the ledger is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Refused {
    /// The first sight of the job must be recorded before anything starts.
    #[error("the job was never seen before")]
    Unseen,
    /// The first sight is already recorded.
    #[error("the job was seen before; decided up to {upto}")]
    Seen {
        /// The watermark.
        upto: Timestamp,
    },
    /// The tick is decided and does not wait.
    #[error("tick {tick} is decided; decided up to {upto}")]
    Decided {
        /// The tick.
        tick: Timestamp,
        /// The watermark.
        upto: Timestamp,
    },
    /// The trigger was started before.
    #[error("trigger {id} was started before")]
    KnownTrigger {
        /// Its id.
        id: String,
    },
    /// A trigger's id must be short and must not look like a tick.
    #[error("{id:?} is no id of a trigger")]
    NotATrigger {
        /// The id.
        id: String,
    },
    /// As many runs are open as the ledger takes.
    #[error("{MAX_OPEN} runs are open")]
    Full,
    /// As many ticks wait as the ledger takes.
    #[error("{MAX_WAITING} ticks wait")]
    TooManyWaiting,
    /// No such run is open.
    #[error("run {id} is not open")]
    NotOpen {
        /// The run.
        id: String,
    },
    /// The run is open, but not in this attempt, this state or under this token.
    #[error("run {id} is {} in attempt {attempt} under token {}", .state, .token.0)]
    Moved {
        /// The run.
        id: String,
        /// The attempt found.
        attempt: u32,
        /// The state found.
        state: RunState,
        /// The token found.
        token: Token,
    },
    /// A later holder has written here.
    #[error("run {id} was started under the newer token {}", .token.0)]
    Outranked {
        /// The run.
        id: String,
        /// Its token.
        token: Token,
    },
    /// A newer tick took the run's place.
    #[error("run {id} was replaced by a newer tick: no other attempt follows")]
    Replaced {
        /// The run.
        id: String,
    },
    /// The checkpoint is larger than [`MAX_CHECKPOINT`].
    #[error("the checkpoint has {size} bytes, at most {MAX_CHECKPOINT} are kept")]
    CheckpointTooLarge {
        /// Its size as JSON.
        size: usize,
    },
}
