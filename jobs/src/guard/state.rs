//! What a guard does next, as a plain function of what happened and the time.
//!
//! # States      running -> (lingering) -> ending -> killing
//! # Invariants
//! - A command is told to end when its time has come, and killed at the later one, whatever else happens.
//!   (a_command_is_told_and_then_killed_in_time)
//! - An extension moves both times; it never revives a command that was told to end.
//!   (an_extension_does_not_stop_the_end)
//! - When the worker is gone the command is told to end at once.            (a_lost_worker_ends_the_command_at_once)
//! - What a command leaves behind is ended, too.                             (what_is_left_behind_is_ended)

use std::time::Duration;

use watchkeeper::clock::Moment;

use super::{
    end::{Cause, Status},
    message::Times,
};

/// How long what a command leaves behind may take to end by itself before it is told to.
pub(super) const LINGER: Duration = Duration::from_millis(500);
/// Between two attempts to kill what is left.
pub(super) const AGAIN: Duration = Duration::from_millis(2);

/// Something happened.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// New times: the lease was extended, or is lost.
    Times(Times),
    /// The worker wants it to end.
    Stop { kill_at: Moment },
    /// The worker is gone.
    WorkerGone,
    /// The command itself has ended; what it started may live on.
    Ended(Status),
    /// Time has passed.
    Time,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// SIGTERM to all that is left of it.
    Terminate,
    /// SIGKILL to all that is left of it.
    Kill,
}

/// A guarded command.
#[derive(Debug)]
pub(super) struct State {
    times: Times,
    grace: Duration,
    phase: Phase,
    cause: Cause,
    status: Option<Status>,
    /// When what is left was to be killed by its times; not before they were told.
    due: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// The command has ended; the rest has until then.
    Lingering {
        until: Moment,
    },
    /// Told to end.
    Ending {
        kill_at: Moment,
    },
    /// Being killed.
    Killing {
        again_at: Moment,
    },
}

// === impl State ===

impl State {
    pub(super) fn new(times: Times, grace: Duration) -> Self {
        Self {
            times,
            grace,
            phase: Phase::Running,
            cause: Cause::Itself,
            status: None,
            due: times.kill_at,
        }
    }

    /// How the command itself ended, and who ended it.
    pub(super) fn outcome(&self) -> Option<(Status, Cause)> {
        Some((self.status?, self.cause))
    }

    /// How much later than it was due the end is, when it is now.
    pub(super) fn late(&self, now: Moment) -> Duration {
        now.since(self.due)
    }

    /// Whether what is told to end now is what the command left behind.
    pub(super) fn is_after_the_end(&self) -> bool {
        self.status.is_some() && self.cause == Cause::Itself
    }

    pub(super) fn on(&mut self, event: Event, now: Moment) -> Option<Act> {
        match event {
            Event::Times(times) => {
                self.times = times;
                // A lease that is lost early ends without notice.
                self.due = times.kill_at.max(now);
            }
            Event::Ended(status) => {
                self.status = Some(status);
                if self.phase == Phase::Running {
                    let until = now + LINGER;
                    self.phase = Phase::Lingering { until };
                }
            }
            Event::Stop { kill_at } => return self.end(Cause::Asked, kill_at, now),
            Event::WorkerGone => return self.end(Cause::Asked, now + self.grace, now),
            Event::Time => {}
        }
        self.look(now)
    }

    /// When to look at the time again.
    pub(super) fn wake(&self) -> Moment {
        let Times { term_at, kill_at } = self.times;
        match self.phase {
            Phase::Running => term_at.min(kill_at),
            Phase::Lingering { until } => until.min(term_at).min(kill_at),
            Phase::Ending { kill_at: own } => own.min(kill_at),
            Phase::Killing { again_at } => again_at,
        }
    }

    fn look(&mut self, now: Moment) -> Option<Act> {
        if now < self.wake() {
            return None;
        }
        if now >= self.times.kill_at {
            self.blame(Cause::Deadline);
            return Some(self.kill(now));
        }
        match self.phase {
            // Also when the lease is extended after all: a command that was told has its grace, not the rest of the lease.
            Phase::Running => {
                let kill_at = self.times.kill_at.max(now + self.grace);
                self.end(Cause::Deadline, kill_at, now)
            }
            Phase::Lingering { .. } => self.end(Cause::Itself, now + self.grace, now),
            Phase::Ending { .. } | Phase::Killing { .. } => Some(self.kill(now)),
        }
    }

    /// Tells it to end; the first cause stays, the earlier time counts.
    fn end(&mut self, cause: Cause, kill_at: Moment, now: Moment) -> Option<Act> {
        let act = match &mut self.phase {
            Phase::Running | Phase::Lingering { .. } => {
                self.blame(cause);
                self.phase = Phase::Ending { kill_at };
                Some(Act::Terminate)
            }
            Phase::Ending { kill_at: own } => {
                *own = kill_at.min(*own);
                None
            }
            Phase::Killing { .. } => None,
        };
        // With no time left there is nothing to tell.
        if now >= self.wake() {
            return Some(self.kill(now));
        }
        act
    }

    fn kill(&mut self, now: Moment) -> Act {
        let again_at = now + AGAIN;
        self.phase = Phase::Killing { again_at };
        Act::Kill
    }

