//! The last step before the command: this program once more, which becomes the command.
//!
//! It sees to it that the command dies with its guard, should that be killed, and it tells a program that is missing
//! from one that cannot be run and from a directory that cannot be entered.

use std::{
    env, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Command, ExitCode, Stdio},
};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use watchkeeper::clock::Clock;

use super::{
    message::{Failure, Order, Step, receive_order, send},
    role::control,
};

/// Becomes the command; comes back only when that failed.
pub(super) fn main() -> ExitCode {
    let Ok(guard) = control() else {
        return ExitCode::from(125);
    };
    let failure = match prepare(&guard) {
        Ok((order, input)) => run(&order, input),
        Err(error) => Failure::new(Step::Guard, &error),
    };
    // A guard that does not read it any more needs no answer.
    let _ = send(&guard, &failure);
    ExitCode::from(125)
}

fn prepare(guard: &UnixStream) -> io::Result<(Order, OwnedFd)> {
    let (order, input) = receive_order(guard)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A guard that died before that line has sent no signal.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(order.parent) {
        return Err(io::Error::other("the guard has ended"));
    }
    Ok((order, input))
}

fn run(order: &Order, input: OwnedFd) -> Failure {
    if let Some(cwd) = &order.cwd
        && let Err(error) = env::set_current_dir(cwd.to_os())
    {
        return Failure::new(Step::Directory, &error);
    }
    let mut command = Command::new(order.program.to_os());
    command.args(order.args.iter().map(super::message::Text::to_os));
    if order.clear_env {
        command.env_clear();
    }
    for name in &order.without_env {
        command.env_remove(name.to_os());
    }
    for (name, value) in &order.env {
        command.env(name.to_os(), value.to_os());
    }
    // As late as possible: the next holder may have the lock by then.
    if order.is_late(Clock::system().now()) {
        return Failure::new(Step::Lease, &io::ErrorKind::TimedOut.into());
    }
    // Everything but these three closes by itself.
    command.stdin(Stdio::from(input));
    let (output, errors) = (io::stdout(), io::stderr());
    let copies = output.as_fd().try_clone_to_owned();
    if let (Ok(output), Ok(errors)) = (copies, errors.as_fd().try_clone_to_owned()) {
        command.stdout(output).stderr(errors);
    }
    Failure::new(Step::Exec, &command.exec())
}
