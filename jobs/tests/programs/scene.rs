//! A store, a folder, and the processes that share them.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::{
    command::watchkeeper,
    process::{Done, Running},
    store::Store,
    wait::until,
};

/// A store, a folder, and the processes that share them.
pub(crate) struct Scene {
    pub(crate) store: Store,
    folder: TempDir,
}

impl Scene {
    pub(crate) fn new(store: Store) -> Self {
        let folder = TempDir::with_prefix("wk-programs-").expect("a temporary folder");
        Self { store, folder }
    }

    // --- processes ---

    /// `watchkeeper WORDS` in the scene's folder, with no store named. It leads a process group of its own, so that no
    /// terminal counts.
    pub(crate) fn bare(&self, words: &[&str]) -> Command {
        use std::os::unix::process::CommandExt;

        let mut command = watchkeeper(self.folder.path());
        command
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        // Servers that have just been started for a case are known to be new.
        command.env("WATCHKEEPER_LOCKS__RESTART_GUARD", "off");
        command.envs(self.store.env());
        command
    }

    /// [`Scene::bare`] with the guard, and the shortest lease that it has to wait for.
    pub(crate) fn guarded(&self, words: &[&str]) -> Command {
        let mut command = self.bare(words);
        command.env("WATCHKEEPER_LOCKS__RESTART_GUARD", "call");
        for name in ["TTL", "MAX_TTL"] {
            command.env(format!("WATCHKEEPER_LOCKS__{name}"), "2s");
        }
        command
    }

    /// `watchkeeper VERB KEY OPTIONS -- sh -c SCRIPT` on the scene's store. In the script `$F` is the scene's folder.
    pub(crate) fn command(&self, line: &str, script: &str) -> Command {
        let store = self.store.options(self.folder.path());
        let words = line.split_whitespace();
        let words: Vec<&str> = words.chain(store.iter().map(String::as_str)).collect();
        let mut command = self.bare(&words);
        command.args(["--", "sh", "-c", script]);
        command.env("F", self.folder.path());
        command
    }

    /// Starts [`Scene::command`].
    pub(crate) fn spawn(&self, line: &str, script: &str) -> Running {
        Running::start(self.command(line, script))
    }

    /// Starts [`Scene::command`] and waits for its end.
    pub(crate) fn run(&self, line: &str, script: &str) -> Done {
        self.spawn(line, script).done()
    }

    /// Starts [`Scene::bare`] and waits for its end.
    pub(crate) fn run_bare(&self, words: &[&str]) -> Done {
        Running::start(self.bare(words)).done()
    }

    /// A holder whose command has begun, and goes on for as long as nobody ends it.
    pub(crate) fn holder(&self, line: &str) -> Running {
        let holder = self.spawn(line, "echo held; exec sleep 600");
        holder.wait_for_line("held");
        holder
    }

    // --- files ---

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).expect("a file");
    }

    /// The options that name the scene's store.
    pub(crate) fn options(&self) -> Vec<String> {
        self.store.options(self.folder.path())
    }

    /// What stands below `[locks]` in a configuration for this scene.
    pub(crate) fn settings(&self) -> String {
        self.store.settings(self.folder.path())
    }

    /// The whole lines of a file; none when it is not there yet.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.file(name)).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(str::to_owned).collect()
    }

    /// Waits until a file has so many lines.
    pub(crate) fn wait_for_lines(&self, name: &str, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let there = until(|| {
            lines = self.lines(name);
            lines.len() >= count
        });
        assert!(there, "only {lines:?} in {name}");
        lines
    }

    /// Says what was measured, for whoever reads along.
    pub(crate) fn measured(&self, what: &str, value: &impl std::fmt::Debug) {
        println!("[{}] {what}: {value:.1?}", self.store.name());
    }
}
