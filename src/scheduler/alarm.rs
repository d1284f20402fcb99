//! An alarm that is set for a tick: it rings at its time, unless somebody has switched it off before. Never both.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{
    clock::{Clock, Moment},
    due::TOLERANCE,
};

/// Whoever sleeps until it rings.
pub(super) struct Alarm {
    at: Moment,
    state: Arc<Mutex<State>>,
    clock: Clock,
}

/// Whoever may switch it off; that happens when this is dropped, too.
pub(super) struct Switch(Arc<Mutex<State>>);

#[derive(Clone, Copy, Debug)]
enum State {
    Set,
    Rung(Moment),
    Off,
}

/// Sets an alarm for `at`.
pub(super) fn set(at: Moment, clock: Clock) -> (Alarm, Switch) {
    let state = Arc::new(Mutex::new(State::Set));
    let alarm = Alarm {
        at,
        state: state.clone(),
        clock,
    };
    (alarm, Switch(state))
}

// === impl Alarm, Switch ===

impl Alarm {
    /// Waits for it; says whether it rings. It does not when it was switched off, or when its time has passed by more than the
    /// tolerance of a tick, because this process or machine stood still.
    pub(super) async fn rings(self) -> bool {
        self.clock.sleep_exactly_until(self.at).await;
        let now = self.clock.now();
        let mut state = lock(&self.state);
        if matches!(*state, State::Set) {
            *state = match now.since(self.at) <= TOLERANCE {
                true => State::Rung(now),
                false => State::Off,
            };
        }
        matches!(*state, State::Rung(_))
    }
}

impl Switch {
    /// Switches it off; says when it has rung, if it has.
    pub(super) fn off(&self) -> Option<Moment> {
        let mut state = lock(&self.0);
        match *state {
            State::Rung(at) => Some(at),
            State::Set | State::Off => {
                *state = State::Off;
                None
            }
        }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.off();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Every change is complete before the lock is given back.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
