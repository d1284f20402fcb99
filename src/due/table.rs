//! The decisions of [`super::decide`], one rule after the other.

mod late;
mod overlap;
mod start;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{
    plan::{
        COUNT_LIMIT, Decision, Facts, OVERLAP_PAUSE, PAUSED_PAUSE, Plan, RESTART_PAUSE, TOLERANCE,
        Ticks, WhySkipped,
    },
    policy::{Interrupted, Misfire, Overlap},
};
use crate::{
    ledger::{self, Ledger, MAX_OPEN, OpenRun, Refused, RunState},
    schedule::before,
};

/// Decisions as they are made; each is recorded in the ledger at once, so that the next one sees it.
pub(super) struct Table<'a> {
    facts: &'a Facts<'a>,
    ledger: Ledger,
    decisions: Vec<Decision>,
    /// Runs found dead.
    dead: usize,
    /// Runs that start.
    started: usize,
}

impl<'a> Table<'a> {
    pub(super) fn new(facts: &'a Facts<'a>) -> Self {
        Self {
            facts,
            ledger: facts.ledger.clone(),
            decisions: Vec::new(),
            dead: 0,
            started: 0,
        }
    }

    pub(super) fn decide(mut self) -> Result<Plan, Refused> {
        self.first_sight()?;
        self.interrupted()?;
        self.paused()?;
        self.fresh()?;
        self.replace()?;
        while self.facts.may_start && self.free() > 0 && self.start()? {}
        Ok(self.plan())
    }

    fn first_sight(&mut self) -> Result<(), Refused> {
        if self.ledger.decided_upto().is_some() {
            return Ok(());
        }
        let mut upto = self.facts.now;
        if self.facts.schedule.is_continuous() {
            // It has not run a moment ago, so it need not pause.
            upto = upto.checked_sub(RESTART_PAUSE).unwrap_or(upto);
        }
        self.ledger.first_sight(upto)?;
        self.decisions.push(Decision::FirstSight { upto });
        Ok(())
    }

    fn interrupted(&mut self) -> Result<(), Refused> {
        let Facts {
            policy,
            token,
            alive,
            now,
            ..
        } = *self.facts;
        let dead = |run: &&OpenRun| run.state == RunState::Running && !alive.contains(&run.key());
        let mut dead: Vec<OpenRun> = self.ledger.open().iter().filter(dead).cloned().collect();
        dead.sort_by_key(|run| run.seq);
        self.dead = dead.len();
        let mut replaced = self.replaced_by_late(dead.len());
        for run in dead {
            let exhausted =
                policy.interrupted == Interrupted::Rerun && !policy.may_follow(run.attempt);
            let no_more = run.replaced || replaced > 0;
            replaced = replaced.saturating_sub(1);
            let action = if exhausted || no_more {
                Interrupted::Skip
            } else {
                policy.interrupted
            };
            match action {
                Interrupted::Rerun => self.ledger.interrupt(&run.key(), token, now)?,
                Interrupted::Skip => self.ledger.give_up(&run.key(), token)?,
            }
            let OpenRun {
                id, tick, attempt, ..
            } = run;
            self.decisions.push(Decision::Interrupted {
                id,
                tick,
                attempt,
                action,
                exhausted,
            });
        }
        Ok(())
    }

    /// What fell into a pause does not run.
    fn paused(&mut self) -> Result<(), Refused> {
        let Some(upto) = self.facts.paused_upto else {
            return Ok(());
        };
        self.missed(upto.min(self.facts.now), WhySkipped::Paused)?;
        if self.is_paused() {
            for tick in self.ledger.waiting().to_vec() {
                self.late_no_longer(tick, WhySkipped::Paused)?;
            }
            for tick in self.ledger.queued().to_vec() {
                self.ledger.leave_queue(tick)?;
                self.note_missed(tick, WhySkipped::Paused);
            }
        }
        Ok(())
    }

    /// How many of the runs found dead, oldest first, make room for ticks that will run late.
    fn replaced_by_late(&self, dead: usize) -> usize {
        let policy = self.facts.policy;
        if policy.overlap != Overlap::CancelPrevious || self.is_paused() {
            return 0;
        }
        let (last, late) = self.chosen(policy.misfire.mode, policy.misfire.places());
        if late.is_empty() || last <= self.facts.paused_upto {
            return 0;
        }
        dead.saturating_sub(policy.concurrency.saturating_sub(late.len()))
    }

    fn is_paused(&self) -> bool {
        let now = self.facts.now;
        self.facts.paused_upto.is_some_and(|upto| upto > now)
    }

    /// Places that nothing runs in.
    fn free(&self) -> usize {
        let taken = self.facts.alive.len() + self.started;
        self.facts.policy.concurrency.saturating_sub(taken)
    }

