//! The fleet's wall clock: the median of what the nodes' clocks show, learned with their replies.
//!
//! So replicas whose own clocks differ act at the same instant, and a clock that was set by an hour starts nothing an
//! hour early. It is for calendars alone: leases and timeouts never use it.
//!
//! # Invariants
//! - W1 With readings of a majority of nodes it is their median, else this machine's clock.
//!   (w1_the_wall_clock_is_the_median_of_a_majority_else_our_own)
//! - W2 A difference that the way there and back explains is none.
//!   (w2_what_the_way_there_and_back_explains_is_no_difference)
//! - W3 A minority of nodes cannot move it beyond what the others show.    (w3_a_minority_of_wrong_clocks_moves_nothing)

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

use super::{estimate::Estimate, tally::majority};
use crate::clock::{Clock, Moment};

/// How long a reading counts: clocks do not run apart much in a minute.
const FRESH: Duration = Duration::from_secs(60);

/// What time it is for the fleet. Cheap to clone.
#[derive(Clone)]
pub(crate) struct FleetClock(Arc<State>);

struct State {
    clock: Clock,
    /// More than this is worth a warning.
    skew: Duration,
    readings: Mutex<Vec<Option<Estimate>>>,
    warned: AtomicBool,
}

/// What the readings say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Verdict {
    wall: Timestamp,
    /// How far the median is ahead of this machine; zero when that is within the error, or nothing is known.
    apart: SignedDuration,
}

// === impl FleetClock ===

impl FleetClock {
    pub(crate) fn new(clock: Clock, skew: Duration, nodes: usize) -> Self {
        Self(Arc::new(State {
            clock,
            skew,
            readings: Mutex::new(vec![None; nodes]),
            warned: AtomicBool::new(false),
        }))
    }

    /// Node `node` showed `wall_ms` in the answer to a call that was sent at `sent`.
    pub(crate) fn learn(&self, node: usize, sent: Moment, wall_ms: i64) {
        let learned = self.0.clock.now();
        let shown = SignedDuration::from_millis(wall_ms);
        let Some(fresh) = Estimate::read(shown, sent, learned) else {
            return;
        };
        let mut readings = self
            .0
            .readings
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(reading) = readings.get_mut(node)
            && !reading.is_some_and(|old| old.is_better_than(&fresh))
        {
            *reading = Some(fresh);
        }
    }

    /// How far a node's wall clock is ahead of this machine's; zero when that is within the error of the reading.
    pub(crate) fn ahead_ms(&self, node: usize) -> Option<i64> {
        let (now, local) = (self.0.clock.now(), self.0.clock.wall());
        let readings = self.0.readings.lock();
        let readings = readings.unwrap_or_else(PoisonError::into_inner);
        let reading = (*readings.get(node)?)?;
        if now.since(reading.learned) > FRESH {
            return None;
        }
        let apart = reading.at(now)?.checked_sub(local.as_duration())?;
        let within = apart.unsigned_abs() <= reading.error();
        Some(if within {
            0
        } else {
            i64::try_from(apart.as_millis()).unwrap_or(i64::MAX)
        })
    }

    /// What time it is. Warns when this machine's clock has left the others' by more than the skew.
    pub(crate) fn wall(&self) -> Timestamp {
        let State {
            clock,
            skew,
            readings,
            warned,
        } = &*self.0;
        let (now, local) = (clock.now(), clock.wall());
        let Verdict { wall, apart } = {
            let readings = readings.lock().unwrap_or_else(PoisonError::into_inner);
            judge(&readings, now, local)
        };
        let far = apart.unsigned_abs() > *skew;
        if warned.swap(far, Ordering::Relaxed) != far {
            let apart_ms = apart.as_millis();
            if far {
                tracing::warn!(
                    apart_ms,
                    "the lock nodes' clocks are this far ahead of this machine's: ticks go by the nodes; set this clock right"
                );
            } else {
                tracing::info!("this machine's clock agrees with the lock nodes' again");
            }
        }
        wall
    }
}

