//! A ledger that was decided by a clock that had jumped ahead, and is taken back to the right time.
//!
//! # Invariants
//! - L9 What is taken back never starts again if it may have started: such instants lie in spans that stay decided.
//!   (what_may_have_run_ahead_never_starts_again)
//! - L9 The next attempt at a run that was begun ahead comes earlier by as much. (what_waits_for_its_next_attempt_is_taken_back_too)
//! - L9 While there are spans, versions that do not know them cannot read the ledger, and leave the job to others.
//!   (a_version_that_knows_no_spans_leaves_such_a_ledger_alone)

use jiff::Timestamp;

use super::{Ledger, OpenRun, Skipped, Span, VERSION, WITH_SPANS};

impl Ledger {
    /// Instants after `decided_upto` that are decided all the same: they were started, or may have been, while a clock was
    /// ahead. In order, without overlap.
    #[must_use]
    pub(crate) fn ran_ahead(&self) -> &[Span] {
        &self.ran_ahead
    }

    /// Whether the instant lies in one of [`Ledger::ran_ahead`].
    #[must_use]
    pub(crate) fn has_run_ahead(&self, t: Timestamp) -> bool {
        self.ran_ahead.iter().any(|span| span.contains(t))
    }

    /// The ledger is decided up to `upto` and no further, apart from the spans `ran`, which are to hold whatever may have been
    /// started after it: nothing in them ever starts. Ticks that wait, and rows of skipped ones, are kept up to there; `rows`
    /// stand in the place of all rows.
    pub(crate) fn take_back(&mut self, upto: Timestamp, ran: Vec<Span>, rows: Vec<Skipped>) {
        let Some(decided) = self.decided_upto.filter(|decided| *decided > upto) else {
            return;
        };
        self.decided_upto = Some(upto);
        let ahead = decided.duration_since(upto);
        // What was begun before by the right time may have said by the right time, too, when it goes on.
        for run in self.open.iter_mut().filter(|run| run.tick > upto) {
            let later = run.not_before.filter(|at| *at > upto);
            let right = later.map(|at| at.checked_sub(ahead).map_or(upto, |at| at.max(upto)));
            run.not_before = right.or(run.not_before);
        }
        self.waiting.retain(|tick| *tick <= upto);
        self.queued.retain(|tick| *tick <= upto);
        self.skipped = rows;
        self.ran_ahead = ran;
        self.pass_spans();
    }

    /// Forgets what has run ahead of its time.
    pub(crate) fn forget_spans(&mut self) {
        self.ran_ahead.clear();
        self.pass_spans();
    }

    /// Forgets spans that the decided time has passed.
    pub(super) fn pass_spans(&mut self) {
        if let Some(upto) = self.decided_upto {
            self.ran_ahead.retain(|span| span.to > upto);
        }
        self.v = match self.ran_ahead.is_empty() {
            true => VERSION,
            false => WITH_SPANS,
        };
    }

    /// Nothing before `upto` is known for sure any more: all of it is decided, and so are open and waiting work, which may have
    /// gone on. Answers with the ticks that waited and the runs that were open. Nothing happens to a job never seen.
    pub(crate) fn forget_upto(
        &mut self,
        upto: Timestamp,
    ) -> Option<(Vec<Timestamp>, Vec<OpenRun>)> {
        let decided = self.decided_upto?;
        self.decided_upto = Some(decided.max(upto));
        self.pass_spans();
        let mut waited = std::mem::take(&mut self.waiting);
        waited.append(&mut self.queued);
        waited.sort_unstable();
        Some((waited, std::mem::take(&mut self.open)))
    }

    /// Attempts that follow have larger numbers than any that started before `now`, also if some were forgotten.
    pub(crate) fn count_on_from(&mut self, now: Timestamp) {
        let since = u64::try_from(now.as_millisecond()).unwrap_or(0);
        self.runs = self.runs.max(since);
    }

    /// The same without what runs left for their next attempts, nor what was given them: for those who need to know only what
    /// was decided.
    #[must_use]
    pub(crate) fn outline(&self) -> Self {
        let mut outline = self.clone();
        for run in &mut outline.open {
            run.checkpoint = None;
            run.checkpoint_at = None;
            run.given = super::params::TriggerParams::default();
        }
        outline
    }
}

