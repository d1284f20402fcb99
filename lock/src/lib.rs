//! Locks of several processes, over independent Redis masters (Redlock), a single one, a PostgreSQL database, an etcd cluster, or an
//! SQLite file. Every lock comes with a lease that ends by itself and a fencing token that only grows.
//!
//! What is promised, and what is not, stands in [`lock`].
//!
//! # Example
//! ```no_run
//! use std::time::Duration;
//! use watchkeeper_lock::{Locks, settings::LockSettings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In earnest: `LockSettings::redis(["redis://lock-a", …])`, or `LockSettings::embedded("locks.db")`.
//! let locks = Locks::open(&LockSettings::memory(), "shop")?.start()?;
//!
//! let lease = locks.lock("order:42").wait(Duration::from_secs(2)).acquire().await?;
//! println!("ours, fenced by {}", lease.token());
//! lease.release().await;
//! # Ok(()) }
//! ```
//!
//! # The modules, in reading order
//! - [`lock`]: the lock service of a process, named locks, semaphores, claims. [`lease`]: a held lock.
//! - [`election`]: one leader per name, and its [`term`].
//! - [`once`]: each message handled once, by many consumers that all read it.
//! - [`fence`]: what refuses a stale holder where the effect happens.
//! - [`node`]: one lock server; in Redis, PostgreSQL, etcd, SQLite or memory.
//! - [`keeper`]: the one thread that owns and extends every lease.
//! - [`event`]: what the locks tell. [`settings`]: nodes and times as a configuration names them.
//! - [`clock`], [`spawn`]: time and tasks, handed in and never fetched.
//!
//! What is hidden here is for the crates that are built on this one in its own repository, and may change with any release.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
#[doc(hidden)] // for the commands and the tests
pub mod admission;
mod base;
#[cfg(feature = "testing")]
#[doc(hidden)] // for those who write a node
pub mod conformance;
pub mod election;
pub mod event;
mod expiry;
pub mod fence;
pub mod keeper;
pub mod lease;
pub mod lock;
pub mod node;
pub mod once;
#[doc(hidden)] // for the worker and the commands
pub mod open;
mod quorum;
pub mod settings;

pub use acquire::Locks;
pub use base::{clock, human::DurationExt, spawn};
// The worker is built on these as well.
#[doc(hidden)] // for the worker
pub use base::{
    backoff, chance, files, finding, hash, human, latest, owned, panics, secret, seldom, sim_clock,
};
pub use election::{Elector, term};
pub use event::Event;
pub use open::StoreError;

#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../README.md")]
struct Readme;
