//! The ledger: what a fleet has decided about a job's ticks.
//!
//! It is the body of the job's lock record, written only by the lock's holder, on a majority of nodes, *before* the
//! holder acts. Whoever holds the lock next reads it and goes on from there. This module is the value and its
//! transitions; [`crate::due`] says which transition is next.
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
//! - L3 `decided_upto` never goes back, unless a clock had jumped ahead: see [`Ledger::take_back`], and L9 there.
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

use crate::node::Token;

mod ahead;
mod blanks;
mod decided;
pub(crate) mod ids;
mod kept;
pub(crate) mod params;
mod refused;
mod run;
#[cfg(test)]
mod tests;

pub use ahead::Span;
pub use decided::Decided;
pub use refused::{LedgerError, Refused};
pub use run::{OpenRun, RunKey, RunState};

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
    /// Losses of memory that are accounted for: see [`Ledger::blanks`].
    #[serde(default, skip_serializing_if = "<[Timestamp]>::is_empty")]
    blanks: Box<[Timestamp]>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// Ticks in a row that were decided not to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The first.
    pub from: Timestamp,
    /// The last.
    pub to: Timestamp,
    /// How many.
    pub count: u64,
    /// By which rule: a bounded word.
    pub why: String,
}

/// The version this program writes.
pub const VERSION: u32 = 1;
/// The version it writes as long as there is something in [`Ledger::ran_ahead`], which older programs would run again.
pub const WITH_SPANS: u32 = 2;
/// Open runs a ledger takes.
pub const MAX_OPEN: usize = 16;
/// Waiting ticks a ledger takes, and as many queued ones.
pub const MAX_WAITING: usize = 100;
/// Triggers a ledger remembers.
pub const MAX_RECENT: usize = 64;
/// Withdrawn triggers a ledger remembers.
pub const MAX_WITHDRAWN: usize = 200;
/// Rows of ticks that were skipped a ledger remembers.
pub const MAX_SKIPPED: usize = 16;
/// Bytes of a checkpoint as JSON.
pub const MAX_CHECKPOINT: usize = 16 * 1024;

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
    pub fn to_body(&self) -> String {
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
    pub fn queued(&self) -> &[Timestamp] {
        &self.queued
    }

    /// Triggers that were started and are remembered one by one, in the order of their starts.
    #[must_use]
    pub fn recent(&self) -> &[String] {
        &self.recent
    }

    /// Number of the last attempt that was started: see [`OpenRun::seq`].
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Whether that trigger was started before, was withdrawn, or is older than all that are remembered.
    #[must_use]
    pub fn knows_trigger(&self, id: &str) -> bool {
        id <= self.floor.as_str()
            || self.recent.iter().any(|known| known == id)
            || self.has_withdrawn(id)
    }

    /// Whether that trigger was withdrawn, and is remembered.
    #[must_use]
    pub fn has_withdrawn(&self, id: &str) -> bool {
        self.withdrawn.iter().any(|known| known == id)
    }

    /// The last ticks that were decided not to run, in the order of the decisions; [`MAX_SKIPPED`] rows at most.
    #[must_use]
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }
}

// === impl Ledger: transitions ===

impl Ledger {
    /// The job is seen for the first time: nothing at or before `now` will run.
    ///
    /// # Errors
    /// [`Refused::Seen`].
    pub fn first_sight(&mut self, now: Timestamp) -> Result<(), Refused> {
        match self.decided_upto {
            Some(upto) => Err(Refused::Seen { upto }),
            None => {
                self.decided_upto = Some(now);
                let since = u64::try_from(now.as_millisecond()).unwrap_or(0);
                self.runs = self.runs.max(since);
                Ok(())
            }
        }
    }

    /// Every tick up to `upto` is decided. Going back is no error and changes nothing.
    ///
    /// # Errors
    /// [`Refused::Unseen`].
    pub fn decide_upto(&mut self, upto: Timestamp) -> Result<(), Refused> {
        let decided = self.seen()?;
        self.decided_upto = Some(decided.max(upto));
        self.pass_spans();
        Ok(())
    }

