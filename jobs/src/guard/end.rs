//! How a command ended.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How a command ended. By then every process it started is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Its exit status.
    pub status: Status,
    /// Who ended it.
    pub cause: Cause,
    /// Processes it left behind, which were ended, too.
    pub left_behind: usize,
    /// By how much it has outlived its lease, because the system did not let its guard act in time.
    pub overran: Duration,
    /// What was captured, as text; empty when nothing was to be.
    pub output: String,
    /// Bytes written to output and errors in all, as far as captured output was asked for.
    pub written: u64,
}

/// An exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// It exited with this status.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

/// Who ended a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// It ended by itself.
    Itself,
    /// Its owner asked for it: [`Guarded::terminate`](super::Guarded::terminate) or [`Guarded::kill`](super::Guarded::kill).
    Asked,
    /// Its lease was about to end.
    Deadline,
    /// Its guard has died, or did not act in time, and it was killed.
    GuardLost,
}

// === impl Status ===

impl Status {
    /// As a shell shows it: the code, or 128 and the signal's number.
    #[doc(hidden)] // for the command
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match *self {
            Self::Code(code) => u8::try_from(code).unwrap_or(u8::MAX),
            Self::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }
}

// === impl End ===

impl End {
    /// What is known when the guard has not told.
    pub(super) fn lost() -> Self {
        Self {
            status: Status::Signal(9),
            cause: Cause::GuardLost,
            left_behind: 0,
            overran: Duration::ZERO,
            output: String::new(),
            written: 0,
        }
    }
}
