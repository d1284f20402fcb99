//! A worker whose settings are typed in code.

use super::Worker;
use crate::config::{
    AdminSettings, CodeSettings, LoadOptions, LockSettings, Mode, TelemetrySettings, WorkerSettings,
};

/// Settings in code, made by [`Worker::builder`]. What is not set has its default, and nothing else is read: neither a file
/// nor the environment, unless [`WorkerBuilder::with_env`] asks for them.
///
/// The rules are those of the file. [`Worker::run`] and [`Worker::load`] tell all faults at once and name each setting as
/// in the file: `code: locks.ttl: 40s is longer than max_ttl (30s); lower ttl or raise max_ttl`.
///
/// ```
/// use watchkeeper::{DurationExt, Worker, config::{AdminSettings, LockSettings, Secret}};
///
/// let nodes = ["redis://lock-a:6379", "redis://lock-b:6379", "redis://lock-c:6379"];
/// let worker = Worker::builder()
///     .namespace("billing")
///     .locks(LockSettings::redis(nodes).ttl(5.secs()).password(Secret::new("from your vault")))
///     .admin(AdminSettings::listen(([127, 0, 0, 1], 0)))
///     .build();
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct WorkerBuilder {
    code: CodeSettings,
    env: bool,
}

// === impl Worker ===

impl Worker {
    /// Configured by code: typed settings, and neither a file nor the environment unless
    /// [`with_env`](WorkerBuilder::with_env) asks for them.
    pub fn builder() -> WorkerBuilder {
        WorkerBuilder::default()
    }
}

// === impl WorkerBuilder ===

impl WorkerBuilder {
    /// The replica's name in lists and logs; host and process id unless set.
    pub fn name(self, name: impl Into<String>) -> Self {
        self.with_worker(|worker| worker.name = Some(name.into()))
    }

    /// All replicas with the same namespace and store are one fleet.
    pub fn namespace(self, name: impl Into<String>) -> Self {
        self.with_worker(|worker| worker.namespace = name.into())
    }

    /// How work is spread over the fleet.
    pub fn mode(self, mode: Mode) -> Self {
        self.with_worker(|worker| worker.mode = mode)
    }

    /// All of `[worker]`, in place of what was set of it before.
    pub fn worker(self, settings: WorkerSettings) -> Self {
        self.with_worker(|worker| *worker = settings)
    }

    /// Where the locks live, and how long a lease lasts.
    pub fn locks(mut self, settings: LockSettings) -> Self {
        self.code.locks = Some(settings);
        self
    }

    /// Where health, metrics and the status page are served.
    pub fn admin(mut self, settings: AdminSettings) -> Self {
        self.code.admin = Some(settings);
        self
    }

    /// The log. It has no effect in a program that has set up one of its own.
    pub fn telemetry(mut self, settings: TelemetrySettings) -> Self {
        self.code.telemetry = Some(settings);
        self
    }

    /// Reads the file and the environment as [`Worker::from_env`] does: they override, key by key, what is set here.
    pub fn with_env(mut self) -> Self {
        self.env = true;
        self
    }

    /// The worker, without jobs. Everything is checked by [`Worker::run`], when the jobs are known.
    #[must_use]
    pub fn build(self) -> Worker {
        let options = match self.env {
            true => LoadOptions {
                code: self.code,
                ..LoadOptions::from_process()
            },
            false => LoadOptions::code_only(self.code),
        };
        Worker::with(options)
    }

    fn with_worker(mut self, set: impl FnOnce(&mut WorkerSettings)) -> Self {
        set(self.code.worker.get_or_insert_default());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{Findings, Problem},
        error::Error,
        job::{Job, JobError, Outcome, Run},
    };

    #[test]
    fn settings_in_code_look_at_nothing_else_unless_asked_to() {
        let alone = Worker::builder().namespace("a").build().options;
        assert!(alone.env.is_empty() && alone.places.is_empty());
        let with_env = Worker::builder().namespace("a").with_env().build().options;
        assert!(!with_env.env.is_empty() && with_env.places.len() == 3);
        assert_eq!(with_env.code.worker.unwrap().namespace, "a");
    }

    struct Pages;

    #[async_trait::async_trait]
    impl Job for Pages {
        async fn run(&self, _: Run) -> Result<Outcome, JobError> {
            Ok(Outcome::Done)
        }
    }

    /// What is wrong with a program that says these about its kinds.
    fn refused(tell: impl FnOnce(Worker) -> Worker) -> Vec<String> {
        let worker = Worker::builder().locks(LockSettings::memory()).build();
        match tell(worker).load() {
            Err(Error::Config(problems)) => problems.iter().map(Problem::to_string).collect(),
            Err(other) => panic!("{other}"),
            Ok(_) => Vec::new(),
        }
    }

    #[test]
    fn what_is_said_of_a_kind_that_does_not_exist_is_refused() {
        let kinds = |worker: Worker| {
            let pages = worker.kind("pages", |(): ()| Pages);
            pages.kind("mail", |(): ()| Pages)
        };
        let told = refused(|worker| {
            kinds(worker)
                .fixed_params("pagse", &["command"])
                .check_params("report", |_| Findings::default())
                .tells_no_progress("mail")
        });
        assert_eq!(
            told,
            [
                "code: fixed_params(\"pagse\", …): there is no kind \"pagse\"; \
                 did you mean \"pages\"? known kinds: mail, pages",
                "code: check_params(\"report\", …): there is no kind \"report\"; \
                 register it first, with Worker::kind or Worker::batch_kind; known kinds: mail, pages",
            ]
        );
        let none = refused(|worker| worker.fixed_params("pages", &[]));
        assert!(none[0].ends_with("this program has no kinds"), "{none:?}");
        let none = refused(|worker| kinds(worker).fixed_params("pages", &["command"]));
        assert!(none.is_empty(), "{none:?}");
    }

    #[test]
    fn what_is_said_of_a_kind_before_it_is_registered_is_refused() {
        let told = refused(|worker| {
            let early = worker.fixed_params("pages", &["command"]);
            early.kind("pages", |(): ()| Pages)
        });
        assert_eq!(
            told,
            [
                "code: fixed_params(\"pages\", …) comes before the kind itself, and has no effect; \
                 call it after Worker::kind or Worker::batch_kind"
            ]
        );
    }
}
