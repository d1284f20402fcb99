//! The crates of a build, as `cargo metadata` tells them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// One crate: from a registry, or of this workspace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Krate {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its licence as it states it; empty when it does not.
    pub licence: String,
    /// Where it was fetched from; empty for a folder.
    pub source: String,
    /// Where its sources are to be found.
    pub repository: String,
    /// Its folder on this machine.
    pub folder: PathBuf,
}

/// What cargo says of the workspace.
#[derive(Clone, Debug)]
pub struct Metadata {
    crates: BTreeMap<String, Krate>,
    members: BTreeSet<String>,
    target: PathBuf,
    /// From each crate to those that it needs, and whether a program that is shipped needs them.
    needs: BTreeMap<String, Vec<(String, bool)>>,
}

impl fmt::Display for Krate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

// === impl Metadata ===

impl Metadata {
    /// Asks cargo, for the machine that this was built for. Nothing is fetched: what was built is there.
    ///
    /// # Errors
    /// When cargo fails, in its words.
    pub fn read(root: &Path) -> Result<Self, String> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let version = run(Command::new(rustc).arg("-vV"))?;
        let host = version.lines().find_map(|line| line.strip_prefix("host: "));
        Self::read_for(root, host.ok_or("rustc does not say what it builds for")?)
    }

    /// The same for another machine: `x86_64-unknown-linux-musl`. Nothing is fetched: `cargo fetch` was there for it.
    ///
    /// # Errors
    /// When cargo fails, in its words.
    pub fn read_for(root: &Path, platform: &str) -> Result<Self, String> {
        let answer = asked(root, &["--filter-platform", platform])?;
        Self::of(&answer).ok_or_else(|| "cargo metadata answers in another form".to_owned())
    }

    fn of(answer: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut crates = BTreeMap::new();
        for package in answer.get("packages")?.as_array()? {
            let manifest = PathBuf::from(text(package.get("manifest_path")?));
            let krate = Krate {
                name: text(package.get("name")?),
                version: text(package.get("version")?),
                licence: text(package.get("license")?),
                source: text(package.get("source")?),
                repository: text(package.get("repository")?),
                folder: manifest.parent()?.to_owned(),
            };
            crates.insert(text(package.get("id")?), krate);
        }
        let members = answer.get("workspace_members")?.as_array()?;
        let mut needs = BTreeMap::new();
        for node in answer.get("resolve")?.get("nodes")?.as_array()? {
            let mut found = Vec::new();
            for need in node.get("deps")?.as_array()? {
                let mut kinds = need.get("dep_kinds")?.as_array()?.iter();
                // Neither for tests nor for build scripts.
                let shipped = kinds.any(|kind| kind.get("kind").is_none_or(Value::is_null));
                found.push((text(need.get("pkg")?), shipped));
            }
            needs.insert(text(node.get("id")?), found);
        }
        Some(Self {
            crates,
            members: members.iter().map(text).collect(),
            target: PathBuf::from(text(answer.get("target_directory")?)),
            needs,
        })
    }

    /// The folder in which cargo builds.
    #[must_use]
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// All that is fetched to build and test, in the order of their names.
    #[must_use]
    pub fn foreign(&self) -> Vec<&Krate> {
        self.sorted(self.needs.keys())
    }

    /// What is fetched for a program of the member `name` and goes into it, in the order of their names.
    #[must_use]
    pub fn shipped_with(&self, name: &str) -> Vec<&Krate> {
        self.sorted(self.reached_from(name))
    }

    /// All crates that go into a program of the member `name`, those of this workspace and itself as well, in the order of their
    /// names: each with what it needs for that.
    #[must_use]
    pub fn parts_of(&self, name: &str) -> Vec<(&Krate, Vec<&Krate>)> {
        let part = |id: &String| {
            let needs = self.needs.get(id).into_iter().flatten();
            let needs = needs.filter(|(_, shipped)| *shipped);
            let needs: BTreeSet<&Krate> = needs.filter_map(|(id, _)| self.crates.get(id)).collect();
            Some((self.crates.get(id)?, needs.into_iter().collect::<Vec<_>>()))
        };
        let mut parts: Vec<_> = self
            .reached_from(name)
            .into_iter()
            .filter_map(part)
            .collect();
        parts.sort();
        parts
    }

    /// The member `name`, and all that is built into a program of it.
    fn reached_from(&self, name: &str) -> BTreeSet<&String> {
        let of_name = |id: &&String| self.crates.get(*id).is_some_and(|krate| krate.name == name);
        let mut left: Vec<&String> = self.members.iter().filter(of_name).collect();
        let mut seen = BTreeSet::new();
        while let Some(id) = left.pop() {
            if seen.insert(id) {
                let needs = self.needs.get(id).into_iter().flatten();
                left.extend(needs.filter(|(_, shipped)| *shipped).map(|(id, _)| id));
            }
        }
        seen
    }

    fn sorted<'a>(&'a self, ids: impl IntoIterator<Item = &'a String>) -> Vec<&'a Krate> {
        let foreign = ids.into_iter().filter(|id| !self.members.contains(*id));
        let mut found: Vec<&Krate> = foreign.filter_map(|id| self.crates.get(id)).collect();
        found.sort();
        found
    }
}

/// What cargo tells of the workspace, asked with these arguments as well. Without a network.
pub(crate) fn asked(root: &Path, more: &[&str]) -> Result<Value, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let asked = ["metadata", "--format-version", "1", "--locked", "--offline"];
    let answer = run(Command::new(cargo).args(asked).args(more).current_dir(root))?;
    serde_json::from_str(&answer).map_err(|why| why.to_string())
}

pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|why| format!("{}: {why}", command.get_program().display()))?;
    match output.status.success() {
        true => String::from_utf8(output.stdout).map_err(|why| why.to_string()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// Takes away what `cargo run` says of this package: to crates that look at it, it would be a change, and they and all that is built on
/// them would be built again, now and at the next build from outside.
pub(crate) fn of_no_package(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let shown = name.to_string_lossy();
        let of_a_package = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
        if of_a_package.iter().any(|start| shown.starts_with(start)) {
            command.env_remove(&name);
        }
    }
}
