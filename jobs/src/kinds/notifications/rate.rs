//! At most so many items a second, in this replica.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use watchkeeper::clock::Moment;

/// Hands out moments at which the next item may go; shared by all batches of a job.
#[derive(Debug)]
pub(crate) struct Rate {
    step: Duration,
    /// When the next item would go if the pace had been kept exactly.
    next: Mutex<Moment>,
}

/// Time that was not used may be made up for, this much of it.
const BURST: Duration = Duration::from_millis(100);

impl Rate {
    /// `per_second` items; no limit when `None`.
    #[must_use]
    pub(crate) fn new(per_second: Option<f64>) -> Self {
        let step = per_second.and_then(|rate| Duration::try_from_secs_f64(1.0 / rate).ok());
        Self {
            step: step.unwrap_or_default(),
            next: Mutex::new(Moment::ZERO),
        }
    }

    /// Takes the next place and says when it is.
    pub(crate) fn reserve(&self, now: Moment) -> Moment {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let at = (*next).max(now.back(BURST));
        *next = at + self.step;
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(ms))
    }

    #[test]
    fn places_are_a_step_apart_and_idle_time_is_not_saved_up() {
        let rate = Rate::new(Some(10.0));
        let places: Vec<Moment> = (0..4).map(|_| rate.reserve(at(10_000))).collect();
        assert_eq!(places, [at(9_900), at(10_000), at(10_100), at(10_200)]);
        assert_eq!(rate.reserve(at(99_000)), at(98_900));
    }

    #[test]
    fn without_a_limit_every_place_is_now() {
        let rate = Rate::new(None);
        assert!((0..100).all(|_| rate.reserve(at(5_000)) <= at(5_000)));
    }
}
