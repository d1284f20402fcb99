//! The ledger: what a fleet has decided about a job's ticks.
//!
//! It is the body of the job's lock record, written only by the lock's holder, on a majority of nodes, *before* the
//! holder acts. The next holder of the lock reads it and goes on from there. This module is the value and its
//! transitions; `crate::due` says which transition is next.
//!
//! # States of a tick
//! undecided -> running(attempt 1) -> [ retry(not before t) -> running(attempt n + 1) ]* -> decided.
//! A tick that will not run goes from undecided to decided at once; one that runs late may *wait* in between, one that
//! fell due while all places were taken may be *queued*.
//!
//! # Invariants
//! - L1 A tick at or before `decided_upto` starts only when it waits, and then it waits no longer.
//!   (`a_decided_tick_is_never_started_again`)
//! - L2 Attempt n + 1 starts only from `retry` of attempt n. (`an_attempt_is_started_once`)
//! - L3 `decided_upto` never goes back, unless a clock had jumped ahead: see `Ledger::take_back`, and L9 there.
//!   (`the_watermark_never_goes_back`)
//! - L4 An outcome changes only the attempt it belongs to. (`old_news_changes_nothing`)
//! - L5 Fields written by a newer version survive a round trip. (`fields_of_a_newer_version_are_kept`)
//! - L7 A trigger is started once, however long ago that was: the ids that `recent` has no room for are all below a floor,
//!   and ids grow with time. (a_trigger_that_was_forgotten_is_not_started_again)
//! - L8 A run that was replaced by a newer tick has no further attempt. (`a_replaced_run_has_no_further_attempt`)
//! - L10 A trigger that was withdrawn is never started, whatever copies of it come back, for as long as it could be.
//!   (a_withdrawn_trigger_is_known_and_takes_no_other_with_it)
//! - L6 Every attempt that starts has a larger number than all before it, also after the ledger of the job was
//!   forgotten. (`every_attempt_has_a_number_of_its_own`)

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

mod ahead;
mod attempts;
mod decided;
pub(crate) mod ids;
mod limits;
mod memory_loss;
mod notices;
pub(crate) mod params;
mod refused;
mod run;
#[cfg(test)]
mod tests;
mod ticks;
mod triggers;
mod trouble;

pub(crate) use limits::*;
pub(crate) use refused::LedgerError;
pub(crate) use refused::Refused;
pub(crate) use run::RunKey;
pub(crate) use run::{OpenRun, RunState};
pub(crate) use triggers::is_trigger_id;
pub(crate) use trouble::{Became, Cause, Seen, Trouble};

/// A job's ledger. `Ledger::default()` is that of a job never seen before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    v: u32,
    /// Every tick up to here is decided, apart from those in `waiting` and `queued`. None: the job was never seen before.
    decided_upto: Option<Timestamp>,
    /// Runs that have started and not ended: running, or between two attempts.
    #[serde(default)]
    open: Vec<OpenRun>,
    /// Decided to run late, in order, not started yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    waiting: Vec<Timestamp>,
    /// Fell due while all places were taken and run when one is free, in order, not started yet. A list of its own: a
    /// version that does not know it leaves it alone, and the rules about late ticks do not touch it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    queued: Vec<Timestamp>,
    /// Triggers that were started, in the order of their starts, so that none is started twice.
    #[serde(default)]
    recent: Vec<String>,
    /// Triggers up to here count as started: `recent` has no room for them any more.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    floor: String,
    /// Triggers that never start, in the order of their ids, so that a copy that comes back is known. A list of its own: the
    /// floor must not pass those that were asked for before them and still wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    withdrawn: Vec<String>,
    /// The last ticks that were decided not to run, in the order of the decisions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<Skipped>,
    /// Decided although they come after `decided_upto`: see [`Ledger::ran_ahead`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ran_ahead: Vec<Span>,
    /// Number of the last attempt that was started. It begins with the time of the first sight, so that it goes on
    /// growing when the ledger of a job was forgotten: the history of its runs is ordered by it.
    #[serde(default, skip_serializing_if = "run::is_zero")]
    runs: u64,
    /// Under which definition it was decided last.
    #[serde(default, skip_serializing_if = "Decided::is_unknown")]
    by: Decided,
    /// Up to here other schedules than the present one may have decided: see [`Ledger::mixed_upto`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mixed_upto: Option<Timestamp>,
    /// Losses of memory that are accounted for: see [`Ledger::memory_losses`].
    #[serde(
        rename = "blanks",
        default,
        skip_serializing_if = "<[Timestamp]>::is_empty"
    )]
    memory_losses: Box<[Timestamp]>,
    /// What people are to be told of the job, or were told last: see [`Ledger::trouble`].
    #[serde(
        default,
        deserialize_with = "trouble::lenient",
        skip_serializing_if = "Option::is_none"
    )]
    trouble: Option<Box<Trouble>>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// Ticks in a row that were decided not to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Skipped {
    /// The first.
    pub(crate) from: Timestamp,
    /// The last.
    pub(crate) to: Timestamp,
    /// How many.
    pub(crate) count: u64,
    /// By which rule: a bounded word.
    pub(crate) why: String,
}

