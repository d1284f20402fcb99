//! The replicas: child processes that can be killed, frozen, thawed and asked to end, and that never outlive us.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use watchkeeper::clock::Clock;

/// All replicas.
#[derive(Debug)]
pub(crate) struct Fleet {
    exe: PathBuf,
    config: PathBuf,
    logs: PathBuf,
    replicas: Vec<Replica>,
}

/// One replica.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) name: String,
    child: Child,
    pid: u32,
    pub(crate) state: State,
}

/// What we know of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing was done to it.
    Running,
    /// It was stopped with SIGSTOP.
    Frozen,
    /// It was killed, or asked to end.
    Ending,
    /// It is gone.
    Gone,
}

/// A replica that ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) name: String,
    pub(crate) status: ExitStatus,
    /// It was not asked to.
    pub(crate) unasked: bool,
}

/// Dies when the process `parent` does; for a replica that has just been started by it.
pub(crate) fn die_with(parent: u32) -> io::Result<()> {
    dies_with(parent, Signal::KILL)
}

/// Gets this signal when the process `parent` dies, which has just started this one.
pub(crate) fn dies_with(parent: u32, signal: Signal) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(signal))?;
    // It may have died before we asked.
    let ours = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if ours == Some(parent) {
        Ok(())
    } else {
        Err(io::Error::other(
            "the process that started this one is gone",
        ))
    }
}

// === impl Fleet ===

impl Fleet {
    /// No replica yet; they will read `config` and log into `logs`.
    pub(crate) fn new(config: PathBuf, logs: &Path) -> io::Result<Self> {
        Ok(Self {
            exe: std::env::current_exe()?,
            config,
            logs: logs.to_owned(),
            replicas: Vec::new(),
        })
    }

    /// Starts a replica, in the place of the one of this name that is gone.
    pub(crate) fn start(&mut self, name: &str) -> io::Result<()> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_of(name))?;
        let mut command = Command::new(&self.exe);
        command
            .args(["--parent", &std::process::id().to_string()])
            .args(["run", "--name", name, "--config"])
            .arg(&self.config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // Ctrl-C is ours to handle.
            .process_group(0)
            .kill_on_drop(true);
        for (variable, _) in std::env::vars_os() {
            // What configures the user's own fleet is none of theirs.
            if variable.to_string_lossy().starts_with("WATCHKEEPER_") {
                command.env_remove(&variable);
            }
        }
        let child = command.spawn()?;
        let replica = Replica {
            name: name.to_owned(),
            pid: child.id().unwrap_or(0),
            child,
            state: State::Running,
        };
        match self.replicas.iter_mut().find(|other| other.name == name) {
            Some(place) => *place = replica,
            None => self.replicas.push(replica),
        }
        Ok(())
    }

    pub(crate) fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// The replica that runs as this process, unless we have already done something to it.
    pub(crate) fn running(&self, pid: u32) -> Option<String> {
        let mut all = self.replicas.iter();
        let found = all.find(|r| r.pid == pid && r.state == State::Running);
        found.map(|replica| replica.name.clone())
    }

    pub(crate) fn kill(&mut self, pid: u32) {
        self.signal(pid, Signal::KILL, State::Ending);
    }

    pub(crate) fn freeze(&mut self, pid: u32) {
        self.signal(pid, Signal::STOP, State::Frozen);
    }

    pub(crate) fn ask_to_end(&mut self, pid: u32) {
        self.signal(pid, Signal::TERM, State::Ending);
    }

    /// Wakes the replicas that are frozen; answers their names.
    pub(crate) fn thaw(&mut self) -> Vec<String> {
        let frozen = self
            .replicas
            .iter_mut()
            .filter(|r| r.state == State::Frozen);
        frozen
            .map(|replica| {
                send(replica.pid, Signal::CONT);
                replica.state = State::Running;
                replica.name.clone()
            })
            .collect()
    }

    /// The replicas that have ended since the last call.
    pub(crate) fn reap(&mut self) -> Vec<Ended> {
        let mut ended = Vec::new();
        for replica in &mut self.replicas {
            if replica.state == State::Gone {
                continue;
            }
            if let Ok(Some(status)) = replica.child.try_wait() {
                ended.push(Ended {
                    name: replica.name.clone(),
                    status,
                    unasked: replica.state != State::Ending,
                });
                replica.state = State::Gone;
            }
        }
        ended
    }

    /// Starts the replicas again that are gone; answers their names.
    pub(crate) fn restart_gone(&mut self) -> io::Result<Vec<String>> {
        let gone = self.replicas.iter().filter(|r| r.state == State::Gone);
        let names: Vec<String> = gone.map(|replica| replica.name.clone()).collect();
        for name in &names {
            self.start(name)?;
        }
        Ok(names)
    }

    /// Asks all replicas to end and waits for it; answers what went wrong.
    pub(crate) async fn drain(&mut self, clock: &Clock, limit: Duration) -> Vec<String> {
        self.thaw();
        for replica in &mut self.replicas {
            if replica.state == State::Running {
                send(replica.pid, Signal::TERM);
                replica.state = State::Ending;
            }
        }
        let until = clock.now() + limit;
        let mut problems = Vec::new();
        for replica in &mut self.replicas {
            if replica.state == State::Gone {
                continue;
            }
            let name = &replica.name;
            match clock.timeout_at(until, replica.child.wait()).await {
                Ok(Ok(status)) if status.success() => {}
                Ok(Ok(status)) => problems.push(format!("{name} did not end well: {status}")),
                Ok(Err(error)) => problems.push(format!("{name} was lost sight of: {error}")),
                Err(_) => {
                    problems.push(format!("{name} did not end within {limit:?}"));
                    continue;
                }
            }
            replica.state = State::Gone;
        }
        problems
    }

    /// Kills the replicas that are left, and waits until they are gone.
    pub(crate) async fn kill_all(&mut self) {
        for replica in &mut self.replicas {
            // An error says that it is gone already.
            let _ = replica.child.kill().await;
            replica.state = State::Gone;
        }
    }

    /// The last lines that a replica logged.
    pub(crate) fn last_words(&self, name: &str) -> String {
        const ENOUGH: u64 = 2_000;
        let read = || -> io::Result<String> {
            let mut file = File::open(self.log_of(name))?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(ENOUGH)))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        read().unwrap_or_default()
    }

    /// Where a replica of this name logs.
    pub(crate) fn log_of(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    fn signal(&mut self, pid: u32, signal: Signal, state: State) {
        // Only to a child that we have not waited for yet: its process id cannot have been given away.
        let alive = |r: &&mut Replica| r.pid == pid && r.state != State::Gone;
        if let Some(replica) = self.replicas.iter_mut().find(alive) {
            send(pid, signal);
            replica.state = state;
        }
    }
}

fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It fails when the process has just ended, which is seen elsewhere.
        let _ = kill_process(pid, signal);
    }
}
