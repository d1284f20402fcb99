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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sim_clock::SimTime;

    const AHEAD: Duration = Duration::from_millis(200);
    const MS: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn an_alarm_rings_at_its_time_and_says_when() {
        let clock = SimTime::new().clock();
        let at = clock.now() + AHEAD;
        let (alarm, switch) = set(at, clock.clone());
        assert!(alarm.rings().await);
        assert_eq!(clock.now(), at);
        clock.sleep(AHEAD).await;
        assert_eq!(switch.off(), Some(at));
    }

    #[tokio::test(start_paused = true)]
    async fn an_alarm_that_was_switched_off_never_rings() {
        let clock = SimTime::new().clock();
        let (alarm, switch) = set(clock.now() + AHEAD, clock.clone());
        assert_eq!(switch.off(), None);
        assert!(!alarm.rings().await);
        assert_eq!(switch.off(), None);

        let (alarm, switch) = set(clock.now() + AHEAD, clock.clone());
        drop(switch);
        assert!(!alarm.rings().await, "nobody is left to account for it");
    }

    #[tokio::test(start_paused = true)]
    async fn an_alarm_whose_time_has_long_passed_does_not_ring() {
        let clock = SimTime::new().clock();
        clock.sleep(TOLERANCE + AHEAD).await;
        let now = clock.now();
        let (alarm, _switch) = set(now.back(TOLERANCE), clock.clone());
        assert!(alarm.rings().await, "as late as a tick may be");
        let (alarm, switch) = set(now.back(TOLERANCE + MS), clock.clone());
        assert!(!alarm.rings().await, "this machine stood still");
        assert_eq!(switch.off(), None);
    }
}
