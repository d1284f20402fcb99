//! G3: what the lock nodes have forgotten was decided, and it is unknown how, but for what living replicas remember.
//!
//! # Rules
//! - The newest ledger that a replica remembers takes the place of the one that was lost. Without any it is first sight: a
//!   job that all have forgotten cannot be told from one that never was.
//! - What came after it and before the loss is decided as unknown: it is reported and never runs, for it may have run. So is
//!   what it shows as open or waiting.
//! - What fell due after the loss, while no node voted, was not started by any replica: it is late like any other tick. Where
//!   it is unknown when the loss was, all up to now is unknown.

use jiff::Timestamp;

use super::{COUNT_LIMIT, Decision, Interrupted, Ticks, WhySkipped, WithoutSpans};
use crate::{
    ledger::{Ledger, ids::trigger_floor},
    schedule::Schedule,
};

/// What may be missing from a ledger that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss<'a> {
    /// The newest ledger that a living replica remembers.
    pub(crate) known: Option<&'a Ledger>,
    /// What was decided up to here a majority of nodes may have forgotten, and nothing of what was decided later.
    pub(crate) before: Option<Timestamp>,
    /// Civil time.
    pub(crate) now: Timestamp,
}

/// What is to be written and reported.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Accounted {
    /// The ledger to be written.
    pub(crate) ledger: Ledger,
    /// The one that it was made from.
    pub(crate) was: Ledger,
    /// What to report.
    pub(crate) decisions: Vec<Decision>,
    /// Up to here it is unknown.
    pub(crate) upto: Timestamp,
}

