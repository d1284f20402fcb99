//! At most so many rows a second, in this replica: for a job that has no locks.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use watchkeeper::clock::Moment;

/// When the next row may go.
#[derive(Debug)]
pub(super) struct Rate {
    step: Duration,
    next: Mutex<Moment>,
}

impl Rate {
    pub(super) fn new(per_second: f64) -> Self {
        let step = Duration::try_from_secs_f64(1.0 / per_second);
        Self {
            step: step.unwrap_or(Duration::MAX),
            next: Mutex::new(Moment::ZERO),
        }
    }

    /// Whether a row may go now, or when one may.
    pub(super) fn ready(&self, now: Moment) -> Result<(), Moment> {
        let next = *self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if now < next { Err(next) } else { Ok(()) }
    }

    /// A row goes now.
    pub(super) fn take(&self, now: Moment) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = now + self.step;
    }
}
