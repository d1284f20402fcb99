//! Layers, places and rules, each by a small file in a temporary directory.

mod code;
mod effects;
mod layers;
mod notices;
mod rules;
mod shipped;

use std::{fs, path::Path, sync::Arc, time::Duration};

use serde_json::Value;
use tempfile::TempDir;

use super::*;

/// A directory with a `watchkeeper.toml`, and what else a configuration is made from.
struct Setup {
    dir: TempDir,
    options: LoadOptions,
}

impl Setup {
    fn empty() -> Self {
        let dir = TempDir::new().unwrap();
        let options = LoadOptions {
            root: dir.path().to_owned(),
            kinds: vec!["heartbeat".to_owned(), "notifications".to_owned()],
            ..LoadOptions::default()
        };
        Self { dir, options }
    }

    fn file(text: &str) -> Self {
        let setup = Self::empty();
        setup.write("watchkeeper.toml", text);
        setup
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        let name = format!("WATCHKEEPER_{name}");
        self.options.env.push((name, value.to_owned()));
        self
    }

    fn flag(mut self, name: &str, key: &str, value: &str) -> Self {
        self.options.flags.push(Flag {
            name: name.to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
        });
        self
    }

    fn code(mut self, name: &str, spec: Spec) -> Self {
        self.options.specs.insert(name.to_owned(), spec);
        self
    }

    fn params(mut self, check: impl Fn(&str, &Value) -> Findings + Send + Sync + 'static) -> Self {
        self.options.check_params = Some(Arc::new(check));
        self
    }

    #[track_caller]
    fn loaded(&self) -> Loaded {
        load(&self.options).unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// All problems, one per line, also when there are only warnings.
    fn lines(&self) -> Vec<String> {
        let problems = match load(&self.options) {
            Ok(loaded) => loaded.problems,
            Err(problems) => problems,
        };
        problems.iter().map(Problem::to_string).collect()
    }

    /// The one problem there is.
    #[track_caller]
    fn problem(&self) -> String {
        let lines = self.lines();
        assert_eq!(lines.len(), 1, "{lines:#?}");
        lines.into_iter().next().unwrap()
    }
}

#[track_caller]
fn problem(file: &str) -> String {
    Setup::file(file).problem()
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
