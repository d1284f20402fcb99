//! Locks of several processes, over independent Redis masters (Redlock), a single one, or an SQLite file; every lock comes
//! with a lease that ends by itself and a fencing token that only grows.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
#[doc(hidden)]
pub mod admission;
mod base;
pub mod election;
pub mod event;
mod expiry;
pub mod fence;
pub mod keeper;
pub mod lease;
pub mod lock;
pub mod node;
mod quorum;
pub mod settings;

pub use acquire::Locks;
pub use base::{chance, clock, spawn};
// The worker is built on these as well.
#[doc(hidden)]
pub use base::{backoff, files, finding, hash, human, owned, panics, secret, seldom, sim_clock};
pub use election::{Elector, term};
pub use event::Event;

#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../README.md")]
struct Readme;
