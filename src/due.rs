//! Which ticks are due, and what becomes of the others: decisions, without clock or store.
//!
//! The holder of a job's lock asks [`decide`] whenever something may have changed, and carries the plan out:
//!
//! ```text
//! gather facts -> decide -> plan
//! if the plan decides anything: write plan.ledger to the store, and only when that has succeeded report and start
//! wait until plan.wake, the end of a run, a trigger or the loss of the lock; then again
//! when a run has ended: decide once more while it still counts as alive, record its outcome in the ledger
//!     (`finish`, `retry_later`), write, and only then take it off the list of runs alive
//! when a write failed or its outcome is unknown: read the ledger again before the next decision
//! ```
//!
//! # Rules
//! - The first sight of a job decides everything up to now: nothing before it runs.
//! - A tick is *on time* when it is the latest one due and at most [`TOLERANCE`] old. Every other undecided one is a
//!   *misfire*, whoever was to blame. [`Misfire::Skip`] runs none of these; [`Misfire::Once`] runs the latest tick due,
//!   on time or not, for all; [`Misfire::All`] runs the latest `limit` of them in order. None older than the window
//!   runs. Those that must wait for their turn wait in the ledger.
//! - One run at a time. A tick that falls due while one is running here is *overlap* and does not run. A run that waits
//!   for its next attempt blocks nothing: a tick on time goes first, then retries, triggers, late ticks.
//! - A run found open that is not alive here has died with its holder: it is *interrupted*, reported, and started again
//!   with the next attempt or left, as the job says; an attempt beyond `attempts` is never started.
//! - A continuous job has no ticks: while nothing of it is open it starts, at most once in [`RESTART_PAUSE`].
//! - A clock that went back decides nothing until it has caught up with the ledger; [`Plan::ahead`] says by how much.
//!
//! # Invariants
//! - D1 No attempt is started twice, whatever dies when. D2 Every tick between first sight and `decided_upto` was
//!   started, missed or overlap, or waits; none is two of these. D3 Never two runs at a time.
//!   (all: `every_tick_is_accounted_for_and_no_attempt_starts_twice`)

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    ledger::{self, Ledger, MAX_OPEN, OpenRun, Refused, RunKey, RunState},
    node::Token,
    schedule::{Schedule, before},
};

mod policy;
#[cfg(test)]
mod tests;

pub use policy::{Interrupted, Misfire, MisfirePolicy, Policy, PolicyError};

/// How old the latest tick may be and still count as on time.
pub const TOLERANCE: Duration = Duration::from_secs(1);
/// How long after its last start a continuous job that has ended is started again.
pub const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// How long overlapping ticks may be collected before they are written down.
pub const OVERLAP_PAUSE: Duration = Duration::from_secs(1);
/// Ticks that will not run are counted up to this number.
pub const COUNT_LIMIT: u64 = 10_000;

/// What a decision is made from.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The job's ledger as it stands on a majority of nodes.
    pub ledger: &'a Ledger,
    /// The job's schedule.
    pub schedule: &'a Schedule,
    /// The job's rules.
    pub policy: &'a Policy,
    /// Civil time.
    pub now: Timestamp,
    /// The token of the lease under which the plan will be carried out.
    pub token: Token,
    /// The runs that this replica has started and whose outcome it has not recorded yet.
    pub alive: &'a [RunKey],
    /// Ids of triggers that ask for a run, oldest first; those that were started before are passed over.
    pub triggers: &'a [String],
}

/// What to do now, and when to ask again.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What was decided, in the order in which it is to be reported; a start comes last.
    pub decisions: Vec<Decision>,
    /// The ledger with all of it recorded. When there are decisions, write it before acting on them.
    pub ledger: Ledger,
    /// When to ask again at the latest; absent when only an event can bring work.
    pub wake: Option<Timestamp>,
    /// How far the ledger is ahead of the clock; until then no tick is due.
    pub ahead: Option<Duration>,
}

