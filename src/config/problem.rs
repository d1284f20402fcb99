//! What is wrong with a configuration, where it stands, and what to do about it.
//!
//! A [`Problem`] is no [`Finding`](crate::finding::Finding): a rule names all keys that it is about, without the file, and what a
//! user reads names one, with the place to change. One type for both would have fields that are empty in half of its uses.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    path::PathBuf,
};

use super::effort;
use crate::finding::{Findings, Severity};

/// Everything that is wrong, errors and warnings, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Whether it can be lived with.
    pub severity: Severity,
    /// The key, from the top: `locks.redis.nodes`. Empty when it is about a whole file.
    pub key: String,
    /// Where the value comes from.
    pub source: Source,
    /// What is wrong.
    pub message: String,
    /// What to do about it; may be empty.
    pub remedy: String,
}

/// Where a value comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A place in a file.
    File {
        /// The file, as it was named.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column, from 1, in characters.
        column: usize,
    },
    /// A file as a whole.
    WholeFile(PathBuf),
    /// An environment variable.
    Env(String),
    /// A flag of the command line.
    Flag(String),
    /// The program: a job that it registers, a setting that it types.
    Code,
    /// It was not set.
    #[default]
    Default,
}

/// Where each value that was set comes from.
#[derive(Clone, Debug, Default)]
pub struct Provenance(BTreeMap<String, Source>);

// === impl Problems ===

impl Problems {
    /// Whether something keeps the program from starting.
    #[must_use]
    pub(crate) fn has_errors(&self) -> bool {
        let mut all = self.iter();
        all.any(|problem| problem.severity == Severity::Error)
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are of each kind: `2 errors, 1 warning`.
    #[must_use]
    pub(crate) fn tally(&self) -> String {
        let of = |severity| self.iter().filter(|p| p.severity == severity).count();
        let (errors, warnings) = (of(Severity::Error), of(Severity::Warning));
        let some = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        match (errors, warnings) {
            (errors, 0) => some(errors, "error"),
            (0, warnings) => some(warnings, "warning"),
            _ => format!("{}, {}", some(errors, "error"), some(warnings, "warning")),
        }
    }

    /// The problems.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }

    pub(super) fn error(
        &mut self,
        key: impl Into<String>,
        source: Source,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(Severity::Error, key, source, message, remedy);
    }

    pub(super) fn warn(
        &mut self,
        key: impl Into<String>,
        source: Source,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(Severity::Warning, key, source, message, remedy);
    }

    fn add(
        &mut self,
        severity: Severity,
        key: impl Into<String>,
        source: Source,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.0.push(Problem {
            severity,
            key: key.into(),
            source,
            message: message.into(),
            remedy: remedy.into(),
        });
    }

    /// Adds findings about keys from the top, except those about a key that is already known to be wrong: a rule
    /// that meets a default in the place of a value it could not read has nothing to say.
    pub(super) fn adopt(&mut self, found: Findings, provenance: &Provenance) {
        let errors = self.0.iter().filter(|p| p.severity == Severity::Error);
        let wrong: HashSet<String> = errors.map(|problem| problem.key.clone()).collect();
        for finding in found {
            effort::looked_at(finding.keys.len());
            if finding.keys.iter().any(|key| wrong.contains(key)) {
                continue;
            }
            let source = provenance.of_any(&finding.keys);
            let key = finding.keys.into_iter().next().unwrap_or_default();
            let (message, remedy) = (finding.message, finding.remedy);
            self.add(finding.severity, key, source, message, remedy);
        }
    }

    /// Drops what is said of a section.
    pub(super) fn forget(&mut self, section: &str) {
        self.0.retain(|problem| !is_in(&problem.key, section));
    }

    /// Places of one file in the order of the file, then variables, flags and the rest.
    pub(super) fn sort(&mut self) {
        self.0.sort_by(|a, b| a.source.cmp(&b.source));
    }
}

/// Whether `key` is `section` or stands below it.
pub(super) fn is_in(key: &str, section: &str) -> bool {
    let below = key.strip_prefix(section);
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

// === impl Problem ===

/// `watchkeeper.toml:12:7: locks.ttl: 40s is longer than max_ttl (30s); lower ttl or raise max_ttl`
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.source)?;
        if self.severity == Severity::Warning {
            f.write_str("warning: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

// === impl Source ===

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line, column } => write!(f, "{}:{line}:{column}", path.display()),
            Self::WholeFile(path) => write!(f, "{}", path.display()),
            Self::Env(name) | Self::Flag(name) => f.write_str(name),
            Self::Code => f.write_str("code"),
            Self::Default => f.write_str("default"),
        }
    }
}

// === impl Provenance ===

impl Provenance {
    /// Where the value of `key` comes from. `nodes[1]` comes from where `nodes` does, unless known better.
    #[must_use]
    pub fn of(&self, key: &str) -> Source {
        let whole = key.split_once('[').map_or(key, |(whole, _)| whole);
        let found = self.0.get(key).or_else(|| self.0.get(whole));
        found.cloned().unwrap_or_default()
    }

    /// The first of `keys` that was set decides: a rule between two keys is shown where it was broken.
    fn of_any(&self, keys: &[String]) -> Source {
        let mut sources = keys.iter().map(|key| self.of(key));
        sources
            .find(|source| *source != Source::Default)
            .unwrap_or_default()
    }

    /// Takes over the places of a layer that wins over all before it.
    pub(super) fn overlay(&mut self, places: BTreeMap<String, Source>) {
        for key in places.keys().filter(|key| !key.ends_with(']')) {
            // A list is replaced as a whole, so what was known of the old elements is void.
            let element = format!("{key}[");
            let below = self.0.range(element.clone()..);
            let void = below
                .map(|(old, _)| old)
                .take_while(|old| old.starts_with(&element));
            let void: Vec<String> = void.cloned().collect();
            effort::looked_at(void.len() + 1);
            for old in void {
                self.0.remove(&old);
            }
        }
        self.0.extend(places);
    }

    /// Adds places that lose against all before them.
    pub(super) fn underlay(&mut self, places: BTreeMap<String, Source>) {
        for (key, source) in places {
            self.0.entry(key).or_insert(source);
        }
    }
}