/// Accounts for what was lost. Nothing when all was written afterwards, and when no replica knows the job.
#[must_use]
pub(crate) fn account_for_loss(
    found: &Ledger,
    schedule: &Schedule,
    loss: &Loss<'_>,
) -> Option<Accounted> {
    let decided = found.decided_upto();
    if decided.is_some() && decided >= loss.before {
        return None;
    }
    let known = loss.known.filter(|known| known.decided_upto() > decided);
    let was = known.unwrap_or(found).clone();
    let after = was.decided_upto()?;
    // A clock may have been ahead when that was stamped.
    let before = loss.before.filter(|before| after < *before);
    let upto = before.map_or(loss.now, |before| before.min(loss.now));
    let mut next = was.clone();
    let (waiting, open) = next.forget_upto(upto)?;
    next.forget_triggers_upto(&trigger_floor(upto));
    next.count_on_from(loss.now);
    let why = WhySkipped::Unknown;
    let note = |next: &mut Ledger, ticks: Ticks| next.note_skipped(ticks.skipped(why));
    let mut decisions: Vec<Decision> = open
        .into_iter()
        .map(|run| Decision::Interrupted {
            id: run.id,
            tick: run.tick,
            attempt: run.attempt,
            action: Interrupted::Skip,
            exhausted: false,
        })
        .collect();
    for ticks in waiting.into_iter().map(Ticks::single) {
        note(&mut next, ticks);
        decisions.push(Decision::Missed { ticks, why });
    }
    let schedule = schedule.without_spans(&was);
    let last = schedule.latest_upto(after, upto);
    if let (Some(from), Some(to)) = (schedule.next_after(after), last) {
        let count = schedule.count(after, to, COUNT_LIMIT);
        let ticks = Ticks { from, to, count };
        note(&mut next, ticks);
        decisions.push(Decision::Missed { ticks, why });
    }
    Some(Accounted {
        ledger: next,
        was,
        decisions,
        upto,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Token;

    fn at(text: &str) -> Timestamp {
        format!("2026-01-01T{text}:00Z").parse().unwrap()
    }

    fn hourly() -> Schedule {
        Schedule::parse("@hourly", None, None).unwrap()
    }

    /// Seen at 00:30; the run of 01:00 is open.
    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.first_sight(at("00:30")).unwrap();
        ledger.start_tick(at("01:00"), Token(7)).unwrap();
        ledger
    }

    fn account(
        found: &Ledger,
        known: Option<&Ledger>,
        before: Option<&str>,
        now: &str,
    ) -> Option<Accounted> {
        let loss = Loss {
            known,
            before: before.map(at),
            now: at(now),
        };
        account_for_loss(found, &hourly(), &loss)
    }

    fn unknown(accounted: &Accounted) -> Vec<Ticks> {
        let missed = accounted.decisions.iter().filter_map(|d| match d {
            Decision::Missed { ticks, why } => {
                assert_eq!(*why, WhySkipped::Unknown);
                Some(*ticks)
            }
            _ => None,
        });
        missed.collect()
    }

    fn ticks(from: &str, to: &str, count: u64) -> Ticks {
        let (from, to) = (at(from), at(to));
        Ticks { from, to, count }
    }

    #[test]
    fn g3_what_may_have_run_is_reported_and_does_not_run() {
        let lost = account(&ledger(), None, Some("04:10"), "05:10").unwrap();
        assert_eq!(lost.ledger.decided_upto(), Some(at("04:10")));
        assert!(
            lost.ledger.open().is_empty(),
            "it may have gone on, and ended"
        );
        assert!(
            matches!(&lost.decisions[0], Decision::Interrupted { tick: t, .. } if *t == at("01:00"))
        );
        assert_eq!(unknown(&lost), [ticks("02:00", "04:00", 3)]);
        let again = account(&lost.ledger, None, Some("04:10"), "05:10");
        assert_eq!(again, None, "once");
    }

    #[test]
    fn g3_what_was_written_afterwards_is_known() {
        let mut ledger = Ledger::default();
        ledger.first_sight(at("05:00")).unwrap();
        assert_eq!(account(&ledger, None, Some("04:10"), "06:00"), None);
        assert_eq!(account(&ledger, Some(&ledger), None, "06:00"), None);
    }

    #[test]
    fn g3_no_ledger_anywhere_is_no_reason_for_silence() {
        let (none, known) = (Ledger::default(), ledger());
        let lost = account(&none, Some(&known), Some("04:10"), "06:10").unwrap();
        // What fell due while no node voted, 05:00 and 06:00, is late like any other tick.
        assert_eq!(lost.ledger.decided_upto(), Some(at("04:10")));
        assert_eq!(unknown(&lost), [ticks("02:00", "04:00", 3)]);
        assert_eq!(lost.decisions.len(), 2, "and the open run");
        let row = lost.ledger.skipped().last().unwrap();
        assert_eq!((row.why.as_str(), row.count), ("unknown", 3));
        // The numbers of attempts go on, and triggers from before are not started again.
        let ms = u64::try_from(at("06:10").as_millisecond()).unwrap();
        assert!(lost.ledger.runs() >= ms);
        assert!(lost.ledger.knows_trigger(&trigger_floor(at("04:09"))));
    }

    #[test]
    fn g3_where_nobody_knows_when_it_was_lost_all_up_to_now_is_unknown() {
        let lost = account(&Ledger::default(), Some(&ledger()), None, "06:10").unwrap();
        assert_eq!(unknown(&lost), [ticks("02:00", "06:00", 5)]);
        // A clock was ahead when it was stamped.
        let lost = account(&Ledger::default(), Some(&ledger()), Some("23:00"), "06:10").unwrap();
        assert_eq!(lost.ledger.decided_upto(), Some(at("06:10")));
        // Decided after the stamp, and yet lost.
        let lost = account(&Ledger::default(), Some(&ledger()), Some("00:40"), "06:10").unwrap();
        assert_eq!(lost.ledger.decided_upto(), Some(at("06:10")));
    }

    #[test]
    fn g3_a_job_that_nobody_knows_is_one_never_seen() {
        assert_eq!(
            account(&Ledger::default(), None, Some("04:10"), "06:10"),
            None
        );
    }

    #[test]
    fn g3_the_newest_that_anybody_remembers_counts() {
        let mut newer = ledger();
        newer.start_tick(at("03:00"), Token(7)).unwrap();
        for (found, known) in [(ledger(), newer.clone()), (newer.clone(), ledger())] {
            let lost = account(&found, Some(&known), Some("04:10"), "06:10").unwrap();
            assert_eq!(unknown(&lost), [ticks("04:00", "04:00", 1)]);
        }
    }
}
