//! G3: what a majority of nodes has forgotten was decided, and nobody knows how.

use jiff::Timestamp;

use super::{COUNT_LIMIT, Decision, Interrupted, Ticks, WhyMissed};
use crate::{ledger::Ledger, schedule::Schedule};

/// Decides everything up to `before` as unknown: it is reported and never runs, for it may have run. Answers with the ledger to
/// be written and what to report, or with nothing when the ledger was written afterwards.
#[must_use]
pub fn account_for_blank(
    ledger: &Ledger,
    schedule: &Schedule,
    before: Timestamp,
) -> Option<(Ledger, Vec<Decision>)> {
    let mut next = ledger.clone();
    let after = ledger.decided_upto()?;
    let (waiting, open) = next.blank(before)?;
    let why = WhyMissed::Unknown;
    let note = |next: &mut Ledger, ticks: Ticks| next.note_skipped(ticks.skipped(why.as_str()));
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
    let last = schedule.latest_upto(after, before);
    if let (Some(from), Some(to)) = (schedule.next_after(after), last) {
        let count = schedule.count(after, to, COUNT_LIMIT);
        let ticks = Ticks { from, to, count };
        note(&mut next, ticks);
        decisions.push(Decision::Missed { ticks, why });
    }
    Some((next, decisions))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Token;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn hourly() -> Schedule {
        Schedule::parse("@hourly", None, None).unwrap()
    }

    #[test]
    fn g3_what_may_have_run_is_reported_and_does_not_run() {
        let mut ledger = Ledger::default();
        ledger.first_sight(at("2026-01-01T00:30:00Z")).unwrap();
        let tick = at("2026-01-01T01:00:00Z");
        ledger.start_tick(tick, Token(7)).unwrap();
        let before = at("2026-01-01T04:10:00Z");
        let (next, decisions) = account_for_blank(&ledger, &hourly(), before).unwrap();
        assert_eq!(next.decided_upto(), Some(before));
        assert!(next.open().is_empty(), "it may have gone on, and ended");
        assert!(matches!(&decisions[0], Decision::Interrupted { tick: t, .. } if *t == tick));
        let Decision::Missed { ticks, why } = &decisions[1] else {
            panic!("{decisions:?}")
        };
        assert_eq!((ticks.count, *why), (3, WhyMissed::Unknown));
        assert_eq!(ticks.to, at("2026-01-01T04:00:00Z"));
        assert_eq!(account_for_blank(&next, &hourly(), before), None, "once");
    }

    #[test]
    fn g3_what_was_written_afterwards_is_known() {
        let before = at("2026-01-01T04:10:00Z");
        assert_eq!(
            account_for_blank(&Ledger::default(), &hourly(), before),
            None
        );
        let mut ledger = Ledger::default();
        ledger.first_sight(at("2026-01-01T05:00:00Z")).unwrap();
        assert_eq!(account_for_blank(&ledger, &hourly(), before), None);
    }
}