    /// These ticks, the first of which is the first undecided one, will not run.
    ///
    /// # Errors
    /// [`Refused::Unseen`].
    pub fn skip_upto(&mut self, skipped: Skipped) -> Result<(), Refused> {
        let (upto, to) = (self.seen()?, skipped.to);
        match self.skipped.last_mut() {
            // Nothing was decided in between: one row.
            Some(last)
                if last.to == upto
                    && last.why == skipped.why
                    && self.ran_ahead.iter().all(|ran| ran.from > to) =>
            {
                last.to = to;
                last.count = last.count.saturating_add(skipped.count);
            }
            _ => self.note_skipped(skipped),
        }
        self.decide_upto(to)
    }

    /// Remembers that these ticks, decided already, will not run.
    pub fn note_skipped(&mut self, skipped: Skipped) {
        if self.skipped.len() >= MAX_SKIPPED {
            self.skipped.remove(0);
        }
        self.skipped.push(skipped);
    }

    /// Triggers with ids up to `id` count as started: what became of them may have been forgotten. Says whether that is new.
    pub fn forget_triggers_upto(&mut self, id: &str) -> bool {
        let raised = self.floor.as_str() < id;
        if raised {
            id.clone_into(&mut self.floor);
        }
        raised
    }

    /// That trigger never starts. `oldest`: the first of those that still wait. False when there is no room to remember it: the
    /// trigger is not to be told of as withdrawn then.
    pub fn withdraw_trigger(&mut self, id: &str, oldest: Option<&str>) -> bool {
        if self.knows_trigger(id) {
            return true;
        }
        if self.withdrawn.len() >= MAX_WITHDRAWN {
            // The floor takes in the smallest, and nothing that waits.
            let first = self.withdrawn.first();
            let first = first.filter(|first| oldest.is_none_or(|oldest| first.as_str() < oldest));
            let Some(first) = first.cloned() else {
                return false;
            };
            self.withdrawn.remove(0);
            self.forget_triggers_upto(&first);
            if self.knows_trigger(id) {
                return true;
            }
        }
        let place = self.withdrawn.partition_point(|known| known.as_str() < id);
        self.withdrawn.insert(place, id.to_owned());
        true
    }

    /// Withdrawn triggers with ids below this need not be remembered: whatever comes back of them is too old to start.
    pub fn forget_withdrawn_before(&mut self, id: &str) {
        self.withdrawn.retain(|known| known.as_str() >= id);
    }

    /// The tick will run as soon as nothing else does. Undecided ticks before it are decided with it: report them
    /// first.
    ///
    /// # Errors
    /// [`Refused::Decided`], [`Refused::TooManyWaiting`], [`Refused::Unseen`].
    pub fn wait(&mut self, tick: Timestamp) -> Result<(), Refused> {
        let upto = self.seen()?;
        if tick <= upto || self.has_run_ahead(tick) {
            return Err(Refused::Decided { tick, upto });
        }
        if self.waiting.len() >= MAX_WAITING {
            return Err(Refused::TooManyWaiting);
        }
        self.waiting.push(tick);
        self.decide_upto(tick)
    }

    /// The waiting tick will not run.
    ///
    /// # Errors
    /// [`Refused::NotOpen`] when it does not wait.
    pub fn wait_no_longer(&mut self, tick: Timestamp) -> Result<(), Refused> {
        let place = self.waiting.iter().position(|waiting| *waiting == tick);
        let place = place.ok_or_else(|| Refused::NotOpen {
            id: tick.to_string(),
        })?;
        self.waiting.remove(place);
        Ok(())
    }

    /// The tick will run as soon as a place is free. Undecided ticks before it are decided with it: report them first.
    ///
    /// # Errors
    /// [`Refused::Decided`], [`Refused::TooManyWaiting`], [`Refused::Unseen`].
    pub fn queue(&mut self, tick: Timestamp) -> Result<(), Refused> {
        let upto = self.seen()?;
        if tick <= upto || self.has_run_ahead(tick) {
            return Err(Refused::Decided { tick, upto });
        }
        if self.queued.len() >= MAX_WAITING {
            return Err(Refused::TooManyWaiting);
        }
        self.queued.push(tick);
        self.decide_upto(tick)
    }

    /// The queued tick will not run.
    ///
    /// # Errors
    /// [`Refused::NotOpen`] when it is not queued.
    pub fn leave_queue(&mut self, tick: Timestamp) -> Result<(), Refused> {
        let place = self.queued.iter().position(|queued| *queued == tick);
        let place = place.ok_or_else(|| Refused::NotOpen {
            id: tick.to_string(),
        })?;
        self.queued.remove(place);
        Ok(())
    }

