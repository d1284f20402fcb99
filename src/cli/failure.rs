//! How a command fails, and what the user is told of it.

use std::{fmt::Display, process::ExitCode};

use crate::{
    config::{Problem, Problems},
    error::Error,
    terminal,
};

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

// === impl Failure ===

impl Failure {
    /// What an error says, on one line, whatever names of others it quotes.
    pub(super) fn of(error: impl Display) -> Self {
        Self::Failed(terminal::sentence(&error.to_string()))
    }

    /// Tells the user, on standard error, and answers the exit code.
    pub(super) fn tell(&self) -> ExitCode {
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
    pub(super) fn text(&self) -> String {
        match self {
            Self::Config(problems) => {
                let count = problems.tally();
                format!("{}{count}; nothing was started", listed(problems))
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
            other => Self::of(other),
        }
    }
}

/// A line for each problem.
pub(super) fn listed(problems: &Problems) -> String {
    let line = |problem: &Problem| terminal::sentence(&problem.to_string()) + "\n";
    problems.iter().map(line).collect()
}

/// A text of several lines, none of them longer than people read.
pub(super) fn paragraph(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(terminal::sentence).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
