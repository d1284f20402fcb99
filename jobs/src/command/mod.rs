//! The commands of the `watchkeeper` program: those of every worker, and its own.
//!
//! In reading order: [`demo`] (three replicas, and the death of a leader), [`notify`] (what a person does with
//! notifications that do not go by themselves), [`programs`] (`lock` and `elect`: any program under a lease), [`completions`] and
//! [`manual`] (what shells and `man` read of all of them).

mod completions;
mod demo;
mod manual;
mod notify;
mod programs;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use watchkeeper::{
    Worker,
    cli::{Command, Global},
    config::LoadOptions,
    terminal,
};

use crate::{add_to, guard};

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
    #[command(hide = true)]
    ServeForDemo(demo::ServeArgs),
    Notify(notify::NotifyArgs),
    Lock(programs::LockArgs),
    Elect(programs::ElectArgs),
    Completions(completions::CompletionsArgs),
    Man(manual::ManArgs),
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
    terminal::tame_panics();
    let Cli {
        global,
        parent,
        command,
    } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return programs::usage(&error),
    };
    terminal::prefer(global.color.unwrap_or_default());
    if let Some(parent) = parent
        && let Err(error) = demo::die_with(parent)
    {
        terminal::err(&format!("error: {error}"));
        return ExitCode::FAILURE;
    }
    match command {
        All::Demo(args) => demo::main(&args),
        All::ServeForDemo(args) => demo::serve(&args),
        All::Lock(args) => programs::lock(&global, args),
        All::Elect(args) => programs::elect(&global, args),
        All::Completions(args) => completions::print(Cli::command(), &args),
        All::Man(args) => manual::write(Cli::command(), &args),
        All::Notify(args) => {
            let mut options = LoadOptions::from_process();
            options.file.clone_from(&global.config);
            notify::main(&add_to(Worker::with(options)), args)
        }
        All::Worker(command) => {
            command.execute(&global, add_to(Worker::with(LoadOptions::from_process())))
        }
    }
}
