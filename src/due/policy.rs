//! What a job wants done about ticks that did not go as planned.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ledger::{MAX_OPEN, MAX_WAITING};

/// A job's rules, as far as decisions about its ticks need them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// About ticks found too late.
    pub(crate) misfire: MisfirePolicy,
    /// About runs whose holder died.
    pub(crate) interrupted: Interrupted,
    /// About ticks that fall due while all places are taken.
    pub(crate) overlap: Overlap,
    /// How many runs may go on at a time. 1 to [`MAX_OPEN`].
    pub(crate) concurrency: usize,
    /// How often a run is started at most, whether an attempt failed or died. With 1 an interrupted run is never
    /// started again.
    pub(crate) attempts: u32,
}

/// What to do about ticks found too late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MisfirePolicy {
    /// Which of them run.
    pub(crate) mode: Misfire,
    /// With [`Misfire::All`]: how many of them, the latest ones. 1 to [`MAX_WAITING`].
    pub(crate) limit: usize,
    /// None older than this runs; no limit when absent. A tick that is on time always runs.
    pub(crate) window: Option<Duration>,
}

/// Which of the ticks found too late run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Misfire {
    /// None.
    Skip,
    /// The latest, once, for all of them.
    #[default]
    Once,
    /// Each, in order, within limit and window.
    All,
}

/// What to do about a run whose holder died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interrupted {
    /// Start it again as the next attempt, with its checkpoint.
    #[default]
    Rerun,
    /// Leave it.
    Skip,
}

/// What to do about a tick that falls due while as many runs go on as may at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overlap {
    /// It does not run.
    #[default]
    Skip,
    /// It runs when a place is free, in order; 100 ticks wait at most.
    Queue,
    /// The oldest run is told to stop for good, and the tick runs when that has ended. Of those that wait for this the
    /// latest run. An attempt or a trigger that has waited for longer goes ahead of the tick.
    CancelPrevious,
    /// Runs go beside each other: as many as a ledger holds open, unless the job allows fewer. What is beyond does not
    /// run.
    Allow,
}

// === impl Overlap, Policy ===

impl Overlap {
    /// How many runs may go on at a time unless the job says it.
    #[must_use]
    pub(crate) fn default_concurrency(self) -> usize {
        match self {
            Self::Allow => MAX_OPEN,
            Self::Skip | Self::Queue | Self::CancelPrevious => 1,
        }
    }
}

impl Policy {
    /// Whether another attempt may follow this one.
    #[must_use]
    pub(crate) fn may_follow(&self, attempt: u32) -> bool {
        attempt < self.attempts
    }
}

impl Default for Policy {
    fn default() -> Self {
        let misfire = MisfirePolicy {
            mode: Misfire::default(),
            limit: 24,
            window: None,
        };
        Self {
            misfire,
            interrupted: Interrupted::default(),
            overlap: Overlap::default(),
            concurrency: 1,
            attempts: 3,
        }
    }
}

impl MisfirePolicy {
    /// How many late ticks may wait at a time.
    pub(super) fn places(&self) -> usize {
        match self.mode {
            Misfire::Skip | Misfire::Once => 1,
            Misfire::All => self.limit.clamp(1, MAX_WAITING),
        }
    }
}
