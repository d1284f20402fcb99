//! What becomes of a ledger that was decided by a clock which had jumped ahead, once that clock is right again.
//!
//! Its ticks of the time ahead are decided: some were started before their time, most were passed over. None of those that
//! may have been started starts again; the others are undecided again, and run when they are due. The ledger tells them
//! apart without having kept any list of starts: what it has passed over stands in its rows of skipped ticks, what it has
//! not started yet waits or is queued, and *all the rest* counts as started. Rows that were pushed out by later ones only make
//! that rest larger.

use jiff::Timestamp;

use super::plan::{COUNT_LIMIT, Ticks, WhySkipped, WithoutSpans};
use crate::{
    ledger::{Ledger, Skipped, Span},
    schedule::{Schedule, before},
};

/// Spans of what may have been started ahead of its time a ledger takes; of more the last ones become one.
const MAX_SPANS: usize = 32;

/// What is to be written, and what it means.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TakenBack {
    /// The ledger to be written.
    pub(crate) ledger: Ledger,
    /// Up to where it was decided.
    pub(crate) from: Timestamp,
    /// The ticks that are undecided again.
    pub(crate) again: Option<Ticks>,
    /// The ticks that were started ahead of their time, or may have been: they do not run when they are due.
    pub(crate) ran: Vec<Ticks>,
}

/// Takes a ledger that is decided beyond `upto` back to there. Of the ticks after it none that may have been started starts
/// again; the others are undecided again, and run when they are due. Nothing when it is not decided so far.
#[must_use]
pub(crate) fn take_back(
    ledger: &Ledger,
    schedule: &Schedule,
    upto: Timestamp,
) -> Option<TakenBack> {
    let from = ledger.decided_upto().filter(|decided| *decided > upto)?;
    let mut next = ledger.clone();
    let spans = match schedule.is_continuous() {
        // Its starts have no instants that come again.
        true => Vec::new(),
        false => maybe_started(ledger, schedule, upto, from),
    };
    let rows = ledger.skipped().iter();
    let rows = rows.filter_map(|row| cut(row, schedule, upto)).collect();
    next.take_back(upto, spans.clone(), rows);
    let ran = spans.iter().filter_map(|span| {
        let after = before(span.from)?;
        within(schedule, after, span.to)
    });
    let again = within(&schedule.without_spans(&next), upto, from);
    Some(TakenBack {
        from,
        again,
        ran: ran.collect(),
        ledger: next,
    })
}

// === helpers ===

/// The instants after `upto` that are decided, but neither passed over nor waiting.
fn maybe_started(
    ledger: &Ledger,
    schedule: &Schedule,
    upto: Timestamp,
    end: Timestamp,
) -> Vec<Span> {
    // Under another schedule there may have been ticks where this one has none.
    let mut rows = ledger.skipped().iter().filter(|row| row.to > upto);
    // An older version has left a row only.
    let changed = ledger.mixed_upto().is_some_and(|mixed| mixed > upto)
        || rows.any(|row| row.why == WhySkipped::Changed.as_str());
    let mut spans = Vec::new();
    let mut after = upto;
    for free in not_started(ledger, schedule, upto, changed) {
        spans.extend(between(after, free.from));
        after = after.max(free.to);
    }
    spans.extend(after_next(end).and_then(|end| between(after, end)));
    let has_ticks =
        |span: &Span| before(span.from).and_then(|after| schedule.latest_upto(after, span.to));
    spans.retain(|span| changed || has_ticks(span).is_some());
    // Of an earlier jump: farther ahead than this one has come.
    spans.extend(ledger.ran_ahead().iter().filter(|span| span.to > end));
    if spans.len() > MAX_SPANS
        && let Some(last) = spans.last().copied()
    {
        spans.truncate(MAX_SPANS);
        if let Some(span) = spans.last_mut() {
            span.to = last.to;
        }
    }
    spans
}

/// What the ledger shows as not started after `upto`, in order; neighbours without a tick between them are one.
fn not_started(ledger: &Ledger, schedule: &Schedule, upto: Timestamp, changed: bool) -> Vec<Span> {
    let passed_over = |row: &&Skipped| row.why != WhySkipped::Unknown.as_str();
    let rows = ledger.skipped().iter().filter(passed_over);
    let rows = rows.map(|row| Span {
        from: row.from,
        to: row.to,
    });
    let waiting = ledger.waiting().iter().chain(ledger.queued());
    let waiting = waiting.map(|tick| Span {
        from: *tick,
        to: *tick,
    });
    let mut all: Vec<Span> = rows.chain(waiting).filter(|span| span.to > upto).collect();
    all.sort_by_key(|span| (span.from, span.to));
    let mut joined: Vec<Span> = Vec::new();
    for span in all {
        match joined.last_mut() {
            Some(last)
                if span.from <= last.to
                    || (!changed
                        && schedule
                            .next_after(last.to)
                            .is_none_or(|tick| tick >= span.from)) =>
            {
                last.to = last.to.max(span.to);
            }
            _ => joined.push(span),
        }
    }
    joined
}

