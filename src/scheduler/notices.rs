//! What a leader does so that people hear of its job.
//!
//! What is to be told stands in the ledger before it is told, and is crossed out there once each receiver has it or was given up. So
//! the next leader tells what this one could not.
//!
//! # Invariants
//! - N5 A state is told once, also when its leader dies as soon as that is written.
//!   (a_failure_is_told_once_whoever_leads_meanwhile, what_a_dead_leader_could_not_tell_its_successor_tells)
//! - N6 Nothing of it is waited for: runs start and leases go as if no receiver was told.
//!   (a_receiver_that_never_answers_delays_no_run_and_no_hand_over)
//! # Not promised
//! Twice is possible: when a leader goes between the sending and the crossing out. The notice then has the same id.
//! With `coordination = "tick"` the lock does not wait for the crossing out, and with `"everywhere"` there is no ledger that outlives
//! the process: what such a job tells goes with a replica that dies at once.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use tokio::sync::Notify;

use super::{
    acts::open_run,
    term::{Over, TermLoop},
};
use crate::{
    clock::Moment,
    due::{Decision, Interrupted, Plan, WhySkipped},
    job::{self, Run},
    ledger::{Cause, Ledger, RunKey, Seen, Trouble},
    notice::Told,
    run::{Ended, InFlight},
    status::runs::INTERRUPTED,
};

/// Why a run is told to stop that says nothing of itself for too long.
pub(super) const NO_PROGRESS: &str = "the run makes no progress";
/// A service that has failed counts as well again when a run of it goes on for so long.
const SOUND: Duration = Duration::from_secs(600);
/// Bytes of a reason that are kept in a ledger.
const MAX_DETAIL: usize = 300;

/// What is to be told once the ledger is written.
#[derive(Default)]
#[must_use]
pub(super) struct ToTell {
    changes: Vec<Trouble>,
    /// Ends of runs, and whether they went well.
    ends: Vec<(bool, Cause)>,
}

impl ToTell {
    /// This, and then that.
    pub(super) fn and(mut self, then: Self) -> Self {
        self.changes.extend(then.changes);
        self.ends.extend(then.ends);
        self
    }
}

