//! Votes: all nodes of a lock service, one attempt on them, and what a majority of them has said.
//!
//! `tally` counts, as plain functions. `attempt` is one attempt to acquire, `round` its votes. `cluster` sends to all nodes,
//! `link` to one of them, and `node_health` is what is known of it. Attempts run where their caller is, over the links of callers; all
//! else runs at the keeper, over its own.

mod attempt;
mod broken;
pub(crate) mod claim;
pub(crate) mod cluster;
mod error;
mod estimate;
pub(crate) mod link;
pub(crate) mod members;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)] // for the tests
pub mod mutant;
mod node_health;
mod pending_answers;
mod round;
mod subscriptions;
#[doc(hidden)] // for the worker and the tests
pub mod tally;
mod votes;
mod wall;

pub use broken::{BreakReport, BreakVote, Broken};
pub use claim::{Claim, Claimed};
pub use error::{LockError, MOST_SLOTS, NodeTroubles, WriteError};
pub(crate) use pending_answers::PendingAnswers;
pub(crate) use subscriptions::Subscriptions;
pub(crate) use votes::Votes;
pub(crate) use wall::FleetClock;
