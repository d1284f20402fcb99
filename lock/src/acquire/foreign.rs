//! How often a waiter looks while a foreign client's value stands in its way.
//!
//! Such clients announce no release: each of them tries again after a pause of its own, and has the lock before a waiter that
//! looks seldom. So ours look as often as they try, for as long as it may be worth it. When one of ours has the lock it hands
//! over to the next in the queue, as ever.
//!
//! # Invariants
//! - W7 While a foreign value bars the lock, the first of the queue looks again after an eighth of the time for which that value
//!   has stood: 20 ms at least and 100 ms at most, or half of that, by chance. The n-th waits n x n times as long.
//!   (w7_a_waiter_looks_often_while_a_foreign_value_is_young, w7_a_lock_that_changes_hands_among_strangers_is_had_in_turn)
//! - W7 A foreign value that stays costs a node less than 25 calls a second beside the slow poll, however many wait.
//!   (w7_a_foreign_value_that_stays_costs_few_calls)
//!
//! # Not promised
//! A share. It follows from how often the others try, and a client that takes the lock again in the moment in which it released
//! it leaves no gap: see `we_get_our_share` in the suite `faults`.

use std::time::Duration;

use crate::{chance::Chance, clock::Moment, expiry::LockState};

/// The part of a value's age after which it is looked at again.
const PART: u32 = 8;

/// The foreign values that bar a lock, and since when this waiter has seen exactly these.
#[derive(Debug, Default)]
pub(super) struct ForeignValues {
    values: Vec<String>,
    since: Moment,
}

// === impl ForeignValues ===

impl ForeignValues {
    /// How long these values have stood, as far as they were seen; `None` when no foreign value bars the lock.
    pub(super) fn stood(&mut self, seen: &LockState, now: Moment) -> Option<Duration> {
        let values = seen.foreign();
        if self.values != values {
            self.values = values.into_iter().map(str::to_owned).collect();
            self.since = now;
        }
        (!self.values.is_empty()).then(|| now.since(self.since))
    }
}

/// W7: how long a waiter with `ahead` others before it sleeps. `slow` is the node timeout, 50 ms unless set: the pauses grow
/// with it, as answers come later.
pub(super) fn beside_foreign(
    stood: Duration,
    ahead: u32,
    slow: Duration,
    chance: &Chance,
) -> Duration {
    let whole = (stood / PART).clamp(slow * 2 / 5, slow * 2);
    let place = ahead.saturating_add(1);
    let half = whole.saturating_mul(place.saturating_mul(place)) / 2;
    half.saturating_add(chance.up_to(half))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn within(pause: Duration, from: u32, to: u32) {
        assert!(from * MS <= pause && pause <= to * MS, "{pause:?}");
    }

    #[test]
    fn w7_a_waiter_looks_often_while_a_foreign_value_is_young() {
        let chance = Chance::seeded(1);
        for _ in 0..50 {
            let pause = |stood, ahead| beside_foreign(stood * MS, ahead, 50 * MS, &chance);
            within(pause(0, 0), 10, 20);
            within(pause(400, 0), 25, 50);
            within(pause(3_600_000, 0), 50, 100);
            within(pause(0, 1), 40, 80);
            within(pause(3_600_000, 3), 800, 1_600);
            // Far away answers take longer.
            within(
                beside_foreign(Duration::ZERO, 0, 500 * MS, &chance),
                100,
                200,
            );
            let _ = beside_foreign(Duration::MAX, u32::MAX, Duration::MAX / 2, &chance);
        }
    }
}
