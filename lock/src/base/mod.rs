//! Handles and plain values below the locks: time, randomness, tasks, durations, hashes, secrets, files.

pub mod backoff;
pub mod chance;
pub mod clock;
pub mod files;
pub mod finding;
pub mod hash;
pub mod human;
pub mod latest;
pub mod owned;
pub mod panics;
#[cfg(test)]
pub(crate) mod paper;
pub mod secret;
pub mod seldom;
pub mod sim_clock;
pub mod spawn;
