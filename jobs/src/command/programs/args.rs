//! The command lines of `lock` and `elect`, and how faults in them are answered.

use std::{
    ffi::{OsStr, OsString},
    process::ExitCode,
    time::Duration,
};

use clap::{Args, error::ErrorKind};
use watchkeeper::{cli::StoreArgs, config::SecretUrl, human::duration, terminal};

use super::exit;

/// Run a command while holding a lock
///
/// Waits for the lock KEY, runs the command, releases the lock when the command and all that it started is gone, and
/// exits with the command's status. When the lease cannot be kept the command is stopped before it ends.
///
/// The lock lives where --nodes, --postgres, --etcd or --embedded say, else where the configuration does. It is the lock lock/KEY, as
/// Rust programs know it under `locks.lock(KEY)`.
#[derive(Clone, Debug, Args)]
#[command(after_help = STATUSES)]
pub(crate) struct LockArgs {
    #[command(flatten)]
    pub(super) common: Common,
}

/// Run a command while leading, stand by otherwise
///
/// Stands by until this process leads, then runs the command. When the lease is lost the command is stopped and we
/// stand by again; when the command ends by itself we hand over and exit with its status.
///
/// The lock lives where --nodes, --postgres, --etcd or --embedded say, else where the configuration does. It is the lock elect/KEY, as
/// Rust programs know it under `Elector::new(&locks, KEY)`.
#[derive(Clone, Debug, Args)]
#[command(after_help = STATUSES)]
pub(crate) struct ElectArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// When the command ends by itself, hand over and stand by again, after 1s to 30s
    #[arg(long)]
    pub(super) restart: bool,
}

const STATUSES: &str = "Exit status: that of the command, 128+n when signal n ended it; 3 not held in time (-E changes it),
125 own failure (usage, store unreachable, lease lost), 126 the command cannot be run, 127 it was not found.
The command finds WATCHKEEPER_KEY, WATCHKEEPER_TOKEN (the fencing token) and WATCHKEEPER_REPLICA in its environment.";

/// What both have in common.
#[derive(Clone, Debug, Args)]
pub(super) struct Common {
    /// What to lock
    #[arg(value_name = "KEY", value_parser = key)]
    pub(super) key: String,
    #[command(flatten)]
    pub(super) place: StoreArgs,
    /// Use KEY as the Redis key itself, to share the lock with other Redlock clients
    #[arg(long)]
    pub(super) raw: bool,
    /// How long the lease lasts without renewal; a dead holder is replaced after about this (locks.ttl)
    #[arg(long, value_name = "DURATION")]
    pub(super) ttl: Option<String>,
    /// How long to wait for the lock at most, 0s to try once and wait for no live holder [default: as long as it takes]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(super) wait: Option<Duration>,
    /// From SIGTERM to SIGKILL when the command is told to stop
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "10s")]
    pub(super) grace: Duration,
    /// Exit with this status when the lock was not held in time
    #[arg(
        short = 'E',
        long = "not-held-exit-code",
        value_name = "N",
        default_value_t = 3
    )]
    pub(super) not_held: u8,
    /// Which log lines to write: a level, or pairs such as warn,watchkeeper=debug [default: warn]
    #[arg(long, value_name = "LEVEL")]
    pub(super) log: Option<String>,
    /// Say nothing but failures and losses
    #[arg(long, short)]
    pub(super) quiet: bool,
    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(super) command: Vec<OsString>,
}

// === faults ===

/// Tells what is wrong with a command line. The status is 125 where a command's own would be passed on, else clap's.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let help = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    if help || !runs_a_program(&args) {
        error.exit();
    }
    // Rendered without colours: what is hidden must be found as it stands.
    let text = on_its_lines(&error.render().to_string(), &args);
    let text = without_secrets(&text, &args);
    terminal::err(&text);
    ExitCode::from(exit::FAILED)
}

/// Whether the command line is one of `lock` or `elect`, as far as it can be read.
fn runs_a_program(args: &[OsString]) -> bool {
    let mut args = args.iter().filter_map(|arg| arg.to_str());
    while let Some(arg) = args.next() {
        match arg {
            "-c" | "--config" | "--parent" | "--color" => drop(args.next()),
            "lock" | "elect" => return true,
            arg if arg.starts_with('-') => {}
            _ => return false,
        }
    }
    false
}

/// `text` with each of `args` on one line and no longer than a cell, so that none of them adds lines of its own.
fn on_its_lines(text: &str, args: &[OsString]) -> String {
    let mut text = text.to_owned();
    for arg in args.iter().filter_map(|arg| arg.to_str()) {
        let shown = terminal::cell(arg);
        if shown != arg {
            text = text.replace(arg, &shown);
        }
    }
    text
}

/// `text` without the passwords of addresses among `args`.
fn without_secrets(text: &str, args: &[OsString]) -> String {
    let words = args.iter().filter_map(|arg| arg.to_str());
    let words = words.flat_map(|arg| arg.split([',', '=']).chain([arg]));
    let mut text = text.to_owned();
    for word in words.filter(|word| word.contains("://") || word.contains('@')) {
        let shown = SecretUrl::new(word).to_string();
        if shown != word {
            text = text.replace(word, &shown);
        }
    }
    text
}

