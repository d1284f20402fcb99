//! Under which definition of the job a ledger was decided last.

use jiff::Timestamp;

use super::{Decided, Ledger, Skipped};

impl Ledger {
    /// Under which definition it was decided last.
    #[must_use]
    pub(crate) fn decided_by(&self) -> &Decided {
        &self.by
    }

    /// From here on it is decided under this definition.
    pub(crate) fn decide_by(&mut self, by: Decided) {
        self.by = by;
    }

    /// Up to here ticks may have been decided under other schedules than the one that decides now, also ahead of their time.
    #[must_use]
    pub(crate) fn mixed_upto(&self) -> Option<Timestamp> {
        self.mixed_upto
    }

    /// The schedule has changed at `now`: whatever is decided until then, or ahead of it, was decided under another one.
    pub(crate) fn mix(&mut self, now: Timestamp) {
        let ahead = self.ran_ahead.iter().map(|span| span.to);
        let upto = ahead.chain(self.decided_upto).chain(self.mixed_upto).max();
        self.mixed_upto = upto.map(|upto| upto.max(now));
    }

    /// What is undecided up to `upto` is decided by a change of the schedule; the row stands for it even where it holds no
    /// tick. Nothing happens when all of it is decided, or the job was never seen.
    pub(crate) fn pass_over(&mut self, mut row: Skipped) {
        let upto = row.to;
        // A row says that nothing in it has started.
        let ran = self.ran_ahead.iter().filter(|ran| ran.from <= upto);
        let after = ran.map(|ran| ran.to).max();
        if let Some(next) = after.and_then(super::ahead::next_instant) {
            row.from = row.from.max(next);
        }
        if self.decided_upto.is_some_and(|decided| decided < upto) {
            if row.from <= upto {
                self.note_skipped(row);
            }
            self.decided_upto = Some(upto);
            self.pass_spans();
        }
    }

    /// The first moment that is not decided.
    pub(crate) fn undecided_from(&self) -> Option<Timestamp> {
        let upto = self.decided_upto?;
        upto.checked_add(std::time::Duration::from_millis(1)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_older_versions_are_read_and_name_no_definition() {
        let old = r#"{"v":1,"decided_upto":"2026-05-04T08:00:00Z","open":[],"recent":[]}"#;
        let ledger = Ledger::from_body(old).unwrap();
        assert!(ledger.decided_by().is_unknown());
        assert!(!ledger.to_body().contains("\"by\""));
    }

    #[test]
    fn the_definition_survives_a_round_trip() {
        let mut ledger = Ledger::default();
        let by = Decided {
            ticks: "aa".to_owned(),
            whole: "bb".to_owned(),
        };
        ledger.decide_by(by.clone());
        let read = Ledger::from_body(&ledger.to_body()).unwrap();
        assert_eq!(read.decided_by(), &by);
    }
}
