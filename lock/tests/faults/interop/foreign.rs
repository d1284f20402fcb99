//! Foreign clients: small programs under `tests/interop` around the real libraries, one process each, driven line by
//! line. `tests/interop/install` installs the libraries, in the versions that stand beside it.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::OnceLock,
};

use crate::masters::Masters;

/// Whose client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// redlock of npm.
    NodeRedlock,
    /// Lock of redis-py.
    RedisPy,
    /// Redlock of pottery.
    Pottery,
    /// rslock of crates.io. Its values are no text.
    Rslock,
}

/// A running foreign client. Killed and reaped on drop.
pub(crate) struct Foreign {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// Where the libraries are installed: beside what cargo builds.
fn cache() -> PathBuf {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    tmp.parent().unwrap_or(tmp).join("interop")
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/interop")
        .join(name)
}

/// The folder with the modules for node, or why there is none.
pub(crate) fn node() -> Result<&'static Path, &'static str> {
    static FOUND: OnceLock<Result<PathBuf, &str>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let runs = Command::new("node").arg("--version").output();
        if !runs.is_ok_and(|said| said.status.success()) {
            return Err(
                "no node found: install Node.js and npm, then run tests/interop/install node",
            );
        }
        let modules = cache().join("node_modules");
        if modules.join("redlock").is_dir() && modules.join("ioredis").is_dir() {
            return Ok(modules);
        }
        Err("no redlock for node: run tests/interop/install node")
    });
    found.as_deref().map_err(|why| *why)
}

/// A python that has the modules, or why there is none.
pub(crate) fn python() -> Result<&'static Path, &'static str> {
    static FOUND: OnceLock<Result<PathBuf, &str>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let python = cache().join("venv/bin/python");
        let has = Command::new(&python)
            .args(["-c", "import pottery, redis"])
            .output();
        if has.is_ok_and(|said| said.status.success()) {
            return Ok(python);
        }
        Err("no redis and pottery for python: run tests/interop/install python")
    });
    found.as_deref().map_err(|why| *why)
}

/// The program around rslock, or why there is none.
pub(crate) fn rust() -> Result<&'static Path, &'static str> {
    static FOUND: OnceLock<Result<PathBuf, &str>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let program = cache().join("rslock/debug/watchkeeper-interop");
        if program.is_file() {
            return Ok(program);
        }
        Err("no rslock: run tests/interop/install rust")
    });
    found.as_deref().map_err(|why| *why)
}

// === impl Peer ===

impl Peer {
    /// The key that it uses for a name.
    pub(crate) fn key(self, name: &str) -> String {
        match self {
            Self::NodeRedlock | Self::RedisPy | Self::Rslock => name.to_owned(),
            Self::Pottery => format!("redlock:{name}"),
        }
    }

    pub(crate) fn start(self, masters: &Masters) -> Foreign {
        let mut command = match self {
            Self::NodeRedlock => {
                let mut command = Command::new("node");
                let modules = node().expect("the case is ignored without it");
                command.arg(script("redlock.js")).env("NODE_PATH", modules);
                command
            }
            Self::RedisPy | Self::Pottery => {
                let python = python().expect("the case is ignored without it");
                let mut command = Command::new(python);
                let which = if self == Self::Pottery {
                    "pottery"
                } else {
                    "redis"
                };
                command.arg(script("lock.py")).arg(which);
                command
            }
            Self::Rslock => Command::new(rust().expect("the case is ignored without it")),
        };
        let mut child = command
            .args(masters.addresses())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the foreign client starts");
        Foreign {
            input: child.stdin.take().expect("piped"),
            output: BufReader::new(child.stdout.take().expect("piped")),
            child,
        }
    }
}

// === impl Foreign ===

impl Foreign {
    /// Its owner value in hex, when it gets the lock at once.
    pub(crate) fn acquire(&mut self, key: &str, ttl_ms: u64) -> Option<String> {
        let said = self.ask(&format!("acquire {key} {ttl_ms}"));
        match said.split_once(' ') {
            Some(("held", owner)) => Some(owner.to_owned()),
            _ if said == "refused" => None,
            _ => panic!("{said}"),
        }
    }

    pub(crate) fn extend(&mut self, ttl_ms: u64) {
        assert_eq!(self.ask(&format!("extend {ttl_ms}")), "extended");
    }

    pub(crate) fn release(&mut self) {
        assert_eq!(self.ask("release"), "released");
    }

    /// Begins something long.
    pub(crate) fn begin(&mut self, order: &str) {
        writeln!(self.input, "{order}").expect("it reads");
    }

    /// The end of what was begun.
    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        let read = self.output.read_line(&mut line).expect("it writes");
        assert!(
            read > 0,
            "the foreign client has ended; what it said is above"
        );
        line.trim_end().to_owned()
    }

    /// Ends it in the middle of whatever it does.
    pub(crate) fn kill(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }

    fn ask(&mut self, order: &str) -> String {
        self.begin(order);
        self.answer()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.kill();
    }
}
