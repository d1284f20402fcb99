//! The guard process: gathers what happens, asks [`State`] what to do, and does it.
//!
//! It adopts every orphan among the command's descendants (as a subreaper), so that "no child is left" means that
//! nothing is left, whatever has forked, left its session or closed its descriptors. It waits on the boot clock, so
//! that a suspended machine does not stretch a lease.

use std::{
    collections::BTreeSet,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    panic::{AssertUnwindSafe, catch_unwind},
    process::{Command, ExitCode, Stdio},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{
        Pid, Signal, WaitOptions, WaitStatus, getpgrp, getpid, kill_process, kill_process_group,
        set_child_subreaper, setpgid, setsid, wait,
    },
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create,
        timerfd_settime,
    },
};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use watchkeeper::clock::{Clock, Moment};

use super::{
    end::Status,
    message::{Failure, FromGuard, Step, ToGuard, receive, receive_order, send, send_order},
    procs::{are_shown, descendants, ignores},
    role::{PROGRAM, SHIM, control},
    state::{AGAIN, Act, Event, State},
    timespec::timespec,
};

/// Signals that are for the worker alone: a guard ends with its command.
const NOT_FOR_US: [i32; 6] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];

/// Guards one command to its end.
pub(super) fn main() -> ExitCode {
    let Ok(worker) = control() else {
        return ExitCode::from(125);
    };
    let last = match Guard::start(&worker) {
        Ok(guard) => guard.run(),
        Err(error) => failed(&error),
    };
    // A worker that is gone needs no answer.
    let _ = send(&worker, &last);
    ExitCode::SUCCESS
}

struct Guard<'a> {
    worker: &'a UnixStream,
    worker_gone: bool,
    /// Open until the shim has become the command or has failed.
    shim: Option<UnixStream>,
    failure: Option<Failure>,
    children: UnixStream,
    timer: OwnedFd,
    clock: Clock,
    state: State,
    command: Pid,
    left_behind: usize,
    /// What has kept this guard from going on.
    trouble: Option<String>,
    /// Groups that others are in, too: our own, and that of a terminal's user.
    foreign_groups: Vec<Pid>,
}

