//! A command under a guard, as its caller sees it.

use std::{
    env,
    ffi::OsString,
    fmt, io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use rustix::{
    fs::{Mode, OFlags},
    termios::tcgetpgrp,
};
use tokio::sync::{oneshot, watch};
use watchkeeper::{chance::Chance, lease::LeaseView};

use super::{
    end::End,
    message::{Failure, Kind, Order, Step, Text, Times},
    procs::own_group,
    role::{GUARD, PROGRAM, can_serve},
    watch::{Leash, Watch, Written},
};

/// A program to be run under a guard.
#[derive(Clone)]
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
    /// Variables taken away from the worker's; the guard does not get them either.
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
    /// The lease is over, or nothing new may start under it.
    #[error("the lease is over: nothing was started")]
    LeaseOver,
    /// The guard could not be started or has failed.
    #[error("the guard process failed: {0}")]
    Guard(String),
}

/// A running command. Dropping it ends the command at once; the lease is not let go before the command is gone.
#[derive(Debug)]
pub struct Guarded {
    pid: u32,
    leash: Leash,
    written: Written,
    end: watch::Receiver<Option<End>>,
}

// === impl StartError ===

impl StartError {
    /// The exit status with which env(1) and the shells answer this: 127 not found, 126 cannot be run, 125 else.
    #[doc(hidden)] // for the command
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::Directory { .. } | Self::LeaseOver | Self::Guard(_) => 125,
        }
    }
}

// === impl Command ===

impl Command {
    /// `program` with `args`, with the environment, the directory, input and output of this process, and 10 seconds of
    /// grace.
    #[must_use]
    pub fn new(program: impl Into<OsString>, args: impl IntoIterator<Item = OsString>) -> Self {
        Self {
            program: program.into(),
            args: args.into_iter().collect(),
            cwd: None,
            clear_env: false,
            env: Vec::new(),
            without_env: Vec::new(),
            output: Output::Inherit,
            grace: Duration::from_secs(10),
        }
    }

