//! What a job wants done about ticks that did not go as planned.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ledger::MAX_WAITING;

/// A job's rules, as far as decisions about its ticks need them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// About ticks found too late.
    pub misfire: MisfirePolicy,
    /// About runs whose holder died.
    pub interrupted: Interrupted,
    /// How often a run is started at most, whether an attempt failed or died. With 1 an interrupted run is never
    /// started again.
    pub attempts: u32,
}

/// What to do about ticks found too late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MisfirePolicy {
    /// Which of them run.
    pub mode: Misfire,
    /// With [`Misfire::All`]: how many of them, the latest ones. 1 to [`MAX_WAITING`].
    pub limit: usize,
    /// None older than this runs; no limit when absent. A tick that is on time always runs.
    pub window: Option<Duration>,
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

/// A rule that cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The limit is out of range.
    #[error("misfire_limit is {0}: allowed are 1 to {MAX_WAITING}")]
    Limit(usize),
    /// Nothing would ever start.
    #[error("attempts is 0: a run is started at least once")]
    Attempts,
}

// === impl Policy ===

impl Policy {
    /// Whether the rules can be followed.
    ///
    /// # Errors
    /// [`PolicyError`] names the setting and what is allowed.
    pub fn check(&self) -> Result<(), PolicyError> {
        if !(1..=MAX_WAITING).contains(&self.misfire.limit) {
            return Err(PolicyError::Limit(self.misfire.limit));
        }
        if self.attempts == 0 {
            return Err(PolicyError::Attempts);
        }
        Ok(())
    }

    /// Whether another attempt may follow this one.
    #[must_use]
    pub fn may_follow(&self, attempt: u32) -> bool {
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
