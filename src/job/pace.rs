//! How far a run is, how fast it goes, and when it will be done if it goes on like this. No clock: `now` is handed in.
//!
//! # Invariants
//! - G1 Nothing is divided by zero, and no number is without end, whatever a job says.   (nonsense_makes_no_nonsense)
//! - G2 A time that is left is told only where the total is known and the last half minute was steady.
//!   (an_unsteady_pace_tells_no_end)

use std::time::Duration;

use super::{Rate, RunProgress};
use crate::clock::Moment;

/// Bytes of a message that are kept.
pub(crate) const MAX_MESSAGE: usize = 200;

/// What a run has said, and when.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    at: Moment,
    said: Option<(u64, Option<u64>)>,
    message: Option<String>,
    pace: Option<Pace>,
}

/// A smoothed rate.
#[derive(Clone, Copy, Debug)]
struct Pace {
    since: Moment,
    /// The last sample.
    at: Moment,
    done: u64,
    samples: u32,
    /// Items per second, and by how much samples differ from it.
    rate: f64,
    spread: f64,
    /// Seconds between samples.
    gap: f64,
}

/// The recent past: what is older by so much counts a third.
const RECENT: f64 = 30.0;
/// Words that follow each other faster are one sample.
const SAMPLE: Duration = Duration::from_millis(250);
/// What must be seen before an end is told.
const ENOUGH: (u32, Duration) = (3, Duration::from_secs(2));
/// An end that is further away is none.
const FAR: Duration = Duration::from_secs(1000 * 24 * 3600);

// === impl Progress ===

impl Progress {
    pub(crate) fn begun(now: Moment) -> Self {
        Self {
            at: now,
            said: None,
            message: None,
            pace: None,
        }
    }

    /// The run says how far it is.
    pub(crate) fn say(&mut self, done: u64, total: Option<u64>, now: Moment) {
        self.at = now;
        self.said = Some((done, total));
        match &mut self.pace {
            // One that counts anew is measured anew.
            Some(pace) if done >= pace.done => pace.sample(done, now),
            pace => *pace = Some(Pace::from(done, now)),
        }
    }

    /// The run says what it is at.
    pub(crate) fn message(&mut self, message: &str, now: Moment) {
        self.at = now;
        let kept = message.char_indices().map(|(at, c)| at + c.len_utf8());
        let end = kept.take_while(|end| *end <= MAX_MESSAGE).last();
        let kept = &message[..end.unwrap_or(0)];
        self.message = Some(kept.to_owned()).filter(|kept| !kept.is_empty());
    }

    /// When the run last said anything; its start before that.
    pub(crate) fn at(&self) -> Moment {
        self.at
    }

    /// As every surface shows it.
    pub(crate) fn told(&self, now: Moment) -> RunProgress {
        let (done, total) = match self.said {
            Some((done, total)) => (Some(done), total),
            None => (None, None),
        };
        let rate = self.pace.and_then(|pace| pace.rate_at(done?, now));
        let steady = self.pace.is_some_and(|pace| pace.is_steady(now));
        let left_ms = match (done, total, rate) {
            (Some(done), Some(total), _) if done >= total => Some(0),
            (Some(done), Some(total), Some(rate)) if steady && rate > 0.0 => {
                let left = (total - done) as f64 / rate;
                let left = Duration::try_from_secs_f64(left).ok();
                left.filter(|left| *left < FAR)
                    .and_then(|left| u64::try_from(left.as_millis()).ok())
            }
            _ => None,
        };
        RunProgress {
            done,
            total,
            per_second: rate.map(Rate::new),
            left_ms,
            message: self.message.clone(),
        }
    }
}

// === impl Pace ===

impl Pace {
    /// Counted from here: what was done before may be an earlier attempt's.
    fn from(done: u64, now: Moment) -> Self {
        Self {
            since: now,
            at: now,
            done,
            samples: 0,
            rate: 0.0,
            spread: 0.0,
            gap: 0.0,
        }
    }

    fn sample(&mut self, done: u64, now: Moment) {
        let took = now.since(self.at);
        if took < SAMPLE {
            return;
        }
        let seen = per_second(done - self.done, took);
        let weight = self.weight(took, now);
        if self.samples > 0 {
            self.spread += weight * ((seen - self.rate).abs() - self.spread);
        }
        self.rate += weight * (seen - self.rate);
        self.gap += weight * (took.as_secs_f64() - self.gap);
        self.samples = self.samples.saturating_add(1);
        (self.at, self.done) = (now, done);
    }

    /// The plain mean at first, then the recent past.
    fn weight(&self, took: Duration, now: Moment) -> f64 {
        let all = now.since(self.since).as_secs_f64();
        let took = took.as_secs_f64();
        let share = if all > 0.0 { took / all } else { 1.0 };
        share.max(1.0 - (-took / RECENT).exp())
    }

    /// The rate now: one that has said nothing for longer than usual has slowed down.
    fn rate_at(&self, done: u64, now: Moment) -> Option<f64> {
        if self.samples == 0 {
            return None;
        }
        let silent = now.since(self.at);
        if silent < SAMPLE || silent.as_secs_f64() < 2.0 * self.gap {
            return Some(self.rate);
        }
        let seen = per_second(done.saturating_sub(self.done), silent);
        let rate = self.rate + self.weight(silent, now) * (seen - self.rate);
        Some(rate.min(self.rate))
    }

