//! What a clock elsewhere shows, reckoned from ours: a node's own clock, and its wall clock.
//!
//! - A reading is taken for the middle of the way there and back, and may be off by half of it.
//! - A more exact one is kept for a while, unless both cannot be true: the clock was set.
//!   (a_more_exact_reading_is_kept_unless_the_clock_was_set)
//! - A reading over which this process was frozen says little, and does not replace an older reading that has strayed by less.
//!   (a_reading_over_a_freeze_is_worth_less_than_an_old_one)

use std::time::Duration;

use jiff::SignedDuration;

use crate::clock::Moment;

/// A more exact estimate is kept for so long.
const KEPT: Duration = Duration::from_secs(10);

/// Two clocks stray from each other by no more than this part of a time: ten times of what real ones do.
const STRAYS: u32 = 100;

/// A way there and back that takes twice as long is no node's: this process stood still.
pub(super) const FROZEN: Duration = Duration::from_secs(1);

/// Nodes tell whole milliseconds.
pub(super) const GRAIN: Duration = Duration::from_millis(1);

/// What the clock shows, less the time since our boot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    pub(super) offset: SignedDuration,
    /// Half the way there and back.
    pub(super) half: Duration,
    pub(super) learned: Moment,
}

// === impl Estimate ===

impl Estimate {
    /// It has shown so much, in the answer that has come `now` to what was sent at `sent`.
    pub(super) fn read(shown: SignedDuration, sent: Moment, now: Moment) -> Option<Self> {
        let half = now.since(sent) / 2;
        let middle = SignedDuration::try_from((sent + half).since_boot()).ok()?;
        Some(Self {
            offset: shown.checked_sub(middle)?,
            half,
            learned: now,
        })
    }

    /// What it shows at this moment.
    pub(super) fn at(&self, moment: Moment) -> Option<SignedDuration> {
        let since_boot = SignedDuration::try_from(moment.since_boot()).ok()?;
        self.offset.checked_add(since_boot)
    }

    pub(super) fn error(&self) -> Duration {
        self.half + GRAIN
    }

    /// Whether it is kept in spite of the newer one: it is more exact, and both can be true.
    pub(super) fn is_better_than(&self, newer: &Self) -> bool {
        let apart = newer.offset.saturating_sub(self.offset).unsigned_abs();
        let age = newer.learned.since(self.learned);
        let is_exact = age < KEPT || newer.half > FROZEN && self.half + age / STRAYS < newer.half;
        self.half < newer.half && is_exact && apart <= self.error() + newer.error()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_more_exact_reading_is_kept_unless_the_clock_was_set() {
        let (sent, ms) = (
            Moment::from_boot(Duration::from_secs(1000)),
            Duration::from_millis,
        );
        let read = |shown: i64, took: u64| {
            let shown = SignedDuration::from_millis(shown);
            Estimate::read(shown, sent, sent + ms(took)).unwrap()
        };
        let (exact, mut rough, set) =
            (read(7_000_002, 4), read(7_000_025, 40), read(7_000_520, 40));
        assert!(exact.is_better_than(&rough));
        assert!(!rough.is_better_than(&exact));
        assert!(!exact.is_better_than(&set));
        assert_eq!(exact.at(sent), Some(SignedDuration::from_millis(7_000_000)));
        rough.learned = rough.learned + KEPT;
        assert!(!exact.is_better_than(&rough));
    }

    #[test]
    fn a_reading_over_a_freeze_is_worth_less_than_an_old_one() {
        let ms = Duration::from_millis;
        let exact = |shown| {
            let sent = Moment::from_boot(ms(1_000_000));
            Estimate::read(SignedDuration::from_millis(shown), sent, sent + ms(4)).unwrap()
        };
        // Sent a minute later, and answered after another.
        let sent = Moment::from_boot(ms(1_060_000));
        let shown = SignedDuration::from_millis(7_060_002);
        let frozen = Estimate::read(shown, sent, sent + ms(60_000)).unwrap();
        assert!(exact(7_000_002).is_better_than(&frozen));
        assert!(!exact(6_900_000).is_better_than(&frozen), "it was set");
        let weeks = Estimate {
            learned: frozen.learned + ms(4_000_000),
            ..frozen
        };
        assert!(!exact(7_000_002).is_better_than(&weeks));
    }
}
