//! All jobs, however many there are: what they come to, and which of them a page shows. Both are found once for each reading of the
//! fleet, and not for each client.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::address::Address;
use crate::fleet::status::JobStatus;

/// When all jobs were looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(in crate::admin) enum Looked {
    /// For this very page.
    #[default]
    Now,
    /// Then: there are so many that the page does not wait for all of them.
    At(Timestamp),
    /// Not yet: this is what the replica knows by itself.
    NotYet,
}

/// How many there are.
#[derive(Clone, Debug, Default)]
pub(in crate::admin) struct Totals {
    pub(super) jobs: usize,
    pub(super) paused: usize,
    /// Runs and batches.
    pub(super) in_flight: usize,
    /// Jobs in each state that can be chosen.
    pub(super) in_state: BTreeMap<&'static str, usize>,
}

/// The jobs that a page shows.
#[derive(Clone, Debug, Default)]
pub(in crate::admin) struct Chosen {
    /// Which of those that were looked for is the first, counted from 1.
    pub(super) first: usize,
    /// Their places among all.
    pub(in crate::admin) places: Vec<usize>,
    /// How many were looked for.
    pub(super) total: usize,
}

/// Finds the places of jobs that are looked for, in the order that is asked for.
pub(in crate::admin) type Choose = fn(&[JobStatus], &Address) -> Vec<usize>;

// === impl Totals ===

impl Totals {
    /// Jobs in a state that can be chosen.
    pub(super) fn in_state(&self, state: &str) -> usize {
        self.in_state.get(state).copied().unwrap_or_default()
    }
}

// === impl Chosen ===

impl Chosen {
    pub(in crate::admin) fn of(all: &[JobStatus], choose: Choose, address: &Address) -> Self {
        let chosen = choose(all, address);
        let (first, shown) = address.part(&chosen);
        Self {
            first,
            places: shown.to_vec(),
            total: chosen.len(),
        }
    }
}
