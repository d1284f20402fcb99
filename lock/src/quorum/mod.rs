//! Votes: all nodes of a lock service, one attempt on them, and what a majority of them has said.
//!
//! `tally` counts, as plain functions. `attempt` is one attempt to acquire, `round` its votes. `cluster` sends to all nodes,
//! `link` to one of them.

mod attempt;
mod broken;
pub(crate) mod claim;
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
