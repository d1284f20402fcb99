//! What people were told of the job, and are still to be told: [`super::trouble`] says what that is.
//!
//! # Invariants
//! - T1 Of many failures in a row one is told, and of many successes in a row after them one.  (a_state_is_told_once)
//! - T2 What is told later bears a later time, whatever the clock does: the time names the change.
//!   (a_later_change_has_a_later_time)
//! - T3 What a program of another version has written there keeps no ledger from being read.
//!   (what_cannot_be_read_is_no_trouble)
//! - T4 What no receiver has heard of is told with the next end of its kind.  (what_no_one_heard_is_told_the_next_time)

use jiff::Timestamp;

use super::{
    Ledger,
    trouble::{Cause, Seen, Trouble, change},
};

impl Ledger {
    /// The last change that there is something to tell of.
    pub(crate) fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_deref()
    }

    /// Whether the job's last end that counts was a bad one.
    pub(crate) fn is_broken(&self) -> bool {
        self.trouble().is_some_and(Trouble::is_broken)
    }

    /// Takes note of an end at `at`; answers the change that it is, if it is one. `told`: no receiver waits for it to be told,
    /// and `unheard`: there is no receiver that could hear of it.
    pub(crate) fn note(
        &mut self,
        seen: Seen,
        by: Cause,
        at: Timestamp,
        (told, unheard): (bool, bool),
    ) -> Option<Trouble> {
        let mut next = change(self.trouble(), seen, by, at)?;
        (next.told, next.unheard) = (told, unheard);
        self.trouble = Some(Box::new(next.clone()));
        self.forget_what_is_over();
        Some(next)
    }

    /// The change at this time is told to all; `heard`: one of them has it, at least.
    pub(crate) fn is_told(&mut self, at: Timestamp, heard: bool) {
        if let Some(trouble) = self.trouble.as_mut().filter(|trouble| trouble.at == at) {
            trouble.told = true;
            trouble.unheard = !heard;
            trouble.done.clear();
        }
        self.forget_what_is_over();
    }

    /// The change at this time is told to these.
    pub(crate) fn is_told_to(&mut self, at: Timestamp, done: Vec<String>) {
        if let Some(trouble) = self.trouble.as_mut().filter(|trouble| trouble.at == at) {
            trouble.done = done;
        }
    }

    /// A job that is well, and of which that is known, is as one that never failed.
    fn forget_what_is_over(&mut self) {
        let over = |trouble: &Trouble| trouble.told && !trouble.is_broken();
        if self.trouble().is_some_and(over) {
            self.trouble = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Became;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn by(second: i64) -> Cause {
        Cause {
            tick: at(second),
            last: None,
            count: 0,
            run: "r".to_owned(),
            attempt: 1,
            outcome: "failed".to_owned(),
            detail: String::new(),
        }
    }

    /// What is told of these ends, each a second after the other and told at once.
    fn told(ends: &[Seen]) -> Vec<Became> {
        let (mut ledger, mut told) = (Ledger::default(), Vec::new());
        for (second, seen) in (100..).zip(ends) {
            if let Some(trouble) = ledger.note(*seen, by(second), at(second), (false, false)) {
                assert_eq!(ledger.trouble(), Some(&trouble));
                told.push(trouble.what);
                ledger.is_told(trouble.at, true);
            }
        }
        told
    }

    #[test]
    fn what_no_one_heard_is_told_the_next_time() {
        let mut ledger = Ledger::default();
        let mut ends = |seen, second, unheard| {
            let changed = ledger.note(seen, by(second), at(second), (true, unheard));
            changed.map(|trouble| (trouble.what, trouble.since))
        };
        // Before there was a receiver.
        assert_eq!(
            ends(Seen::Missed, 100, true),
            Some((Became::Missed, at(100)))
        );
        assert_eq!(
            ends(Seen::Missed, 101, true),
            Some((Became::Missed, at(100)))
        );
        assert_eq!(
            ends(Seen::Failed, 102, true),
            Some((Became::Failed, at(100)))
        );
        // A miss is not told in the place of a failure.
        assert_eq!(ends(Seen::Missed, 103, false), None);
        assert_eq!(
            ends(Seen::Failed, 104, false),
            Some((Became::Failed, at(100)))
        );
        assert_eq!(ends(Seen::Failed, 105, false), None);
        // Each receiver was given up.
        let told = ledger.trouble().unwrap().at;
        ledger.is_told(told, false);
        let again = ledger.note(Seen::Failed, by(106), at(106), (false, false));
        assert_eq!(again.unwrap().what, Became::Failed);
        ledger.is_told(at(106), true);
        assert_eq!(
            ledger.note(Seen::Failed, by(107), at(107), (false, false)),
            None
        );
    }

    #[test]
    fn a_state_is_told_once() {
        use Became::Recovered;
        use Seen::{Failed, Missed, Well};
        assert_eq!(told(&[Well, Well]), []);
        assert_eq!(told(&[Failed, Failed, Failed]), [Became::Failed]);
        assert_eq!(
            told(&[Failed, Failed, Well, Well, Failed]),
            [Became::Failed, Recovered, Became::Failed]
        );
        assert_eq!(told(&[Missed, Missed, Well]), [Became::Missed, Recovered]);
        // The worse news is told after the other, and never the other way round.
        assert_eq!(
            told(&[Missed, Failed, Missed, Well]),
            [Became::Missed, Became::Failed, Recovered]
        );
    }

    #[test]
    fn a_job_that_is_well_again_leaves_nothing_behind_once_that_is_told() {
        let mut ledger = Ledger::default();
        ledger
            .note(Seen::Failed, by(100), at(100), (true, false))
            .unwrap();
        assert!(ledger.is_broken());
        let trouble = ledger
            .note(Seen::Well, by(160), at(160), (false, false))
            .unwrap();
        assert_eq!(trouble.since, at(100), "since when it was broken");
        assert!(!ledger.is_broken());
        // News of an earlier change say nothing of this one.
        ledger.is_told(at(100), true);
        assert!(ledger.trouble().is_some());
        ledger.is_told(at(160), true);
        assert_eq!(ledger, Ledger::default());
    }

    #[test]
    fn a_later_change_has_a_later_time() {
        let mut ledger = Ledger::default();
        ledger.note(Seen::Failed, by(100), at(100), (false, false));
        // A clock that has gone back.
        ledger.note(Seen::Well, by(50), at(50), (false, false));
        assert!(ledger.trouble().unwrap().at > at(100));
    }

    #[test]
    fn what_cannot_be_read_is_no_trouble() {
        let mut ledger = Ledger::default();
        ledger.first_sight(at(90)).unwrap();
        ledger.note(Seen::Missed, by(100), at(100), (false, false));
        let body = ledger.to_body();
        assert_eq!(Ledger::from_body(&body).unwrap(), ledger);
        let newer = body.replace("\"missed\"", "\"wobbly\"");
        assert_ne!(newer, body);
        let read = Ledger::from_body(&newer).unwrap();
        assert_eq!(read.decided_upto(), ledger.decided_upto());
        assert_eq!(read.trouble(), None);
    }
}
