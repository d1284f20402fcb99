//! Votes: all nodes of a lock service, one attempt on them, and what a majority of them has said.
//!
//! `tally` counts, as plain functions. `round` asks and counts the votes of one attempt, `cluster` makes the attempts and
//! tells the nodes, `link` sends to one of them.

mod broken;
mod claim;
pub(crate) mod cluster;
mod error;
mod heard;
pub(crate) mod link;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod mutant;
mod round;
pub mod tally;
mod wall;

pub use broken::{BreakReport, BreakVote, Broken};
pub use claim::{Claim, Claimed};
pub use error::{LockError, MOST_SLOTS, NodeTroubles, WriteError};
pub(crate) use heard::Heard;
pub(crate) use wall::FleetClock;
