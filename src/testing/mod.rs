//! Tests of jobs.

pub(crate) mod cage;
pub(crate) mod process;
