//! How long after its instant a tick starts, so that jobs due at the same instant do not all start at it.

use std::time::Duration;

use jiff::Timestamp;

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
        let nanos = u128::from(hash(&self.job, tick)) * most / (u128::from(u64::MAX) + 1);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }
}

/// FNV-1a with the final mix of murmur3: stable over versions and machines, unlike the standard library's hasher.
fn hash(job: &str, tick: Timestamp) -> u64 {
    let tick = tick.as_nanosecond().to_be_bytes();
    let bytes = job.bytes().chain([0xff]).chain(tick);
    let h = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}
