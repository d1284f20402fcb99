//! What the operating system asks of this process.
//!
//! | signal | meaning |
//! | --- | --- |
//! | SIGTERM, SIGINT | [`Signal::Drain`]; a second one of either ends the process at once |
//! | SIGUSR1 | [`Signal::Dump`] |
//! | SIGHUP | [`Signal::Hangup`] |
//!
//! The second signal needs no task of the program: it works in the signal handler itself, also when every thread of the program is
//! stuck. The process then exits with 128 + the signal's number, as shells count it; its leases expire by themselves.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::StreamExt;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1},
    flag,
};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// End the work in order, then exit.
    Drain,
    /// Write the status to the log.
    Dump,
    /// Read the configuration again.
    Hangup,
}

/// The signals that arrive from now on, one after the other. Several of one kind in a row may arrive as one.
///
/// Several of them in one process hear the same signals. When the last one is dropped, SIGTERM and SIGINT end the process
/// at once, until another one listens: a program whose workers have all ended is not deaf.
pub(crate) struct Signals {
    stream: signal_hook_tokio::Signals,
    _listener: Listener,
}

/// A receiver of signals.
struct Listener;

/// The receivers in this process, and whether the next signal ends it.
struct Listeners {
    many: usize,
    asked: Option<Arc<AtomicBool>>,
}

static LISTENERS: Mutex<Listeners> = Mutex::new(Listeners {
    many: 0,
    asked: None,
});

// === impl Signals ===

impl Signals {
    /// Takes over the signals of this process. Must be called inside a tokio runtime with I/O.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(crate) fn listen() -> io::Result<Self> {
        let listener = Listener::register()?;
        let stream = signal_hook_tokio::Signals::new([SIGTERM, SIGINT, SIGUSR1, SIGHUP])?;
        Ok(Self {
            stream,
            _listener: listener,
        })
    }

    /// Waits for the next signal. Cancel-safe.
    pub(crate) async fn recv(&mut self) -> Option<Signal> {
        Some(match self.stream.next().await? {
            SIGUSR1 => Signal::Dump,
            SIGHUP => Signal::Hangup,
            _ => Signal::Drain,
        })
    }
}

// === impl Listener ===

impl Listener {
    fn register() -> io::Result<Self> {
        let mut listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
        match &listeners.asked {
            // There was no listener for a while: the next signal is a first one.
            Some(asked) if listeners.many == 0 => asked.store(false, Ordering::SeqCst),
            Some(_) => {}
            None => {
                // Once for the process: a check for each listener would meet what another one has set.
                let asked = Arc::new(AtomicBool::new(false));
                for signal in [SIGTERM, SIGINT] {
                    // This order: actions run as they were registered, so the first signal passes the check before it sets
                    // what the second will find. The other way round the first one would end the process.
                    flag::register_conditional_shutdown(signal, 128 + signal, asked.clone())?;
                    flag::register(signal, asked.clone())?;
                }
                listeners.asked = Some(asked);
            }
        }
        listeners.many += 1;
        Ok(Self)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.many -= 1;
        if let Some(asked) = &listeners.asked
            && listeners.many == 0
        {
            asked.store(true, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        process::{Child, Command, Stdio},
    };

    use super::*;

    const CHILD: &str = "WATCHKEEPER_TEST_SIGNALS_CHILD";

    /// Runs only in the child process of the tests below: prints each signal until it is killed.
    #[test]
    fn child() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut signals = Signals::listen().unwrap();
            // Another one that has come and gone takes nothing away.
            drop(Signals::listen().unwrap());
            println!("\nlistening");
            while let Some(signal) = signals.recv().await {
                println!("\n{signal:?}");
                if signal == Signal::Hangup && std::env::var(CHILD).is_ok_and(|how| how == "leaves")
                {
                    break;
                }
            }
            drop(signals);
            println!("\nleft");
            std::future::pending::<()>().await;
        });
    }

    /// This very test binary again, in a process of its own: signals are the whole process's affair.
    fn listening_child(how: &str) -> (Child, impl FnMut() -> String) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "signals::tests::child", "--nocapture"])
            .env(CHILD, how)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut next = move || {
            let words = ["listening", "Drain", "Dump", "Hangup", "left"];
            let line = lines.find(|l| words.contains(&l.as_deref().unwrap()));
            line.unwrap().unwrap()
        };
        assert_eq!(next(), "listening");
        (child, next)
    }

    fn send(child: &Child, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    #[test]
    fn a_second_signal_ends_the_process_at_once() {
        let (mut child, mut next) = listening_child("stays");
        send(&child, rustix::process::Signal::TERM);
        assert_eq!(next(), "Drain");
        send(&child, rustix::process::Signal::INT);
        assert_eq!(child.wait().unwrap().code(), Some(128 + SIGINT));
    }

    #[test]
    fn a_signal_ends_the_process_when_nobody_listens_any_more() {
        let (mut child, mut next) = listening_child("leaves");
        send(&child, rustix::process::Signal::HUP);
        assert_eq!((next(), next()), ("Hangup".to_owned(), "left".to_owned()));
        send(&child, rustix::process::Signal::TERM);
        assert_eq!(child.wait().unwrap().code(), Some(128 + SIGTERM));
    }

    #[test]
    fn other_signals_do_not_end_the_process() {
        let (mut child, mut next) = listening_child("stays");
        for _ in 0..2 {
            send(&child, rustix::process::Signal::USR1);
            assert_eq!(next(), "Dump");
            send(&child, rustix::process::Signal::HUP);
            assert_eq!(next(), "Hangup");
        }
        send(&child, rustix::process::Signal::TERM);
        assert_eq!(next(), "Drain");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
