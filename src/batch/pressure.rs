//! How many batches a replica works on at a time while those that it works for ask it to wait: plain functions.
//!
//! After each few batches in a row that ended with [`Outcome::RetryAfter`](crate::Outcome::RetryAfter) half as many are worked on, one at least;
//! each batch that is done allows one more. So a receiver that cannot keep up meets fewer requests, and not the same number
//! of them later (additive increase, multiplicative decrease, as in RFC 5681).

/// So many batches in a row that are to wait halve the number.
const IN_A_ROW: usize = 3;

/// What the batches that ended last say.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    in_a_row: usize,
    /// Fewer than the job allows.
    limit: Option<usize>,
}

impl Pressure {
    /// How many batches are worked on at a time, of those that the job allows.
    pub(super) fn of(&self, allowed: usize) -> usize {
        let allowed = allowed.max(1);
        self.limit.map_or(allowed, |limit| limit.min(allowed))
    }

    pub(super) fn done(&mut self, allowed: usize) {
        self.in_a_row = 0;
        self.limit = self
            .limit
            .map(|limit| limit + 1)
            .filter(|limit| *limit < allowed);
    }

    pub(super) fn asked_to_wait(&mut self, allowed: usize) {
        self.in_a_row += 1;
        if self.in_a_row >= IN_A_ROW {
            self.in_a_row = 0;
            self.limit = Some((self.of(allowed) / 2).max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_that_are_to_wait_halve_the_number_and_those_that_are_done_restore_it() {
        let mut pressure = Pressure::default();
        assert_eq!(pressure.of(8), 8);
        let mut numbers = Vec::new();
        for _ in 0..15 {
            pressure.asked_to_wait(8);
            numbers.push(pressure.of(8));
        }
        assert_eq!(numbers, [8, 8, 4, 4, 4, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1]);
        pressure.asked_to_wait(8);
        pressure.asked_to_wait(8);
        let restored = [(); 7].map(|()| {
            pressure.done(8);
            pressure.of(8)
        });
        assert_eq!(restored, [2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn now_and_then_a_batch_that_is_to_wait_changes_nothing() {
        let mut pressure = Pressure::default();
        for n in 0..100 {
            if n % 3 == 0 {
                pressure.done(4);
            } else {
                pressure.asked_to_wait(4);
            }
        }
        assert_eq!(pressure.of(4), 4);
        // No fewer than one, whatever the job says.
        assert_eq!(pressure.of(0), 1);
    }
}
