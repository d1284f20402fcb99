//! Watchkeeper: replicated background workers.
#![forbid(unsafe_code)]

pub mod chance;
pub mod clock;
pub mod due;
pub mod ledger;
pub mod node;
pub mod schedule;
pub mod sim_clock;
pub mod spawn;