/// One thing that was decided.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The job was never seen before.
    FirstSight {
        /// Nothing up to here runs.
        upto: Timestamp,
    },
    /// Start this attempt.
    Start {
        /// The tick in RFC 3339, or the trigger's id.
        id: String,
        /// The scheduled instant.
        tick: Timestamp,
        /// 1 for the first.
        attempt: u32,
        /// The attempt before died with its holder.
        interrupted: bool,
        /// What the attempt before left.
        checkpoint: Option<Value>,
    },
    /// These ticks were found too late and will not run.
    Missed {
        /// Which.
        ticks: Ticks,
        /// By which rule.
        why: WhyMissed,
    },
    /// These ticks fell due while a run was open here and will not run.
    Overlap {
        /// Which.
        ticks: Ticks,
    },
    /// A run was found whose holder died.
    Interrupted {
        /// As in `Start`.
        id: String,
        /// The scheduled instant.
        tick: Timestamp,
        /// The attempt that died.
        attempt: u32,
        /// What becomes of it.
        action: Interrupted,
        /// It is left because no attempt remains.
        exhausted: bool,
    },
}

/// Ticks in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks {
    /// The first.
    pub from: Timestamp,
    /// The last.
    pub to: Timestamp,
    /// How many; [`COUNT_LIMIT`] stands for that many or more.
    pub count: u64,
}

/// By which rule a late tick does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WhyMissed {
    /// The job skips late ticks.
    Skip,
    /// It is older than the window.
    Window,
    /// Later ticks took the places.
    Limit,
}

/// Decides what to do now.
///
/// # Errors
/// [`Refused::Outranked`]: a later holder has written the ledger; this replica holds the lock no longer.
pub fn decide(facts: &Facts<'_>) -> Result<Plan, Refused> {
    if let Some(run) = facts
        .ledger
        .open()
        .iter()
        .find(|run| run.token > facts.token)
    {
        return Err(Refused::Outranked {
            id: run.id.clone(),
            token: run.token,
        });
    }
    let mut table = Table {
        facts,
        ledger: facts.ledger.clone(),
        decisions: Vec::new(),
    };
    table.first_sight()?;
    table.interrupted()?;
    if table.busy() {
        table.overlap()?;
    } else {
        table.late()?;
        table.start()?;
    }
    Ok(table.plan())
}

// === deciding ===

/// Decisions as they are made; each is recorded in the ledger at once, so that the next one sees it.
struct Table<'a> {
    facts: &'a Facts<'a>,
    ledger: Ledger,
    decisions: Vec<Decision>,
}

