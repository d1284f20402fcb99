//! `[worker]`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    escape::{escape, is_obeyed},
    finding::Findings,
};

/// Characters of a replica's name and of a namespace at most.
const LONGEST_NAME: usize = 100;

/// `[worker]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerSettings {
    /// The replica's name in lists and logs, 100 characters at most; host and process id unless set.
    pub name: Option<String>,
    /// All replicas with the same namespace and store are one fleet. 100 characters at most.
    pub namespace: String,
    /// How work is spread over the fleet.
    pub mode: Mode,
    /// Among the candidates for a job the one with the largest number is preferred.
    pub priority: i32,
    /// Whether this replica ever leads. Without it the replica shows and commands the fleet, and does in shared mode what
    /// needs no leader: batches, and jobs that run everywhere.
    pub candidate: bool,
    /// How long runs may go on when the worker is told to stop; then they are told to, and have their `grace`.
    #[serde(with = "crate::human::duration")]
    pub drain_timeout: Duration,
    /// Threads for jobs; as many as there are cores unless set. No effect on a runtime that the program has made:
    /// [`Worker::run`](crate::Worker::run) says so.
    pub threads: Option<usize>,
    /// Who is told of jobs that break and do not say it themselves: names of `[notices.NAME]`.
    pub notify: Vec<String>,
}

/// How work is spread over the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Each job elects its own leader.
    #[default]
    Shared,
    /// One replica does everything, the others stand by.
    Failover,
}

// === impl WorkerSettings ===

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            name: None,
            namespace: "watchkeeper".to_owned(),
            mode: Mode::Shared,
            priority: 0,
            candidate: true,
            drain_timeout: Duration::from_secs(30),
            threads: None,
            notify: Vec::new(),
        }
    }
}

impl WorkerSettings {
    /// Adds what is wrong. Keys are relative to `[worker]`.
    pub(crate) fn check(&self, found: &mut Findings) {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        refuse_long("namespace", &self.namespace, found);
        if self.namespace.is_empty() || !self.namespace.chars().all(fits) {
            found.error(
                &["namespace"],
                format!(
                    "\"{}\" cannot begin the keys of a store",
                    escape(&self.namespace, is_obeyed)
                ),
                "use letters, digits, '-', '_' and '.'",
            );
        }
        if let Some(name) = &self.name {
            refuse_long("name", name, found);
            if name.contains(is_obeyed) {
                found.error(
                    &["name"],
                    format!(
                        "\"{}\" holds what a terminal would obey",
                        escape(name, is_obeyed)
                    ),
                    "use visible characters and blanks",
                );
            }
        }
        if self
            .name
            .as_ref()
            .is_some_and(|name| name.trim().is_empty())
        {
            found.error(
                &["name"],
                "the name is empty",
                "give one, or leave the key out",
            );
        }
        if self.threads == Some(0) {
            found.error(
                &["threads"],
                "no job could run on 0 threads",
                "write 1 or more, or leave the key out",
            );
        }
    }
}

fn refuse_long(key: &str, name: &str, found: &mut Findings) {
    let length = name.chars().count();
    if length > LONGEST_NAME {
        found.error(
            &[key],
            format!("{length} characters are more than {LONGEST_NAME}"),
            "every document of the fleet repeats it: shorten it",
        );
    }
}