impl TermLoop<'_> {
    /// Takes note of the end of a run after which no attempt follows.
    pub(super) fn note_end(
        &self,
        ledger: &mut Ledger,
        (run, key): (&Run, &RunKey),
        ended: &Ended,
        replaced: bool,
    ) -> ToTell {
        let mut tells = ToTell::default();
        let continuous = self.engine.schedule.is_continuous();
        if let Some(seen) = seen(ended, replaced, continuous) {
            let by = Cause {
                run: run.id().to_owned(),
                detail: ended.detail(),
                ..cause(run.tick(), key.attempt, ended.word())
            };
            self.note(ledger, seen, by, &mut tells);
        } else if matches!(ended, Ended::Skipped(_)) {
            // It had nothing to do, which is as good a sign of life.
            let by = cause(run.tick(), key.attempt, ended.word());
            tells.ends.push((true, by));
        }
        tells
    }

    /// Takes note of decisions by which people are to be told something. `before` is the ledger that they were made from.
    pub(super) fn note_decisions(
        &self,
        ledger: &mut Ledger,
        before: &Ledger,
        decisions: &[Decision],
    ) -> ToTell {
        let mut tells = ToTell::default();
        let seen = decisions.iter().filter_map(|d| of_decision(d, before));
        let (missed, ended): (Vec<_>, Vec<_>) = seen.partition(|(seen, _)| *seen == Seen::Missed);
        if let Some(by) = all_missed(missed.into_iter().map(|(_, by)| by)) {
            self.note(ledger, Seen::Missed, by, &mut tells);
        }
        for (seen, by) in ended {
            self.note(ledger, seen, by, &mut tells);
        }
        tells
    }

    /// The same for what is to be written with a plan.
    pub(super) fn note_plan(&self, plan: &mut Plan, before: &Ledger) -> ToTell {
        let Plan {
            ledger, decisions, ..
        } = plan;
        self.note_decisions(ledger, before, decisions)
    }

    fn note(&self, ledger: &mut Ledger, seen: Seen, mut by: Cause, tells: &mut ToTell) {
        by.detail = job::cut(by.detail, MAX_DETAIL);
        let unheard = !self.engine.ctx.notices.has_any(self.named());
        let how = (self.tells_once(), unheard);
        let changed = ledger.note(seen, by.clone(), self.wall(), how);
        tells.changes.extend(changed);
        match seen {
            Seen::Well => tells.ends.push((true, by)),
            Seen::Failed => tells.ends.push((false, by)),
            Seen::Missed => {}
        }
    }

    /// Whether nothing is crossed out later: no receiver is told, or no leader is there that could.
    fn tells_once(&self) -> bool {
        let tells = self.engine.ctx.notices.has_any(self.named());
        self.lease.is_none() || self.brief || !tells
    }

    /// Tells what was written.
    pub(super) fn tell_people(&self, tells: ToTell) {
        let (ctx, job) = (&self.engine.ctx, &self.engine.name);
        for trouble in &tells.changes {
            ctx.notices.tell(job, self.named(), trouble);
        }
        for (well, by) in &tells.ends {
            ctx.notices
                .ended(job, self.named(), (*well, self.wall()), by);
        }
    }

    /// Tells what an earlier leader could not, and crosses out what was told.
    pub(super) async fn see_to_notices(
        &self,
        ledger: &mut Ledger,
        in_flight: &InFlight<RunKey>,
    ) -> Result<(), Over> {
        if self
            .sound_at(ledger, in_flight)
            .is_some_and(|at| at <= self.clock().now())
            && let Some(run) = in_flight.runs().next()
        {
            let mut next = ledger.clone();
            let by = Cause {
                run: run.id().to_owned(),
                ..cause(run.tick(), run.attempt(), "running")
            };
            let mut tells = ToTell::default();
            self.note(&mut next, Seen::Well, by, &mut tells);
            self.write(&next, None).await.map_err(|_| Over)?;
            *ledger = next;
            self.tell_people(tells);
        }
        let (ctx, job) = (&self.engine.ctx, &self.engine.name);
        let Some(trouble) = untold(ledger) else {
            return Ok(());
        };
        if !ctx.notices.has_any(self.named()) {
            // Another replica may have whom to tell.
            return Ok(());
        }
        if matches!(ctx.notices.told(job, trouble.at), Told::Not) {
            ctx.notices.tell(job, self.named(), trouble);
        }
        let mut next = ledger.clone();
        match ctx.notices.told(job, trouble.at) {
            Told::Settled { heard } => next.is_told(trouble.at, heard),
            _ if self.tells_once() => next.is_told(trouble.at, true),
            Told::Underway { done, .. } if done != trouble.done => {
                next.is_told_to(trouble.at, done)
            }
            Told::Underway { .. } | Told::Not => return Ok(()),
        }
        let at = trouble.at;
        self.write(&next, None).await.map_err(|_| Over)?;
        *ledger = next;
        if untold(ledger).is_none() {
            ctx.notices.forget(job, at);
        }
        Ok(())
    }

    /// Waits until there is something to cross out.
    pub(super) fn told_people(&self, ledger: &Ledger) -> BoxFuture<'static, ()> {
        let (ctx, job) = (&self.engine.ctx, &self.engine.name);
        // Else nothing is crossed out here, as above.
        let tells = ctx.notices.has_any(self.named());
        let told = untold(ledger).filter(|_| tells);
        match told.map(|trouble| ctx.notices.told(job, trouble.at)) {
            Some(Told::Underway { news, .. }) => wait_for(news).boxed(),
            // Since the last look.
            Some(Told::Settled { .. }) => std::future::ready(()).boxed(),
            // Takes no room: a thousand jobs are nearly always here.
            _ => std::future::pending().boxed(),
        }
    }

    /// When a service that had failed counts as well again.
    pub(super) fn sound_at(&self, ledger: &Ledger, in_flight: &InFlight<RunKey>) -> Option<Moment> {
        let waits = self.engine.schedule.is_continuous() && ledger.is_broken();
        let since = in_flight.since().filter(|_| waits)?;
        Some(since + SOUND)
    }

    fn named(&self) -> Option<&[String]> {
        self.engine.spec.notify.as_deref()
    }
}

async fn wait_for(news: Arc<Notify>) {
    news.notified().await;
}

/// What is still to be told.
fn untold(ledger: &Ledger) -> Option<&Trouble> {
    ledger.trouble().filter(|trouble| !trouble.told)
}

// === decisions ===

fn cause(tick: jiff::Timestamp, attempt: u32, outcome: &str) -> Cause {
    Cause {
        tick,
        last: None,
        count: 0,
        run: String::new(),
        attempt,
        outcome: outcome.to_owned(),
        detail: String::new(),
    }
}

/// What the end of a run says of its job, when no attempt follows. Nothing to do is neither; and a run that made room for a newer tick, or a
/// service that was told to stop, has not failed.
fn seen(ended: &Ended, replaced: bool, continuous: bool) -> Option<Seen> {
    match ended {
        Ended::Done => Some(Seen::Well),
        Ended::Skipped(_) => None,
        _ if replaced => None,
        Ended::Cancelled(why) if continuous && why != NO_PROGRESS => None,
        Ended::Cancelled(_)
        | Ended::RetryAfter(_)
        | Ended::Failed { .. }
        | Ended::TimedOut
        | Ended::Panicked(_) => Some(Seen::Failed),
    }
}