    /// What ends a command that still runs by itself is the cause.
    fn blame(&mut self, cause: Cause) {
        if self.status.is_none() && self.cause == Cause::Itself {
            self.cause = cause;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: Status = Status::Code(0);

    fn at(ms: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(ms))
    }

    fn times(term: u64, kill: u64) -> Times {
        Times {
            term_at: at(term),
            kill_at: at(kill),
        }
    }

    fn state(term: u64, kill: u64) -> State {
        State::new(times(term, kill), Duration::from_secs(10))
    }

    #[test]
    fn a_command_is_told_and_then_killed_in_time() {
        let mut state = state(1000, 1300);
        assert_eq!(state.on(Event::Time, at(999)), None);
        assert_eq!(state.wake(), at(1000));
        assert_eq!(state.on(Event::Time, at(1000)), Some(Act::Terminate));
        assert_eq!(state.wake(), at(1300));
        assert_eq!(state.on(Event::Time, at(1299)), None);
        assert_eq!(state.on(Event::Time, at(1300)), Some(Act::Kill));
        assert_eq!(state.on(Event::Time, at(1302)), Some(Act::Kill));
        state.on(Event::Ended(Status::Signal(9)), at(1303));
        assert_eq!(state.outcome(), Some((Status::Signal(9), Cause::Deadline)));
    }

    #[test]
    fn a_guard_that_wakes_late_kills_at_once_and_says_how_late_it_was() {
        let mut state = state(1000, 1300);
        assert_eq!(state.late(at(1299)), Duration::ZERO);
        assert_eq!(state.on(Event::Time, at(5000)), Some(Act::Kill));
        assert_eq!(state.late(at(5002)), Duration::from_millis(3702));
        state.on(Event::Times(times(0, 0)), at(6000));
        assert_eq!(state.late(at(6001)), Duration::from_millis(1), "lost early");
    }

    #[test]
    fn an_extension_moves_both_times() {
        let mut state = state(1000, 1300);
        assert_eq!(state.on(Event::Times(times(2000, 2300)), at(900)), None);
        assert_eq!(state.on(Event::Time, at(1999)), None);
        assert_eq!(state.on(Event::Time, at(2000)), Some(Act::Terminate));
    }

    #[test]
    fn an_extension_does_not_stop_the_end() {
        let mut state = state(1000, 1300);
        state.on(Event::Stop { kill_at: at(700) }, at(500));
        assert_eq!(state.on(Event::Times(times(9000, 9300)), at(600)), None);
        assert_eq!(state.on(Event::Time, at(700)), Some(Act::Kill));
    }

    #[test]
    fn a_command_that_was_told_is_killed_after_its_grace_though_its_lease_is_extended() {
        let mut state = State::new(times(1000, 1300), Duration::from_millis(500));
        assert_eq!(state.on(Event::Time, at(1000)), Some(Act::Terminate));
        assert_eq!(state.on(Event::Times(times(9000, 9300)), at(1200)), None);
        assert_eq!(state.wake(), at(1500));
        assert_eq!(state.on(Event::Time, at(1500)), Some(Act::Kill));
    }

    #[test]
    fn a_lost_lease_kills_at_once() {
        let mut state = state(1000, 1300);
        assert_eq!(state.on(Event::Times(times(0, 0)), at(10)), Some(Act::Kill));
    }

    #[test]
    fn a_lost_worker_ends_the_command_at_once() {
        let mut state = state(1000, 1300);
        assert_eq!(state.on(Event::WorkerGone, at(10)), Some(Act::Terminate));
        // Not after its grace of ten seconds: the lease ends before.
        assert_eq!(state.wake(), at(1300));
        assert_eq!(state.on(Event::Time, at(1300)), Some(Act::Kill));
    }

    #[test]
    fn a_second_stop_only_shortens_the_grace() {
        let mut state = State::new(Times::NEVER, Duration::ZERO);
        let stop = |ms| Event::Stop { kill_at: at(ms) };
        assert_eq!(state.on(stop(500), at(0)), Some(Act::Terminate));
        assert_eq!(state.on(stop(900), at(100)), None);
        assert_eq!(state.wake(), at(500));
        assert_eq!(state.on(stop(200), at(200)), Some(Act::Kill));
    }

    #[test]
    fn what_is_left_behind_is_ended() {
        let mut state = State::new(Times::NEVER, Duration::from_millis(100));
        assert_eq!(state.on(Event::Ended(DONE), at(0)), None);
        assert_eq!(state.on(Event::Time, at(500)), Some(Act::Terminate));
        assert!(state.is_after_the_end());
        assert_eq!(state.on(Event::Time, at(600)), Some(Act::Kill));
        assert_eq!(state.outcome(), Some((DONE, Cause::Itself)));
    }

    #[test]
    fn a_command_that_ended_by_itself_is_not_blamed_on_who_stopped_the_rest() {
        let mut state = state(1000, 1300);
        state.on(Event::Ended(DONE), at(900));
        assert_eq!(state.on(Event::Time, at(1000)), Some(Act::Terminate));
        assert_eq!(state.outcome(), Some((DONE, Cause::Itself)));
    }
}
