//! When a replica asks the nodes about the fleet: what is to be done again and again is done at the same instants, so that it
//! leaves in one call.
//!
//! # Invariants
//! - What is done so often at least is never later for it.   (what_is_done_at_a_beat_is_done_often_enough)
//! - What a replica asks again and again leaves together.   (a_replica_at_rest_makes_few_calls)

use std::time::Duration;

use crate::{clock::Moment, hash::liking};

/// A little less than a second: with ticks of whole seconds it does not keep step, else a look would find the same job
/// running each time.
const BEAT: Duration = Duration::from_millis(960);

/// The last beat of this replica within `longest` from now, or the end of that where it has none.
pub(crate) fn beat(replica: &str, now: Moment, longest: Duration) -> Moment {
    // Not all replicas at the same time.
    let phase = liking(replica, "beat") % millis(BEAT);
    let latest = now + longest;
    let until = millis(latest.since_boot());
    let since = (until + millis(BEAT) - phase) % millis(BEAT);
    let last = Moment::from_boot(Duration::from_millis(until.saturating_sub(since)));
    if last > now { last } else { latest }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_at_a_beat_is_done_often_enough() {
        let second = Duration::from_secs(1);
        for replica in ["a", "b", "c"] {
            let mut beats = Vec::new();
            for n in 0..40_u32 {
                let now = Moment::from_boot(Duration::from_micros(7_654_321) + second * n / 10);
                for longest in [second, second * 2] {
                    let next = beat(replica, now, longest);
                    assert!(next > now && next.since(now) <= longest);
                    assert!(next.since(now) + BEAT * 2 > longest, "not much sooner");
                    beats.push(next);
                }
                assert!(beat(replica, now, second / 100).since(now) <= second / 100);
            }
            beats.sort();
            beats.dedup();
            let apart = |pair: &[Moment]| pair[1].since(pair[0]) == BEAT;
            assert!(beats.windows(2).all(apart), "{beats:?}");
        }
    }
}
