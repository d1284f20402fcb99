//! The commands of a worker: `run`, `check`, `config`, `jobs`, `status`, `history`, `explain`, `pause`, `resume`, `trigger`,
//! `triggers`, `resign`, `drain`, `locks`, `token`, `doctor`.
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

mod check;
mod doctor;
mod explain;
mod hints;
mod history;
#[cfg(test)]
mod hostile;
mod jobs;
mod locks;
mod moment;
mod orders;
mod place;
mod run;
mod status;
mod table;
mod token;
mod triggers;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};

#[doc(hidden)]
pub use self::table::Table;
pub use self::{
    doctor::DoctorArgs,
    jobs::{JobsArgs, JobsCommand},
    locks::{At, BreakArgs, LocksArgs, LocksCommand},
    place::Place,
    triggers::{TriggersArgs, TriggersCommand},
};

use crate::{
    Worker,
    config::{Flag, Loaded, Problem, Problems},
    error::Error,
    terminal,
};

/// What every program with these commands can do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run a replica until SIGTERM or Ctrl-C
    ///
    /// Reads and checks the configuration, then takes part in the fleet: stands for election for each job, fires ticks
    /// and claims batches. SIGTERM drains: running work is finished while its locks are still renewed, then they are
    /// handed over. A second SIGTERM ends the process at once. SIGUSR1 writes the status to the log.
    Run(Overrides),
    /// Check the configuration and show every problem at once; starts nothing
    Check {
        /// What to check besides the file and the environment.
        #[command(flatten)]
        overrides: Overrides,
        /// Print the problems as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the configuration in effect as TOML, without secrets
    Config {
        /// What to set besides the file and the environment.
        #[command(flatten)]
        overrides: Overrides,
        /// Say for each value where it comes from
        #[arg(long)]
        origin: bool,
    },
    /// Show the configured jobs and when they are due next; with `next JOB` the next ticks of one
    ///
    /// Reads the configuration alone and asks no store. Times are shown in the job's zone and in UTC.
    Jobs(JobsArgs),
    /// Show the replicas, who leads which job, and the lock nodes
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the last runs of a job: when, where, how they ended
    ///
    /// The last 100 runs of a job are kept; the newest is shown last. Times are UTC. Of a job that works in batches each
    /// replica keeps 100 records: those that failed or left something behind singly, the others counted together.
    History {
        /// The job
        #[arg(value_name = "JOB")]
        job: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Show this many runs
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
        limit: u16,
        /// Print what each run has left to read under its line
        #[arg(long)]
        output: bool,
    },
    /// Say why a job ran at a time, or why it did not
    Explain {
        /// The job
        #[arg(value_name = "JOB")]
        job: String,
        /// The moment: 2026-05-04T08:00:00Z, or 2026-05-04T08:00 for this machine's time zone [default: now]
        #[arg(long, value_name = "TIME")]
        at: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Pause a job: no tick of it starts on any replica until it is resumed
    ///
    /// What runs goes on, and leaders keep leading. Ticks that fall into the pause do not run, not even after it; triggers
    /// do.
    Pause {
        /// The job
        #[arg(value_name = "JOB")]
        job: String,
        /// Why, for whoever looks at the status
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// End the pause of a job; it goes on with its next tick
    Resume {
        /// The job
        #[arg(value_name = "JOB")]
        job: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a job once, now: as soon as nothing else of it runs, also when it is paused
    ///
    /// Exits with 0 when the job's leader has accepted it, with 1 when nobody has yet: it stays asked for, for a day. With
    /// --wait 0 means that it was done.
    Trigger {
        /// The job
        #[arg(value_name = "JOB")]
        job: String,
        /// Wait for its end, for so long at most [without a limit: for a day]
        #[arg(long, value_name = "LIMIT", num_args = 0..=1, require_equals = true, default_missing_value = "1d", value_parser = humantime::parse_duration)]
        wait: Option<std::time::Duration>,
        /// A parameter for this run and its retries, in the place of the configured one; repeat it for more. The value is read
        /// as JSON where it is JSON, and is a text elsewhere
        #[arg(long, value_name = "KEY=VALUE")]
        param: Vec<String>,
        /// The same as a JSON object; "-" reads it from standard input, for what others must not see in a list of processes
        #[arg(long, value_name = "JSON")]
        params: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the triggers that are not done with: who asked, when, and what they wait for; withdraw those that have not started
    Triggers(TriggersArgs),
    /// Have the leader of a job hand it over, after its run
    ///
    /// The leader finishes its run as at a drain, then another replica leads. Exits with 1 when nobody leads in a later
    /// term after 40 s.
    Resign {
        /// The job
        #[arg(value_name = "JOB")]
        job: String,
        /// Which replica is to lead, by name or id; another one does when it has not taken over within a ttl
        #[arg(long, value_name = "REPLICA")]
        to: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Have a replica end its work, hand over what it leads, and go: as with SIGTERM
    ///
    /// Names one process: another one that starts later under its name is not concerned. Exits with 0 when the replica says
    /// that it drains; with --wait, when it has gone.
    Drain {
        /// The replica, by name or id
        #[arg(value_name = "REPLICA")]
        replica: String,
        /// Wait for its end, for so long at most [without a limit: for an hour]
        #[arg(long, value_name = "LIMIT", num_args = 0..=1, require_equals = true, default_missing_value = "1h", value_parser = humantime::parse_duration)]
        wait: Option<std::time::Duration>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show every lock: who holds it, under which token, for how long; end a lease by force
    Locks(LocksArgs),
    /// Print the token of the status page that a worker of this user has made
    ///
    /// It lies beside the embedded store, else in the folder for what runs, in a file for this user alone. A browser takes
    /// it as the password, under any name; other programs say it as "Authorization: Bearer TOKEN".
    Token,
    /// Look for faults: in the lock nodes, in the fleet, in the configuration
    ///
    /// Asks every node what it is and how it does, and what the replicas tell. Each fault is shown with its remedy. Exits
    /// with 1 when there is an error; warnings do not count.
    Doctor(DoctorArgs),
}

/// Options of every command.
#[derive(Clone, Debug, Default, Args)]
pub struct Global {
    /// The configuration file [default: $WATCHKEEPER_CONFIG, ./watchkeeper.toml, ./config/default.toml, /etc/watchkeeper/watchkeeper.toml]
    #[arg(long, short, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Flags that win over the file and the environment.
#[derive(Clone, Debug, Default, Args)]
pub struct Overrides {
    /// Name of this replica in lists and logs (worker.name)
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Keys of the store begin with this; one fleet, one namespace (worker.namespace)
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Where to serve the status page, health and metrics: an address, or "off" (admin.listen)
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Which log lines to write: a level, or pairs such as info,watchkeeper=debug (telemetry.log)
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<String>,
}

#[derive(Debug, Parser)]
#[command(
    version,
    about = "Runs background jobs on several replicas, each job on one of them at a time",
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// How a command ended.
pub(crate) enum Failure {
    /// The configuration; nothing was started.
    Config(Problems),
    /// The command line, in a sentence; nothing was started.
    Usage(String),
    /// Something else, in a sentence.
    Failed(String),
    /// It was said already.
    Told,
}

/// Reads the command line and does what it says. Builds its own runtime: for a plain `fn main`. Inside of a runtime it says
/// so and ends with 2.
#[must_use]
pub fn main(worker: Worker) -> ExitCode {
    let Cli { global, command } = Cli::parse();
    command.execute(&global, worker)
}

/// Reads the command line and does what it says, on the runtime of the caller: for `#[tokio::main]`. The runtime needs I/O
/// and time.
///
/// # Cancellation
/// As with [`Worker::run`]; any other command goes on to its end.
pub async fn main_async(worker: Worker) -> ExitCode {
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
        if let Self::Run(overrides) = &self {
            worker.set(global, overrides);
            return match run::run_here(worker).await {
                Ok(()) => ExitCode::SUCCESS,
                Err(failure) => failure.tell(),
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
            Self::Check { json, .. } => return check::check(&worker, json),
            Self::Config { origin, .. } => match worker.load() {
                Ok(loaded) => {
                    print(&loaded.render(origin));
                    Ok(())
                }
                Err(error) => Err(error.into()),
            },
            Self::Jobs(args) => jobs::jobs(&worker, args),
            Self::Status { json } => status::status(&worker, json),
            Self::History {
                job,
                json,
                limit,
                output,
            } => {
                let shown = history::Shown {
                    json,
                    limit: usize::from(limit),
                    output,
                };
                history::history(&worker, &job, &shown)
            }
            Self::Explain { job, at, json } => explain::explain(&worker, &job, at.as_deref(), json),
            Self::Pause { job, reason, json } => orders::pause(&worker, &job, true, &reason, json),
            Self::Resume { job, json } => orders::pause(&worker, &job, false, "", json),
            Self::Trigger {
                job,
                wait,
                param,
                params,
                json,
            } => orders::given(params, &param)
                .and_then(|given| orders::trigger(&worker, &job, given, wait, json)),
            Self::Triggers(args) => triggers::triggers(&worker, args),
            Self::Resign { job, to, json } => orders::resign(&worker, &job, to.as_deref(), json),
            Self::Drain {
                replica,
                wait,
                json,
            } => orders::drain(&worker, &replica, wait, json),
            Self::Token => token::token(&worker),
            Self::Locks(args) => locks::locks(worker, args),
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

// === impl Overrides ===

impl Overrides {
    fn flags(&self) -> impl Iterator<Item = Flag> {
        let given = [
            ("--name", "worker.name", &self.name),
            ("--namespace", "worker.namespace", &self.namespace),
            ("--listen", "admin.listen", &self.listen),
            ("--log", "telemetry.log", &self.log),
        ];
        given.into_iter().filter_map(|(name, key, value)| {
            Some(Flag {
                name: name.to_owned(),
                key: key.to_owned(),
                value: value.clone()?,
            })
        })
    }
}

// === impl Failure ===

impl Failure {
    /// Tells the user, on standard error, and answers the exit code.
    fn tell(&self) -> ExitCode {
        match self {
            Self::Config(_) | Self::Usage(_) => {
                terminal::err(&self.text());
                ExitCode::from(2)
            }
            Self::Told => ExitCode::FAILURE,
            Self::Failed(_) => {
                terminal::err(&self.text());
                ExitCode::FAILURE
            }
        }
    }

    /// What is told.
    fn text(&self) -> String {
        match self {
            Self::Config(problems) => {
                format!(
                    "{}{}; nothing was started",
                    listed(problems),
                    count(problems)
                )
            }
            Self::Usage(why) | Self::Failed(why) => format!("error: {}", paragraph(why)),
            Self::Told => String::new(),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Config(problems) => Self::Config(problems),
            other => Self::Failed(other.to_string()),
        }
    }
}

/// The configuration of a command that asks the store. Which one is taken where nobody has named one is said.
fn load(worker: &Worker) -> Result<Loaded, Failure> {
    let loaded = worker.load()?;
    note_default(&loaded);
    Ok(loaded)
}

fn note_default(loaded: &Loaded) {
    if let Some(why) = loaded.store_by_default() {
        note(&why);
    }
}

/// To standard error: what a command prints stays what it was asked for.
fn note(text: &str) {
    crate::terminal::err(&format!("note: {text}\n"));
}

/// `2 errors, 1 warning`
fn count(problems: &Problems) -> String {
    problems.tally()
}

/// A line for each problem.
fn listed(problems: &Problems) -> String {
    let line = |problem: &Problem| terminal::sentence(&problem.to_string()) + "\n";
    problems.iter().map(line).collect()
}

/// A text of several lines, none of them longer than people read.
fn paragraph(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(terminal::sentence).collect();
    lines.join("\n")
}

/// To standard output.
fn print(text: &str) {
    terminal::out(text);
}

fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    print(&json_text(value)?);
    Ok(())
}

fn json_text(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map_err(|error| Failure::Failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_error_commands_no_terminal_and_keeps_its_lines() {
        let why = "params.a\u{1b}[31m: wrong\nparams.b\r: \u{9b}wrong";
        for failure in [Failure::Usage(why.into()), Failure::Failed(why.into())] {
            assert_eq!(
                failure.text(),
                "error: params.a\\u001b[31m: wrong\nparams.b\\r: \\u009bwrong"
            );
        }
    }

    #[tokio::test]
    async fn a_command_within_a_runtime_says_what_to_call_in_its_place() {
        let worker = Worker::builder().build();
        let command = Command::Status { json: false };
        let code = command.execute(&Global::default(), worker);
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(2)));
    }

    #[test]
    fn a_flag_says_which_key_it_sets() {
        let overrides = Overrides {
            listen: Some("off".to_owned()),
            ..Overrides::default()
        };
        let flags: Vec<_> = overrides.flags().map(|f| (f.key, f.value)).collect();
        assert_eq!(flags, [("admin.listen".to_owned(), "off".to_owned())]);
    }
}
