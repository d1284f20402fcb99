//! What the operating system asks of us, and what becomes of it while the command runs.

use std::{fs, future, io};

use rustix::termios::tcgetpgrp;
use tokio::signal::unix::{self, SignalKind};

use crate::guard::own_group;

/// A signal that asks us to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// SIGTERM.
    Terminate,
    /// SIGINT.
    Interrupt,
    /// SIGHUP: the terminal was closed.
    Hangup,
}

/// What to do about a signal while the command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Nothing: the command got it from the terminal, too, and knows what to do.
    Leave,
    /// Tell the command to stop.
    Stop,
    /// End it now.
    Kill,
}

/// The signals of this process. Those that our parent wanted ignored (`nohup`, `&` in a script) stay so.
pub(super) struct Signals {
    terminate: Option<unix::Signal>,
    interrupt: Option<unix::Signal>,
    hangup: Option<unix::Signal>,
}

/// Answers a signal. `shared` says that the command sits at the same terminal as we; `told`, that it was told to stop
/// before.
pub(super) fn answer(heard: Heard, shared: bool, told: bool) -> Answer {
    match heard {
        _ if told => Answer::Kill,
        Heard::Interrupt if shared => Answer::Leave,
        _ => Answer::Stop,
    }
}

/// Whether the terminal sends its signals to us, and so to the command, too.
pub(super) fn shares_terminal() -> bool {
    let Ok(terminal) = fs::File::open("/dev/tty") else {
        return false;
    };
    tcgetpgrp(&terminal).is_ok_and(|front| own_group() == Some(front))
}

// === impl Heard ===

impl Heard {
    /// The status with which shells show an end by this signal.
    pub(super) fn exit_code(self) -> u8 {
        128 + self.number()
    }

    fn number(self) -> u8 {
        match self {
            Self::Hangup => 1,
            Self::Interrupt => 2,
            Self::Terminate => 15,
        }
    }
}

// === impl Signals ===

impl Signals {
    /// Takes the signals over. Call it once, inside a runtime.
    pub(super) fn listen() -> io::Result<Self> {
        // Our name stands there as it is, and may be cut within a letter.
        let status = fs::read("/proc/self/status").unwrap_or_default();
        let status = String::from_utf8_lossy(&status);
        let listen = |heard: Heard, kind| {
            let wanted = !is_ignored(&status, heard.number());
            wanted.then(|| unix::signal(kind)).transpose()
        };
        Ok(Self {
            terminate: listen(Heard::Terminate, SignalKind::terminate())?,
            interrupt: listen(Heard::Interrupt, SignalKind::interrupt())?,
            hangup: listen(Heard::Hangup, SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal. Cancel-safe.
    pub(super) async fn next(&mut self) -> Heard {
        tokio::select! {
            biased;
            () = heard(self.terminate.as_mut()) => Heard::Terminate,
            () = heard(self.interrupt.as_mut()) => Heard::Interrupt,
            () = heard(self.hangup.as_mut()) => Heard::Hangup,
        }
    }
}

async fn heard(signal: Option<&mut unix::Signal>) {
    if let Some(signal) = signal
        && signal.recv().await.is_some()
    {
        return;
    }
    future::pending().await
}

/// Whether a process with this `/proc/PID/status` ignores a signal.
fn is_ignored(status: &str, number: u8) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (number - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_from_a_shared_terminal_is_the_commands_own_business() {
        assert_eq!(answer(Heard::Interrupt, true, false), Answer::Leave);
        assert_eq!(answer(Heard::Interrupt, false, false), Answer::Stop);
        assert_eq!(answer(Heard::Terminate, true, false), Answer::Stop);
        assert_eq!(answer(Heard::Hangup, true, false), Answer::Stop);
    }

    #[test]
    fn whoever_asks_twice_means_it() {
        for heard in [Heard::Interrupt, Heard::Terminate, Heard::Hangup] {
            for shared in [true, false] {
                assert_eq!(answer(heard, shared, true), Answer::Kill);
            }
        }
    }

    #[test]
    fn signals_that_a_parent_wants_ignored_are_found() {
        let status = "Name:\tx\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, 1) && is_ignored(status, 13));
        assert!(!is_ignored(status, 2) && !is_ignored(status, 15) && !is_ignored("", 1));
    }

    #[test]
    fn an_end_by_signal_is_shown_as_shells_do() {
        assert_eq!(Heard::Terminate.exit_code(), 143);
        assert_eq!(
            [Heard::Interrupt, Heard::Hangup].map(Heard::exit_code),
            [130, 129]
        );
    }
}
