//! Makes the next run of a job without a lock ready a little before its tick.
//!
//! Jobs without a lock ask no node before they start a run, so theirs waits for the tick in a task of its own, with all that
//! it needs. A thousand of them that are due at one instant then begin one after the other in a few microseconds each, and
//! are accounted for afterwards: none waits for the bookkeeping of another one.
//!
//! # Invariants
//! - A1 What was made ready starts within the tolerance of its tick, and only if nothing has happened since; otherwise it is
//!   as if it had not been made ready.   (what_was_made_ready_does_not_start_when_something_happened_since)

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

use super::{acts::open_run, checkpoints::CheckpointQueue, start::Begun, term::TermLoop};
use crate::{
    clock::{Clock, Moment},
    due::{Decision, Plan, TOLERANCE},
    ledger::{Ledger, RunKey},
    run::InFlight,
};

/// How long before its tick a run without a lock is made ready: a thousand of them take less.
const AHEAD: Duration = Duration::from_millis(200);

/// How long after it they are accounted for: whatever is due at the same instant has begun by then. Tasks that merely let
/// others go first would not wait for all of them.
const TELL_AFTER: Duration = Duration::from_millis(10);

/// What a job without a lock does at its next tick: its run begins by itself, unless this is dropped before.
pub(super) struct Ready {
    start: Switch,
    begins: Moment,
    at: Timestamp,
    plan: Plan,
    next_tick: Option<Timestamp>,
    begun: Begun,
}

/// Whether a run that waits for its tick begins, and when it did. What is said first stands: by its task, or by the loop.
#[derive(Clone, Default)]
struct Start(Arc<OnceLock<Option<Moment>>>);

/// Calls the start off when it is dropped.
struct Switch(Start);

// === impl Start, Switch ===

impl Start {
    /// Waits for this moment; says whether the run begins. It does not when it was called off, or when the moment has passed
    /// by more than the tolerance of a tick, because this process or machine stood still.
    async fn at(self, at: Moment, clock: Clock) -> bool {
        clock.sleep_until(at).await;
        let now = clock.now();
        now.since(at) <= TOLERANCE && self.0.set(Some(now)).is_ok()
    }

    /// The run does not begin any more; when it did, if it has.
    fn call_off(&self) -> Option<Moment> {
        *self.0.get_or_init(|| None)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.0.call_off();
    }
}

// === impl TermLoop ===

impl TermLoop<'_> {
    /// Lets the run that is due at `wake` wait for it, if that is near: for jobs without a lock, since others write it
    /// first. It is as if nothing had been done until [`TermLoop::settle`], which is to come before anything else. Moves `wake` to
    /// when there is something to do.
    pub(super) fn make_ready(
        &self,
        ledger: &Ledger,
        in_flight: &InFlight<RunKey>,
        checkpoints: &mut CheckpointQueue,
        wake: &mut Option<Timestamp>,
    ) -> Option<Box<Ready>> {
        // In failover mode the replica's lock is asked at the last moment.
        let alone = self.lease.is_none() && self.pass.lease().is_none();
        let at = (*wake).filter(|_| alone && in_flight.is_empty())?;
        let ahead = Duration::try_from(at.duration_since(self.wall())).ok()?;
        if ahead > AHEAD {
            *wake = at.checked_sub(SignedDuration::try_from(AHEAD).ok()?).ok();
            return None;
        }
        let plan = self.decide_at(at, ledger, in_flight, true).ok()?;
        let [Decision::Start { id, attempt: 1, .. }] = &plan.decisions[..] else {
            return None;
        };
        let key = RunKey {
            id: id.clone(),
            attempt: 1,
        };
        let run = open_run(&plan.ledger, &key)?;
        let begins = self.clock().now() + ahead;
        let start = Start::default();
        // By the fleet's time as it is known now, a moment before.
        let may = start.clone().at(begins, self.clock().clone());
        *wake = at.checked_add(TELL_AFTER).ok();
        Some(Box::new(Ready {
            begun: self.begin(run, checkpoints.sender(), begins, may),
            start: Switch(start),
            begins,
            at,
            next_tick: self.engine.next_tick(&plan.ledger, at),
            plan,
        }))
    }

    /// Accounts for the run that was made ready, if it has begun; otherwise it does not begin any more.
    pub(super) fn settle(
        &self,
        ready: &mut Option<Box<Ready>>,
        ledger: &mut Ledger,
        in_flight: &mut InFlight<RunKey>,
    ) {
        let Some(ready) = ready.take() else { return };
        let Some(since) = ready.start.0.call_off() else {
            return;
        };
        let late = since.since(ready.begins);
        let at = ready.at.checked_add(late).unwrap_or(ready.at);
        *ledger = ready.plan.ledger;
        self.store.keep(ledger);
        let (engine, local_status) = (self.engine, &self.engine.ctx.local_status);
        local_status.ticks(&engine.name, engine.last_tick(ledger), ready.next_tick);
        in_flight.add(self.tell(ready.begun, since, at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim_clock::SimTime;

    const EARLY: Duration = Duration::from_millis(200);

    #[tokio::test(start_paused = true)]
    async fn a_start_happens_at_its_time_and_says_when() {
        let clock = SimTime::new().clock();
        let at = clock.now() + EARLY;
        let start = Start::default();
        assert!(start.clone().at(at, clock.clone()).await);
        clock.sleep(EARLY).await;
        assert_eq!(start.call_off(), Some(at));
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_that_was_called_off_never_happens() {
        let clock = SimTime::new().clock();
        let start = Start::default();
        assert_eq!(start.call_off(), None);
        let at = clock.now() + EARLY;
        assert!(!start.clone().at(at, clock.clone()).await);
        assert_eq!(start.call_off(), None);

        let start = Start::default();
        drop(Switch(start.clone()));
        let at = clock.now() + EARLY;
        assert!(
            !start.at(at, clock).await,
            "no loop is left to account for it"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_whose_time_has_long_passed_does_not_happen() {
        let clock = SimTime::new().clock();
        clock.sleep(TOLERANCE + EARLY).await;
        let now = clock.now();
        let start = Start::default();
        let latest = now.back(TOLERANCE);
        assert!(
            start.at(latest, clock.clone()).await,
            "as late as a tick may be"
        );
        let start = Start::default();
        let late = now.back(TOLERANCE + Duration::from_millis(1));
        assert!(
            !start.clone().at(late, clock).await,
            "this machine stood still"
        );
        assert_eq!(start.call_off(), None);
    }
}
