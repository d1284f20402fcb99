//! The command line: every command with its options.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::{
    doctor::DoctorArgs, history::HistoryArgs, jobs::JobsArgs, locks::LocksArgs, moving::MoveArgs,
    triggers::TriggersArgs, watch::every,
};
use crate::{config::Flag, human::duration, terminal::When};

/// What every program with these commands can do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run a replica until SIGTERM or Ctrl-C
    ///
    /// Reads and checks the configuration, then takes part in the fleet: stands for election for each job, fires ticks
    /// and claims batches. SIGTERM drains: running work is finished while its locks are still extended in the
    /// background, then they are handed over. A second SIGTERM ends the process at once. SIGUSR1 writes the status to the log.
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
    ///
    /// With --watch it goes on until Ctrl-C, also while the store does not answer. On a terminal the picture is drawn again in its
    /// place, as large as the window is; elsewhere it is printed whenever something in it has changed.
    Status {
        /// Show each shard of a job, too
        #[arg(long)]
        shards: bool,
        /// Look again and again, with so many seconds between two looks [without a number: 2]
        #[arg(long, short, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2", value_parser = every)]
        watch: Option<std::time::Duration>,
        /// Print JSON; with --watch a line of it for each change
        #[arg(long)]
        json: bool,
    },
    /// Show the last runs of a job, or of all jobs: when, where, how they ended
    ///
    /// The last 100 runs of a job are kept. Of one job the newest is shown last, of all jobs first. Times are UTC. Of a job that
    /// works in batches each replica keeps 100 records: those that failed or left something behind singly, the others counted
    /// together. However many jobs there are, the histories of 200 of them are read at most: those that ran last, as far as the
    /// replicas tell.
    History(HistoryArgs),
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
    /// do. With --all each job that a replica has or the configuration names gets a pause of its own; a job that comes later is not
    /// paused. Exits with 1 then when some could not be paused.
    Pause {
        /// The job
        #[arg(value_name = "JOB", required_unless_present = "all")]
        job: Option<String>,
        /// All jobs
        #[arg(long, conflicts_with = "job")]
        all: bool,
        /// The reason that the status shows; needed with --all
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
        /// Do not ask whether all are meant
        #[arg(long, short)]
        yes: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// End the pause of a job; it goes on with its next tick
    ///
    /// With --all every pause ends that stands, also of jobs that were paused alone. Exits with 1 then when some could not be ended.
    Resume {
        /// The job
        #[arg(value_name = "JOB", required_unless_present = "all")]
        job: Option<String>,
        /// All jobs that are paused
        #[arg(long, conflicts_with = "job")]
        all: bool,
        /// Do not ask whether all are meant
        #[arg(long, short)]
        yes: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a job once, now: as soon as nothing else of it runs, also when it is paused
    ///
    /// Exits with 0 when the job's leader has accepted it, with 1 when no leader has yet: it stays asked for, for a day.
    /// With --wait or --follow 0 means that it was done. Ctrl-C ends the command, and not the run.
    Trigger(TriggerArgs),
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
    /// Carry over to another store what the fleet has decided of its ticks
    ///
    /// For a fleet that moves, after the last worker on the old store has ended and before the first one starts on the new:
    /// the ledger of every job, pauses, and triggers that have not run. Ticks that fell due meanwhile are then late in the new
    /// store as they would have been in the old one. A new server has no vote for locks.max_ttl, which this waits for.
    /// Nothing is removed from the old store; histories stay there. Nothing is replaced in the new one, and what was moved
    /// before is known, so that it can be given again. Every node of the new store must answer, and a majority of the old one.
    /// Exits with 1 when not all of it was carried over.
    ///
    /// Where the version that reads the old store does not know the layout of the new one, it goes by way of a file: --out with
    /// the version before, then --in with the new one. The file is for its user alone: it has the parameters of triggers. A
    /// file that was cut or damaged is refused as a whole. It also serves as a backup, whose ticks since then run once more.
    Move(MoveArgs),
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
    /// Colours [default: auto; with NO_COLOR never, with CLICOLOR_FORCE always]
    #[arg(long, global = true, value_name = "WHEN")]
    pub color: Option<When>,
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

/// `watchkeeper trigger`
#[derive(Clone, Debug, Args)]
pub struct TriggerArgs {
    /// The job
    #[arg(value_name = "JOB")]
    pub(super) job: String,
    /// Wait for its end, for so long at most [without a limit: for a day]
    #[arg(long, value_name = "LIMIT", num_args = 0..=1, require_equals = true, default_missing_value = "1d", value_parser = duration::parse)]
    pub(super) wait: Option<std::time::Duration>,
    /// Wait for its end, and tell each attempt, how far it is, and what it has left to read when it has ended
    #[arg(long, short, conflicts_with = "wait")]
    pub(super) follow: bool,
    /// Follow it for so long at most; its run goes on [default: 1d]
    #[arg(long, value_name = "LIMIT", requires = "follow", value_parser = duration::parse)]
    pub(super) timeout: Option<std::time::Duration>,
    /// A parameter for this run and its retries, in the place of the configured one; repeat it for more. The value is read
    /// as JSON where it is JSON, and is a text elsewhere
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) param: Vec<String>,
    /// The same as a JSON object; "-" reads it from standard input, for what others must not see in a list of processes
    #[arg(long, value_name = "JSON")]
    pub(super) params: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
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
    fn the_pause_between_two_looks_is_a_number_of_seconds_or_a_duration() {
        let watch = |text: &str| {
            let read = Cli::try_parse_from(["watchkeeper", "status", &format!("--watch{text}")]);
            match read.map(|cli| cli.command) {
                Ok(Command::Status { watch, .. }) => watch.map(|every| every.as_millis()),
                _ => None,
            }
        };
        for (text, millis) in [
            ("", Some(2_000)),
            ("=5", Some(5_000)),
            ("=0.5", Some(500)),
            ("=1m", Some(60_000)),
            ("=0", None),
            ("=-1", None),
            ("=NaN", None),
            ("=often", None),
        ] {
            assert_eq!(watch(text), millis, "{text}");
        }
    }

    #[test]
    fn a_history_is_of_one_job_or_of_those_with_such_a_name() {
        let read = |words: &[&str]| {
            let words = [&["watchkeeper", "history"][..], words].concat();
            match Cli::try_parse_from(words).map(|cli| cli.command) {
                Ok(Command::History(args)) => Some(args),
                _ => None,
            }
        };
        let all = read(&[]).unwrap();
        assert_eq!((all.job, all.limit), (None, 20));
        let some = read(&["--job", "mail-*", "--outcome", "failed,timeout"]).unwrap();
        assert_eq!(some.jobs.as_deref(), Some("mail-*"));
        assert_eq!(some.outcome, ["failed", "timeout"]);
        assert!(read(&["mail", "--follow"]).is_some_and(|args| args.follow));
        for wrong in [
            &["mail", "--job", "m*"][..],
            &["--outcome", "fialed"],
            &["--follow"],
        ] {
            assert!(read(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn a_limit_is_written_as_durations_are_everywhere() {
        let wait = |text: &str| {
            let read =
                Cli::try_parse_from(["watchkeeper", "trigger", "report", &format!("--wait{text}")]);
            match read.map(|cli| cli.command) {
                Ok(Command::Trigger(args)) => args.wait.map(|limit| limit.as_secs()),
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
