//! Random, growing pauses between attempts.

use std::time::Duration;

use crate::chance::Chance;

/// Pauses that double from `first` to `most`, each drawn from the upper half of its range.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    /// Starts at `first`, never exceeds `most`.
    #[must_use]
    pub fn new(first: Duration, most: Duration) -> Self {
        let first = first.min(most);
        Self {
            first,
            most,
            next: first,
        }
    }

    /// The next pause. Random, so that contenders do not meet again; never zero for a non-zero range.
    pub fn next(&mut self, chance: &Chance) -> Duration {
        let range = self.next;
        self.next = range.saturating_mul(2).min(self.most);
        range / 2 + chance.up_to(range / 2)
    }

    /// Starts over.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_limit_and_start_over() {
        let (first, most) = (Duration::from_millis(10), Duration::from_millis(100));
        let (chance, mut backoff) = (Chance::seeded(3), Backoff::new(first, most));
        for _ in 0..20 {
            assert!(backoff.next(&chance) >= first / 2);
        }
        assert!(backoff.next(&chance) >= most / 2);
        backoff.reset();
        assert!(backoff.next(&chance) <= first);
    }
}
