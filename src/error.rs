//! Why a worker did not start, or ended.

use std::{fmt, path::PathBuf};

use crate::{config::Problems, escape, lock::LockError};

/// Why a worker did not start, or ended.
///
/// `Debug` writes what `Display` does, in the words of the command `check`: it is what Rust prints of an error that `main`
/// returns. Of a faulty configuration that is a line for each problem, with its place and its remedy. Characters that would
/// command a terminal are written as JSON writes them: `\u001b`.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration has errors; nothing was started.
    #[error("{0}")]
    Config(Problems),
    /// The store could not be opened; nothing was started.
    #[error("cannot open the store {store}: {why}")]
    Store {
        /// Which, without credentials.
        store: String,
        /// Why, and what to do.
        why: String,
    },
    /// Another process keeps the embedded store locked that has to be made first; nothing was started. It may pass.
    #[error("cannot open the store {store}: another process keeps it locked")]
    StoreLocked {
        /// The file.
        store: String,
    },
    /// The status page could not be served; nothing was started.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The configured address.
        address: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A job cannot be made from its configuration; nothing was started.
    #[error("job {name}: {why}")]
    Job {
        /// The job.
        name: String,
        /// Why.
        why: String,
    },
    /// The lock service failed in a way that waiting cannot cure.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The replica has ended by a panic: nothing runs here any more.
    #[error("the replica has died: {why}")]
    Died {
        /// What the panic says.
        why: String,
    },
    /// Threads or signals could not be set up.
    #[error("cannot set up the process: {0}")]
    Process(#[source] std::io::Error),
}

/// A result with [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(problems) => {
                let text = format!("{}; nothing was started\n{problems}", problems.tally());
                f.write_str(&escape::lines(&text))
            }
            other => f.write_str(&escape::lines(&other.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LoadOptions, load};

    #[test]
    fn what_main_prints_of_a_faulty_configuration_is_what_check_says() {
        let options = LoadOptions {
            env: vec![
                ("WATCHKEEPER_LOCKS__TTL".to_owned(), "40s".to_owned()),
                ("WATCHKEEPER_WORKER__THREADS".to_owned(), "0".to_owned()),
            ],
            root: std::env::temp_dir().join("nothing-is-here"),
            ..LoadOptions::default()
        };
        let problems = load(&options).unwrap_err();
        let said = problems.to_string();
        let printed = format!("Error: {:?}", Error::Config(problems));
        let (head, lines) = printed.split_once('\n').unwrap();
        assert_eq!(head, "Error: 2 errors; nothing was started");
        assert_eq!(lines, said);
        assert!(
            lines.contains("locks.ttl: 40s is longer than max_ttl (30s)"),
            "{lines}"
        );
    }

    #[test]
    fn what_main_prints_commands_no_terminal() {
        let error = Error::Job {
            name: "a\u{1b}[31m\u{202e}\u{200b}".to_owned(),
            why: "no\u{9b}ne\u{2028}\u{feff}\u{e0041}".to_owned(),
        };
        assert_eq!(
            format!("{error:?}"),
            "job a\\u001b[31m\\u202e\\u200b: no\\u009bne\\u2028\\ufeff\\udb40\\udc41"
        );
    }
}