/// Instants in a row, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Span {
    /// The first.
    pub(crate) from: Timestamp,
    /// The last.
    pub(crate) to: Timestamp,
}

/// Hashes of the definition that the last leader had; empty where a version wrote that did not know them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Decided {
    /// Of what names the ticks.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) ticks: String,
    /// Of the whole definition.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) whole: String,
}

// === impl Ledger: as text ===

impl Ledger {
    /// Reads the body of a lock record; an empty one is that of a job never seen before.
    ///
    /// # Errors
    /// [`LedgerError`]: do not write over such a body.
    pub fn from_body(body: &str) -> Result<Self, LedgerError> {
        #[derive(Deserialize)]
        struct Version {
            v: u64,
        }
        if body.is_empty() {
            return Ok(Self::default());
        }
        // The version alone first: nothing else need be readable to us in a newer one.
        let Version { v: found } = serde_json::from_str(body).map_err(LedgerError::Malformed)?;
        if found > u64::from(WITH_SPANS) {
            return Err(LedgerError::Newer { found });
        }
        serde_json::from_str(body).map_err(LedgerError::Malformed)
    }

    /// The body for the lock record.
    #[must_use]
    pub(crate) fn to_body(&self) -> String {
        // Strings, numbers and string keys: always serializable, and `Value` prints itself without a `Result`.
        serde_json::to_value(self).unwrap_or_default().to_string()
    }
}

// === impl Ledger: reading ===

impl Ledger {
    /// Every tick up to here is decided, apart from the waiting and the queued ones.
    #[must_use]
    pub fn decided_upto(&self) -> Option<Timestamp> {
        self.decided_upto
    }

    /// Runs that have started and not ended.
    #[must_use]
    pub fn open(&self) -> &[OpenRun] {
        &self.open
    }

    /// Ticks that will run late, in order.
    #[must_use]
    pub fn waiting(&self) -> &[Timestamp] {
        &self.waiting
    }

    /// Ticks that fell due while all places were taken and run when one is free, in order.
    #[must_use]
    pub(crate) fn queued(&self) -> &[Timestamp] {
        &self.queued
    }

    /// Triggers that were started and are remembered one by one, in the order of their starts.
    #[cfg(test)]
    pub(crate) fn recent(&self) -> &[String] {
        &self.recent
    }

    /// Number of the last attempt that was started: see [`OpenRun::seq`].
    #[cfg(test)]
    pub(crate) fn runs(&self) -> u64 {
        self.runs
    }

    /// The last ticks that were decided not to run, in the order of the decisions; [`MAX_SKIPPED`] rows at most.
    #[must_use]
    pub(crate) fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    fn seen(&self) -> Result<Timestamp, Refused> {
        self.decided_upto.ok_or(Refused::Unseen)
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            v: VERSION,
            decided_upto: None,
            open: Vec::new(),
            waiting: Vec::new(),
            queued: Vec::new(),
            recent: Vec::new(),
            floor: String::new(),
            withdrawn: Vec::new(),
            skipped: Vec::new(),
            ran_ahead: Vec::new(),
            runs: 0,
            by: Decided::default(),
            mixed_upto: None,
            memory_losses: Box::default(),
            trouble: None,
            rest: Map::new(),
        }
    }
}

// === impl Span, Decided ===

impl Span {
    /// Whether the instant lies in it.
    #[must_use]
    pub(crate) fn contains(&self, t: Timestamp) -> bool {
        self.from <= t && t <= self.to
    }
}

impl Decided {
    /// Whether nothing is written down.
    #[must_use]
    pub(crate) fn is_unknown(&self) -> bool {
        self.ticks.is_empty() && self.whole.is_empty()
    }
}
