//! Watchkeeper: replicated background workers.
#![forbid(unsafe_code)]

pub mod batch;
pub mod chance;
pub mod clock;
pub mod config;
pub mod due;
pub mod event;
pub mod finding;
pub mod human;
pub mod job;
pub mod lease;
pub mod ledger;
pub mod lock;
pub mod node;
pub mod schedule;
pub mod secret;
pub mod spawn;

pub use human::DurationExt;