/// The instants between the two, without them.
fn between(after: Timestamp, until: Timestamp) -> Option<Span> {
    let (from, to) = (after_next(after)?, before(until)?);
    (from <= to).then_some(Span { from, to })
}

fn after_next(t: Timestamp) -> Option<Timestamp> {
    Timestamp::from_nanosecond(t.as_nanosecond() + 1).ok()
}

/// What is left of a row of skipped ticks up to `upto`.
fn cut(row: &Skipped, schedule: &Schedule, upto: Timestamp) -> Option<Skipped> {
    if row.to <= upto || row.why == WhySkipped::Unknown.as_str() {
        return Some(row.clone());
    }
    let Ticks { from, to, count } = within(schedule, before(row.from)?, upto)?;
    Some(Skipped {
        from,
        to,
        count,
        why: row.why.clone(),
    })
}

fn within(schedule: &Schedule, after: Timestamp, upto: Timestamp) -> Option<Ticks> {
    let (from, to) = (
        schedule.next_after(after)?,
        schedule.latest_upto(after, upto)?,
    );
    let count = schedule.count(after, to, COUNT_LIMIT);
    Some(Ticks { from, to, count })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        due::{Decision, Facts, Misfire, Policy, decide},
        node::Token,
    };

    /// Times of 2026-05-04, or of the day that is told.
    fn at(text: &str) -> Timestamp {
        match text.contains('T') {
            true => text.parse().unwrap(),
            false => format!("2026-05-04T{text}Z").parse().unwrap(),
        }
    }

    struct Bench {
        ledger: Ledger,
        schedule: Schedule,
        policy: Policy,
    }

    impl Bench {
        /// Every ten minutes, decided up to noon.
        fn new(misfire: Misfire) -> Self {
            let mut ledger = Ledger::default();
            ledger.first_sight(at("12:00:00")).unwrap();
            let mut policy = Policy::default();
            policy.misfire.mode = misfire;
            let schedule = Schedule::parse("*/10 * * * *", None, None).unwrap();
            Self {
                ledger,
                schedule,
                policy,
            }
        }

        /// Decides and carries out what is due at `now`, run by run; answers with the ticks that were started.
        fn at(&mut self, now: &str) -> Vec<Timestamp> {
            let mut started = Vec::new();
            loop {
                let plan = decide(&Facts {
                    ledger: &self.ledger,
                    schedule: &self.schedule,
                    policy: &self.policy,
                    now: at(now),
                    token: Token(1),
                    alive: &[],
                    may_start: true,
                    triggers: &[],
                    paused_upto: None,
                })
                .unwrap();
                let mut next = plan.ledger;
                let mut any = false;
                for decision in plan.decisions {
                    if let Decision::Start { tick, .. } = decision {
                        let key = next.open()[0].key();
                        next.finish(&key, Token(1)).unwrap();
                        started.push(tick);
                        any = true;
                    }
                }
                self.ledger = next;
                if !any {
                    return started;
                }
            }
        }

        fn take_back(&mut self, now: &str) -> TakenBack {
            let back = take_back(&self.ledger, &self.schedule, at(now)).unwrap();
            self.ledger = back.ledger.clone();
            back
        }
    }

    const TOMORROW: &str = "2026-05-05T12:05:00Z";

    #[test]
    fn a_clock_that_jumped_ahead_is_taken_back_and_what_ran_ahead_does_not_run_again() {
        let mut job = Bench::new(Misfire::Once);
        let ahead = at("2026-05-05T12:00:00Z");
        assert_eq!(job.at(TOMORROW), [ahead], "by a clock of tomorrow");
        assert_eq!(job.at("12:10:00"), [], "decided");
        let back = job.take_back("12:05:00");
        assert_eq!((back.from, back.ran.len()), (ahead, 1));
        assert_eq!(back.ran[0], Ticks::single(ahead));
        let again = back.again.unwrap();
        assert_eq!((again.from, again.count), (at("12:10:00"), 143));
        assert!(job.ledger.skipped().is_empty(), "they run after all");
        assert_eq!(job.at("12:10:00"), [at("12:10:00")]);
        assert_eq!(job.at("12:20:00"), [at("12:20:00")]);
        // The rest of the day, then the tick that has run.
        let last = at("2026-05-05T11:50:00Z");
        assert_eq!(job.at("2026-05-05T11:50:00Z"), [last]);
        assert_eq!(job.at("2026-05-05T12:00:00Z"), []);
        let next = at("2026-05-05T12:10:00Z");
        assert_eq!(job.at("2026-05-05T12:10:00Z"), [next]);
        assert_eq!(job.ledger.ran_ahead(), []);
    }

    #[test]
    fn ticks_that_only_waited_for_their_turn_ahead_are_undecided_again() {
        let mut job = Bench::new(Misfire::All);
        job.policy.misfire.limit = 5;
        let plan = |job: &Bench| {
            decide(&Facts {
                ledger: &job.ledger,
                schedule: &job.schedule,
                policy: &job.policy,
                now: at(TOMORROW),
                token: Token(1),
                alive: &[],
                may_start: true,
                triggers: &[],
                paused_upto: None,
            })
        };
        job.ledger = plan(&job).unwrap().ledger;
        let first = job.ledger.open()[0].key();
        job.ledger.finish(&first, Token(1)).unwrap();
        assert_eq!(job.ledger.waiting().len(), 4);
        let back = job.take_back("12:05:00");
        // 11:20 has run; 11:30 to 12:00 have not.
        let ran = at("2026-05-05T11:20:00Z");
        assert_eq!(back.ran, [Ticks::single(ran)]);
        assert!(job.ledger.waiting().is_empty());
        assert_eq!(back.again.unwrap().count, 143);
    }

    #[test]
    fn what_nobody_knows_stays_decided() {
        let mut job = Bench::new(Misfire::Once);
        let row = Ticks {
            from: at("12:10:00"),
            to: at("18:00:00"),
            count: 36,
        };
        job.ledger
            .skip_upto(row.skipped(WhySkipped::Unknown))
            .unwrap();
        let back = job.take_back("12:05:00");
        assert_eq!((back.again, back.ran), (None, vec![row]));
        assert_eq!(job.at("17:59:00"), []);
        assert_eq!(job.at("18:10:00"), [at("18:10:00")]);
    }

    #[test]
    fn what_ran_ahead_does_not_run_again_when_the_schedule_changes_and_changes_back() {
        let by = |ticks: &str| crate::ledger::Decided {
            ticks: ticks.to_owned(),
            whole: ticks.to_owned(),
        };
        let other = Schedule::parse("37 * * * *", None, None).unwrap();
        // Changed while the ledger is ahead, and also after a first jump was taken back.
        for twice in [false, true] {
            let mut job = Bench::new(Misfire::Once);
            job.ledger.decide_by(by("ten"));
            let ran = at("2026-05-05T12:00:00Z");
            assert_eq!(job.at(TOMORROW), [ran], "by a clock of tomorrow");
            if twice {
                job.take_back("12:05:00");
            }
            let changed = |job: &Bench, schedule: &Schedule, ticks, now| {
                let by = by(ticks);
                crate::due::account_for_change(&job.ledger, schedule, &by, at(now)).unwrap()
            };
            job.ledger = changed(&job, &other, "other", "12:06:00").ledger;
            let tens = std::mem::replace(&mut job.schedule, other.clone());
            if twice {
                let later = "2026-05-05T14:40:00Z";
                assert_eq!(job.at(later), [at("2026-05-05T14:37:00Z")]);
            }
            job.take_back("12:06:30");
            job.ledger = changed(&job, &tens, "ten", "12:08:00").ledger;
            job.schedule = tens;
            // Of two schedules it cannot be told in which gaps of the one the other had ticks.
            assert_eq!(job.at("12:40:00"), [at("12:40:00")]);
            job.at("2026-05-05T11:50:00Z");
            assert!(!job.at("2026-05-05T12:00:00Z").contains(&ran), "{twice}");
        }
    }

    #[test]
    fn a_row_that_reaches_back_is_cut() {
        let mut job = Bench::new(Misfire::Skip);
        job.at(TOMORROW);
        job.take_back("12:25:00");
        let row = &job.ledger.skipped()[0];
        assert_eq!((row.to, row.count), (at("12:20:00"), 2));
    }

    #[test]
    fn a_service_starts_again() {
        let mut job = Bench::new(Misfire::Once);
        job.schedule = Schedule::parse("continuous", None, None).unwrap();
        job.ledger.decide_upto(at(TOMORROW)).unwrap();
        job.take_back("12:05:00");
        assert_eq!(job.at("12:05:01").len(), 1);
    }

    #[test]
    fn a_ledger_that_is_not_ahead_is_left_alone() {
        let job = Bench::new(Misfire::Once);
        assert_eq!(take_back(&job.ledger, &job.schedule, at("12:00:00")), None);
        let unseen = Ledger::default();
        assert_eq!(take_back(&unseen, &job.schedule, at("12:00:00")), None);
    }
}
