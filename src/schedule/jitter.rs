//! How long after its instant a tick starts, so that jobs due at the same instant do not all start at it.

use std::time::Duration;

use jiff::Timestamp;

use crate::hash::mixed;

/// A delay for each tick of a job: the same on every replica, below `most`.
#[derive(Clone, Debug)]
pub(super) struct Jitter {
    pub(super) most: Duration,
    job: String,
}

impl Jitter {
    pub(super) fn new(job: &str, most: Duration) -> Self {
        let job = job.to_owned();
        Self { most, job }
    }

    /// A pure function of the job's name and the tick; below `room`, so that the next tick never comes first.
    pub(super) fn delay(&self, tick: Timestamp, room: Duration) -> Duration {
        let most = self.most.min(room).as_nanos().max(1);
        let nanos =
            u128::from(mixed(&self.job, tick.as_nanosecond())) * most / (u128::from(u64::MAX) + 1);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }
}