    /// A newer tick takes the place of this running attempt: it is told to stop, and no other follows.
    ///
    /// # Errors
    /// [`Refused::NotOpen`], [`Refused::Moved`] when it is not running, or in another attempt.
    pub fn replace(&mut self, key: &RunKey) -> Result<(), Refused> {
        let run = self.run(&key.id)?;
        if run.attempt != key.attempt || run.state != RunState::Running {
            return Err(run.moved());
        }
        run.replaced = true;
        Ok(())
    }

    /// This attempt was started in a place that the queued ticks up to `tick` had asked for.
    ///
    /// # Errors
    /// [`Refused::NotOpen`], [`Refused::Moved`].
    pub fn goes_ahead_of(&mut self, key: &RunKey, tick: Timestamp) -> Result<(), Refused> {
        let run = self.run(&key.id)?;
        if run.attempt != key.attempt || run.state != RunState::Running {
            return Err(run.moved());
        }
        run.ahead_of = Some(tick);
        Ok(())
    }

    /// Attempt 1 of a tick starts. Undecided ticks before it are decided with it: report them first.
    ///
    /// # Errors
    /// [`Refused::Decided`], [`Refused::Full`], [`Refused::Unseen`].
    pub fn start_tick(&mut self, tick: Timestamp, token: Token) -> Result<&OpenRun, Refused> {
        let upto = self.seen()?;
        let waits = self.waiting.contains(&tick) || self.queued.contains(&tick);
        if (tick <= upto || self.has_run_ahead(tick)) && !waits {
            return Err(Refused::Decided { tick, upto });
        }
        self.has_room()?;
        self.waiting.retain(|waiting| *waiting != tick);
        self.queued.retain(|queued| *queued != tick);
        self.decide_upto(tick)?;
        Ok(self.open_run(tick.to_string(), tick, token))
    }

    /// Attempt 1 of a trigger starts.
    ///
    /// # Errors
    /// [`Refused::KnownTrigger`], [`Refused::NotATrigger`], [`Refused::Full`], [`Refused::Unseen`].
    pub fn start_trigger(
        &mut self,
        id: &str,
        now: Timestamp,
        token: Token,
    ) -> Result<&OpenRun, Refused> {
        self.seen()?;
        if !is_trigger_id(id) {
            return Err(Refused::NotATrigger { id: id.to_owned() });
        }
        if self.knows_trigger(id) {
            return Err(Refused::KnownTrigger { id: id.to_owned() });
        }
        self.has_room()?;
        self.recent.push(id.to_owned());
        if self.recent.len() > MAX_RECENT {
            // The smallest, so that the floor keeps out as few as possible that were asked for later.
            let oldest = self.recent.iter().enumerate().min_by_key(|(_, id)| *id);
            if let Some(place) = oldest.map(|(place, _)| place) {
                let oldest = self.recent.remove(place);
                self.forget_triggers_upto(&oldest);
            }
        }
        Ok(self.open_run(id.to_owned(), now, token))
    }

    /// The next attempt of a run in state `retry` starts.
    ///
    /// # Errors
    /// [`Refused::NotOpen`], [`Refused::Moved`] when it is running, [`Refused::Outranked`].
    pub fn start_again(&mut self, id: &str, token: Token) -> Result<&OpenRun, Refused> {
        let seq = self.runs + 1;
        let run = self.run(id)?;
        if run.token > token {
            return Err(Refused::Outranked {
                id: id.to_owned(),
                token: run.token,
            });
        }
        if run.state != RunState::Retry {
            return Err(run.moved());
        }
        run.seq = seq;
        run.attempt += 1;
        run.state = RunState::Running;
        run.token = token;
        run.not_before = None;
        run.ahead_of = None;
        self.runs = seq;
        self.run(id).map(|run| &*run)
    }

