//! Watchkeeper: replicated background workers.
#![forbid(unsafe_code)]

pub mod backoff;
pub mod batch;
pub mod chance;
pub mod clock;
pub mod due;
pub mod election;
pub mod event;
pub mod job;
pub mod keeper;
pub mod lease;
pub mod ledger;
pub mod lock;
pub mod node;
pub mod schedule;
pub mod spawn;
pub mod term;
