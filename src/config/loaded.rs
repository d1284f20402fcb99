//! A configuration that may be started with.

use std::path::PathBuf;

use super::{
    Backend, Config,
    problem::{Problems, Provenance, Source},
    render,
};

/// A configuration without errors.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration in effect.
    pub config: Config,
    /// Warnings.
    pub problems: Problems,
    /// Where each value comes from.
    #[doc(hidden)] // for the command
    pub provenance: Provenance,
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// Where a file was looked for, when none was found.
    pub looked_at: Vec<PathBuf>,
}

// === impl Loaded ===

impl Loaded {
    /// The configuration in effect as TOML, without secrets; with `origin`, where each value comes from.
    #[doc(hidden)] // for the commands
    #[must_use]
    pub fn render(&self, origin: bool) -> String {
        render::render(&self.config, origin.then_some(&self.provenance))
    }

    /// Which store is taken because none was named, in a sentence; nothing when one was.
    #[must_use]
    pub(crate) fn store_by_default(&self) -> Option<String> {
        let named = |key: &str| self.provenance.of(key) != Source::Default;
        if named("locks.backend") || named("locks.embedded.path") {
            return None;
        }
        let why = match &self.file {
            Some(file) => format!("{} names no store", file.display()),
            None => self.no_file(),
        };
        let locks = &self.config.locks;
        let taken = match locks.backend {
            Backend::Embedded => {
                let path = &locks.embedded.path;
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                format!("the embedded store {}", path.display())
            }
            Backend::Memory => "a store in memory, for this process alone".to_owned(),
            // They have no default: each has to be named.
            Backend::Redis | Backend::Postgres | Backend::Etcd => return None,
        };
        Some(format!("{why}; using {taken}"))
    }

    /// `no configuration was found (looked at …)`
    pub(crate) fn no_file(&self) -> String {
        let places: Vec<String> = self
            .looked_at
            .iter()
            .map(|p| p.display().to_string())
            .collect();
        match places.is_empty() {
            true => "no store is named".to_owned(),
            false => format!("no configuration found (looked at {})", places.join(", ")),
        }
    }

    /// The same for a worker that is to run: one without any job is a mistake where nothing is configured, and
    /// worth a word elsewhere. A replica that is no candidate shows and commands the fleet without jobs of its own.
    ///
    /// # Errors
    /// The missing jobs.
    pub(crate) fn runnable(mut self) -> Result<Self, Problems> {
        if !self.config.jobs.is_empty() || !self.config.worker.candidate {
            return Ok(self);
        }
        let remedy = "add one in code (Worker::job) or as [jobs.NAME] in a file, named by --config or WATCHKEEPER_CONFIG \
                      where it is in no usual place";
        if self.store_by_default().is_some() && self.file.is_none() {
            let message = format!("there is no job, and {}", self.no_file());
            self.problems
                .error("jobs", Source::Default, message, remedy);
            return Err(self.problems);
        }
        let source = self.file.clone().map_or(Source::Default, Source::WholeFile);
        let message = "there is no job: this replica stands by for nothing";
        self.problems.warn("jobs", source, message, remedy);
        Ok(self)
    }

    /// The same for a worker that runs jobs: a configuration without any is most likely a file that is being written, and would
    /// end them all.
    ///
    /// # Errors
    /// The missing jobs.
    pub(crate) fn still_runnable(mut self) -> Result<Self, Problems> {
        if !self.config.jobs.is_empty() || !self.config.worker.candidate {
            return Ok(self);
        }
        let source = self.file.clone().map_or(Source::Default, Source::WholeFile);
        let message = "no job is left: this would end every job that runs here";
        let remedy =
            "write the jobs that are to stay, disable one with enabled = false, or stop the worker";
        self.problems.error("jobs", source, message, remedy);
        Err(self.problems)
    }
}
