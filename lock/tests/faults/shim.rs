//! The clock of one server, stepped while it runs: a small C file (`clock.c`), compiled here and loaded into the server
//! before its C library. Other such files are compiled here, too.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use tempfile::TempDir;

/// The wall clock of one server, as it sees it.
pub(crate) struct NodeClock {
    file: File,
    name: PathBuf,
}

/// The compiled shim, or why there is none.
pub(crate) fn shim() -> Result<&'static Path, &'static str> {
    static SHIM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let compile = || compiled("clock", include_str!("clock.c"));
    SHIM.get_or_init(compile).as_deref().map_err(String::as_str)
}

/// The compiled text of a C file of this name, or why there is none.
pub(crate) fn compiled(name: &str, text: &str) -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let target = folder.join(format!("{name}.so"));
    // Under a name of its own first: another run of these tests may be loading the same file now.
    let fresh = TempDir::with_prefix_in("shim-", folder).map_err(|e| e.to_string())?;
    let made = fresh.path().join("made.so");
    let source = fresh.path().join(format!("{name}.c"));
    fs::write(&source, text).map_err(|e| e.to_string())?;
    let said = Command::new("cc")
        .args([
            "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o",
        ])
        .arg(&made)
        .arg(source)
        .output()
        .map_err(|_| "no C compiler found: apt-get install gcc libc6-dev".to_owned())?;
    if !said.status.success() {
        let complaint = String::from_utf8_lossy(&said.stderr);
        return Err(format!("cc does not compile {name}.c: {complaint}"));
    }
    fs::rename(&made, &target).map_err(|e| e.to_string())?;
    Ok(target)
}

// === impl NodeClock ===

impl NodeClock {
    /// A clock that goes right, kept in `folder`.
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        let name = folder.join(name);
        let file = File::options()
            .create_new(true)
            .read(true)
            .write(true)
            .open(&name)
            .expect("a file in our own folder");
        let clock = Self { file, name };
        clock.set(0);
        clock
    }

    /// The variables under which a server is started, so that it goes by this clock.
    pub(crate) fn env(&self) -> Vec<(String, String)> {
        let shim = shim().expect("the case is ignored without it");
        vec![
            ("LD_PRELOAD".into(), shim.display().to_string()),
            ("NODE_CLOCK".into(), self.name.display().to_string()),
        ]
    }

    /// Sets the clock to `seconds` after the true time; before it when negative.
    pub(crate) fn set(&self, seconds: i64) {
        let nanos = seconds * 1_000_000_000;
        self.file
            .write_all_at(&nanos.to_ne_bytes(), 0)
            .expect("a file of our own");
    }
}
