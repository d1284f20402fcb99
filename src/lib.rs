//! Watchkeeper: replicated background workers.
#![forbid(unsafe_code)]

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
pub mod spawn;
pub mod status;
pub mod telemetry;
