//! Runs, of ticks and of batches alike: their start, their execution, those in flight, and how long they may go on.
//!
//! A scheduler or a batch engine decides what starts, and accounts for it; here it becomes a task. [`PreparedRun`] has all
//! that a run needs and begins at once, [`execute`](execute::execute) takes it to its end, [`InFlight`] hands that end to the
//! engine, and [`Gate`] says whether this replica may start anything at all.
//!
//! # Invariants
//! - The work is marked under its lease before its task exists, and until its end is accounted for: no lease is let go beside
//!   it.   (a_term_is_resigned_after_its_run, a_claim_outlives_its_work)
//! - A run hears of its cancellation first, and is dropped before its lease ends: see [`execute`](execute::execute).

pub(crate) mod execute;
mod gate;
mod in_flight;
mod limits;
mod span;
mod start;

pub(crate) use execute::Ended;
pub(crate) use gate::{Gate, Pass};
pub(crate) use in_flight::{InFlight, RunInFlight};
pub(crate) use limits::{WindDown, stuck_at};
pub(crate) use start::PreparedRun;
