//! The civil time of a member, by its answers.
//!
//! etcd tells no time, but its gateway dates each answer, in a header (`Date`) that has no part of a second. An answer was dated between its question and its arrival, so
//! that each of them bounds how far the member's clock and ours are apart. What all bounds have in common is a second wide at first, and
//! narrows with each answer at another part of a second. A clock that was set, or another member, breaks them: then the newest one counts alone.
//! What is not known is never guessed: `allowance.rs` says what becomes of it.

use std::time::Duration;

use crate::clock::Moment;

/// How far the clocks may run apart, in millionths.
const DRIFT_PPM: i64 = 500;

/// What is known of a member's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Civil {
    /// Microseconds from our clock to the member's: not less, not more; and when that was found.
    bounds: Option<(i64, i64, Moment)>,
}

// === impl Civil ===

impl Civil {
    /// An answer with this date, in seconds, was asked for and arrived at these moments.
    pub(super) fn saw(&mut self, date: i64, asked: Moment, arrived: Moment) {
        let first = date.saturating_mul(1_000_000);
        let low = first.saturating_sub(micros(arrived));
        let high = first
            .saturating_add(1_000_000)
            .saturating_sub(micros(asked));
        let (low, high) = match self.at(arrived) {
            Some((known_low, known_high)) => {
                let both = (low.max(known_low), high.min(known_high));
                match both.0 <= both.1 {
                    true => both,
                    false => (low, high),
                }
            }
            None => (low, high),
        };
        self.bounds = Some((low, high, arrived));
    }

    /// Milliseconds since 1970 that the member's clock has reached for certain, and how much more it may be; `None` where nothing is
    /// known of it.
    pub(super) fn now(&self, now: Moment) -> Option<(i64, Duration)> {
        let (low, high) = self.at(now)?;
        let more = u64::try_from(high - low).unwrap_or(0);
        let least = micros(now).saturating_add(low).div_euclid(1_000);
        Some((least, Duration::from_micros(more)))
    }

    /// The bounds as they are by now.
    fn at(&self, now: Moment) -> Option<(i64, i64)> {
        let (low, high, found) = self.bounds?;
        let since = i64::try_from(now.since(found).as_micros()).unwrap_or(i64::MAX);
        let drift = since / 1_000_000 * DRIFT_PPM + since % 1_000_000 * DRIFT_PPM / 1_000_000;
        Some((low.saturating_sub(drift), high.saturating_add(drift)))
    }
}

fn micros(moment: Moment) -> i64 {
    let since: Duration = moment.since_boot();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Chance;

    fn at(micros: u64) -> Moment {
        Moment::from_boot(Duration::from_micros(micros))
    }

    /// What a member that is `ahead` of us says when it is asked.
    fn ask(civil: &mut Civil, ahead: i64, asked: u64, took: u64, answered: u64) {
        let there = i64::try_from(asked + answered).unwrap() + ahead;
        civil.saw(there.div_euclid(1_000_000), at(asked), at(asked + took));
    }

    #[test]
    fn answers_narrow_the_time_and_it_is_never_outside_of_its_bounds() {
        const AHEAD: i64 = 1_700_000_000_123_456;
        let chance = Chance::seeded(4);
        let mut civil = Civil::default();
        assert_eq!(civil.now(at(5)), None);
        let mut now = 1_000_000;
        for n in 0..300 {
            let took = 500 + chance.below(4_000);
            ask(&mut civil, AHEAD, now, took, chance.below(took));
            let (low, high) = civil.at(at(now + took)).unwrap();
            assert!(low <= AHEAD && AHEAD <= high, "{n}: {low} {high}");
            now += 10_000 + chance.below(400_000);
        }
        let there = (i64::try_from(now).unwrap() + AHEAD) / 1_000;
        let (least, more) = civil.now(at(now)).unwrap();
        let late = there - least;
        assert!((0..=60).contains(&late), "{late} ms");
        assert!(more <= Duration::from_millis(60), "{more:?}");
    }

    #[test]
    fn a_clock_that_was_set_is_followed_at_once() {
        let mut civil = Civil::default();
        ask(&mut civil, 1_000_000_000, 0, 1_000, 500);
        ask(&mut civil, 5_000_000_000, 10_000, 1_000, 500);
        let late = 5_000_011 - civil.now(at(11_000)).unwrap().0;
        assert!((0..=1_010).contains(&late), "{late} ms");
        ask(&mut civil, -90_000_000, 20_000, 1_000, 500);
        let late = -89_979 - civil.now(at(21_000)).unwrap().0;
        assert!((0..=1_010).contains(&late), "{late} ms");
    }
}
