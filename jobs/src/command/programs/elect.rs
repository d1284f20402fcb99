//! `elect`: stand by, run while leading, stand by again.
//!
//! ```text
//! standing by -> leading: CMD runs -+- CMD ended by itself -> exit, or with --restart: pause, standing by
//!                                   +- lease lost, CMD stopped -> standing by
//!                                   +- we were told to end -> exit
//! ```

use std::time::Duration;

use crate::guard::StartError;
use futures_util::future::join;
use watchkeeper::Elector;

use super::{
    args::Common,
    exit,
    release::release,
    run::{Ran, Whose, Why},
    scene::Scene,
    signals::{Heard, Signals},
    wait::{self, NotHeld},
};

/// What comes after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Exit(u8),
    StandBy,
    PauseThenStandBy,
}

/// The pauses between a command's end and our next candidacy: others go first, and a command that fails at once is not
/// started all the time.
#[derive(Clone, Copy, Debug)]
struct Pauses(Duration);

/// Plays the whole command and answers with the exit status.
pub(super) async fn elect(scene: &mut Scene, common: &Common, restart: bool) -> u8 {
    let Scene {
        open,
        signals,
        program,
        voice,
    } = scene;
    let (voice, locks) = (*voice, &open.locks);
    let key = open.key("elect", &common.key);
    let what = format!("lead of {}", common.key);
    let elector = Elector::for_key(locks, key.clone());
    // Also in the pauses: the leader of that time may have died when they are over.
    let _watching = elector.keep_watching();
    let mut pauses = Pauses::default();
    // A limited wait is for the first term: after it there is no "never held" to be told.
    let mut limit = common.wait;
    loop {
        let led = match limit.take() {
            Some(limit) => wait::acquire(locks, &key, &what, Some(limit), signals, voice).await,
            None => wait::campaign(locks, &elector, &common.key, signals, voice).await,
        };
        let lease = match led {
            Ok(lease) => lease,
            Err(why) => return why.tell(&what, voice, common.not_held, standing_by),
        };
        let began = locks.clock().now();
        let told = program.tell(locks);
        let ran = program.run(lease.view(), signals, voice).await;
        let lasted = locks.clock().now().since(began);
        // The command is gone: a standby can begin.
        join(release(locks, lease), told.over()).await;
        let ran = match ran {
            Ok(ran) => ran,
            // It is as if we had never led.
            Err(StartError::LeaseOver) => continue,
            Err(error) => {
                voice.say(&error);
                return error.exit_code();
            }
        };
        if let Whose::Ours(why) = &ran.end {
            let then = if ran.told { "" } else { "; standing by" };
            voice.say(&format_args!(
                "lost the {what} ({why}); the command was stopped{then}"
            ));
        }
        match next(&ran, restart) {
            Next::Exit(status) => return status,
            Next::StandBy => {}
            Next::PauseThenStandBy => {
                let pause = pauses.after(lasted);
                if let Whose::Its(status) = ran.end {
                    voice.mention(&format_args!(
                        "the command ended with status {status}; standing by for {} again in {}s",
                        common.key,
                        pause.as_secs()
                    ));
                }
                let told = told_within(pause, signals, locks.clock()).await;
                if let Some(why) = told {
                    return why.tell(&what, voice, common.not_held, standing_by);
                }
            }
        }
    }
}

async fn told_within(
    pause: Duration,
    signals: &mut Signals,
    clock: &watchkeeper::clock::Clock,
) -> Option<NotHeld> {
    let told = clock.timeout(pause, signals.next()).await;
    told.ok().map(NotHeld::Told)
}

fn next(ran: &Ran, restart: bool) -> Next {
    match ran.end {
        Whose::Its(status) if ran.told || !restart => Next::Exit(status),
        Whose::Its(_) => Next::PauseThenStandBy,
        Whose::Ours(_) if ran.told => Next::Exit(exit::FAILED),
        Whose::Ours(Why::Lost(_)) => Next::StandBy,
        // Something is wrong here: others go first.
        Whose::Ours(Why::Guard) => Next::PauseThenStandBy,
    }
}

/// The exit status of a candidate that is told to end: an order to stop, as services get it, is not a failure.
pub(super) fn standing_by(heard: Heard) -> u8 {
    match heard {
        Heard::Terminate => 0,
        other => other.exit_code(),
    }
}

// === impl Pauses ===

impl Pauses {
    const FIRST: Duration = Duration::from_secs(1);
    const MOST: Duration = Duration::from_secs(30);
    /// A run as long as this was a good one.
    const GOOD: Duration = Duration::from_secs(60);

    /// The pause after a run that lasted so long.
    fn after(&mut self, lasted: Duration) -> Duration {
        if lasted >= Self::GOOD {
            *self = Self::default();
        }
        let pause = self.0;
        self.0 = (pause * 2).min(Self::MOST);
        pause
    }
}

impl Default for Pauses {
    fn default() -> Self {
        Self(Self::FIRST)
    }
}

#[cfg(test)]
mod tests {
    use watchkeeper::lease::Loss;

    use super::*;

    fn its(status: u8, told: bool) -> Ran {
        Ran {
            end: Whose::Its(status),
            told,
        }
    }

    #[test]
    fn a_command_that_ends_by_itself_ends_us_unless_it_is_to_be_restarted() {
        assert_eq!(next(&its(7, false), false), Next::Exit(7));
        assert_eq!(next(&its(7, false), true), Next::PauseThenStandBy);
    }

    #[test]
    fn whoever_is_told_to_end_does_not_restart() {
        assert_eq!(next(&its(143, true), true), Next::Exit(143));
    }

    #[test]
    fn a_loss_is_followed_by_standing_by() {
        let mut ran = Ran {
            end: Whose::Ours(Why::Lost(Loss::Expired)),
            told: false,
        };
        assert_eq!(next(&ran, false), Next::StandBy);
        assert_eq!(next(&ran, true), Next::StandBy);
        let guard = Ran {
            end: Whose::Ours(Why::Guard),
            told: false,
        };
        assert_eq!(next(&guard, false), Next::PauseThenStandBy);
        ran.told = true;
        assert_eq!(next(&ran, true), Next::Exit(125));
    }

    #[test]
    fn pauses_double_to_their_limit_and_start_over_after_a_good_run() {
        let mut pauses = Pauses::default();
        let short = Duration::from_millis(1);
        let seconds = [(); 7].map(|()| pauses.after(short).as_secs());
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(pauses.after(Duration::from_secs(61)).as_secs(), 1);
        assert_eq!(pauses.after(short).as_secs(), 2);
    }

    #[test]
    fn a_candidate_that_is_told_to_stop_has_not_failed() {
        assert_eq!(standing_by(Heard::Terminate), 0);
        assert_eq!(standing_by(Heard::Hangup), 129);
        assert_eq!(standing_by(Heard::Interrupt), 130);
    }
}
