//! Tests of jobs.

mod alone;
mod asks;
mod asserts;
mod book;
pub(crate) mod cage;
mod fleet;
pub(crate) mod process;
mod report;
mod sim;

use std::fmt;

pub use alone::{OneRun, Ran, batch, run};
pub use book::{BatchRecord, Told};
pub use fleet::Fleet;
pub use sim::{SEED, Sim};

/// A replica of a simulated fleet: `r1` is the first. It keeps its name when its process is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replica(u32);

impl Replica {
    /// Its number; the first is 1.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}
