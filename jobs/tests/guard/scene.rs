//! A command that is hard to end, and ways to see what is left of it.

use std::{ffi::OsString, future::Future, path::Path, sync::Arc, time::Duration};

use tempfile::TempDir;
use watchkeeper::{
    Locks,
    chance::Chance,
    clock::{Clock, Moment},
    node::sqlite::SqliteNode,
};
use watchkeeper_jobs::guard::{Command, Output};

use crate::wait::soon;

/// Forks twice, leaves its session, ignores SIGTERM, closes its descriptors, and says `$1` once all of it runs.
const STUBBORN: &str = r#"
    trap '' TERM HUP INT
    (setsid sh -c '
        trap "" TERM HUP INT
        exec </dev/null >/dev/null 2>&1
        (trap "" TERM HUP INT; echo >> "$1"; while :; do sleep 0.2; done) &
        echo >> "$1"
        while :; do sleep 0.2; done
    ' sh "$1" &)
    echo >> "$1"
    while :; do sleep 0.2; done
"#;
/// Its processes, apart from those that sleep for them.
const STUBBORN_PARTS: usize = 3;

/// A folder, and a word that every process started with it carries.
pub(crate) struct Scene {
    folder: TempDir,
    word: String,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let folder = TempDir::with_prefix("wk-guard-").unwrap();
        let word = Chance::system().id();
        Self { folder, word }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn word(&self) -> &str {
        &self.word
    }

    /// `sh -c SCRIPT sh READY`, its output captured.
    pub(crate) fn shell(&self, script: &str) -> Command {
        let ready = self.path().join("ready").into_os_string();
        let args = ["-c".into(), OsString::from(script), "sh".into(), ready];
        let mut command = Command::new("sh", args);
        command.env = vec![("SCENE".into(), self.word.clone().into())];
        command.output = Output::Capture(4096);
        command
    }

    /// One that does not want to end.
    pub(crate) fn stubborn(&self) -> Command {
        self.shell(STUBBORN)
    }

    /// Waits until all parts of a stubborn command run.
    pub(crate) fn wait_until_stubborn(&self) {
        let ready = self.path().join("ready");
        soon("all parts of the command", || {
            std::fs::read(&ready).unwrap_or_default().len() >= STUBBORN_PARTS
        });
    }

    /// How many of the command's processes live.
    pub(crate) fn left(&self) -> usize {
        let mark = format!("SCENE={}", self.word);
        let mut left = 0;
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            let has = environment
                .split(|byte| *byte == 0)
                .any(|one| one == mark.as_bytes());
            left += usize::from(has);
        }
        left
    }

    /// Locks on a store in the folder, with this ttl.
    pub(crate) fn locks(&self, ttl: Duration) -> Locks {
        locks(&self.path().join("store.db"), ttl)
    }
}

/// Locks on this store; every lease has this ttl.
pub(crate) fn locks(store: &Path, ttl: Duration) -> Locks {
    let node = SqliteNode::open(store, Clock::system()).unwrap();
    let mut timing = watchkeeper::worker::store::timing(
        &watchkeeper::config::LockSettings::default(),
        Duration::from_secs(10),
    );
    timing.ttl = ttl;
    Locks::over(vec![Arc::new(node)])
        .timing(timing)
        .start()
        .unwrap()
}

/// Runs a case to its end.
pub(crate) fn run<T>(case: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(case)
}

pub(crate) fn now() -> Moment {
    Clock::system().now()
}
