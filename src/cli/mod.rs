//! The commands of a worker: `run`, `check`, `config`, `jobs`, `status`, `history`, `explain`, `pause`, `resume`, `trigger`,
//! `triggers`, `resign`, `drain`, `locks`, `move`, `token`, `doctor`.
//!
//! ```no_run
//! # use watchkeeper::Worker;
//! # use watchkeeper::config::LoadOptions;
//! fn main() -> std::process::ExitCode {
//!     watchkeeper::cli::main(Worker::with(LoadOptions::from_process()))
//! }
//! ```
//!
//! [`main`] makes a runtime for the jobs, with `worker.threads` threads. A program that has one, because it opens connections
//! for its jobs before they run, takes [`main_async`]; its jobs run there:
//!
//! ```no_run
//! # use watchkeeper::Worker;
//! # use watchkeeper::config::LoadOptions;
//! #[tokio::main]
//! async fn main() -> std::process::ExitCode {
//!     watchkeeper::cli::main_async(Worker::with(LoadOptions::from_process())).await
//! }
//! ```
//!
//! A program with commands of its own flattens [`Command`] into them and [`Global`] into its parser, and calls
//! [`Command::execute`] or [`Command::execute_async`].
//!
//! | exit code | meaning |
//! | --- | --- |
//! | 0 | done |
//! | 1 | failed |
//! | 2 | usage or configuration; nothing was started |

mod args;
mod ask;
mod check;
mod colours;
mod commands;
mod doctor;
mod explain;
mod failure;
mod follow;
mod hints;
mod history;
mod interrupt;
mod jobs;
mod locks;
mod moment;
mod moving;
mod output;
mod raw_nodes;
mod run;
mod status;
mod store_args;
mod table;
mod token;
mod triggers;
mod waiting;
mod watch;

use std::process::ExitCode;

use clap::Parser;

use crate::{Worker, terminal};
use args::Cli;
pub(crate) use failure::Failure;
use output::print;

pub use self::args::{Command, Global};
// A program takes a `Command` as a whole, and says nothing of the options of each. `watchkeeper` has tables and stores as well.
#[doc(hidden)] // a program takes a `Command` as a whole
pub use self::{
    args::Overrides,
    doctor::DoctorArgs,
    history::HistoryArgs,
    jobs::{JobsArgs, JobsCommand},
    locks::{At, BreakArgs, LocksArgs, LocksCommand},
    moving::MoveArgs,
    store_args::StoreArgs,
    table::Table,
    triggers::{TriggersArgs, TriggersCommand},
};

/// Reads the command line and does what it says. Builds its own runtime: for a plain `fn main`. Inside of a runtime it says
/// so and ends with 2. Sets a panic hook that writes out whatever a terminal would obey.
#[must_use]
pub fn main(worker: Worker) -> ExitCode {
    terminal::tame_panics();
    let Cli { global, command } = Cli::parse();
    command.execute(&global, worker)
}

/// Reads the command line and does what it says, on the runtime of the caller: for `#[tokio::main]`. The runtime needs I/O
/// and time.
///
/// # Cancellation
/// As with [`Worker::run`]; any other command goes on to its end.
pub async fn main_async(worker: Worker) -> ExitCode {
    terminal::tame_panics();
    let Cli { global, command } = Cli::parse();
    command.execute_async(&global, worker).await
}

// === impl Command ===

impl Command {
    /// Carries the command out for `worker` and says how it ended. Blocks, so that it must not be called inside of a
    /// runtime: there it says so and ends with 2.
    #[must_use]
    pub fn execute(self, global: &Global, worker: Worker) -> ExitCode {
        if tokio::runtime::Handle::try_current().is_ok() {
            // The runtime that this makes cannot stand within another one, and jobs may need what the other one drives.
            let why = "this program has a runtime already (#[tokio::main]): it calls watchkeeper::cli::main_async(worker).await \
                       in place of watchkeeper::cli::main(worker), or Command::execute_async in place of execute";
            return Failure::Usage(why.to_owned()).tell();
        }
        self.carry_out(global, worker)
    }