// === values ===

/// Characters of a key at most: it stands in every request and answer about its lock.
const LONGEST_KEY: usize = 500;

fn key(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("the key is empty".to_owned());
    }
    let length = text.chars().count();
    if length > LONGEST_KEY {
        return Err(format!(
            "{length} characters are more than {LONGEST_KEY}, the most that a key has"
        ));
    }
    if text.chars().any(char::is_control) {
        return Err("the key contains control characters".to_owned());
    }
    let addresses = [
        "redis://",
        "rediss://",
        "redis+unix://",
        "unix://",
        "sentinel://",
        "sentinels://",
        "cluster://",
        "clusters://",
    ];
    if addresses.iter().any(|scheme| text.starts_with(scheme)) {
        return Err(
            "this is an address, not a key: put commas between --nodes, or repeat the option"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

/// The program and its arguments.
pub(super) fn split(command: &[OsString]) -> (&OsStr, &[OsString]) {
    match command.split_first() {
        Some((program, args)) => (program, args),
        None => (OsStr::new(""), &[]),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        lock: ElectArgs,
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn parse(line: &str) -> Result<Common, clap::Error> {
        let words = [OsString::from("elect")].into_iter().chain(words(line));
        Cli::try_parse_from(words).map(|cli| cli.lock.common)
    }

    #[test]
    fn a_raw_key_may_have_a_namespace_of_its_own() {
        let common = parse("--raw --namespace theirs order:42 -- true").unwrap();
        assert!(common.raw && common.place.namespace.as_deref() == Some("theirs"));
    }

    #[test]
    fn a_key_has_a_length_and_an_argument_stays_on_its_line() {
        let key = |length| parse(&format!("{} -- true", "k".repeat(length)));
        assert!(key(LONGEST_KEY).is_ok());
        let error = key(120_000).unwrap_err().render().to_string();
        let args = words(&format!("elect {} -- true", "k".repeat(120_000)));
        let shown = on_its_lines(&error, &args);
        assert!(shown.contains("120000 characters are more than 500"));
        assert!(shown.len() < 1000, "{shown}");
        let args = words("elect a\nerror:\u{1b}b --");
        let said = "invalid value 'a\nerror:\u{1b}b' for KEY\n";
        let shown = on_its_lines(said, &args);
        assert_eq!(shown, "invalid value 'a\\nerror:\\u001bb' for KEY\n");
    }

    #[test]
    fn the_command_begins_after_two_hyphens() {
        let args =
            parse("k -E 9 --wait 2s --nodes redis://a,redis://b --nodes redis://c -- ls --wait -l")
                .unwrap();
        assert_eq!(args.command, words("ls --wait -l"));
        assert_eq!(
            (args.not_held, args.wait),
            (9, Some(Duration::from_secs(2)))
        );
        assert_eq!(args.place.nodes, ["redis://a", "redis://b", "redis://c"]);
        assert_eq!(args.grace, Duration::from_secs(10));
        assert!(parse("k ls").is_err() && parse("k --").is_err() && parse("-- ls").is_err());
        assert!(parse("k -E 256 -- ls").is_err() && parse("k --wait 2 -- ls").is_err());
        assert!(parse("k --embedded f --nodes redis://a -- ls").is_err());
        let args = parse("k --etcd http://a:2379 --etcd http://b:2379 -- ls").unwrap();
        assert_eq!(args.place.etcd, ["http://a:2379", "http://b:2379"]);
        for other in [
            "--embedded f",
            "--nodes redis://a",
            "--postgres postgres://a",
        ] {
            assert!(parse(&format!("k --etcd http://a:2379 {other} -- ls")).is_err());
        }
    }

    #[test]
    fn a_key_is_neither_empty_nor_an_address() {
        assert!(key("nightly report/é").is_ok() && key("https://example.org/feed").is_ok());
        for wrong in ["", "a\nb", "\u{7f}", "redis://:pw@a"] {
            assert!(key(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_wrong_usage_is_ours_only_where_a_status_is_passed_on() {
        for ours in [
            "lock",
            "-c f elect k",
            "--config=f lock --nonsense",
            "--config f lock k -- run",
        ] {
            assert!(runs_a_program(&words(ours)), "{ours}");
        }
        for other in ["run lock", "", "-c lock run", "status --json elect"] {
            assert!(!runs_a_program(&words(other)), "{other}");
        }
    }

    #[test]
    fn passwords_are_not_repeated() {
        let line = "k --nodes redis://a redis://:hunter2@b -- ls";
        let said = parse(line).unwrap_err().render().to_string();
        assert!(said.contains("hunter2"), "clap would: {said}");
        let said = without_secrets(&said, &words(line));
        assert!(
            !said.contains("hunter2") && said.contains("redis://:***@b"),
            "{said}"
        );
        let said = without_secrets(
            "no redis://u:pw@b!",
            &words("lock --nodes=redis://a,redis://u:pw@b"),
        );
        assert_eq!(said, "no redis://u:***@b!");
    }
}
