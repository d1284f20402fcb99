//! Waiting for what gives no event: files, and other processes.
#![allow(dead_code, reason = "every suite uses its own part")]

use std::time::Duration;

use watchkeeper::clock::Clock;

/// How long a test waits for what has no limit of its own, also where others keep processors and disk busy.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// What is handed over is there well before a lease of two seconds could have ended, however busy the machine is.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(1);

/// How long a takeover may take: what is promised of leases of this length. How long it takes is measured, and told.
pub(crate) fn takeover_limit(ttl: Duration) -> Duration {
    ttl.mul_f64(1.3) + Duration::from_secs(1)
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
    std::thread::sleep(time);
}
