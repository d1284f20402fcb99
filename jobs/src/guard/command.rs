//! A command under a guard, as whoever starts it sees it.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use watchkeeper::lease::LeaseView;

/// A program to be run under a guard.
#[derive(Clone, Debug)]
pub struct Command {
    /// What to run: a path, or a name that is looked for in `PATH`.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Where it runs; the worker's own directory unless set.
    pub cwd: Option<PathBuf>,
    /// Starts from an empty environment instead of the worker's.
    pub clear_env: bool,
    /// Variables set on top.
    pub env: Vec<(OsString, OsString)>,
    /// Variables taken away from the worker's.
    pub without_env: Vec<OsString>,
    /// What becomes of its input and output.
    pub output: Output,
    /// From SIGTERM to SIGKILL at most; less when the lease ends before.
    pub grace: Duration,
}

/// What becomes of a command's input and output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Input, output and errors are those of this process, and so is its terminal.
    Inherit,
    /// No input; the beginning and the end of output and errors are kept, this many bytes in all.
    Capture(usize),
}

/// A command that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no such program.
    #[error("there is no program {program}{hint}")]
    NotFound {
        /// The program as it was asked for.
        program: String,
        /// Where it was looked for.
        hint: String,
    },
    /// It is there but cannot be run.
    #[error("{program} cannot be run: {why}")]
    NotExecutable {
        /// The program as it was asked for.
        program: String,
        /// The system's reason.
        why: String,
    },
    /// The working directory cannot be entered.
    #[error("the working directory {path} cannot be entered: {why}")]
    Directory {
        /// The directory.
        path: String,
        /// The system's reason.
        why: String,
    },
    /// The guard could not be started or has failed.
    #[error("the guard process failed: {0}")]
    Guard(String),
}

/// A running command. Dropping it ends the command at once; the lease is not let go before the command is gone.
#[derive(Debug)]
pub struct Guarded {
    pid: u32,
}

/// How a command ended. By then every process it started is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Its exit status.
    pub status: Status,
    /// Who ended it.
    pub cause: Cause,
    /// Processes it left behind, which were ended, too.
    pub left_behind: usize,
    /// What was captured, as text; empty when nothing was to be.
    pub output: String,
    /// Bytes written to output and errors in all, as far as captured output was asked for.
    pub written: u64,
}

/// An exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It exited with this status.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

/// Who ended a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It ended by itself.
    Itself,
    /// Its owner asked for it: [`Guarded::terminate`] or [`Guarded::kill`].
    Asked,
    /// Its lease was about to end.
    Deadline,
}

// === impl StartError ===

impl StartError {
    /// The exit status with which env(1) and the shells answer this: 127 not found, 126 cannot be run, 125 else.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::Directory { .. } | Self::Guard(_) => 125,
        }
    }
}

// === impl Status ===

impl Status {
    /// As a shell shows it: the code, or 128 and the signal's number.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match *self {
            Self::Code(code) => u8::try_from(code).unwrap_or(u8::MAX),
            Self::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }
}

// === impl Command ===

impl Command {
    /// Starts the command under a guard that ends it before the first of `leases` does. Without leases it runs until it
    /// ends by itself, is told to stop, or this process is gone.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    pub async fn start(self, leases: Vec<LeaseView>) -> Result<Guarded, StartError> {
        drop(leases);
        Err(StartError::Guard("not there yet".to_owned()))
    }
}

// === impl Guarded ===

impl Guarded {
    /// The command's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Tells the command and everything it started to end (SIGTERM); what is left after `grace` is killed. Calling it
    /// again can only shorten the grace.
    pub fn terminate(&self, grace: Duration) {
        drop(grace);
    }

    /// Ends the command and everything it started now (SIGKILL).
    pub fn kill(&self) {
        self.terminate(Duration::ZERO);
    }

    /// Waits until the command and everything it started is gone. Cancel-safe; asks for nothing.
    pub async fn ended(&self) -> End {
        std::future::pending().await
    }
}