/// The instant just after `t`.
pub(super) fn next_instant(t: Timestamp) -> Option<Timestamp> {
    Timestamp::from_nanosecond(t.as_nanosecond() + 1).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ledger::{LedgerError, Refused},
        node::Token,
    };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn taken_back() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.first_sight(at(100)).unwrap();
        let key = ledger.start_tick(at(900), Token(1)).unwrap().key();
        ledger.finish(&key, Token(1)).unwrap();
        let ran = Span {
            from: at(890),
            to: at(900),
        };
        ledger.take_back(at(200), vec![ran], Vec::new());
        ledger
    }

    #[test]
    fn what_waits_for_its_next_attempt_is_taken_back_too() {
        let mut ledger = Ledger::default();
        ledger.first_sight(at(100)).unwrap();
        let ticks = [at(150), at(900), at(950)];
        let keys = ticks.map(|tick| ledger.start_tick(tick, Token(1)).unwrap().key());
        for (key, not_before) in keys.iter().zip([at(3600), at(920), at(980)]) {
            ledger.retry_later(key, Token(1), not_before).unwrap();
        }
        // 750 seconds ahead.
        ledger.take_back(at(200), Vec::new(), Vec::new());
        let waits: Vec<_> = ledger.open().iter().map(|run| run.not_before).collect();
        // The first one was told so by the right time, as by a `Retry-After`.
        let right = [Some(at(3600)), Some(at(200)), Some(at(230))];
        assert_eq!(waits, right);
        ledger.take_back(at(200), Vec::new(), Vec::new());
        assert_eq!(ledger.open()[2].not_before, right[2]);
    }

    #[test]
    fn what_may_have_run_ahead_never_starts_again() {
        let mut ledger = taken_back();
        assert_eq!(ledger.decided_upto(), Some(at(200)));
        for tick in [890, 895, 900] {
            let decided = Err(Refused::Decided {
                tick: at(tick),
                upto: at(200),
            });
            assert_eq!(ledger.start_tick(at(tick), Token(2)).map(drop), decided);
            assert_eq!(ledger.wait(at(tick)), decided);
            assert_eq!(ledger.queue(at(tick)), decided);
        }
        ledger.start_tick(at(210), Token(2)).unwrap();
        ledger.start_tick(at(910), Token(2)).unwrap();
        assert_eq!(ledger.ran_ahead(), [], "passed");
    }

    #[test]
    fn a_version_that_knows_no_spans_leaves_such_a_ledger_alone() {
        let mut ledger = taken_back();
        let body = ledger.to_body();
        assert!(body.contains(r#""v":2"#), "{body}");
        assert_eq!(Ledger::from_body(&body).unwrap(), ledger);
        ledger.decide_upto(at(901)).unwrap();
        assert!(ledger.to_body().contains(r#""v":1"#), "{ledger:?}");
        let newer = body.replace(r#""v":2"#, r#""v":3"#);
        assert!(matches!(
            Ledger::from_body(&newer),
            Err(LedgerError::Newer { found: 3 })
        ));
    }

    #[test]
    fn spans_are_forgotten_where_no_instant_comes_again() {
        let mut ledger = taken_back();
        let ahead = ledger.ran_ahead()[0].from;
        let refused = ledger.start_tick(ahead, Token(9)).map(drop);
        assert!(refused.is_err(), "{refused:?}");
        ledger.forget_spans();
        assert!(ledger.start_tick(ahead, Token(9)).is_ok());
    }

    #[test]
    fn an_outline_gives_away_no_parameter() {
        let mut ledger = Ledger::default();
        ledger.first_sight(at(100)).unwrap();
        ledger.start_trigger("t", at(110), Token(1)).unwrap();
        let given =
            crate::ledger::params::TriggerParams::read(None, &["password=hunter2".to_owned()])
                .unwrap();
        ledger.keep_given("t", &given);
        assert!(ledger.to_body().contains("hunter2"));
        assert!(!ledger.outline().to_body().contains("hunter2"));
    }
}
