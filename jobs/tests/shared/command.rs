//! The `watchkeeper` command as a process that is waited for.
#![allow(dead_code, reason = "every suite uses its own part")]

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// What it said, and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The command in this folder, without the settings of those who run the tests.
pub(crate) fn watchkeeper(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_watchkeeper"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WATCHKEEPER_") {
            command.env_remove(name);
        }
    }
    command
        .current_dir(folder)
        .stdin(Stdio::null())
        // Where a token lies that has no file to lie beside.
        .env("XDG_RUNTIME_DIR", folder);
    command
}

impl Ran {
    /// Checks that it ended well.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        self.with(0)
    }

    /// Checks the exit status.
    #[track_caller]
    pub(crate) fn with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        self
    }

    /// Standard output, read as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).expect("JSON")
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Self {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}
