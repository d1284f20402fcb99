//! The command line: every command with its options.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::{doctor::DoctorArgs, jobs::JobsArgs, locks::LocksArgs, triggers::TriggersArgs};
use crate::{config::Flag, human::duration};

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
        /// Ask no database whether it is there and fits
        #[arg(long)]
        offline: bool,
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
    ///
    /// A job with shards is one line, with how many of them are led, fail or are paused.
    Status {
        /// Show each shard of a job, too
        #[arg(long)]
        shards: bool,
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
        /// The reason that the status shows
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
    /// Exits with 0 when the job's leader has accepted it, with 1 when no leader has yet: it stays asked for, for a day.
    /// With --wait 0 means that it was done.
    Trigger {
        /// The job
        #[arg(value_name = "JOB")]
        job: String,
        /// Wait for its end, for so long at most [without a limit: for a day]
        #[arg(long, value_name = "LIMIT", num_args = 0..=1, require_equals = true, default_missing_value = "1d", value_parser = duration::parse)]
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
    /// The leader finishes its run as at a drain, then another replica leads. Exits with 1 when no replica leads in a
    /// later term after 40 s.
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
    /// Names one process: a process that starts later under the same name is not concerned. Exits with 0 when the replica says
    /// that it drains; with --wait, when it has gone.
    Drain {
        /// The replica, by name or id
        #[arg(value_name = "REPLICA")]
        replica: String,
        /// Wait for its end, for so long at most [without a limit: for an hour]
        #[arg(long, value_name = "LIMIT", num_args = 0..=1, require_equals = true, default_missing_value = "1h", value_parser = duration::parse)]
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
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) global: Global,
    #[command(subcommand)]
    pub(super) command: Command,
}

// === impl Overrides ===

impl Overrides {
    pub(super) fn flags(&self) -> impl Iterator<Item = Flag> {
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
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

    #[test]
    fn a_limit_is_written_as_durations_are_everywhere() {
        let wait = |text: &str| {
            let read =
                Cli::try_parse_from(["watchkeeper", "trigger", "report", &format!("--wait{text}")]);
            match read.map(|cli| cli.command) {
                Ok(Command::Trigger { wait, .. }) => wait.map(|limit| limit.as_secs()),
                _ => None,
            }
        };
        for (text, secs) in [
            ("=PT1M", 60),
            ("=1d", 86_400),
            ("=1h 30m", 5_400),
            ("", 86_400),
        ] {
            assert_eq!(wait(text), Some(secs), "{text}");
            let configured: crate::human::Span = match text.strip_prefix('=') {
                Some(text) => serde_json::from_value(text.into()).unwrap(),
                None => continue,
            };
            assert_eq!(configured.0.as_secs(), secs, "{text}");
        }
        assert_eq!(wait("=10"), None, "without a unit");
    }
}