    /// This attempt, started under `token`, has ended and another one follows, no earlier than `not_before`.
    ///
    /// # Errors
    /// [`Refused::NotOpen`], [`Refused::Moved`], [`Refused::Replaced`].
    pub fn retry_later(
        &mut self,
        key: &RunKey,
        token: Token,
        not_before: Timestamp,
    ) -> Result<(), Refused> {
        let run = self.running(key, token)?;
        run.another_may_follow()?;
        run.state = RunState::Retry;
        run.not_before = Some(not_before);
        run.interrupted = false;
        Ok(())
    }

    /// This attempt, started under `token`, has ended and no other follows, however it ended: done, skipped, failed for good.
    ///
    /// # Errors
    /// [`Refused::NotOpen`], [`Refused::Moved`].
    pub fn finish(&mut self, key: &RunKey, token: Token) -> Result<(), Refused> {
        self.running(key, token)?;
        self.open.retain(|run| run.id != key.id);
        Ok(())
    }

    /// This attempt, started under `token`, leaves something for the next one.
    ///
    /// # Errors
    /// [`Refused::NotOpen`], [`Refused::Moved`], [`Refused::CheckpointTooLarge`].
    pub fn save_checkpoint(
        &mut self,
        key: &RunKey,
        token: Token,
        checkpoint: Value,
    ) -> Result<(), Refused> {
        let size = checkpoint.to_string().len();
        if size > MAX_CHECKPOINT {
            return Err(Refused::CheckpointTooLarge { size });
        }
        self.running(key, token)?.checkpoint = Some(checkpoint);
        Ok(())
    }

    /// The attempt died with its holder; the next one may start from `not_before`. Said by a holder with `token`.
    ///
    /// # Errors
    /// [`Refused::NotOpen`], [`Refused::Moved`], [`Refused::Outranked`], [`Refused::Replaced`].
    pub fn interrupt(
        &mut self,
        key: &RunKey,
        token: Token,
        not_before: Timestamp,
    ) -> Result<(), Refused> {
        let run = self.dead(key, token)?;
        run.another_may_follow()?;
        run.state = RunState::Retry;
        run.not_before = Some(not_before);
        run.interrupted = true;
        Ok(())
    }

    /// The attempt died with its holder and no other follows. Said by a holder with `token`.
    ///
    /// # Errors
    /// [`Refused::NotOpen`], [`Refused::Moved`], [`Refused::Outranked`].
    pub fn give_up(&mut self, key: &RunKey, token: Token) -> Result<(), Refused> {
        self.dead(key, token)?;
        self.open.retain(|run| run.id != key.id);
        Ok(())
    }

    fn seen(&self) -> Result<Timestamp, Refused> {
        self.decided_upto.ok_or(Refused::Unseen)
    }

    fn has_room(&self) -> Result<(), Refused> {
        if self.open.len() < MAX_OPEN {
            Ok(())
        } else {
            Err(Refused::Full)
        }
    }

    fn open_run(&mut self, id: String, tick: Timestamp, token: Token) -> &OpenRun {
        let place = self.open.len();
        self.runs += 1;
        self.open.push(OpenRun::first(id, tick, token, self.runs));
        &self.open[place]
    }

    fn run(&mut self, id: &str) -> Result<&mut OpenRun, Refused> {
        let run = self.open.iter_mut().find(|run| run.id == id);
        run.ok_or_else(|| Refused::NotOpen { id: id.to_owned() })
    }

    /// The run, when exactly this attempt of it is running under this token.
    fn running(&mut self, key: &RunKey, token: Token) -> Result<&mut OpenRun, Refused> {
        let run = self.run(&key.id)?;
        if run.attempt != key.attempt || run.state != RunState::Running || run.token != token {
            return Err(run.moved());
        }
        Ok(run)
    }

    /// The run, when this attempt of it is running under a token that is not newer than `token`.
    fn dead(&mut self, key: &RunKey, token: Token) -> Result<&mut OpenRun, Refused> {
        let run = self.run(&key.id)?;
        if run.token > token {
            return Err(Refused::Outranked {
                id: key.id.clone(),
                token: run.token,
            });
        }
        if run.attempt != key.attempt || run.state != RunState::Running {
            return Err(run.moved());
        }
        Ok(run)
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
            blanks: Box::default(),
            rest: Map::new(),
        }
    }
}

/// Short, and not to be mistaken for a tick.
pub(crate) fn is_trigger_id(id: &str) -> bool {
    (1..=128).contains(&id.len()) && id.parse::<Timestamp>().is_err()
}