impl<'a> Guard<'a> {
    fn start(worker: &'a UnixStream) -> io::Result<Self> {
        rustix::thread::set_name(c"wk-guard")?;
        for signal in NOT_FOR_US {
            // Caught and forgotten; not ignored, because the command would inherit that. It does inherit what our
            // caller wants ignored (`nohup`), so that is left as it is.
            if !ignores(signal) {
                signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
            }
        }
        let (children, bell) = UnixStream::pair()?;
        children.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGCHLD, bell)?;
        let (mut order, input) = receive_order(worker)?;
        // Else it would take the command for ended, or signal processes of others. Behind the order: who sends it hears this.
        are_shown()?;
        // Out of the terminal's reach: its signals are for the command, or for the worker.
        match order.group {
            Some(_) => setpgid(None, None)?,
            None => drop(setsid()?),
        }
        set_child_subreaper(Some(getpid()))?;
        order.parent = getpid().as_raw_nonzero().get();
        let (ours, theirs) = UnixStream::pair()?;
        let shim = Command::new(PROGRAM)
            .arg0(SHIM)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // A group of its own, so that a command that signals its group does not meet its guard.
            .process_group(order.group.unwrap_or(0))
            .spawn()?;
        let clock = Clock::system();
        let guard = Self {
            worker,
            worker_gone: false,
            shim: Some(ours),
            failure: None,
            children,
            timer: timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?,
            clock,
            state: State::new(order.times, order.grace),
            command: Pid::from_child(&shim),
            left_behind: 0,
            trouble: None,
            foreign_groups: [Some(getpgrp()), order.group.and_then(Pid::from_raw)]
                .into_iter()
                .flatten()
                .collect(),
        };
        if let Some(shim) = &guard.shim
            && let Err(error) = send_order(shim, &order, input.as_fd())
        {
            guard.end_all();
            return Err(error);
        }
        Ok(guard)
    }

    /// Until nothing of the command is left, also when this guard fails.
    fn run(mut self) -> FromGuard {
        let ended = catch_unwind(AssertUnwindSafe(|| self.follow()));
        let error = match ended {
            Ok(Ok(last)) => return last,
            Ok(Err(error)) => error,
            Err(_) => io::Error::other("it has panicked"),
        };
        let killed = self.end_all();
        if self.state.outcome().is_some() {
            // What it has done counts, and must not be done again because of what happened to its guard later.
            self.left_behind = self.left_behind.max(killed);
            self.trouble = Some(error.to_string());
            return self.outcome();
        }
        failed(&error)
    }

    fn follow(&mut self) -> io::Result<FromGuard> {
        loop {
            self.tell_time();
            if self.reap()? {
                return Ok(self.outcome());
            }
            self.wait()?;
        }
    }

    fn outcome(&mut self) -> FromGuard {
        self.hear_shim();
        if let Some(failure) = self.failure.take() {
            return FromGuard::Failed(failure);
        }
        match self.state.outcome() {
            Some((status, cause)) => FromGuard::Ended {
                status,
                cause,
                left_behind: self.left_behind,
                late: self.state.late(self.clock.now()),
                trouble: self.trouble.take(),
            },
            None => failed(&io::Error::other("the command has vanished")),
        }
    }

    /// Kills until nothing is left, and asks neither the time nor the worker. Says how many there were at a time.
    fn end_all(&self) -> usize {
        let mut most = 0;
        let mut command = self.state.outcome().is_none().then_some(self.command);
        loop {
            // A machine that opens no more files shows no processes, but this one's number is known until it is taken note of.
            if let Some(command) = command {
                let _ = kill_process(command, Signal::KILL);
            }
            if let Ok(killed) = catch_unwind(AssertUnwindSafe(|| self.kill_all())) {
                most = most.max(killed);
            }
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, _))) if Some(pid) == command => command = None,
                Ok(Some(_)) => {}
                Err(rustix::io::Errno::CHILD) => return most,
                Ok(None) | Err(_) => drop(poll(&mut [], Some(&timespec(AGAIN)))),
            }
        }
    }

    fn on(&mut self, event: Event) {
        match self.state.on(event, self.clock.now()) {
            Some(Act::Terminate) => {
                let told = self.terminate_all();
                if self.state.is_after_the_end() {
                    self.left_behind = told;
                }
            }
            Some(Act::Kill) => {
                if self.state.outcome().is_none() {
                    // Also where no more files can be opened, and so no processes are seen: its end was not taken note of
                    // yet, so the number is its own.
                    let _ = kill_process(self.command, Signal::KILL);
                }
                let killed = self.kill_all();
                if self.state.is_after_the_end() {
                    self.left_behind = self.left_behind.max(killed);
                }
            }
            None => {}
        }
    }

    fn tell_time(&mut self) {
        self.on(Event::Time);
    }

    /// Takes the ends of children; true when none is left.
    fn reap(&mut self) -> io::Result<bool> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.command => {
                    self.on(Event::Ended(of(status)));
                }
                Ok(Some(_)) => {}
                Ok(None) => return Ok(false),
                Err(rustix::io::Errno::CHILD) => return Ok(true),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits for the next thing to happen, and takes it in.
    fn wait(&mut self) -> io::Result<()> {
        set_timer(&self.timer, self.state.wake())?;
        let mut fds = vec![
            PollFd::new(&self.children, PollFlags::IN),
            PollFd::new(&self.timer, PollFlags::IN),
        ];
        let worker = (!self.worker_gone).then(|| {
            fds.push(PollFd::new(self.worker, PollFlags::IN));
            fds.len() - 1
        });
        let shim = self.shim.as_ref().map(|shim| {
            fds.push(PollFd::new(shim, PollFlags::IN));
            fds.len() - 1
        });
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let ready = |place: Option<usize>| place.is_some_and(|n| !fds[n].revents().is_empty());
        let (bell, worker, shim) = (ready(Some(0)), ready(worker), ready(shim));
        if bell {
            let mut bells = [0; 64];
            let _ = rustix::io::read(&self.children, &mut bells);
        }
        if shim {
            self.hear_shim();
        }
        if worker {
            self.hear_worker();
        }
        Ok(())
    }

    fn hear_worker(&mut self) {
        match receive(self.worker) {
            Ok(Some(ToGuard::Times(times))) => self.on(Event::Times(times)),
            Ok(Some(ToGuard::Stop { kill_at })) => self.on(Event::Stop { kill_at }),
            // What cannot be read is as bad as no caller.
            Ok(None) | Err(_) => {
                self.worker_gone = true;
                self.on(Event::WorkerGone);
            }
        }
    }

    /// Closed without a word: the shim has become the command.
    fn hear_shim(&mut self) {
        let Some(shim) = self.shim.take() else { return };
        match receive(&shim) {
            Ok(Some(failure)) => self.failure = Some(failure),
            Ok(None) | Err(_) => {
                let pid = self.command.as_raw_nonzero().get();
                // A worker that does not read it is gone, which is heard elsewhere.
                let _ = send(self.worker, &FromGuard::Started { pid });
            }
        }
    }

    fn terminate_all(&self) -> usize {
        let all = descendants(getpid());
        for process in &all {
            // One that has ended meanwhile, or belongs to another user by now, cannot be helped.
            let _ = process.signal(Signal::TERM);
            // A stopped one hears of it only when it goes on.
            let _ = process.signal(Signal::CONT);
        }
        all.len()
    }

    /// Whole groups first: that is one step for the kernel, so that what forks all the time cannot outrun it.
    fn kill_all(&self) -> usize {
        let all = descendants(getpid());
        let groups: BTreeSet<i32> = all
            .iter()
            .filter_map(|process| process.group_but(&self.foreign_groups))
            .map(|group| group.as_raw_nonzero().get())
            .collect();
        for group in groups.into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        for process in &all {
            let _ = process.signal(Signal::KILL);
        }
        all.len()
    }
}

fn failed(error: &io::Error) -> FromGuard {
    FromGuard::Failed(Failure::new(Step::Guard, error))
}

fn of(status: WaitStatus) -> Status {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Status::Code(code),
        (None, signal) => Status::Signal(signal.unwrap_or_default()),
    }
}

/// Sets the timer to `at`, or stops it for a moment that never comes.
fn set_timer(timer: &OwnedFd, at: Moment) -> io::Result<()> {
    let at = match at {
        Moment::NEVER => Duration::ZERO,
        // Zero would stop it.
        at => at.since_boot().max(Duration::from_nanos(1)),
    };
    let spec = Itimerspec {
        it_interval: timespec(Duration::ZERO),
        it_value: timespec(at),
    };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &spec)?;
    Ok(())
}
