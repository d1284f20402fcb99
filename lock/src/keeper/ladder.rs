//! Fit or gone: what becomes of a lease, as a plain function of facts and `now`.
//!
//! Withholding the renewal from work that cannot be stopped would make a second runner. So the keeper goes step by
//! step: nothing new starts; the work is told to stop *while its lease is renewed*; the lease is released when the
//! work has ended; a process whose work outlives its last lease is ended.
//!
//! # Invariants
//! - F1 A lease with work under it is never let go while it can be renewed.       (work_is_renewed_for_until_its_grace_is_over)
//! - F2 Work never outlives its lease by being waited for.                        (work_that_outlives_its_lease_ends_the_process)
//! - F4 Work that is held on to is renewed for as long as that succeeds.         (held_work_is_renewed_for_beyond_its_grace)
//! - F5 Only work that says it may be abandoned is left behind by its lease.      (abandoned_work_loses_its_lease_and_nothing_else)
//! - F3 Trouble with renewals is not illness.                                     (a_fit_replica_keeps_its_lease)

use std::time::Duration;

use crate::{clock::Moment, lease::Unstoppable};

/// What the ladder judges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Since when the process or the work is unfit.
    pub(crate) unfit_since: Option<Moment>,
    /// Whether work is in flight under the lease.
    pub(crate) working: bool,
    /// Whether the holder still believes in the lease (not handed back, not lost).
    pub(crate) believed: bool,
    /// The last deadline of the lease.
    pub(crate) deadline: Moment,
    /// When this process first noticed that the deadline had passed; a frozen process notices late.
    pub(crate) noticed: Option<Moment>,
    /// How long cancelled work may take.
    pub(crate) grace: Duration,
    /// How long before the deadline a process that still works is ended.
    pub(crate) abort_margin: Duration,
    /// What is to be done about work that does not end.
    pub(crate) unstoppable: Unstoppable,
}

/// What to do with the lease now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Renew it.
    Keep,
    /// Start nothing, stop the work, renew.
    CancelAndKeep,
    /// Start nothing, renew no more: the work had its grace.
    RunDown,
    /// No work is left: end the belief and release.
    LetGo,
    /// The work has outlived the lease: end the process.
    Abort,
    /// The work has outlived the lease, and may: release, and leave it alone.
    Abandon,
}

/// Judges one lease.
pub(crate) fn step(f: &Facts, now: Moment) -> Step {
    if !f.working {
        return if f.believed && f.unfit_since.is_none() && now < f.deadline {
            Step::Keep
        } else {
            Step::LetGo
        };
    }
    // A process that was frozen past its deadline gets a last moment: its work hears of the end before anything else.
    let abort_at = match f.noticed {
        Some(noticed) => noticed + f.abort_margin,
        None => f.deadline.back(f.abort_margin),
    };
    if now >= abort_at {
        return match f.unstoppable {
            // Held on to or not: a lease that cannot be renewed will be another owner's.
            Unstoppable::Abort | Unstoppable::Hold => Step::Abort,
            Unstoppable::Abandon => Step::Abandon,
        };
    }
    match f.unfit_since {
        _ if !f.believed => Step::RunDown,
        None => Step::Keep,
        Some(since) if now < since + f.grace => Step::CancelAndKeep,
        Some(_) => match f.unstoppable {
            Unstoppable::Abort => Step::RunDown,
            Unstoppable::Hold => Step::CancelAndKeep,
            Unstoppable::Abandon => Step::Abandon,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn at(secs: u64) -> Moment {
        Moment::from_boot(S * u32::try_from(secs).unwrap())
    }

    fn facts() -> Facts {
        Facts {
            unfit_since: None,
            working: true,
            believed: true,
            deadline: at(10),
            noticed: None,
            grace: S * 3,
            abort_margin: S,
            unstoppable: Unstoppable::Abort,
        }
    }

    #[test]
    fn held_work_is_renewed_for_beyond_its_grace() {
        let held = Facts {
            unfit_since: Some(at(2)),
            unstoppable: Unstoppable::Hold,
            ..facts()
        };
        assert_eq!(step(&held, at(7)), Step::CancelAndKeep);
        assert_eq!(step(&held, at(9)), Step::Abort, "it could not be renewed");
    }

    #[test]
    fn abandoned_work_loses_its_lease_and_nothing_else() {
        let abandoned = Facts {
            unstoppable: Unstoppable::Abandon,
            ..facts()
        };
        assert_eq!(step(&abandoned, at(8)), Step::Keep);
        assert_eq!(step(&abandoned, at(9)), Step::Abandon);
        let unfit = Facts {
            unfit_since: Some(at(2)),
            ..abandoned
        };
        assert_eq!(step(&unfit, at(4)), Step::CancelAndKeep);
        assert_eq!(step(&unfit, at(5)), Step::Abandon, "its grace is over");
    }

    #[test]
    fn a_fit_replica_keeps_its_lease() {
        assert_eq!(step(&facts(), at(8)), Step::Keep);
        assert_eq!(
            step(
                &Facts {
                    working: false,
                    ..facts()
                },
                at(9)
            ),
            Step::Keep
        );
    }

    #[test]
    fn work_is_renewed_for_until_its_grace_is_over() {
        let unfit = Facts {
            unfit_since: Some(at(2)),
            ..facts()
        };
        assert_eq!(step(&unfit, at(2)), Step::CancelAndKeep);
        assert_eq!(step(&unfit, at(4)), Step::CancelAndKeep);
        assert_eq!(step(&unfit, at(5)), Step::RunDown);
        assert_eq!(
            step(
                &Facts {
                    working: false,
                    ..unfit
                },
                at(2)
            ),
            Step::LetGo
        );
    }

    #[test]
    fn work_that_outlives_its_lease_ends_the_process() {
        assert_eq!(step(&facts(), at(9)), Step::Abort);
        assert_eq!(
            step(
                &Facts {
                    believed: false,
                    ..facts()
                },
                at(8)
            ),
            Step::RunDown
        );
        assert_eq!(
            step(
                &Facts {
                    believed: false,
                    ..facts()
                },
                at(9)
            ),
            Step::Abort
        );
        assert_eq!(
            step(
                &Facts {
                    believed: false,
                    working: false,
                    ..facts()
                },
                at(9)
            ),
            Step::LetGo
        );
    }

    #[test]
    fn a_thawed_process_gets_a_last_moment_to_see_its_cancellation() {
        let thawed = Facts {
            noticed: Some(at(30)),
            believed: false,
            ..facts()
        };
        assert_eq!(step(&thawed, at(30)), Step::RunDown);
        assert_eq!(step(&thawed, at(31)), Step::Abort);
    }
}