    /// The same on the runtime of the caller, which needs I/O and time: the jobs of `run` run there, and `worker.threads` has
    /// no effect.
    ///
    /// # Cancellation
    /// As with [`Worker::run`]; any other command goes on to its end.
    pub async fn execute_async(self, global: &Global, mut worker: Worker) -> ExitCode {
        terminal::prefer(global.color.unwrap_or_default());
        if let Self::Run(overrides) = &self {
            worker.set(global, overrides);
            return match worker.run().await {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => Failure::from(error).tell(),
            };
        }
        let global = global.clone();
        // Other commands block, and make small runtimes of their own.
        let done = tokio::task::spawn_blocking(move || self.carry_out(&global, worker)).await;
        done.unwrap_or_else(|error| match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => ExitCode::FAILURE,
        })
    }

    fn carry_out(self, global: &Global, mut worker: Worker) -> ExitCode {
        terminal::prefer(global.color.unwrap_or_default());
        if let Self::Run(overrides)
        | Self::Check { overrides, .. }
        | Self::Config { overrides, .. } = &self
        {
            worker.set(global, overrides);
        } else {
            worker.set(global, &Overrides::default());
        }
        let done = match self {
            Self::Run(_) => run::run(worker),
            Self::Check { offline, json, .. } => return check::check(&worker, offline, json),
            Self::Config { origin, .. } => match worker.load() {
                Ok(loaded) => {
                    print(&loaded.render(origin));
                    Ok(())
                }
                Err(error) => Err(error.into()),
            },
            Self::Jobs(args) => jobs::jobs(&worker, args),
            Self::Status {
                shards,
                watch,
                json,
            } => match watch {
                Some(every) => watch::watch(&worker, every, shards, json),
                None => status::status(&worker, shards, json),
            },
            Self::History(args) => match args.follow {
                true => follow::history(&worker, &args),
                false => history::history(&worker, &args),
            },
            Self::Explain { job, at, json } => explain::explain(&worker, &job, at.as_deref(), json),
            Self::Pause {
                job,
                all: _,
                reason,
                yes,
                json,
            } => match job {
                Some(job) => commands::pause(&worker, &job, &reason, json),
                None => commands::pause_all(&worker, &reason, yes, json),
            },
            Self::Resume {
                job,
                all: _,
                yes,
                json,
            } => match job {
                Some(job) => commands::resume(&worker, &job, json),
                None => commands::resume_all(&worker, yes, json),
            },
            Self::Trigger(args) => {
                commands::params(args.params, &args.param).and_then(|given| match args.follow {
                    true => follow::trigger(&worker, &args.job, given, args.timeout, args.json),
                    false => commands::trigger(&worker, &args.job, given, args.wait, args.json),
                })
            }
            Self::Triggers(args) => triggers::triggers(&worker, args),
            Self::Resign { job, to, json } => commands::resign(&worker, &job, to.as_deref(), json),
            Self::Drain {
                replica,
                wait,
                json,
            } => commands::drain(&worker, &replica, wait, json),
            Self::Token => token::token(&worker),
            Self::Locks(args) => locks::locks(worker, args),
            Self::Move(args) => moving::move_fleet(&worker, &args),
            Self::Doctor(args) => doctor::doctor(worker, &args),
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.tell(),
        }
    }
}

impl Worker {
    /// What the command line says.
    fn set(&mut self, global: &Global, overrides: &Overrides) {
        if let Some(path) = &global.config {
            self.options.file = Some(path.clone());
        }
        self.options.flags.extend(overrides.flags());
    }
}

#[cfg(test)]
mod tests {
    mod hostile;

    use super::*;

    #[tokio::test]
    async fn a_command_within_a_runtime_says_what_to_call_in_its_place() {
        let worker = Worker::builder().build();
        let command = Command::Status {
            shards: false,
            watch: None,
            json: false,
        };
        let code = command.execute(&Global::default(), worker);
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(2)));
    }
}