/// W1 to W3.
fn judge(readings: &[Option<Estimate>], now: Moment, local: Timestamp) -> Verdict {
    let own = Verdict {
        wall: local,
        apart: SignedDuration::ZERO,
    };
    let mut fresh: Vec<Estimate> = readings.iter().flatten().copied().collect();
    fresh.retain(|reading| now.since(reading.learned) <= FRESH);
    if fresh.is_empty() || fresh.len() < majority(readings.len()) {
        return own;
    }
    fresh.sort_by_key(|reading| reading.offset);
    // Of two in the middle the earlier one: a node refuses what starts before its time.
    let median = fresh[(fresh.len() - 1) / 2];
    let Some(wall) = median
        .at(now)
        .and_then(|shown| Timestamp::from_duration(shown).ok())
    else {
        return own;
    };
    let apart = wall.duration_since(local);
    if apart.unsigned_abs() <= median.error() {
        return own;
    }
    Verdict { wall, apart }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_boot(Duration::from_secs(1000));

    fn local() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    /// A node whose clock is so many milliseconds ahead of ours, read a second ago.
    fn ahead(ms: i64) -> Option<Estimate> {
        let boot = local().as_millisecond() - 1_000_000 + ms;
        Some(Estimate {
            offset: SignedDuration::from_millis(boot),
            half: Duration::from_millis(2),
            learned: NOW.back(Duration::from_secs(1)),
        })
    }

    fn apart(readings: &[Option<Estimate>]) -> i128 {
        let verdict = judge(readings, NOW, local());
        assert_eq!(verdict.wall, local() + verdict.apart);
        verdict.apart.as_millis()
    }

    #[test]
    fn w1_the_wall_clock_is_the_median_of_a_majority_else_our_own() {
        assert_eq!(apart(&[ahead(400), ahead(500), ahead(900)]), 500);
        assert_eq!(apart(&[ahead(-400), None, ahead(-900)]), -900);
        assert_eq!(apart(&[ahead(400), None, None]), 0);
        assert_eq!(apart(&[ahead(400)]), 400);
        assert_eq!(apart(&[]), 0);
        let mut old = ahead(400);
        if let Some(reading) = &mut old {
            reading.learned = NOW.back(FRESH + super::super::estimate::GRAIN);
        }
        assert_eq!(apart(&[old, old, ahead(400)]), 0);
    }

    #[test]
    fn w2_what_the_way_there_and_back_explains_is_no_difference() {
        assert_eq!(apart(&[ahead(3), ahead(2), ahead(-3)]), 0);
        assert_eq!(apart(&[ahead(4), ahead(4), ahead(-3)]), 4);
    }

    #[test]
    fn w3_a_minority_of_wrong_clocks_moves_nothing() {
        for wrong in [-3_600_000, 3_600_000] {
            assert_eq!(apart(&[ahead(wrong), ahead(1), ahead(-1)]), 0);
            let five = [ahead(wrong), ahead(1), ahead(wrong), ahead(-1), ahead(2)];
            assert_eq!(apart(&five), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_whose_clock_is_off_by_more_than_the_skew_is_told_until_it_is_right() {
        let time = crate::sim_clock::SimTime::new();
        let (clock, skew) = (time.clock(), Duration::from_secs(1));
        let fleet = FleetClock::new(clock.clone(), skew, 3);
        let warned = || fleet.0.warned.load(Ordering::Relaxed);
        let right = clock.wall();
        let learn = |nodes: std::ops::Range<usize>| {
            nodes.for_each(|n| fleet.learn(n, clock.now(), right.as_millisecond()));
        };
        time.set_wall_offset(3_600_000);
        assert_eq!(fleet.wall(), clock.wall(), "no node was asked yet");
        learn(0..1);
        assert_eq!(fleet.wall(), clock.wall(), "one of three");
        assert!(!warned());
        learn(1..2);
        assert_eq!(fleet.wall().as_millisecond(), right.as_millisecond());
        assert!(warned());
        time.set_wall_offset(500);
        assert_eq!(fleet.wall().as_millisecond(), right.as_millisecond());
        assert!(!warned(), "within the skew");
    }
}
