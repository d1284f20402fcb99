//! Watchkeeper: replicated background workers.
#![forbid(unsafe_code)]

#[cfg(feature = "admin")]
pub mod admin;
pub mod backoff;
pub mod batch;
pub mod chance;
#[cfg(feature = "cli")]
pub mod cli;
pub mod clock;
pub mod config;
pub mod due;
pub mod election;
mod error;
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
pub(crate) mod scheduler;
pub mod secret;
pub mod signals;
#[cfg(test)]
mod sim;
pub mod sim_clock;
pub mod spawn;
pub mod status;
pub mod telemetry;
pub mod term;
pub mod worker;

pub use error::{Error, Result};
pub use human::DurationExt;
pub use job::{Health, Job, JobError, Outcome, Run, Spec};
pub use lock::Locks;
pub use worker::Worker;
