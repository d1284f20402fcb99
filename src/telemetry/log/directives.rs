//! Which lines are logged, as it is written, and why there is no log.

use std::io;

use tracing_subscriber::{
    EnvFilter,
    filter::{LevelFilter, ParseError},
};

/// The log was not set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The directives cannot be read.
    #[error("cannot read the log directives `{directives}`")]
    Filter {
        /// As configured.
        directives: String,
        /// What is wrong with them.
        #[source]
        source: ParseError,
    },
    /// A directive is neither a level nor one for a part of the program.
    #[error(
        "\"{0}\" is no level: write error, warn, info, debug, trace or off, or TARGET=LEVEL for a part of the program"
    )]
    Directive(String),
    /// The thread that writes could not be started.
    #[error("cannot start the thread that writes the log")]
    Thread(#[source] io::Error),
    /// The program has set up a log of its own already.
    #[error("a log is already set up")]
    Taken,
}

/// Which lines these directives let through.
pub(in crate::telemetry) fn filter(written: &str) -> Result<EnvFilter, LogError> {
    let directives: Vec<&str> = written.split(',').map(str::trim).collect();
    let named = |directive: &&&str| !directive.is_empty() || directives.len() == 1;
    for directive in directives.iter().filter(named) {
        let level = directive
            .rsplit_once('=')
            .map_or(*directive, |(_, level)| level);
        if level.is_empty() || level.parse::<LevelFilter>().is_err() {
            return Err(LogError::Directive((*directive).to_owned()));
        }
    }
    let filter = EnvFilter::builder().parse(directives.join(","));
    filter.map_err(|source| LogError::Filter {
        directives: written.to_owned(),
        source,
    })
}
