//! Which losses of memory a ledger has accounted for.

use jiff::Timestamp;

use super::Ledger;

/// Stamps that a ledger keeps, the latest ones. A stamp that is forgotten is accounted for once more.
const MAX_MEMORY_LOSSES: usize = 16;

impl Ledger {
    /// The stamps of lost memory that lock nodes told of, and that this ledger has accounted for: it was written after these
    /// losses. A stamp may lie in the future, when a clock was ahead.
    #[must_use]
    pub(crate) fn memory_losses(&self) -> &[Timestamp] {
        &self.memory_losses
    }

    /// These losses are accounted for.
    pub(crate) fn note_memory_losses(&mut self, stamps: &[Timestamp]) {
        let mut memory_losses = [&*self.memory_losses, stamps].concat();
        memory_losses.sort_unstable();
        memory_losses.dedup();
        let surplus = memory_losses.len().saturating_sub(MAX_MEMORY_LOSSES);
        memory_losses.drain(..surplus);
        self.memory_losses = memory_losses.into();
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
            ledger.note_memory_losses(&[at(second), at(second)]);
        }
        assert_eq!(ledger.memory_losses(), (24..40).map(at).collect::<Vec<_>>());
        assert_eq!(Ledger::from_body(&ledger.to_body()).unwrap(), ledger);
    }
}
