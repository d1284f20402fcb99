//! The commands of the `watchkeeper` program: those of every worker, and its own.
//!
//! In reading order: [`demo`] (three replicas, and the death of a leader), [`notify`] (what a person does with
//! notifications that do not go by themselves), [`programs`] (`lock` and `elect`: any program under a lease).

mod demo;
mod notify;
mod programs;

use std::{process::ExitCode, time::Duration};

use clap::{Parser, Subcommand};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use serde::de::IntoDeserializer;
use serde_json::Value;
use watchkeeper::{
    Worker,
    cli::{Command, Global},
    config::{LoadOptions, ParamProblem},
    human, terminal,
};

use crate::{Exec, Heartbeat, Http, KINDS, Notifications, check_params, guard};

#[derive(Debug, Parser)]
#[command(
    name = "watchkeeper",
    version,
    about = "Runs background jobs on several replicas, each job on one of them at a time",
    after_help = "Try it:\n  watchkeeper demo\nOr in two terminals, then kill one of them:\n  watchkeeper run --config config/local.toml\n  watchkeeper status --config config/local.toml",
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    /// Die with this process; for the replicas of the demonstration
    #[arg(long, hide = true, value_name = "PID")]
    parent: Option<u32>,
    #[command(subcommand)]
    command: All,
}

#[derive(Debug, Subcommand)]
enum All {
    #[command(flatten)]
    Worker(Command),
    #[command(display_order = 0)]
    Demo(demo::DemoArgs),
    Notify(notify::NotifyArgs),
    Lock(programs::LockArgs),
    Elect(programs::ElectArgs),
}

/// The whole program.
pub(crate) fn main() -> ExitCode {
    // First of all: this process may have been started to guard a command.
    if let Some(ended) = guard::serve_if_asked() {
        return ended;
    }
    // Passwords stand in our environment and in our memory. Neither a core, which an abort could leave, nor another process
    // of this user, such as a command that we run, is to have them.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // Before anything makes a client. It fails when a provider is set already, which would do as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let Cli {
        global,
        parent,
        command,
    } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return programs::usage(&error),
    };
    if let Some(parent) = parent
        && let Err(error) = demo::die_with(parent)
    {
        terminal::err(&format!("error: {error}"));
        return ExitCode::FAILURE;
    }
    match command {
        All::Demo(args) => demo::main(&args),
        All::Lock(args) => programs::lock(&global, args),
        All::Elect(args) => programs::elect(&global, args),
        All::Notify(args) => {
            let mut options = LoadOptions::from_process();
            options.file.clone_from(&global.config);
            notify::main(&stock_worker(options), args)
        }
        All::Worker(command) => command.execute(&global, stock_worker(LoadOptions::from_process())),
    }
}

/// Parameters of stock jobs that the configuration alone may say.
const FIXED: [(&str, &[&str]); 3] = [
    ("exec", &["command", "cwd", "env", "inherit_env"]),
    ("heartbeat", &["file"]),
    ("http", &["url", "method", "headers", "header_files"]),
];

/// Stock jobs whose runs never say how far they are.
const SILENT: [&str; 3] = ["exec", "heartbeat", "http"];

/// A worker that knows the stock kinds of jobs.
fn stock_worker(options: LoadOptions) -> Worker {
    let worker = Worker::with(options);
    let events = worker.events().clone();
    let mut worker = worker
        .kind("exec", Exec::new)
        .kind("heartbeat", Heartbeat::new)
        .kind("http", Http::new)
        .batch_kind("notifications", move |params| {
            Notifications::new(params, Some(events.clone()))
        });
    // Whoever may trigger a job may not thereby run programs, write files or send secrets elsewhere.
    for (kind, keys) in FIXED {
        worker = worker.fixed_params(kind, keys);
    }
    for kind in SILENT {
        worker = worker.tells_no_progress(kind);
    }
    for kind in KINDS {
        worker = worker.check_params(kind, move |params| problems(kind, params));
    }
    worker
}

fn problems(kind: &str, params: &Value) -> Vec<ParamProblem> {
    let found = check_params(kind, params).into_iter();
    let problem = |(key, message)| ParamProblem {
        key,
        message,
        remedy: String::new(),
    };
    found.map(problem).collect()
}

/// A duration on a command line, written as in the configuration.
fn duration(text: &str) -> Result<Duration, String> {
    human::duration::deserialize(text.into_deserializer())
        .map_err(|error: serde::de::value::Error| error.to_string())
}
