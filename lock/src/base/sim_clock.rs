//! Time that follows tokio's: under `start_paused` a whole fleet lives in virtual time.
//!
//! Every replica and every node gets a [`SimTime`] of its own, made by [`SimTime::sibling`]. They share one true time;
//! each can be set ahead, run at its own rate and show a wrong wall clock.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::{
    clock::{Clock, Moment, TimeSource},
    latest,
};

/// What a clock shows at the start: far enough from zero that it can be set back.
const BOOT: Duration = Duration::from_secs(1_000_000);

/// Civil time at the start, unless said: 2026-01-01T00:00:00Z.
const WALL: SignedDuration = SignedDuration::from_secs(1_767_225_600);

/// The longest real wait between two looks at the clock.
const LOOK_AGAIN: Duration = Duration::from_secs(24 * 3600);

/// One machine's clocks over tokio's time; clones show the same.
#[derive(Clone, Debug)]
pub struct SimTime(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    origin: Instant,
    /// Civil time at the origin.
    wall: SignedDuration,
    dials: Mutex<Dials>,
    turned: latest::Sender<()>,
}

/// Where the clocks stand: they have shown `shown` since the start at `anchor` and go on from there at `rate`.
#[derive(Clone, Copy, Debug)]
struct Dials {
    anchor: Instant,
    shown: Duration,
    rate: f64,
    offset_ms: i64,
    wall_offset_ms: i64,
}

// === impl SimTime ===

impl SimTime {
    /// A clock that starts now. Wants a tokio runtime with a timer.
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(Instant::now(), WALL)
    }

    /// The same, at this civil time.
    #[must_use]
    pub fn at(wall: Timestamp) -> Self {
        Self::starting_at(Instant::now(), wall.as_duration())
    }

    /// Another machine's clocks with the same start, not skewed yet.
    #[must_use]
    pub fn sibling(&self) -> Self {
        Self::starting_at(self.0.origin, self.0.wall)
    }

    /// A handle for the replica.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock::new(self.clone())
    }

    /// True time since the start, whatever the dials say.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Instant::now().saturating_duration_since(self.0.origin)
    }

    /// The monotonic clock shows `ms` more (or less) than its own count. Setting it back breaks what monotonic means;
    /// it is there to start replicas at different readings.
    pub fn set_offset(&self, ms: i64) {
        self.turn(|dials| dials.offset_ms = ms);
    }

    /// Both clocks run at `rate` from now on; 1.0 is true. At zero they stand still.
    pub fn set_rate(&self, rate: f64) {
        self.turn(|dials| {
            let now = Instant::now();
            dials.shown = dials.count(now);
            dials.anchor = now;
            dials.rate = rate.max(0.0);
        });
    }

    /// The wall clock alone is `ms` off; a change is a step.
    pub fn set_wall_offset(&self, ms: i64) {
        self.turn(|dials| dials.wall_offset_ms = ms);
    }

    fn starting_at(origin: Instant, wall: SignedDuration) -> Self {
        let dials = Dials {
            anchor: origin,
            shown: Duration::ZERO,
            rate: 1.0,
            offset_ms: 0,
            wall_offset_ms: 0,
        };
        let turned = latest::Sender::new(());
        Self(Arc::new(Inner {
            origin,
            wall,
            dials: Mutex::new(dials),
            turned,
        }))
    }

    fn dials(&self) -> MutexGuard<'_, Dials> {
        self.0.dials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, set: impl FnOnce(&mut Dials)) {
        set(&mut self.dials());
        // Sleepers compute their wait anew.
        self.0.turned.send_replace(());
    }
}

impl Default for SimTime {
    fn default() -> Self {
        Self::new()
    }
}

impl TimeSource for SimTime {
    fn now(&self) -> Moment {
        let dials = *self.dials();
        let shown = BOOT.saturating_add(dials.count(Instant::now()));
        let offset = Duration::from_millis(dials.offset_ms.unsigned_abs());
        Moment::from_boot(if dials.offset_ms < 0 {
            shown.saturating_sub(offset)
        } else {
            shown.saturating_add(offset)
        })
    }

    fn wall(&self) -> Timestamp {
        let dials = *self.dials();
        let counted = dials.count(Instant::now());
        let counted = SignedDuration::try_from(counted).unwrap_or(SignedDuration::MAX);
        let offset = SignedDuration::from_millis(dials.wall_offset_ms);
        let shown = self.0.wall.saturating_add(counted).saturating_add(offset);
        Timestamp::from_duration(shown).unwrap_or(Timestamp::MAX)
    }

    #[allow(clippy::disallowed_methods, reason = "virtual time is tokio's")]
    fn sleep_until(&self, deadline: Moment) -> BoxFuture<'static, ()> {
        let time = self.clone();
        Box::pin(async move {
            let mut turned = time.0.turned.subscribe();
            loop {
                let left = deadline.since(time.now());
                if left.is_zero() {
                    return;
                }
                let wait = tokio::time::sleep(time.dials().true_time(left).min(LOOK_AGAIN));
                tokio::select! {
                    biased;
                    _ = turned.changed() => {}
                    () = wait => {}
                }
            }
        })
    }
}

// === impl Dials ===

impl Dials {
    /// What the clocks have counted since the start, without offsets.
    fn count(&self, now: Instant) -> Duration {
        let since = now.saturating_duration_since(self.anchor);
        // The true rate needs no detour through floating point.
        let since = if self.rate == 1.0 {
            since
        } else {
            since.mul_f64(self.rate)
        };
        self.shown.saturating_add(since)
    }

    /// How long these clocks take for `shown`, rounded up.
    fn true_time(&self, shown: Duration) -> Duration {
        if self.rate == 1.0 {
            return shown;
        }
        let secs = shown.as_secs_f64() / self.rate;
        let time = Duration::try_from_secs_f64(secs).unwrap_or(Duration::MAX);
        time.saturating_add(Duration::from_micros(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_fast_clock_reaches_its_deadline_earlier() {
        let (truth, fast) = (SimTime::new(), SimTime::new().sibling());
        fast.set_rate(2.0);
        fast.clock().sleep(Duration::from_secs(10)).await;
        let took = truth.elapsed();
        assert!(
            took >= Duration::from_secs(5) && took < Duration::from_millis(5_010),
            "{took:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_of_the_wall_clock_leaves_the_other_alone() {
        let time = SimTime::new();
        let (now, wall) = (time.now(), time.wall());
        time.set_wall_offset(-3_600_000);
        assert_eq!(time.now(), now);
        assert_eq!(
            time.wall().as_millisecond(),
            wall.as_millisecond() - 3_600_000
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleeper_notices_that_its_clock_was_set() {
        let time = SimTime::new();
        time.set_rate(0.0);
        let clock = time.clock();
        let sleeper = clock.sleep(Duration::from_secs(1));
        let setter = async { time.set_rate(1.0) };
        tokio::join!(sleeper, setter);
        assert_eq!(time.elapsed(), Duration::from_secs(1));
    }
}
