//! Waiting for what gives no event: files, and other processes.
#![allow(dead_code, reason = "every suite uses its own part")]

use std::{
    fs,
    process::Child,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use watchkeeper::clock::{Clock, Moment};

/// How long a test waits for what has no limit of its own, also where others keep processors and disk busy.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// What is handed over is there well before a lease of two seconds could have ended, however busy the machine is.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(1);

/// How long a takeover may take: what is promised of leases of this length. How long it takes is measured, and told.
pub(crate) fn takeover_limit(ttl: Duration) -> Duration {
    ttl.mul_f64(1.3) + Duration::from_secs(1)
}

/// How long processes had waited for a processor, as Linux says (pressure stall information), or had one that the host had given
/// to other machines (steal time); and when it was asked.
static WAITED: Mutex<Vec<(Moment, Duration)>> = Mutex::new(Vec::new());

/// From now on [`starved`] knows. Where Linux does not say it nothing is known, and limits are what they are.
pub(crate) fn watch_processors() {
    if look_at_processors().is_some() {
        _ = thread::Builder::new().spawn(|| {
            loop {
                look_at_processors();
                pause(Duration::from_millis(20));
            }
        });
    }
}

/// How much of this time some process on this machine waited for a processor, or for the host: that is the machine's, and not what a
/// test measures. A fifth of the time counts at most, so that what is a quarter late fails on the busiest machine, too.
pub(crate) fn starved(from: Moment, to: Moment) -> Duration {
    look_at_processors();
    let all = lock_waited();
    let at = |time: Moment| {
        let next = all.partition_point(|(at, _)| *at <= time);
        let before = next.checked_sub(1).and_then(|last| all.get(last));
        match (before, all.get(next)) {
            (Some((start, waited)), Some((end, later))) => {
                let share = time.since(*start).as_secs_f64() / end.since(*start).as_secs_f64();
                Some(*waited + later.saturating_sub(*waited).mul_f64(share))
            }
            (Some((_, waited)), None) | (None, Some((_, waited))) => Some(*waited),
            (None, None) => None,
        }
    };
    let waited = at(to).zip(at(from));
    let waited = waited.map(|(after, before)| after.saturating_sub(before));
    waited.unwrap_or_default().min(to.since(from) / 5)
}

/// What was left of this time when processes did not wait for a processor.
pub(crate) fn undisturbed(from: Moment, to: Moment) -> Duration {
    less(to.since(from), starved(from, to))
}

/// A part of a time of which it is known how much of it processes waited for a processor.
pub(crate) fn less(part: Duration, starved: Duration) -> Duration {
    part.saturating_sub(starved.min(part / 5))
}

fn look_at_processors() -> Option<()> {
    // Under the lock, so that they are in order.
    let mut all = lock_waited();
    let waited = waited_for_processors()?;
    all.push((Clock::system().now(), waited));
    Some(())
}

fn lock_waited() -> MutexGuard<'static, Vec<(Moment, Duration)>> {
    WAITED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn waited_for_processors() -> Option<Duration> {
    let text = fs::read_to_string("/proc/pressure/cpu").ok()?;
    let total = text.lines().next()?.split("total=").nth(1)?;
    Some(Duration::from_micros(total.trim().parse().ok()?) + taken_by_the_host())
}

/// Of the time of one processor, on average; in the ticks of a hundredth of a second in which Linux tells it everywhere.
fn taken_by_the_host() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let steal = text.split_whitespace().nth(8);
    let ticks: u64 = steal
        .and_then(|ticks| ticks.parse().ok())
        .unwrap_or_default();
    // A line for all of them, and one for each.
    let lines = text.lines().filter(|line| line.starts_with("cpu")).count();
    let processors = u64::try_from(lines).unwrap_or(2).saturating_sub(1).max(1);
    Duration::from_millis(ticks * 10 / processors)
}

/// Sends a signal to a child of ours. When it is one that stops it, it stands still afterwards: on a busy machine it goes on until one of
/// its threads has had a processor.
pub(crate) fn signal_child(child: &Child, signal: Signal) {
    let pid = Pid::from_child(child);
    kill_process(pid, signal).expect("our own child");
    if signal == Signal::STOP {
        // One that has ended stands still, too, and is left for its parent.
        let still = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), still).expect("our own child");
    }
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
