//! Runs, of ticks and of batches alike: how they are executed, and those that are in flight.

pub(crate) mod execute;
pub(crate) mod in_flight;
mod span;
