//! The decisions of [`super::decide`], one rule after the other.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{
    COUNT_LIMIT, Decision, Facts, Interrupted, Misfire, OVERLAP_PAUSE, Overlap, PAUSED_PAUSE, Plan,
    RESTART_PAUSE, TOLERANCE, Ticks, WhyMissed,
};
use crate::{
    ledger::{self, Ledger, MAX_OPEN, MAX_WAITING, OpenRun, Refused, RunState, ids::trigger_floor},
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
        self.missed(upto.min(self.facts.now), WhyMissed::Paused)?;
        if self.is_paused() {
            for tick in self.ledger.waiting().to_vec() {
                self.late_no_longer(tick, WhyMissed::Paused)?;
            }
            for tick in self.ledger.queued().to_vec() {
                self.ledger.leave_queue(tick)?;
                self.note_missed(tick, WhyMissed::Paused);
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

    /// All places are taken, and something has become due meanwhile.
    fn overlap(&mut self) -> Result<(), Refused> {
        let Facts {
            policy, schedule, ..
        } = *self.facts;
        let (Some(after), due) = (self.decided(), self.due()) else {
            return Ok(());
        };
        let queue = match policy.overlap {
            Overlap::Skip | Overlap::Allow => Vec::new(),
            Overlap::Queue => schedule.between(after, due, self.room_in_queue()),
            Overlap::CancelPrevious => {
                let latest = schedule.latest(after, due, policy.concurrency);
                self.skip_overlap(latest.first().and_then(|first| before(*first)))?;
                let keep = policy.concurrency - latest.len();
                while self.ledger.queued().len() > keep {
                    let tick = self.ledger.queued()[0];
                    self.ledger.leave_queue(tick)?;
                    let ticks = Ticks::single(tick);
                    self.ledger.note_skipped(ticks.skipped("overlap"));
                    self.decisions.push(Decision::Overlap { ticks });
                }
                latest
            }
        };
        self.queue(&queue)?;
        self.skip_overlap(Some(due))
    }

    /// The undecided ticks up to `upto` do not run, because all places were taken.
    fn skip_overlap(&mut self, upto: Option<Timestamp>) -> Result<(), Refused> {
        while let Some(ticks) = upto.and_then(|upto| self.undecided_upto(upto)) {
            self.ledger.skip_upto(ticks.skipped("overlap"))?;
            self.decisions.push(Decision::Overlap { ticks });
        }
        Ok(())
    }

    fn room_in_queue(&self) -> usize {
        MAX_WAITING.saturating_sub(self.ledger.queued().len())
    }

    fn queue(&mut self, ticks: &[Timestamp]) -> Result<(), Refused> {
        let (Some(from), Some(to)) = (ticks.first(), ticks.last()) else {
            return Ok(());
        };
        ticks.iter().try_for_each(|tick| self.ledger.queue(*tick))?;
        let ticks = Ticks {
            from: *from,
            to: *to,
            count: ticks.len() as u64,
        };
        self.decisions.push(Decision::Queued { ticks });
        Ok(())
    }

    /// Makes room for ticks that do not wait for the end of a run, but cause it.
    fn replace(&mut self) -> Result<(), Refused> {
        for by in self.without_a_place() {
            let going = self
                .running()
                .filter(|run| !run.replaced && run.ahead_of < Some(by));
            let Some(oldest) = going.min_by_key(|run| run.seq) else {
                continue;
            };
            let key = oldest.key();
            self.ledger.replace(&key)?;
            self.decisions.push(Decision::Replaced { key, by });
        }
        Ok(())
    }

    /// Queued ticks for which no run was stopped yet: there is neither a free place for them, nor a run that is ending, nor one
    /// that went ahead into a place that was made for them.
    fn without_a_place(&self) -> Vec<Timestamp> {
        if self.facts.policy.overlap != Overlap::CancelPrevious {
            return Vec::new();
        }
        let mut ahead: Vec<Timestamp> = self.running().filter_map(|run| run.ahead_of).collect();
        ahead.sort();
        let mut ending = self.running().filter(|run| run.replaced).count();
        // Those that are free now are for the oldest, at once.
        let mut queued: Vec<Timestamp> = self.ledger.queued().to_vec();
        queued.drain(..self.free().min(queued.len()));
        queued.retain(|tick| {
            if let Some(place) = ahead.iter().position(|upto| upto >= tick) {
                ahead.remove(place);
                return false;
            }
            let is_ending = ending > 0;
            ending = ending.saturating_sub(1);
            !is_ending
        });
        queued
    }

    /// What goes on, started here a moment ago or before. The dead are no longer among them.
    fn running(&self) -> impl Iterator<Item = &OpenRun> {
        let open = self.ledger.open().iter();
        open.filter(|run| run.state == RunState::Running)
    }

    /// There is room: chooses among the undecided and the waiting ticks those that will run. Behind others they queue.
    fn late(&mut self, mode: Misfire) -> Result<(), Refused> {
        let policy = self.facts.policy;
        let in_line = policy.overlap == Overlap::Queue && !self.ledger.queued().is_empty();
        let queues = in_line || mode != policy.misfire.mode;
        if queues && self.room_in_queue() == 0 {
            return self.overlap();
        }
        let places = match mode {
            Misfire::All => policy.misfire.limit.clamp(1, MAX_WAITING),
            _ => policy.misfire.places(),
        };
        let limit = if queues {
            places.min(self.room_in_queue())
        } else {
            places
        };
        let fresh = self.before_window();
        let (last, chosen) = self.chosen(mode, limit);
        let taken = if queues { 0 } else { chosen.len() };
        self.drop_waiting(policy.misfire.places().saturating_sub(taken), fresh)?;
        // The ones before the first chosen, or all of them.
        if let Some(upto) = chosen.first().map_or(last, |first| before(*first)) {
            match (mode, fresh) {
                (Misfire::Skip, _) => self.missed(upto, WhyMissed::Skip)?,
                (_, Some(fresh)) => {
                    self.missed(fresh.min(upto), WhyMissed::Window)?;
                    self.missed(upto, WhyMissed::Limit)?;
                }
                (_, None) => self.missed(upto, WhyMissed::Limit)?,
            }
        }
        if queues {
            return self.queue(&chosen);
        }
        chosen
            .into_iter()
            .try_for_each(|tick| self.ledger.wait(tick))
    }

    /// The latest undecided tick that is due, and those of the undecided that will run, `places` at most.
    fn chosen(&self, mode: Misfire, places: usize) -> (Option<Timestamp>, Vec<Timestamp>) {
        let schedule = self.facts.schedule;
        let fresh = self.before_window();
        let last = self
            .decided()
            .and_then(|upto| schedule.latest_upto(upto, self.due()));
        let chosen = match (last, mode) {
            (None, _) => Vec::new(),
            (Some(last), Misfire::All) => {
                let after = self.decided().into_iter().chain(fresh).max();
                let mut ticks = match after {
                    Some(after) => schedule.latest(after, last, places),
                    None => Vec::new(),
                };
                if ticks.is_empty() && self.on_time(last) {
                    ticks.push(last);
                }
                ticks
            }
            (Some(last), Misfire::Once) if fresh.is_none_or(|t| last > t) => vec![last],
            (Some(last), _) if self.on_time(last) => vec![last],
            (Some(_), _) => Vec::new(),
        };
        (last, chosen)
    }

    /// Waiting ticks may have grown too old, or later ones need their places.
    fn drop_waiting(&mut self, places: usize, fresh: Option<Timestamp>) -> Result<(), Refused> {
        let waiting = self.ledger.waiting().to_vec();
        let mut left = waiting.len();
        for tick in waiting {
            let why = match self.facts.policy.misfire.mode {
                _ if left > places => WhyMissed::Limit,
                _ if self.on_time(tick) => continue,
                Misfire::Skip => WhyMissed::Skip,
                _ if fresh.is_some_and(|fresh| tick <= fresh) => WhyMissed::Window,
                _ => continue,
            };
            left -= 1;
            self.late_no_longer(tick, why)?;
        }
        Ok(())
    }

    /// The waiting tick is missed.
    fn late_no_longer(&mut self, tick: Timestamp, why: WhyMissed) -> Result<(), Refused> {
        self.ledger.wait_no_longer(tick)?;
        self.note_missed(tick, why);
        Ok(())
    }

    fn note_missed(&mut self, tick: Timestamp, why: WhyMissed) {
        let ticks = Ticks::single(tick);
        self.ledger.note_skipped(ticks.skipped(why.as_str()));
        self.decisions.push(Decision::Missed { ticks, why });
    }

    /// The undecided ticks up to `upto` are missed.
    fn missed(&mut self, upto: Timestamp, why: WhyMissed) -> Result<(), Refused> {
        while let Some(ticks) = self.undecided_upto(upto) {
            self.ledger.skip_upto(ticks.skipped(why.as_str()))?;
            self.decisions.push(Decision::Missed { ticks, why });
        }
        Ok(())
    }

    /// Starts at most one run; says whether it did.
    fn start(&mut self) -> Result<bool, Refused> {
        let Facts {
            policy,
            token,
            now,
            triggers,
            ..
        } = *self.facts;
        let room = self.ledger.open().len() < MAX_OPEN;
        let queued = self.ledger.queued().first().copied().filter(|_| room);
        let waiting = self.ledger.waiting().first().copied().filter(|_| room);
        let waiting = waiting.into_iter().chain(queued).min();
        let retry = self
            .retries()
            .filter(|(at, ..)| *at <= now)
            .min()
            .map(|(at, _, id)| (at, id.to_owned()));
        let new =
            |id: &&String| room && ledger::is_trigger_id(id) && !self.ledger.knows_trigger(id);
        let trigger = triggers.iter().find(new);
        // A tick on time goes first; late ones that wait before it keep their order behind the retries.
        let prompt = waiting.filter(|tick| queued != Some(*tick) && self.on_time(*tick));
        // A tick that has stopped a run is what that place was made for, but whoever has waited for longer goes ahead: with
        // runs that outlast the interval there is a queued tick whenever a place is free.
        let made = queued.filter(|_| policy.overlap == Overlap::CancelPrevious);
        let (retry, trigger) = match made {
            Some(tick) => (
                retry.filter(|(at, ..)| *at <= tick),
                trigger.filter(|id| **id < trigger_floor(tick)),
            ),
            None => (retry, trigger),
        };
        let prompt = match retry.is_some() || trigger.is_some() {
            true => prompt,
            false => made.or(prompt),
        };
        let run = if let Some(tick) = prompt {
            self.ledger.start_tick(tick, token)?
        } else if let Some((_, id)) = retry {
            self.ledger.start_again(&id, token)?
        } else if let Some(id) = trigger {
            self.ledger.start_trigger(id, now, token)?
        } else if let Some(tick) = waiting {
            self.ledger.start_tick(tick, token)?
        } else if self.restart_at().is_some_and(|at| at <= now) {
            self.ledger.start_tick(now, token)?
        } else {
            return Ok(false);
        };
        let run = run.clone();
        self.started += 1;
        // It has the place that a run was stopped for: the tick that was to have it stops no second one.
        if let Some(last) = self.without_a_place().last() {
            self.ledger.goes_ahead_of(&run.key(), *last)?;
        }
        self.decisions.push(Decision::Start {
            id: run.id.clone(),
            tick: run.tick,
            attempt: run.attempt,
            interrupted: run.interrupted,
            checkpoint: run.checkpoint.clone(),
        });
        Ok(true)
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
        let retries = self.retries().map(|(at, ..)| at);
        // A pause that has ended by a clock that is ahead of this one.
        let resumed = self.facts.paused_upto;
        let resumed = resumed.filter(|upto| self.is_paused() && *upto < Timestamp::MAX);
        next_tick
            .into_iter()
            .chain(resumed)
            .chain(retries)
            .chain(self.restart_at())
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

    /// Ticks up to here are older than the window.
    fn before_window(&self) -> Option<Timestamp> {
        let window = SignedDuration::try_from(self.facts.policy.misfire.window?).ok()?;
        before(self.facts.now.checked_sub(window).ok()?)
    }
}

/// `t` moved on by `by`, not beyond the end of time.
pub(super) fn later(t: Timestamp, by: Duration) -> Timestamp {
    t.checked_add(by).unwrap_or(Timestamp::MAX)
}