    /// Starts the command under a guard that ends it before the first of `leases` does. Without leases it runs until it
    /// ends by itself, is told to stop, or this process is gone. Dropping the future ends what has started.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    pub async fn start(self, leases: Vec<LeaseView>) -> Result<Guarded, StartError> {
        if !can_serve() {
            let why = "this program does not call watchkeeper_jobs::guard::serve_if_asked";
            return Err(StartError::Guard(why.to_owned()));
        }
        // Before the first look at them: a lease that is released from here on waits for us.
        let works = leases.iter().map(LeaseView::begin_work).collect();
        for lease in &leases {
            // Nothing starts after a freeze before the lease is confirmed.
            if lease.startable().await.is_err() {
                return Err(StartError::LeaseOver);
            }
        }
        let failed = |error: io::Error| StartError::Guard(error.to_string());
        let mark = mark();
        let order = self.order(&mark);
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let (spawn, output) = self.guard(theirs).map_err(failed)?;
        let leash = Leash::new(ours);
        let (end_tx, end) = watch::channel(None);
        let (started_tx, started) = oneshot::channel();
        let limit = match self.output {
            Output::Capture(limit) => limit,
            Output::Inherit => 0,
        };
        let written = Written::new(limit);
        let (held, taken) = (leash.clone(), written.clone());
        let watch = Watch::new(held, leases, works, output, taken, mark);
        // From here on dropping the handle ends whatever has started.
        let mut guarded = Guarded {
            pid: 0,
            leash,
            written,
            end,
        };
        std::thread::Builder::new()
            .name("watchkeeper-guarded".to_owned())
            .spawn(move || watch.run(spawn, order, started_tx, &end_tx))
            .map_err(failed)?;
        match started.await {
            Ok(Ok(pid)) => {
                guarded.pid = pid;
                Ok(guarded)
            }
            Ok(Err(failure)) => Err(self.error(failure)),
            Err(_) => Err(StartError::Guard("it ended without a word".to_owned())),
        }
    }

    /// The guard process, not started yet, and where its output comes out.
    fn guard(
        &self,
        control: UnixStream,
    ) -> io::Result<(std::process::Command, Option<io::PipeReader>)> {
        use std::os::unix::process::CommandExt;

        let mut guard = std::process::Command::new(PROGRAM);
        guard.arg0(GUARD).stdin(Stdio::from(OwnedFd::from(control)));
        // It would hold them for as long as the command runs, for every process that may look at it.
        for name in &self.without_env {
            guard.env_remove(name);
        }
        if self.output == Output::Inherit {
            return Ok((guard, None));
        }
        // One pipe for both, so that their lines stay in order.
        let (reader, writer) = io::pipe()?;
        guard.stdout(writer.try_clone()?).stderr(writer);
        Ok((guard, Some(reader)))
    }

    fn order(&self, mark: &str) -> Order {
        let text = |text: &OsString| Text::from(text.as_os_str());
        let mut env: Vec<_> = self.env.iter().map(|(k, v)| (text(k), text(v))).collect();
        env.push((text(&MARK.into()), text(&mark.into())));
        Order {
            program: text(&self.program),
            args: self.args.iter().map(text).collect(),
            cwd: self.cwd.as_ref().map(|cwd| Text::from(cwd.as_os_str())),
            clear_env: self.clear_env,
            env,
            without_env: self.without_env.iter().map(text).collect(),
            group: match self.output {
                Output::Inherit => terminal_group(),
                Output::Capture(_) => None,
            },
            times: Times::NEVER,
            grace: self.grace,
            parent: 0,
        }
    }

    fn error(&self, failure: Failure) -> StartError {
        let program = self.program.to_string_lossy().into_owned();
        let Failure { step, kind, why } = failure;
        match (step, kind) {
            (Step::Guard, _) => StartError::Guard(why),
            (Step::Lease, _) => StartError::LeaseOver,
            (Step::Directory, _) => {
                let path = self.cwd.clone().unwrap_or_default();
                let path = path.display().to_string();
                StartError::Directory { path, why }
            }
            (Step::Exec, Kind::NotFound) => {
                let hint = if program.contains('/') {
                    " (or the interpreter that its first line names)"
                } else {
                    " in PATH"
                };
                StartError::NotFound {
                    program,
                    hint: hint.to_owned(),
                }
            }
            (Step::Exec, Kind::Other) => StartError::NotExecutable { program, why },
        }
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments and variables may be secrets.
        f.debug_struct("Command")
            .field("program", &self.program)
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

// === impl Guarded ===

impl Guarded {
    /// The command's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Bytes of captured output so far.
    pub(crate) fn written(&self) -> u64 {
        self.written.bytes()
    }

    /// The same, and the last line of it that is not empty.
    pub(crate) fn last_line(&self) -> (u64, Option<String>) {
        self.written.last_line()
    }

    /// What is kept of captured output so far.
    pub(crate) fn text(&self) -> String {
        self.written.text()
    }

    /// Tells the command and everything it started to end (SIGTERM); what is left after `grace` is killed. Calling it
    /// again can only shorten the grace.
    pub fn terminate(&self, grace: Duration) {
        self.leash.stop(grace);
    }

    /// Ends the command and everything it started now (SIGKILL).
    pub fn kill(&self) {
        self.leash.stop(Duration::ZERO);
    }

    /// Waits until the command and everything it started is gone. Cancel-safe; asks for nothing.
    pub async fn ended(&self) -> End {
        let mut end = self.end.clone();
        match end.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or_else(End::lost),
            Err(_) => End::lost(),
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if self.end.borrow().is_none() {
            self.kill();
        }
    }
}

// === helpers ===

/// Marks every process that descends from a command, so that they can be found when the guard is lost.
const MARK: &str = "WATCHKEEPER_GUARD";

/// A mark of our own, after those of the guards that we run under ourselves.
fn mark() -> String {
    let own: String = Chance::system().id().chars().take(16).collect();
    match env::var(MARK) {
        Ok(outer) => format!("{outer}:{own}"),
        Err(_) => own,
    }
}

/// Our process group, when the terminal listens to it: then the command must be in it, too, to read from there.
fn terminal_group() -> Option<i32> {
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?;
    let front = tcgetpgrp(terminal).ok()?;
    (own_group() == Some(front)).then(|| front.as_raw_nonzero().get())
}
