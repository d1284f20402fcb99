//! Configuration: defaults, then what code says, then a file, then the environment, then flags; every fault told at once and with its
//! place.
//!
//! - A key that does not exist is an error, and the nearest one is named. (`an_unknown_key_names_the_nearest_one`)
//! - All faults are told, in the order of the file. (`every_fault_is_told_at_once`)
//! - A text from the environment is what its key wants it to be. (`a_password_of_digits_stays_a_text`)
//! - A secret is in no message and no listing. (`secrets_are_in_no_message_and_no_listing`)
//!
//! The settings themselves live with their owners; nothing below the worker reads configuration.
//!
//! ```
//! use watchkeeper::config::{LoadOptions, load};
//!
//! let options = LoadOptions {
//!     places: Vec::new(), // no file
//!     env: vec![("WATCHKEEPER_LOCKS__TTL".to_owned(), "40s".to_owned())],
//!     ..LoadOptions::default()
//! };
//! let faults = load(&options).unwrap_err();
//! assert!(faults.iter().any(|fault| fault.key == "locks.ttl"));
//! ```

mod admin;
mod child_env;
mod code;
mod document;
mod effort;
mod jobs;
mod layer;
mod load;
mod loaded;
mod notices;
mod options;
mod problem;
mod render;
mod schema;
mod settle;
mod store_file;
mod text;
mod words;
mod worker;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt, path::Path};

use crate::notice::NoticeSettings;
use serde::{Deserialize, Serialize};

pub use crate::{
    finding::{Findings, Severity},
    job::Spec,
    lock::settings::{
        Backend, EmbeddedSettings, EtcdSettings, Expiry, LockSettings, PostgresSettings,
        RedisSettings,
    },
    network::Network,
    secret::{Secret, SecretUrl},
    telemetry::{LogFormat, TelemetrySettings},
};
pub use admin::{AdminSettings, Listen};
pub use load::load;
pub(crate) use load::{check_jobs, load_to_ask};
pub use loaded::Loaded;
pub use options::LoadOptions;
pub use problem::{Problem, Problems, Source};
pub(crate) use store_file::shown as shown_store_file;
pub use worker::{Mode, WorkerSettings};

// What the worker and the commands fill in, or read of what was loaded.
#[doc(hidden)] // for the worker and the commands
pub use self::{
    child_env::secret_variables,
    code::CodeSettings,
    load::load_without_jobs,
    options::{KindlessCall, NoticeCheck, ParamCheck, SYSTEM_PLACE, WorkFacts, WorkOf},
    problem::Provenance,
    text::Flag,
};

/// Everything that can be configured.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `[worker]`
    pub worker: WorkerSettings,
    /// `[locks]`
    pub locks: LockSettings,
    /// `[admin]`
    pub admin: AdminSettings,
    /// `[telemetry]`
    pub telemetry: TelemetrySettings,
    /// `[notices.NAME]`
    #[doc(hidden)] // for the stock jobs, which bring the receivers
    pub notices: BTreeMap<String, NoticeSettings>,
    /// `[jobs.NAME]`
    pub jobs: BTreeMap<String, Spec>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Jobs by name: their parameters may hold secrets.
        f.debug_struct("Config")
            .field("worker", &self.worker)
            .field("locks", &self.locks)
            .field("admin", &self.admin)
            .field("telemetry", &self.telemetry)
            .field("notices", &self.notices.keys())
            .field("jobs", &self.jobs.keys())
            .finish()
    }
}

impl Config {
    /// Who is told of a job, by the names of their tables.
    #[cfg(feature = "cli")]
    pub(crate) fn told_of<'a>(&'a self, spec: &'a Spec) -> &'a [String] {
        match spec.coordination {
            // What becomes of batches is told to nobody.
            crate::job::Coordination::Batch => &[],
            _ => spec.notify.as_deref().unwrap_or(&self.worker.notify),
        }
    }

    /// Adds what is wrong with the settings, jobs aside. Paths are relative to `root`.
    pub(crate) fn check(&self, root: &Path, found: &mut Findings) {
        let mut section = |name: &str, check: &dyn Fn(&mut Findings)| {
            let mut here = Findings::default();
            check(&mut here);
            found.nest(name, here);
        };
        section("worker", &|found| self.worker.check(found));
        section("locks", &|found| {
            self.locks.check(found);
            match self.locks.backend {
                Backend::Embedded => {
                    let path = &self.locks.embedded.path;
                    store_file::check_writable("embedded.path", path, root, found);
                    store_file::check_owner("embedded.path", path, root, found);
                }
                Backend::Memory | Backend::Redis | Backend::Postgres | Backend::Etcd => {}
            }
        });
        section("admin", &|found| self.admin.check(found));
        section("telemetry", &|found| self.telemetry.check(found));
    }
}
