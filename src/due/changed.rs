//! What becomes of undecided ticks when the schedule of a job has changed.

use jiff::Timestamp;

use super::plan::{COUNT_LIMIT, Ticks, WhySkipped, WithoutSpans};
use crate::{
    ledger::{Decided, Ledger},
    schedule::Schedule,
};

/// What is to be written, and what it means.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Changed {
    /// The ledger to be written.
    pub(crate) ledger: Ledger,
    /// What was undecided when the schedule changed; absent when the ticks are named as before, or all is decided.
    pub(crate) gap: Option<Ticks>,
}

/// Takes up a ledger under the definition `by`, whose ticks `schedule` names. When the last leader decided under another
/// schedule, everything up to `now` is decided: the new expression fires nothing that lies before the change. The gap is
/// reported with the ticks that the new expression has in it. Runs that are open and ticks that wait go on: they were
/// decided to run. A change of anything else changes no tick.
///
/// Answers with nothing when the ledger names this very definition.
#[must_use]
pub(crate) fn account_for_change(
    ledger: &Ledger,
    schedule: &Schedule,
    by: &Decided,
    now: Timestamp,
) -> Option<Changed> {
    let was = ledger.decided_by();
    if was == by {
        return None;
    }
    let mut next = ledger.clone();
    next.decide_by(by.clone());
    // It is not known what an older version decided by: as if by the same.
    let same = was.ticks.is_empty() || was.ticks == by.ticks;
    if !same {
        next.mix(now);
    }
    if schedule.is_continuous() {
        // Its starts have no instants that come again, and none of them is to be refused for one.
        next.forget_spans();
    }
    let undecided = ledger.decided_upto().filter(|upto| !same && *upto < now);
    let schedule = schedule.without_spans(ledger);
    let gap = undecided.zip(ledger.undecided_from()).map(|(upto, from)| {
        let count = schedule.count(upto, now, COUNT_LIMIT);
        let to = now.max(from);
        let ticks = Ticks { from, to, count };
        next.pass_over(ticks.skipped(WhySkipped::Changed));
        ticks
    });
    Some(Changed { ledger: next, gap })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        due::{Decision, Facts, Policy, decide},
        ledger::Span,
        node::Token,
    };

    fn at(text: &str) -> Timestamp {
        format!("2026-05-04T{text}Z").parse().unwrap()
    }

    fn by(ticks: &str, whole: &str) -> Decided {
        Decided {
            ticks: ticks.to_owned(),
            whole: whole.to_owned(),
        }
    }

    fn schedule(expression: &str) -> Schedule {
        Schedule::parse(expression, None, None).unwrap()
    }

    /// Hourly, decided up to eight o'clock.
    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.first_sight(at("07:30:00")).unwrap();
        let key = ledger.start_tick(at("08:00:00"), Token(1)).unwrap().key();
        ledger.finish(&key, Token(1)).unwrap();
        ledger.decide_by(by("hourly", "a"));
        ledger
    }

    fn starts(ledger: &Ledger, schedule: &Schedule, now: Timestamp) -> Vec<Timestamp> {
        let policy = Policy::default();
        let plan = decide(&Facts {
            ledger,
            schedule,
            policy: &policy,
            now,
            token: Token(2),
            alive: &[],
            may_start: true,
            triggers: &[],
            paused_upto: None,
        });
        let starts = plan.unwrap().decisions.into_iter().filter_map(|d| match d {
            Decision::Start { tick, .. } => Some(tick),
            _ => None,
        });
        starts.collect()
    }

    #[test]
    fn nothing_before_a_change_of_the_schedule_fires_under_the_new_one() {
        let (ledger, new, now) = (ledger(), schedule("15 * * * *"), at("08:42:00"));
        assert_eq!(
            starts(&ledger, &new, now),
            [at("08:15:00")],
            "without the rule"
        );
        let changed = account_for_change(&ledger, &new, &by("quarter", "b"), now).unwrap();
        assert_eq!(starts(&changed.ledger, &new, now), []);
        assert_eq!(
            starts(&changed.ledger, &new, at("09:15:00")),
            [at("09:15:00")]
        );
    }

    #[test]
    fn the_gap_is_reported_and_written_down() {
        let (ledger, new, now) = (ledger(), schedule("*/10 * * * *"), at("08:42:00"));
        let changed = account_for_change(&ledger, &new, &by("ten", "b"), now).unwrap();
        let gap = changed.gap.unwrap();
        assert_eq!((gap.to, gap.count), (now, 4));
        assert!(gap.from > at("08:00:00"), "that one has run");
        let row = changed.ledger.skipped().last().unwrap();
        assert_eq!((row.why.as_str(), row.to), ("changed", now));
        assert_eq!(changed.ledger.decided_upto(), Some(now));
        let again = account_for_change(&changed.ledger, &new, &by("ten", "b"), at("08:50:00"));
        assert_eq!(again, None, "once");
    }

    #[test]
    fn a_change_of_anything_else_changes_no_tick() {
        let (ledger, same, now) = (ledger(), schedule("0 * * * *"), at("09:00:30"));
        let changed = account_for_change(&ledger, &same, &by("hourly", "b"), now).unwrap();
        assert_eq!(changed.gap, None);
        assert_eq!(changed.ledger.decided_upto(), ledger.decided_upto());
        assert_eq!(starts(&changed.ledger, &same, now), [at("09:00:00")]);
    }

    #[test]
    fn a_ledger_of_an_older_version_is_taken_as_it_is() {
        let (mut ledger, same, now) = (ledger(), schedule("0 * * * *"), at("09:00:30"));
        ledger.decide_by(Decided::default());
        let changed = account_for_change(&ledger, &same, &by("hourly", "b"), now).unwrap();
        assert_eq!(changed.gap, None);
        assert_eq!(changed.ledger.decided_by(), &by("hourly", "b"));
    }

    #[test]
    fn what_was_decided_to_run_still_does() {
        let (mut ledger, new, now) = (ledger(), schedule("15 * * * *"), at("10:42:00"));
        ledger.wait(at("09:00:00")).unwrap();
        ledger
            .start_trigger("t-1", at("09:10:00"), Token(1))
            .unwrap();
        let changed = account_for_change(&ledger, &new, &by("quarter", "b"), now).unwrap();
        assert_eq!(changed.ledger.waiting(), [at("09:00:00")]);
        assert_eq!(changed.ledger.open().len(), 1);
    }

    #[test]
    fn a_clock_behind_the_ledger_decides_nothing() {
        let (ledger, new, now) = (ledger(), schedule("15 * * * *"), at("07:55:00"));
        let changed = account_for_change(&ledger, &new, &by("quarter", "b"), now).unwrap();
        assert_eq!(
            (changed.gap, changed.ledger.decided_upto()),
            (None, Some(at("08:00:00")))
        );
    }

    /// It starts at once, and whenever it has ended: an instant that is refused would keep it down for as long as the jump was.
    #[test]
    fn a_service_is_refused_no_instant_that_has_run_ahead_of_its_time() {
        let mut ledger = ledger();
        ledger.decide_upto(at("12:30:00")).unwrap();
        let ahead = Span {
            from: at("11:00:00"),
            to: at("12:00:00"),
        };
        ledger.take_back(at("08:40:00"), vec![ahead], Vec::new());
        assert_eq!(ledger.ran_ahead().len(), 1);
        let new = schedule("continuous");
        let changed = account_for_change(&ledger, &new, &by("service", "b"), at("08:42:00"));
        let ledger = changed.unwrap().ledger;
        assert_eq!(starts(&ledger, &new, at("11:30:00")), [at("11:30:00")]);
    }

    #[test]
    fn a_job_never_seen_before_has_no_gap() {
        let (new, now) = (schedule("15 * * * *"), at("07:55:00"));
        let changed = account_for_change(&Ledger::default(), &new, &by("q", "b"), now).unwrap();
        assert_eq!((changed.gap, changed.ledger.decided_upto()), (None, None));
    }
}
