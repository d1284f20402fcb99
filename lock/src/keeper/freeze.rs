//! Whether the keeper itself was frozen, and what follows for its leases: plain functions.
//!
//! A process that was stopped for a while (a suspended machine, a debugger, memory that was swapped out) wakes up with
//! leases that its clock may still believe in, while others have broken them or the nodes have forgotten them. So after a
//! freeze a majority is asked about each lease before anything starts under it.
//!
//! # Invariants
//! - Z1 A timer that is late by a scheduler's delay is no freeze.                (a_short_delay_is_no_freeze)
//! - Z2 A lease is in doubt until a majority has confirmed it; what cannot be confirmed within a third of a ttl makes
//!   this replica unfit to hold it.                                              (doubt_ends_with_an_answer_or_with_patience)

use std::time::Duration;

use crate::{clock::Moment, settings::Timing};

/// With leases in care the keeper looks at them so often at least.
pub(crate) fn look_every(timing: &Timing) -> Duration {
    (timing.ttl / 40).clamp(Duration::from_millis(10), Duration::from_millis(100))
}

/// How late a timer of the keeper may be before a lease of this ttl is in doubt.
pub(crate) fn slack(ttl: Duration, timing: &Timing) -> Duration {
    timing.abort_margin(ttl) / 2
}

/// How late the keeper is that wanted to wake up at `expected`; zero when it was not late.
pub(crate) fn lateness(expected: Option<Moment>, now: Moment) -> Duration {
    expected.map_or(Duration::ZERO, |at| now.since(at))
}

/// What a majority said of a lease in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confirmation {
    /// It stands.
    Ours,
    /// It is over.
    Over,
    /// Too few answers.
    Unsure,
}

/// What to do with a lease in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Go on as before.
    Trust,
    /// Nothing: it has ended.
    Ended,
    /// Ask again after a pause.
    AskAgain,
    /// Stop the work and give the lease up.
    Unfit,
}

/// Judges a lease that is in doubt since `thawed`.
pub(crate) fn after_confirmation(
    answer: Confirmation,
    thawed: Moment,
    now: Moment,
    ttl: Duration,
) -> Next {
    match answer {
        Confirmation::Ours => Next::Trust,
        Confirmation::Over => Next::Ended,
        // Connections have often died in a freeze, too: the first answer may take a while.
        Confirmation::Unsure if now < thawed + ttl / 3 => Next::AskAgain,
        Confirmation::Unsure => Next::Unfit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(ms))
    }

    #[test]
    fn a_short_delay_is_no_freeze() {
        let timing = Timing::default();
        assert_eq!(lateness(None, at(5_000)), Duration::ZERO);
        assert_eq!(lateness(Some(at(5_000)), at(4_000)), Duration::ZERO);
        assert!(lateness(Some(at(5_000)), at(5_050)) < slack(S * 10, &timing));
        assert!(lateness(Some(at(5_000)), at(6_000)) >= slack(S * 10, &timing));
    }

    #[test]
    fn doubt_ends_with_an_answer_or_with_patience() {
        let judge = |answer, now| after_confirmation(answer, at(0), at(now), S * 3);
        assert_eq!(judge(Confirmation::Ours, 10), Next::Trust);
        assert_eq!(judge(Confirmation::Over, 10), Next::Ended);
        assert_eq!(judge(Confirmation::Unsure, 999), Next::AskAgain);
        assert_eq!(judge(Confirmation::Unsure, 1_000), Next::Unfit);
    }
}
