//! `notify`: what became of notifications that did not go, and what is to become of them.
//!
//! ```text
//! watchkeeper notify status [JOB]          how many wait, are dead, parked, in doubt
//! watchkeeper notify dead   [JOB]          which ones, and why
//! watchkeeper notify retry  [JOB] ID…      send them again
//! watchkeeper notify park   [JOB] ID…      do not send them until they are asked for again
//! ```
//!
//! The commands work on the side tables in the job's own database and need no running worker. What is being sent at the
//! moment is left alone, and said.
//!
//! In reading order: [`args`] (the command line), [`which`] (the job that is meant), [`change`] (`retry`, `park`),
//! [`show`] (what is printed).

mod args;
mod change;
mod failure;
mod show;
mod which;

use std::process::ExitCode;

use crate::notifications::delivery::State;
use watchkeeper::{Worker, terminal};

pub(crate) use args::NotifyArgs;
use args::{DeadArgs, NotifyCommand, StatusArgs};
use failure::Failure;
use which::Mailing;

/// Carries out what the command line says, for the jobs that `worker` is configured with.
pub(crate) fn main(worker: &Worker, args: NotifyArgs) -> ExitCode {
    let done = match args.command {
        NotifyCommand::Status(args) => status(worker, &args),
        NotifyCommand::Dead(args) => dead(worker, &args),
        NotifyCommand::Retry(args) => change::retry(worker, &args),
        NotifyCommand::Park(args) => change::park(worker, &args),
    };
    let (code, why) = match done {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Usage(why)) => (2, why),
        Err(Failure::Failed(why)) => (1, why),
        Err(Failure::Told) => return ExitCode::FAILURE,
    };
    terminal::err(&format!("error: {why}"));
    ExitCode::from(code)
}

fn status(worker: &Worker, args: &StatusArgs) -> Result<(), Failure> {
    let mailings = which::all(worker, args.job.as_deref())?;
    let look = |mailing: &Mailing| {
        let standing = mailing.look().and_then(|mut table| Ok(table.standing()?));
        standing.map_err(|failure| failure.text())
    };
    let found: Vec<_> = mailings
        .iter()
        .map(|mailing| (mailing, look(mailing)))
        .collect();
    if args.json {
        show::json(&found.iter().map(show::standing_json).collect::<Vec<_>>());
    } else {
        terminal::out(&show::standings(&found));
    }
    match found.iter().any(|(_, standing)| standing.is_err()) {
        true => Err(Failure::Told),
        false => Ok(()),
    }
}

fn dead(worker: &Worker, args: &DeadArgs) -> Result<(), Failure> {
    let mailing = which::one(worker, args.job.as_deref())?;
    let mut table = mailing.look()?;
    let states = match args.state.as_slice() {
        [] => &[State::Dead, State::Parked][..],
        states => states,
    };
    let after = args.after.as_deref().map(|word| table.place(word));
    let after = after.transpose()?;
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let entries = table.list(states, after.as_ref(), limit)?;
    if args.json {
        let shown = entries
            .iter()
            .map(|entry| show::entry_json(&mailing, entry));
        show::json(&shown.collect::<Vec<_>>());
        return Ok(());
    }
    let standing = table.standing()?;
    terminal::out(&show::entries(&mailing, states, &entries, &standing, limit));
    Ok(())
}
