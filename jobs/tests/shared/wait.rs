//! Waiting for what gives no event: files, and other processes.
#![allow(dead_code, reason = "every suite uses its own part")]

use std::{
    fs,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use watchkeeper::clock::{Clock, Moment};

/// How long a test waits for what has no limit of its own, also where others keep processors and disk busy.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// What is handed over is there well before a lease of two seconds could have ended, however busy the machine is.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(1);

/// How long a takeover may take: what is promised of leases of this length. How long it takes is measured, and told.
pub(crate) fn takeover_limit(ttl: Duration) -> Duration {
    ttl.mul_f64(1.3) + Duration::from_secs(1)
}

/// What Linux counted at one moment.
#[derive(Clone, Copy)]
struct Look {
    at: Moment,
    /// For how long processors had been free, all of them together.
    free: Duration,
    /// For how long at least none had been free, since the first look.
    busy: Duration,
}

/// All looks, in order.
static LOOKS: Mutex<Vec<Look>> = Mutex::new(Vec::new());

/// Linux counts hundredths of a second: between two looks there are ten of them.
const EVERY: Duration = Duration::from_millis(100);

/// From now on [`starved`] knows. Where Linux does not say it nothing is known, and limits are what they are.
pub(crate) fn watch_processors() {
    if look_at_processors().is_some() {
        _ = thread::Builder::new().spawn(|| {
            while look_at_processors().is_some() {
                pause(EVERY);
            }
        });
    }
}

/// How much of this time no processor of this machine was free: that is the machine's, and not what a test measures. A fifth of the
/// time counts at most, so that what is a quarter late fails on the busiest machine, too.
pub(crate) fn starved(from: Moment, to: Moment) -> Duration {
    let looked = || lock_looks().last().is_none_or(|last| last.at >= to);
    until(looked);
    let all = lock_looks();
    let at = |time: Moment| {
        let next = all.partition_point(|look| look.at <= time);
        let before = next.checked_sub(1).and_then(|last| all.get(last));
        match (before, all.get(next)) {
            (Some(before), Some(next)) => {
                let share = time.since(before.at).as_secs_f64();
                let share = share / next.at.since(before.at).as_secs_f64();
                Some(before.busy + next.busy.saturating_sub(before.busy).mul_f64(share))
            }
            (Some(look), None) | (None, Some(look)) => Some(look.busy),
            (None, None) => None,
        }
    };
    let busy = at(to).zip(at(from));
    let busy = busy.map(|(after, before)| after.saturating_sub(before));
    busy.unwrap_or_default().min(to.since(from) / 5)
}

/// What was left of this time when a processor was free.
pub(crate) fn undisturbed(from: Moment, to: Moment) -> Duration {
    less(to.since(from), starved(from, to))
}

/// What is left of a part of a time of which it is known for how much of it no processor was free.
pub(crate) fn less(part: Duration, starved: Duration) -> Duration {
    part.saturating_sub(starved.min(part / 5))
}

fn look_at_processors() -> Option<()> {
    // Under the lock, so that they are in order.
    let mut all = lock_looks();
    let (at, free) = (Clock::system().now(), free_processors()?);
    let busy = all.last().map_or(Duration::ZERO, |last| {
        // Where more was free than one processor could have been, there may always have been one.
        let taken = at
            .since(last.at)
            .saturating_sub(free.saturating_sub(last.free));
        last.busy + taken
    });
    all.push(Look { at, free, busy });
    Some(())
}

fn lock_looks() -> MutexGuard<'static, Vec<Look>> {
    LOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For how long processors were free since the machine started, all of them together: idle, waiting for a disk, or at work that gives
/// way to everything else (`nice`).
fn free_processors() -> Option<Duration> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let all = text.lines().next()?.strip_prefix("cpu ")?;
    let mut counts = all.split_whitespace().map(str::parse::<u64>);
    let mut count = || counts.next()?.ok();
    let (_user, nice, _system, idle, waiting) = (count()?, count()?, count()?, count()?, count()?);
    Some(Duration::from_millis((nice + idle + waiting) * 10))
}

/// Waits until it holds, and says whether it came to that [`SOON`].
pub(crate) fn until(mut holds: impl FnMut() -> bool) -> bool {
    let clock = Clock::system();
    let limit = clock.now() + SOON;
    while !holds() {
        if clock.now() > limit {
            return false;
        }
        pause(Duration::from_millis(5));
    }
    true
}

/// Waits until it holds; fails where it takes longer than [`SOON`].
#[track_caller]
pub(crate) fn soon(what: &str, holds: impl FnMut() -> bool) {
    assert!(until(holds), "no {what} within {SOON:?}");
}

#[allow(
    clippy::disallowed_methods,
    reason = "files and other processes give no event; each caller has a limit of its own"
)]
pub(crate) fn pause(time: Duration) {
    thread::sleep(time);
}
