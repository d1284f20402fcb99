//! How fast one receiver is sent to, in this replica: plain decisions, without I/O or clock.
//!
//! # States            at full pace -> paused (told to wait, or silent) -> one item on trial -> slowed -> at full pace
//! # Invariants
//! - P1 While a receiver is paused nothing goes to it, and after the pause one item until it is answered.
//!   (`after_a_pause_one_item_goes_first`)
//! - P2 A pause that was asked for is kept, up to a day.         (`a_pause_that_was_asked_for_is_kept`)
//! - P3 One wave of refusals slows down once: what left before says nothing new.  (`a_wave_of_refusals_slows_down_once`)
//! - P4 The pace is halved, and comes back by a tenth in a second.  (`the_pace_is_halved_and_comes_back`)
//!
//! # Not promised
//! One pace for all replicas: each has its own. Pauses are told to the others (`pauses`).

use std::time::Duration;

use watchkeeper::clock::Moment;

use crate::notifications::delivery::MAX_ASKED;

/// What an answer says of its receiver, whatever it says of the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It answers.
    Well,
    /// It has too much to do. With the pause that it asks for.
    Busy(Option<Duration>),
    /// No connection, or no answer.
    Silence,
    /// Nothing can be sent to it before a person has changed something.
    #[cfg_attr(not(feature = "smtp"), allow(dead_code, reason = "for mails alone"))]
    Closed,
}

/// Whether something may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum May {
    /// Now.
    Go,
    /// Soon: the pace is slow.
    At(Moment),
    /// What is under way must be answered first.
    Wait,
    /// Not before.
    Paused(Moment),
}

/// What is known of one receiver.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Pace {
    paused_until: Moment,
    /// When it was last paused or slowed down: what left before was sent too fast, and is no news.
    slowed_at: Moment,
    /// Pauses in a row.
    strikes: u32,
    /// Silences in a row.
    silences: u32,
    /// One item goes, and decides.
    on_trial: bool,
    /// The time between two items, as of `slowed_at`; it shrinks by itself.
    gap: Duration,
    /// The time between two items without being told to slow down, smoothed.
    usual: Duration,
    /// When the last item went.
    last: Moment,
}

/// The pause when none was asked for; doubles from pause to pause.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest of these.
const LONGEST: Duration = Duration::from_secs(60);
/// The pause when a person must do something.
const CLOSED: Duration = Duration::from_secs(60);
/// So many silences in a row are no accident.
const SILENCES: u32 = 5;
/// What remains of a gap after a second.
const SHRINKS: f64 = 0.9;
/// Gaps between these are kept.
const GAPS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(10));
/// Idle time says nothing of the pace.
const IDLE: Duration = Duration::from_secs(1);
/// What was learned so long ago is forgotten where room is wanted.
const OLD: Duration = Duration::from_secs(600);

// === impl Pace ===

impl Pace {
    /// Whether an item may go, with so many under way.
    pub(crate) fn may_go(&self, under_way: usize, now: Moment) -> May {
        if now < self.paused_until {
            return May::Paused(self.paused_until);
        }
        if self.on_trial && under_way > 0 {
            return May::Wait;
        }
        let next = self.last + self.gap_at(now);
        if now < next { May::At(next) } else { May::Go }
    }

    /// An item goes.
    pub(crate) fn went(&mut self, now: Moment) {
        let gap = now.since(self.last);
        if gap < IDLE && !self.on_trial {
            self.usual = match self.usual.is_zero() {
                true => gap,
                false => (self.usual * 7 + gap) / 8,
            };
        }
        self.last = now;
    }

    /// An item that went at `left` has its answer, or never will. Says how long nothing goes now, if that is news.
    pub(crate) fn heard(&mut self, left: Moment, heard: Heard, now: Moment) -> Option<Duration> {
        let stale = left < self.slowed_at;
        match heard {
            Heard::Well if !stale => {
                (self.strikes, self.silences, self.on_trial) = (0, 0, false);
                None
            }
            Heard::Well => None,
            Heard::Busy(asked) if stale => {
                let until = now + asked.unwrap_or_default().min(MAX_ASKED);
                let longer = until > self.paused_until && until > now;
                longer.then(|| self.pause_until(until, now))
            }
            Heard::Busy(asked) => {
                self.slow_down(now);
                let own = self.strike();
                let pause = asked.map_or(own, |asked| asked.min(MAX_ASKED));
                Some(self.pause_until(now + pause, now))
            }
            Heard::Silence if stale => None,
            Heard::Silence => {
                self.silences += 1;
                if self.silences < SILENCES && !self.on_trial {
                    return None;
                }
                let pause = self.strike();
                self.count_from(now);
                Some(self.pause_until(now + pause, now))
            }
            Heard::Closed => {
                self.count_from(now);
                Some(self.pause_until(now + CLOSED, now))
            }
        }
    }

    /// Whether nothing of it is worth remembering: it is as if it had never been heard of, or is old news.
    pub(crate) fn is_plain(&self, now: Moment) -> bool {
        let idle = now.since(self.last.max(self.paused_until));
        let as_new = !self.on_trial && self.silences == 0 && self.gap_at(now).is_zero();
        idle > OLD || (as_new && idle > IDLE)
    }

    fn pause_until(&mut self, until: Moment, now: Moment) -> Duration {
        self.paused_until = self.paused_until.max(until);
        self.on_trial = true;
        self.paused_until.since(now)
    }

    /// The pause that the receiver did not ask for.
    fn strike(&mut self) -> Duration {
        let pause = PAUSE.saturating_mul(1 << self.strikes.min(10)).min(LONGEST);
        self.strikes += 1;
        pause
    }

