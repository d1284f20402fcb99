//! Watchkeeper: replicated background workers.
#![forbid(unsafe_code)]

#[cfg(feature = "admin")]
pub mod admin;
pub mod batch;
pub mod chance;
pub mod clock;
pub mod due;
pub mod event;
pub mod job;
pub mod lease;
pub mod ledger;
pub mod node;
pub mod schedule;
pub mod signals;
pub mod spawn;
pub mod status;
pub mod telemetry;