/// Several ticks that were passed over at once are one piece of news.
fn all_missed(causes: impl IntoIterator<Item = Cause>) -> Option<Cause> {
    causes.into_iter().reduce(|all, one| Cause {
        tick: all.tick.min(one.tick),
        last: all.last.max(one.last),
        count: all.count.saturating_add(one.count),
        ..one
    })
}

/// What a decision says of the job. Ticks that fell into a pause, beside a run that went on, or before a change of the schedule are
/// passed over as the operator wants it.
fn of_decision(decision: &Decision, before: &Ledger) -> Option<(Seen, Cause)> {
    match decision {
        Decision::Missed { ticks, why } => match why {
            WhySkipped::Misfire | WhySkipped::Window | WhySkipped::Limit | WhySkipped::Unknown => {
                let by = Cause {
                    last: Some(ticks.to),
                    count: ticks.count,
                    ..cause(ticks.from, 0, why.as_str())
                };
                Some((Seen::Missed, by))
            }
            WhySkipped::Overlap
            | WhySkipped::Paused
            | WhySkipped::Interrupted
            | WhySkipped::Changed
            | WhySkipped::Ahead => None,
        },
        Decision::Interrupted {
            id,
            tick,
            attempt,
            action: Interrupted::Skip,
            ..
        } => {
            let key = RunKey {
                id: id.clone(),
                attempt: *attempt,
            };
            let replaced = open_run(before, &key).is_some_and(|run| run.replaced);
            let detail = "its replica died or lost its lease, and no attempt follows".to_owned();
            let by = Cause {
                detail,
                ..cause(*tick, *attempt, INTERRUPTED)
            };
            (!replaced).then_some((Seen::Failed, by))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::due::Ticks;

    #[test]
    fn a_run_that_made_room_or_had_nothing_to_do_says_nothing_of_its_job() {
        let failed = Ended::Failed {
            retry: true,
            why: "no".to_owned(),
        };
        let cancelled = Ended::Cancelled("drain".to_owned());
        assert_eq!(seen(&Ended::Done, false, false), Some(Seen::Well));
        assert_eq!(seen(&Ended::Skipped(String::new()), false, false), None);
        assert_eq!(seen(&failed, false, false), Some(Seen::Failed));
        assert_eq!(seen(&failed, false, true), Some(Seen::Failed));
        assert_eq!(seen(&failed, true, false), None);
        assert_eq!(seen(&Ended::TimedOut, false, false), Some(Seen::Failed));
        assert_eq!(seen(&cancelled, false, false), Some(Seen::Failed));
        assert_eq!(seen(&cancelled, false, true), None);
        let stuck = Ended::Cancelled(NO_PROGRESS.to_owned());
        assert_eq!(seen(&stuck, false, true), Some(Seen::Failed));
    }

    #[test]
    fn ticks_that_are_passed_over_on_purpose_are_not_missed() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let ticks = Ticks {
            from: at(60),
            to: at(180),
            count: 3,
        };
        let told = |why| of_decision(&Decision::Missed { ticks, why }, &Ledger::default());
        for why in [WhySkipped::Paused, WhySkipped::Changed, WhySkipped::Ahead] {
            assert_eq!(told(why), None, "{why:?}");
        }
        let overlap = Decision::Overlap { ticks };
        assert_eq!(of_decision(&overlap, &Ledger::default()), None);
        for why in [
            WhySkipped::Misfire,
            WhySkipped::Window,
            WhySkipped::Limit,
            WhySkipped::Unknown,
        ] {
            let (seen, by) = told(why).unwrap();
            assert_eq!((seen, by.count, by.last), (Seen::Missed, 3, Some(at(180))));
            assert_eq!(by.outcome, why.as_str());
        }
    }

    #[test]
    fn ticks_that_are_missed_together_are_one_piece_of_news() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let missed = |from, to, count| Cause {
            last: Some(at(to)),
            count,
            ..cause(at(from), 0, "window")
        };
        let all = all_missed([missed(120, 180, 2), missed(60, 60, 1), missed(240, 240, 1)]);
        assert_eq!(
            all,
            Some(Cause {
                count: 4,
                ..missed(60, 240, 4)
            })
        );
        assert_eq!(all_missed([]), None);
    }

    #[test]
    fn a_run_that_died_has_failed_when_no_attempt_follows() {
        let decided = |action| Decision::Interrupted {
            id: "t".to_owned(),
            tick: Timestamp::UNIX_EPOCH,
            attempt: 2,
            action,
            exhausted: false,
        };
        let seen = |action| of_decision(&decided(action), &Ledger::default());
        assert_eq!(seen(Interrupted::Rerun), None);
        let (seen, by) = seen(Interrupted::Skip).unwrap();
        assert_eq!((seen, by.outcome.as_str()), (Seen::Failed, "interrupted"));
    }
}
