//! Watchkeeper: replicated background workers.
#![forbid(unsafe_code)]

pub mod backoff;
pub mod batch;
pub mod chance;
pub mod clock;
pub mod config;
pub mod due;
pub mod election;
pub mod event;
pub mod finding;
pub mod human;
pub mod job;
pub mod keeper;
pub mod lease;
pub mod ledger;
pub mod lock;
pub mod node;
pub mod schedule;
pub mod secret;
pub mod spawn;
pub mod term;

pub use human::DurationExt;