    fn slow_down(&mut self, now: Moment) {
        self.count_from(now);
        // One item on trial was not too fast.
        if !self.on_trial {
            let from = if self.gap.is_zero() {
                self.usual
            } else {
                self.gap
            };
            self.gap = (from * 2).clamp(GAPS.0, GAPS.1);
        }
    }

    /// The gap shrinks from now on, and what left before is no news.
    fn count_from(&mut self, now: Moment) {
        self.gap = self.gap_at(now);
        self.slowed_at = now;
    }

    fn gap_at(&self, now: Moment) -> Duration {
        if self.gap.is_zero() {
            return self.gap;
        }
        // The time of a pause does not count: nothing was tried in it.
        let since = now.since(self.slowed_at.max(self.paused_until));
        let gap = self.gap.mul_f64(SHRINKS.powf(since.as_secs_f64()));
        if gap < GAPS.0 { Duration::ZERO } else { gap }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(1000) + Duration::from_millis(ms))
    }

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// Sends every 10 ms for a second.
    fn busy() -> Pace {
        let mut pace = Pace::default();
        for i in 0..100 {
            assert_eq!(pace.may_go(3, at(i * 10)), May::Go);
            pace.went(at(i * 10));
            pace.heard(at(i * 10), Heard::Well, at(i * 10 + 5));
        }
        pace
    }

    #[test]
    fn after_a_pause_one_item_goes_first() {
        let mut pace = busy();
        assert_eq!(
            pace.heard(at(990), Heard::Busy(None), at(1000)),
            Some(secs(1))
        );
        assert_eq!(pace.may_go(0, at(1999)), May::Paused(at(2000)));
        assert_eq!(pace.may_go(0, at(2000)), May::Go);
        pace.went(at(2000));
        assert_eq!(pace.may_go(1, at(3000)), May::Wait);
        // It is refused again: a longer pause, and no slower pace.
        let gap = pace.gap_at(at(2100));
        assert_eq!(
            pace.heard(at(2000), Heard::Busy(None), at(2100)),
            Some(secs(2))
        );
        assert_eq!(pace.gap_at(at(2100)), gap);
        pace.went(at(4100));
        pace.heard(at(4100), Heard::Well, at(4200));
        assert_eq!(pace.may_go(7, at(4300)), May::Go);
        assert_eq!(
            pace.heard(at(4300), Heard::Busy(None), at(4400)),
            Some(secs(1))
        );
    }

    #[test]
    fn a_pause_that_was_asked_for_is_kept() {
        let mut pace = busy();
        assert_eq!(
            pace.heard(at(990), Heard::Busy(Some(secs(90))), at(1000)),
            Some(secs(90))
        );
        assert_eq!(pace.may_go(0, at(90_999)), May::Paused(at(91_000)));
        assert_eq!(pace.may_go(0, at(91_000)), May::Go);
        let long = pace.heard(at(91_000), Heard::Busy(Some(Duration::MAX)), at(91_000));
        assert_eq!(long, Some(MAX_ASKED));
    }

    #[test]
    fn a_wave_of_refusals_slows_down_once() {
        let mut pace = busy();
        pace.heard(at(990), Heard::Busy(None), at(1000));
        let once = pace.clone();
        for i in 0..30 {
            assert_eq!(
                pace.heard(at(960 + i), Heard::Busy(None), at(1001 + i)),
                None
            );
            assert_eq!(pace.heard(at(960 + i), Heard::Silence, at(1001 + i)), None);
            pace.heard(at(960 + i), Heard::Well, at(1001 + i));
        }
        assert_eq!(pace, once);
        // But one that asks for more is heard.
        let longer = pace.heard(at(980), Heard::Busy(Some(secs(9))), at(1040));
        assert_eq!(longer, Some(secs(9)));
    }

    #[test]
    fn the_pace_is_halved_and_comes_back() {
        let mut pace = busy();
        pace.heard(at(990), Heard::Busy(Some(Duration::ZERO)), at(1000));
        let ms = |pace: &Pace, now| pace.gap_at(at(now)).as_millis();
        assert!(
            (19..=21).contains(&ms(&pace, 1000)),
            "{:?}",
            pace.gap_at(at(1000))
        );
        assert!((17..=19).contains(&ms(&pace, 2000)));
        assert!(
            (9..=11).contains(&ms(&pace, 7600)),
            "half of it after 6.6 s"
        );
        pace.went(at(1000));
        assert!(matches!(pace.may_go(0, at(1010)), May::At(_)));
        assert_eq!(ms(&pace, 60_000), 0);
        assert!(
            !pace.is_plain(at(60_000)),
            "on trial until something is answered"
        );
        assert!(pace.is_plain(at(700_000)), "old news");
        pace.heard(at(59_000), Heard::Well, at(60_000));
        assert!(pace.is_plain(at(60_000)));
    }

    #[test]
    fn silence_is_believed_the_fifth_time_and_on_trial_the_first() {
        let mut pace = Pace::default();
        for i in 0..4 {
            assert_eq!(pace.heard(at(i), Heard::Silence, at(i)), None);
        }
        assert_eq!(pace.heard(at(4), Heard::Silence, at(4)), Some(secs(1)));
        assert_eq!(
            pace.heard(at(1004), Heard::Silence, at(1004)),
            Some(secs(2))
        );
        for _ in 0..10 {
            let now = pace.paused_until;
            pace.heard(now, Heard::Silence, now);
        }
        assert!(pace.paused_until.since(pace.slowed_at) <= LONGEST);
        let now = pace.paused_until;
        pace.heard(now, Heard::Well, now);
        assert_eq!(pace.heard(now, Heard::Silence, now), None);
    }
}
