//! How long runs may go on: while they say nothing, and while nothing new starts.

use std::time::Duration;

use super::Pass;
use crate::clock::{Clock, Moment};

/// Runs wind down: when they are told to stop, which happens once.
pub(crate) struct WindDown {
    stop_at: Moment,
    told: bool,
}

/// When a run counts as stuck that last said something at `said`. What passes while the process is frozen does not
/// count: `thawed` is the end of its last freeze.
pub(crate) fn stuck_at(said: Moment, thawed: Moment, limit: Option<Duration>) -> Moment {
    limit.map_or(Moment::NEVER, |limit| said.max(thawed) + limit)
}

// === impl WindDown ===

impl WindDown {
    /// Runs have until then to end by themselves.
    pub(crate) fn until(stop_at: Moment) -> Self {
        Self {
            stop_at,
            told: false,
        }
    }

    /// Completes once, when what still runs is to be told to stop; with the reason when the replica lock is about to go, else
    /// their time is over. Cancel-safe.
    pub(crate) async fn over(&mut self, pass: &Pass, clock: &Clock) -> Option<&'static str> {
        if self.told {
            return std::future::pending().await;
        }
        let why = tokio::select! {
            biased;
            () = pass.lost() => Some("this replica is no longer the active one"),
            () = clock.sleep_until(self.stop_at) => None,
        };
        self.told = true;
        why
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{run::Gate, sim_clock::SimTime};

    #[test]
    fn a_freeze_is_no_lack_of_progress() {
        let at = |secs| Moment::from_boot(Duration::from_secs(secs));
        let limit = Some(Duration::from_secs(60));
        assert_eq!(stuck_at(at(10), at(0), limit), at(70));
        assert_eq!(stuck_at(at(10), at(500), limit), at(560));
        assert_eq!(stuck_at(at(10), at(0), None), Moment::NEVER);
    }

    #[tokio::test(start_paused = true)]
    async fn what_winds_down_is_told_to_stop_once() {
        let clock = SimTime::new().clock();
        let pass = Gate::open().pass().await.unwrap();
        let patience = Duration::from_secs(5);
        let stop_at = clock.now() + patience;
        let mut wind_down = WindDown::until(stop_at);
        assert_eq!(wind_down.over(&pass, &clock).await, None);
        assert_eq!(clock.now(), stop_at);
        let again = clock.timeout(patience, wind_down.over(&pass, &clock));
        assert!(again.await.is_err());
    }
}