impl Table<'_> {
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
        let dead: Vec<OpenRun> = self.ledger.open().iter().filter(dead).cloned().collect();
        for run in dead {
            let exhausted =
                policy.interrupted == Interrupted::Rerun && !policy.may_follow(run.attempt);
            let action = if exhausted {
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

    fn busy(&self) -> bool {
        !self.facts.alive.is_empty()
    }

    /// Something runs: what has become due meanwhile does not.
    fn overlap(&mut self) -> Result<(), Refused> {
        if let Some(ticks) = self.undecided_upto(self.facts.now) {
            self.ledger.decide_upto(ticks.to)?;
            self.decisions.push(Decision::Overlap { ticks });
        }
        Ok(())
    }

    /// Nothing runs: chooses among the undecided and the waiting ticks those that will.
    fn late(&mut self) -> Result<(), Refused> {
        let Facts {
            policy,
            schedule,
            now,
            ..
        } = *self.facts;
        let places = policy.misfire.places();
        let fresh = self.before_window();
        let last = self
            .decided()
            .and_then(|upto| schedule.latest_upto(upto, now));
        let chosen = match (last, policy.misfire.mode) {
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
        self.drop_waiting(places.saturating_sub(chosen.len()), fresh)?;
        // The ones before the first chosen, or all of them.
        if let Some(upto) = chosen.first().map_or(last, |first| before(*first)) {
            match (policy.misfire.mode, fresh) {
                (Misfire::Skip, _) => self.missed(upto, WhyMissed::Skip)?,
                (_, Some(fresh)) => {
                    self.missed(fresh.min(upto), WhyMissed::Window)?;
                    self.missed(upto, WhyMissed::Limit)?;
                }
                (_, None) => self.missed(upto, WhyMissed::Limit)?,
            }
        }
        chosen
            .into_iter()
            .try_for_each(|tick| self.ledger.wait(tick))
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
            self.ledger.wait_no_longer(tick)?;
            let ticks = Ticks {
                from: tick,
                to: tick,
                count: 1,
            };
            self.decisions.push(Decision::Missed { ticks, why });
        }
        Ok(())
    }

    /// The undecided ticks up to `upto` are missed.
    fn missed(&mut self, upto: Timestamp, why: WhyMissed) -> Result<(), Refused> {
        if let Some(ticks) = self.undecided_upto(upto) {
            self.ledger.decide_upto(ticks.to)?;
            self.decisions.push(Decision::Missed { ticks, why });
        }
        Ok(())
    }

    /// Starts at most one run.
    fn start(&mut self) -> Result<(), Refused> {
        let Facts {
            token,
            now,
            triggers,
            ..
        } = *self.facts;
        let room = self.ledger.open().len() < MAX_OPEN;
        let waiting = self.ledger.waiting().first().copied().filter(|_| room);
        let retry = self
            .retries()
            .filter(|(at, ..)| *at <= now)
            .min()
            .map(|(.., id)| id.to_owned());
        let new =
            |id: &&String| room && ledger::is_trigger_id(id) && !self.ledger.knows_trigger(id);
        let trigger = triggers.iter().find(new);
        // A tick on time goes first; late ones that wait before it keep their order behind the retries.
        let prompt = waiting.filter(|tick| self.on_time(*tick));
        let run = if let Some(tick) = prompt {
            self.ledger.start_tick(tick, token)?
        } else if let Some(id) = retry {
            self.ledger.start_again(&id, token)?
        } else if let Some(id) = trigger {
            self.ledger.start_trigger(id, now, token)?
        } else if let Some(tick) = waiting {
            self.ledger.start_tick(tick, token)?
        } else if self.restart_at().is_some_and(|at| at <= now) {
            self.ledger.start_tick(now, token)?
        } else {
            return Ok(());
        };
        self.decisions.push(Decision::Start {
            id: run.id.clone(),
            tick: run.tick,
            attempt: run.attempt,
            interrupted: run.interrupted,
            checkpoint: run.checkpoint.clone(),
        });
        Ok(())
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
        let next_tick = self
            .decided()
            .and_then(|upto| self.facts.schedule.next_after(upto.max(now)));
        let started = matches!(self.decisions.last(), Some(Decision::Start { .. }));
        if started || self.busy() {
            return Some(next_tick?.max(later(now, OVERLAP_PAUSE)));
        }
        let retries = self.retries().map(|(at, ..)| at);
        next_tick
            .into_iter()
            .chain(retries)
            .chain(self.restart_at())
            .min()
    }

    // --- facts, looked at ---

    fn decided(&self) -> Option<Timestamp> {
        self.ledger.decided_upto()
    }

    fn undecided_upto(&self, upto: Timestamp) -> Option<Ticks> {
        let schedule = self.facts.schedule;
        let after = self.decided()?;
        let to = schedule.latest_upto(after, upto)?;
        let from = schedule.next_after(after)?;
        Some(Ticks {
            from,
            to,
            count: schedule.count(after, to, COUNT_LIMIT),
        })
    }

    /// Attempts that wait: when, for which tick, of which run.
    fn retries(&self) -> impl Iterator<Item = (Timestamp, Timestamp, &str)> {
        let waits = |run: &&OpenRun| run.state == RunState::Retry;
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
        if !self.facts.schedule.is_continuous() || !self.ledger.open().is_empty() {
            return None;
        }
        self.decided().map(|upto| later(upto, RESTART_PAUSE))
    }

    fn on_time(&self, tick: Timestamp) -> bool {
        later(tick, TOLERANCE) >= self.facts.now
    }

    /// Ticks up to here are older than the window.
    fn before_window(&self) -> Option<Timestamp> {
        let window = SignedDuration::try_from(self.facts.policy.misfire.window?).ok()?;
        before(self.facts.now.checked_sub(window).ok()?)
    }
}

/// `t` moved on by `by`, not beyond the end of time.
fn later(t: Timestamp, by: Duration) -> Timestamp {
    t.checked_add(by).unwrap_or(Timestamp::MAX)
}

// === impl Decision, WhyMissed ===

impl Plan {
    /// The run to start, once the ledger is written.
    #[must_use]
    pub fn start(&self) -> Option<&Decision> {
        self.decisions
            .last()
            .filter(|last| matches!(last, Decision::Start { .. }))
    }
}

impl WhyMissed {
    /// A bounded word for events and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "misfire",
            Self::Window => "window",
            Self::Limit => "limit",
        }
    }
}
