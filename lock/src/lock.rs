//! The lock: Redlock over N independent nodes, with a record beside every lock and a fencing token for every lease.
//!
//! [`Locks`] is the handle of a process: it starts one [`crate::keeper`], which owns and extends every
//! lease. The algorithm is Redlock (<https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>) with
//! its gaps closed where a client can close them; N = 1 is the single-instance algorithm, and the embedded SQLite file
//! is a node like any other, so there is one implementation and one set of tests for all of them.
//!
//! # Promised
//! - At any instant at most one lease of a named lock is held, as long as clocks run at nearly the same *rate*. What the
//!   nodes' clocks show does not matter with [`Expiry::Observed`] (`watch`), and nodes that lose their memory have no vote
//!   with [`LocksBuilder::guarded`] (`admission`).
//! - Every lease has a fencing token larger than that of every earlier lease of the lock.
//! - A lease ends at its local deadline, whatever the network says.
//!
//! # Ways of waiting
//! A waiter stands in the lock's queue and is called when the lock is released ([`LockBuilder::wait`]); candidates of
//! an election do not queue. The queue only orders waiters: a lock that is free is granted to any client that asks.
//!
//! # Not promised
//! - To short claims ([`Claim::short`]), and with [`Expiry::Server`] to all: anything when a node's wall clock jumps forward by
//!   more than the drift. Their keys end by the node's clock.
//! - To foreign clients of the same keys more than they give each other: they know neither records nor admission.
//! - Anything about code that does not look: after a freeze longer than the lease, only a receiver that compares
//!   fencing tokens is safe.
//! - Anything against a majority of nodes that lost their memory within a ttl, unless they are guarded: see
//!   [`LocksBuilder::guarded`]. With the guard: that tokens go on without a clock or [`LocksBuilder::token_floor`].
//!
//! # Example
//! ```
//! # use std::sync::Arc;
//! # use watchkeeper_lock::{Locks, clock::Clock, node::memory::MemoryNode};
//! use std::time::Duration;
//! use watchkeeper_lock::lock::{Claim, Claimed};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let node = MemoryNode::new("one", Clock::system());
//! # let locks = Locks::over(vec![Arc::new(node)]).start()?;
//! // Waits for its turn, ten seconds at most; extended in the background until released or dropped.
//! let lease = locks.lock("report").wait(Duration::from_secs(10)).acquire().await?;
//! println!("ours, fenced by {}", lease.token());
//! lease.release().await;
//!
//! // At most four at a time, each in a slot of its own.
//! let slot = locks.slots("gpu", 4).acquire().await?;
//! println!("device {}", slot.index());
//! slot.release().await;
//!
//! // Many at once, as far as they are free.
//! let orders = ["order:1", "order:2"].map(Claim::short).to_vec();
//! for claimed in locks.claim(orders).await? {
//!     assert!(matches!(claimed, Claimed::Acquired(_)));
//! }
//! # Ok(())
//! # }
//! ```

pub use crate::acquire::{LockBuilder, Locks, LocksBuilder, Rate, Slot, SlotsBuilder};
#[doc(hidden)] // for the commands and the tests
pub use crate::admission;
pub use crate::admission::{AdmissionReport, AdmissionState};
pub use crate::expiry::LockState;
pub use crate::keeper::NodeReport;
#[doc(hidden)] // for the worker
pub use crate::keeper::{Lives, Watching};
#[cfg(doc)]
use crate::node::Expiry;
#[doc(hidden)] // for the worker
pub use crate::node::MOST_NAMES;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)] // for the tests
pub use crate::quorum::mutant;
pub use crate::quorum::{
    BreakReport, BreakVote, Broken, Claim, Claimed, LockError, MOST_SLOTS, NodeTroubles,
    WriteError, tally,
};
pub use crate::settings::{self, FleetConfig, LockSettings, Timing};