    fn is_steady(&self, now: Moment) -> bool {
        let long = now.since(self.since) >= ENOUGH.1;
        self.samples >= ENOUGH.0 && long && self.spread <= self.rate / 2.0
    }
}

fn per_second(items: u64, took: Duration) -> f64 {
    // Never shorter than a sample.
    items as f64 / took.max(SAMPLE).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    const SECOND: Duration = Duration::from_secs(1);

    fn start() -> (Progress, Moment) {
        let now = Clock::system().now();
        (Progress::begun(now), now)
    }

    /// Says every second what `done` makes of the second.
    fn told(seconds: u32, total: Option<u64>, done: impl Fn(u32) -> u64) -> (Progress, Moment) {
        let (mut progress, mut now) = start();
        for second in 0..=seconds {
            if second > 0 {
                now = now + SECOND;
            }
            progress.say(done(second), total, now);
        }
        (progress, now)
    }

    #[test]
    fn a_steady_run_tells_its_pace_and_its_end() {
        let (progress, now) = told(20, Some(400), |s| u64::from(s) * 10);
        let far = progress.told(now);
        assert_eq!((far.done, far.total), (Some(200), Some(400)));
        assert_eq!(far.per_second, Some(Rate::new(10.0)));
        assert!(far.left_ms.unwrap().abs_diff(20_000) < 10, "{far:?}");
    }

    #[test]
    fn what_an_earlier_attempt_has_done_is_not_counted_into_the_pace() {
        let (progress, now) = told(10, Some(2000), |s| 1000 + u64::from(s));
        let rate = progress.told(now).per_second;
        assert_eq!(rate, Some(Rate::new(1.0)));
    }

    #[test]
    fn without_a_total_there_is_a_pace_and_no_end() {
        let (progress, now) = told(10, None, |s| u64::from(s) * 3);
        let far = progress.told(now);
        assert!(far.per_second.is_some());
        assert_eq!((far.total, far.left_ms), (None, None));
    }

    #[test]
    fn the_recent_past_counts() {
        let (progress, now) = told(300, Some(10_000), |s| match s {
            0..=100 => u64::from(s) * 20,
            s => 2000 + u64::from(s - 100) * 2,
        });
        let rate = progress.told(now).per_second.unwrap().per_second();
        assert!((1.9..2.2).contains(&rate), "{rate}");
    }

    #[test]
    fn an_unsteady_pace_tells_no_end() {
        // One large step now and then.
        let (progress, now) = told(60, Some(100_000), |s| u64::from(s / 15) * 1000);
        let far = progress.told(now);
        assert_eq!(far.left_ms, None, "{far:?}");
        // Too little was seen.
        let (progress, now) = told(1, Some(10), u64::from);
        assert_eq!(progress.told(now).left_ms, None);
    }

    #[test]
    fn a_run_that_falls_silent_slows_down() {
        let (progress, now) = told(20, Some(400), |s| u64::from(s) * 10);
        let later = |s: u32| progress.told(now + SECOND * s).per_second.unwrap();
        assert_eq!(later(1), Rate::new(10.0));
        assert!(later(10) < Rate::new(9.0) && later(100) < later(10));
        let left = |s: u32| progress.told(now + SECOND * s).left_ms.unwrap();
        assert!(left(100) > left(10));
    }

    #[test]
    fn nonsense_makes_no_nonsense() {
        let (mut progress, now) = start();
        assert_eq!(progress.told(now), RunProgress::default());
        for (done, total) in [
            (0, Some(0)),
            (5, Some(3)),
            (2, Some(3)),
            (u64::MAX, None),
            (0, None),
        ] {
            for _ in 0..5 {
                // At one instant, and with nothing in between.
                progress.say(done, total, now);
            }
            let far = progress.told(now);
            assert!(
                far.per_second
                    .is_none_or(|rate| rate.per_second().is_finite()),
                "{far:?}"
            );
        }
        let (mut progress, mut now) = start();
        for done in [0, u64::MAX, u64::MAX, 0, 1, 1, 1, 1] {
            now = now + SECOND;
            progress.say(done, Some(u64::MAX), now);
            let far = progress.told(now + SECOND * 5);
            assert!(
                far.per_second
                    .is_none_or(|rate| rate.per_second().is_finite()),
                "{far:?}"
            );
        }
        // Nothing more gets done: no end in sight.
        assert_eq!(progress.told(now + SECOND * 3600).left_ms, None);
    }

    #[test]
    fn all_done_has_no_time_left() {
        let (progress, now) = told(1, Some(1), u64::from);
        assert_eq!(progress.told(now).left_ms, Some(0));
    }

    #[test]
    fn a_message_is_short_and_no_character_is_cut() {
        let (mut progress, now) = start();
        progress.message(&"\u{1f980}".repeat(100), now);
        let kept = progress.told(now).message.unwrap();
        assert_eq!(kept, "\u{1f980}".repeat(50));
        progress.message("", now);
        assert_eq!(progress.told(now).message, None);
    }
}