    /// What has become due, beside free places or not.
    fn fresh(&mut self) -> Result<(), Refused> {
        let queues = self.facts.policy.overlap == Overlap::Queue;
        // Those in the queue have a right to the places before whatever falls due now.
        let places = self.free().saturating_sub(self.ledger.queued().len());
        // Beside runs that go on, a ledger full of retries leaves no place either.
        let full = !self.facts.alive.is_empty() && self.ledger.open().len() >= MAX_OPEN;
        let places = if full { 0 } else { places };
        let behind_dead = queues && self.dead >= self.facts.policy.concurrency;
        let nobody_ran = self.facts.alive.is_empty();
        if queues && nobody_ran && (places == 0 || behind_dead) {
            self.late(Misfire::All)
        } else if places == 0 {
            self.overlap()
        } else if self.facts.may_start {
            self.late(self.facts.policy.misfire.mode)
        } else {
            Ok(())
        }
    }

    fn plan(self) -> Plan {
        let now = self.facts.now;
        let ahead = self
            .decided()
            .and_then(|upto| Duration::try_from(upto.duration_since(now)).ok());
        let wake = self.wake();
        let ahead = ahead.filter(|ahead| !ahead.is_zero());
        Plan {
            decisions: self.decisions,
            ledger: self.ledger,
            wake,
            ahead,
        }
    }

    fn wake(&self) -> Option<Timestamp> {
        let now = self.facts.now;
        let schedule = self.facts.schedule;
        let next_tick = self
            .decided()
            .and_then(|upto| schedule.next_after(upto.max(self.due())))
            .map(|tick| schedule.starts(tick));
        if self.free() == 0 {
            return match self.facts.policy.overlap {
                // It is about to stop a run: nothing is collected.
                Overlap::CancelPrevious => next_tick,
                _ => Some(next_tick?.max(later(now, OVERLAP_PAUSE))),
            };
        }
        let next_tick = match self.is_paused() {
            true => next_tick.map(|tick| tick.max(later(now, PAUSED_PAUSE))),
            false => next_tick,
        };
        // Where nothing may start, what is due wakes for nothing.
        let may_start = self.facts.may_start;
        let retries = self.retries().map(|(at, ..)| at).filter(|_| may_start);
        // A pause that has ended by a clock that is ahead of this one.
        let resumed = self.facts.paused_upto;
        let resumed = resumed.filter(|upto| self.is_paused() && *upto < Timestamp::MAX);
        next_tick
            .into_iter()
            .chain(resumed)
            .chain(retries)
            .chain(self.restart_at().filter(|_| may_start))
            .min()
    }

    // --- facts, looked at ---

    fn decided(&self) -> Option<Timestamp> {
        self.ledger.decided_upto()
    }

    /// The first undecided ticks up to `upto`: all of them, unless one has run ahead of its time between them. A row of skipped
    /// ticks says that none of them has started.
    fn undecided_upto(&self, upto: Timestamp) -> Option<Ticks> {
        let schedule = self.facts.schedule;
        let after = self.decided()?;
        let from = schedule.next_after(after)?;
        let mut ran = self.ledger.ran_ahead().iter().map(|span| span.from);
        let stop = ran.find(|ran| *ran > from).and_then(before);
        let to = schedule.latest_upto(after, stop.map_or(upto, |stop| stop.min(upto)))?;
        Some(Ticks {
            from,
            to,
            count: schedule.count(after, to, COUNT_LIMIT),
        })
    }

    /// What goes on, started here a moment ago or before. The dead are no longer among them.
    fn running(&self) -> impl Iterator<Item = &OpenRun> {
        let open = self.ledger.open().iter();
        open.filter(|run| run.state == RunState::Running)
    }

    /// Attempts that wait: when, for which tick, of which run. In a pause those of triggers alone.
    fn retries(&self) -> impl Iterator<Item = (Timestamp, Timestamp, &str)> {
        let paused = self.is_paused();
        let waits = move |run: &&OpenRun| {
            run.state == RunState::Retry && (!paused || ledger::is_trigger_id(&run.id))
        };
        let open = self.ledger.open().iter().filter(waits);
        open.map(|run| {
            (
                run.not_before.unwrap_or(run.tick),
                run.tick,
                run.id.as_str(),
            )
        })
    }

    /// When a continuous job of which nothing is open may start; none for others.
    fn restart_at(&self) -> Option<Timestamp> {
        let continuous = self.facts.schedule.is_continuous();
        if !continuous || self.is_paused() || !self.ledger.open().is_empty() {
            return None;
        }
        self.decided().map(|upto| later(upto, RESTART_PAUSE))
    }

    fn on_time(&self, tick: Timestamp) -> bool {
        later(self.facts.schedule.starts(tick), TOLERANCE) >= self.facts.now
    }

    /// Ticks up to here are due: a tick whose start is delayed is not there yet.
    fn due(&self) -> Timestamp {
        self.facts.schedule.due_upto(self.facts.now)
    }

    /// Ticks up to here are older than the window, counted from their start.
    fn before_window(&self) -> Option<Timestamp> {
        let window = SignedDuration::try_from(self.facts.policy.misfire.window?).ok()?;
        let upto = before(self.facts.now.checked_sub(window).ok()?)?;
        Some(self.facts.schedule.due_upto(upto))
    }
}

/// `t` moved on by `by`, not beyond the end of time.
pub(super) fn later(t: Timestamp, by: Duration) -> Timestamp {
    t.checked_add(by).unwrap_or(Timestamp::MAX)
}
