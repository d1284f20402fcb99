//! Two clocks, kept apart, both handed in.
//!
//! [`Clock::now`] is a monotonic clock that also counts suspended time (`CLOCK_BOOTTIME`): leases, timeouts and
//! pauses live on it. [`Clock::wall`] is civil time and appears only where a calendar is meant. Tokio's own timers
//! stand still in suspend, so a timer that fires is never believed: every wait reads the clock again.
//!
//! ```
//! use watchkeeper_lock::clock::Clock;
//!
//! let clock = Clock::system();
//! let began = clock.now();
//! println!("{} after {:?}", clock.wall(), clock.now().since(began));
//! ```

use std::{
    fmt,
    future::Future,
    ops::{Add, Sub},
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use jiff::Timestamp;

/// An instant on the boot clock of one machine; comparable only within one process or one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(Duration);

/// A source of time: the machine's clocks, or a simulation's.
#[doc(hidden)] // for the worker and the tests
pub trait TimeSource: Send + Sync + 'static {
    /// Monotonic time that also counts suspended time.
    fn now(&self) -> Moment;
    /// Civil time.
    fn wall(&self) -> Timestamp;
    /// Completes when `now()` has reached `deadline`, never before. Dropping it cancels the wait.
    fn sleep_until(&self, deadline: Moment) -> BoxFuture<'static, ()>;
}

/// A shared handle to a [`TimeSource`].
#[derive(Clone)]
pub struct Clock(Arc<dyn TimeSource>);

/// The time ran out before the work was done.
#[doc(hidden)] // for the worker and the tests
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("timed out")]
pub struct TimedOut;

// === impl Moment ===

impl Moment {
    /// The start of the clock.
    #[doc(hidden)] // for the worker and the stock jobs
    pub const ZERO: Self = Self(Duration::ZERO);
    /// An instant that never comes.
    #[doc(hidden)] // for the worker and the stock jobs
    pub const NEVER: Self = Self(Duration::MAX);

    /// The moment `since_boot` after the start of the clock.
    #[doc(hidden)] // for the worker and the stock jobs
    #[must_use]
    pub const fn from_boot(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    /// Time since the start of the clock.
    #[doc(hidden)] // for the worker and the stock jobs
    #[must_use]
    pub const fn since_boot(self) -> Duration {
        self.0
    }

    /// Time from `earlier` to `self`; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// This moment moved back by `by`, not before the start of the clock.
    #[doc(hidden)] // for the worker and the stock jobs
    #[must_use]
    pub fn back(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(by))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }
}

impl Sub<Moment> for Moment {
    type Output = Duration;
    fn sub(self, earlier: Moment) -> Duration {
        self.since(earlier)
    }
}

// === impl Clock ===

impl Clock {
    /// The machine's clocks: `CLOCK_BOOTTIME` and civil time.
    #[must_use]
    pub fn system() -> Self {
        Self::new(SystemTime)
    }

    /// A clock over any source.
    #[doc(hidden)] // for the worker and the tests
    #[must_use]
    pub fn new(source: impl TimeSource) -> Self {
        Self(Arc::new(source))
    }

    /// Monotonic time that also counts suspended time.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.0.now()
    }

    /// Civil time.
    #[must_use]
    pub fn wall(&self) -> Timestamp {
        self.0.wall()
    }

    /// Waits until `deadline`; returns at once when it has passed.
    #[doc(hidden)] // for the worker and the tests
    pub async fn sleep_until(&self, deadline: Moment) {
        self.0.sleep_until(deadline).await;
    }

    /// Waits for `pause`.
    pub async fn sleep(&self, pause: Duration) {
        let deadline = self.now() + pause;
        self.sleep_until(deadline).await;
    }

    /// Runs `work` until it ends or `deadline` has come. The work is polled first, so work that is done wins.
    ///
    /// # Errors
    /// [`TimedOut`] when the deadline came first; the work is dropped.
    #[doc(hidden)] // for the worker and the tests
    pub async fn timeout_at<T>(
        &self,
        deadline: Moment,
        work: impl Future<Output = T>,
    ) -> Result<T, TimedOut> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self.sleep_until(deadline) => Err(TimedOut),
        }
    }

    /// Runs `work` for at most `limit`.
    ///
    /// # Errors
    /// [`TimedOut`] when the limit was reached first; the work is dropped.
    #[doc(hidden)] // for the worker and the tests
    pub async fn timeout<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, TimedOut> {
        let deadline = self.now() + limit;
        self.timeout_at(deadline, work).await
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

// === the machine's clocks ===

struct SystemTime;

impl TimeSource for SystemTime {
    fn now(&self) -> Moment {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let secs = u64::try_from(t.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(t.tv_nsec).unwrap_or(0);
        Moment(Duration::new(secs, nanos))
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "the one place where civil time is read"
    )]
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "the one place where tokio's timer is used"
    )]
    fn sleep_until(&self, deadline: Moment) -> BoxFuture<'static, ()> {
        if deadline == Moment::NEVER {
            // Not even a timer.
            return Box::pin(std::future::pending());
        }
        Box::pin(async move {
            loop {
                let left = deadline.since(SystemTime.now());
                if left.is_zero() {
                    return;
                }
                // An hour at most: after a suspend the boot clock is ahead of tokio's.
                tokio::time::sleep(left.min(Duration::from_secs(3600))).await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_never_ends_before_its_deadline() {
        let clock = Clock::system();
        let deadline = clock.now() + Duration::from_millis(3);
        clock.sleep_until(deadline).await;
        assert!(clock.now() >= deadline);
    }

    #[tokio::test]
    async fn finished_work_wins_over_a_passed_deadline() {
        let clock = Clock::system();
        assert_eq!(clock.timeout_at(Moment::ZERO, async { 7 }).await, Ok(7));
        let never = std::future::pending::<()>();
        assert_eq!(clock.timeout_at(Moment::ZERO, never).await, Err(TimedOut));
    }
}
