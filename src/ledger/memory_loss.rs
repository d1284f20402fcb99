//! Which losses of memory a ledger has accounted for.

use jiff::Timestamp;

use super::Ledger;

/// Stamps that a ledger keeps, the latest ones. A stamp that is forgotten is accounted for once more.
const MAX_BLANKS: usize = 16;

impl Ledger {
    /// The stamps of lost memory that lock nodes told of, and that this ledger has accounted for: it was written after these
    /// losses. A stamp may lie in the future, when a clock was ahead.
    #[must_use]
    pub(crate) fn blanks(&self) -> &[Timestamp] {
        &self.blanks
    }

    /// These losses are accounted for.
    pub(crate) fn note_blanks(&mut self, stamps: &[Timestamp]) {
        let mut blanks = [&*self.blanks, stamps].concat();
        blanks.sort_unstable();
        blanks.dedup();
        let surplus = blanks.len().saturating_sub(MAX_BLANKS);
        blanks.drain(..surplus);
        self.blanks = blanks.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_losses_are_kept_and_survive_a_round_trip() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut ledger = Ledger::default();
        assert!(!ledger.to_body().contains("blanks"));
        for second in (0..40).rev() {
            ledger.note_blanks(&[at(second), at(second)]);
        }
        assert_eq!(ledger.blanks(), (24..40).map(at).collect::<Vec<_>>());
        assert_eq!(Ledger::from_body(&ledger.to_body()).unwrap(), ledger);
    }
}
