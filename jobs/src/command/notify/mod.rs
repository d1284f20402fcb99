//! `notify`: what became of notifications that did not go, and what is to become of them.
//!
//! ```text
//! watchkeeper notify status [JOB]          how many wait, are dead, parked, in doubt
//! watchkeeper notify dead   [JOB]          which ones, and why
//! watchkeeper notify retry  [JOB] ID…      send them again
//! watchkeeper notify park   [JOB] ID…      do not send them until they are asked for again
//! watchkeeper notify discard [JOB] ID…     do not send them, and count them no more
//! watchkeeper notify import [JOB] FILE     the rows of a file go into the table
//! watchkeeper notify schema [JOB]          what makes the side tables and the index
//! ```
//!
//! The commands work on the side tables in the job's own database and need no running worker. What is being sent at the
//! moment is left alone, and said.
//!
//! In reading order: [`args`] (the command line), [`which`] (the job that is meant), [`change`] (`retry`, `park`, `discard`),
//! [`import`] with [`lines`], [`schema`], [`show`] (what is printed).

mod args;
mod change;
mod failure;
mod import;
mod lines;
mod records;
mod schema;
mod show;
mod which;

use std::process::ExitCode;

use crate::notifications::{delivery::State, operator::TableStatus};
use watchkeeper::{Worker, fleet::items::ItemOrder, terminal};

pub(crate) use args::NotifyArgs;
use args::{DeadArgs, NotifyCommand, StatusArgs};
use failure::Failure;
use which::Mailing;

/// Carries out what the command line says, for the jobs that `worker` is configured with.
pub(crate) fn main(worker: &Worker, args: NotifyArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(carry_out(worker, args.command)),
        Err(error) => Err(Failure::Failed(error.to_string())),
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

async fn carry_out(worker: &Worker, command: NotifyCommand) -> Result<(), Failure> {
    match command {
        NotifyCommand::Status(args) => status(worker, &args).await,
        NotifyCommand::Dead(args) => dead(worker, &args).await,
        NotifyCommand::Retry(args) => change::some_or_all(worker, ItemOrder::Retry, &args).await,
        NotifyCommand::Park(args) => change::park(worker, &args).await,
        NotifyCommand::Discard(args) => {
            change::some_or_all(worker, ItemOrder::Discard, &args).await
        }
        NotifyCommand::Import(args) => import::import(worker, &args).await,
        NotifyCommand::Schema(args) => schema::print(worker, &args).await,
    }
}

async fn status(worker: &Worker, args: &StatusArgs) -> Result<(), Failure> {
    let mailings = which::all(worker, args.job.as_deref())?;
    let mut found = Vec::new();
    for mailing in &mailings {
        let status = table_status(mailing).await;
        found.push((mailing, status.map_err(Failure::text)));
    }
    if args.json {
        show::json(&found.iter().map(show::status_json).collect::<Vec<_>>());
    } else {
        terminal::out(&show::statuses(&found));
    }
    match found.iter().any(|(_, status)| status.is_err()) {
        true => Err(Failure::Told),
        false => Ok(()),
    }
}

async fn table_status(mailing: &Mailing) -> Result<TableStatus, Failure> {
    let mut table = mailing.look().await?;
    Ok(table.status().await?)
}

async fn dead(worker: &Worker, args: &DeadArgs) -> Result<(), Failure> {
    let mailing = which::one(worker, args.job.as_deref())?;
    let mut table = mailing.look().await?;
    let states = match args.state.as_slice() {
        [] => &[State::Dead, State::Parked][..],
        states => states,
    };
    let after = match args.after.as_deref() {
        Some(word) => Some(table.place(word).await?),
        None => None,
    };
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let entries = table.list(states, after.as_ref(), limit).await?;
    if args.json {
        let shown = entries
            .iter()
            .map(|entry| show::entry_json(&mailing, entry));
        show::json(&shown.collect::<Vec<_>>());
        return Ok(());
    }
    let status = table.status().await?;
    terminal::out(&show::entries(&mailing, states, &entries, &status, limit));
    Ok(())
}
