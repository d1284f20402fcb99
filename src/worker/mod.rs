//! One worker process: configuration in, jobs run, until SIGTERM.
//!
//! ```text
//! configuration -> nodes -> keeper (own thread)
//!                             |
//!     gate (drain, failover) -+- one engine per job -> runs
//!                             |
//!     presence, status page, metrics, log: read the events and the local status, can neither block nor fail the rest
//! ```
//!
//! # The order of a shutdown
//! unready, nothing new starts; runs go on *while their leases are extended in the background*, and are told
//! to stop after `drain_timeout`; outcomes are written; leases are released and announced; what is left of the history is
//! written, for a second at most; the presence document goes; the process ends. A second signal ends it at once.
//!
//! A worker drains on SIGTERM and SIGINT ([`Worker::run`]), when its [`Handle`] is told to stop it, on `drain`, and when the
//! future of its run is dropped: then it winds down by itself, for as long as its runtime lives.
//!
//! # Reload
//! SIGHUP or [`Handle::reload`]: the configuration is read again and checked as a whole; then jobs begin, end, or go on under another definition
//! between two runs. What has not changed hears nothing of it. A faulty configuration changes nothing.
//!
//! ```no_run
//! use watchkeeper::{DurationExt, Outcome, Spec, Worker};
//!
//! # #[tokio::main]
//! # async fn main() -> watchkeeper::Result<()> {
//! let worker = Worker::from_env()?.job_fn("hello", Spec::every(5.secs()), |run| async move {
//!     println!("hello at {}", run.tick());
//!     Ok(Outcome::Done)
//! });
//! let handle = worker.handle(); // stops or reloads it from elsewhere
//! worker.run().await
//! # }
//! ```

#[cfg(feature = "admin")]
mod admin_source;
pub(crate) mod assemble;
mod builder;
pub(crate) mod connect;
mod failover;
mod function;
mod gauges;
#[cfg(any(test, feature = "cli", feature = "admin"))]
pub(crate) mod given;
pub(crate) mod health;
mod heartbeat;
pub(crate) mod presence;
mod process;
pub(crate) mod ready;
pub(crate) mod registry;
pub(crate) mod reload;
pub(crate) mod replica;
mod run;
mod service_manager;
pub(crate) mod start;
// For the command, whose programs open the store of a worker without being any.
#[doc(hidden)] // for the command, whose programs open the store of a worker
pub mod store;
pub(crate) mod supervisor;
#[cfg(any(feature = "cli", feature = "admin"))]
pub(crate) mod token;

pub use builder::WorkerBuilder;

#[cfg(feature = "cli")]
use std::sync::{Mutex, PoisonError};
use std::{future::Future, sync::Arc};

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    batch::BatchJob,
    config::{
        Config, Findings, LoadOptions, Loaded, NoticeCheck, Provenance, check_jobs, load,
        load_to_ask,
    },
    error::{Error, Result},
    event::Events,
    job::{Coordination, Job, JobError, Outcome, Run, RunHook, Spec},
    latest,
    notice::Carrier,
};
use health::HealthCheck;
use ready::Body;
use registry::{Registry, check_by_reading};

/// A worker: the user's jobs, and the configuration they run under.
///
/// ```no_run
/// # use watchkeeper::{Job, JobError, Outcome, Run, Spec, Worker};
/// # struct Report;
/// # #[async_trait::async_trait]
/// # impl Job for Report {
/// #     async fn run(&self, run: Run) -> Result<Outcome, JobError> { Ok(Outcome::Done) }
/// # }
/// #[tokio::main]
/// async fn main() -> watchkeeper::Result<()> {
///     Worker::from_env()?
///         .job("report", Report, Spec::cron("0 8 * * Mon-Fri").zone("Europe/Rome"))
///         .run()
///         .await
/// }
/// ```
#[derive(Clone)]
pub struct Worker {
    pub(crate) options: LoadOptions,
    pub(crate) registry: Registry,
    pub(crate) events: Events,
    pub(crate) checks: Vec<(String, HealthCheck)>,
    pub(crate) hooks: Vec<Arc<dyn RunHook>>,
    /// Makes the receivers of notices.
    pub(crate) carrier: Option<Arc<dyn Carrier>>,
    handle: Handle,
}

/// Stops or reloads a worker from elsewhere in its program; made by [`Worker::handle`]. Cheap to clone, and of no effect when
/// dropped.
#[derive(Clone, Debug, Default)]
pub struct Handle {
    stop: CancellationToken,
    reload: Arc<latest::Sender<()>>,
}

impl Worker {
    /// Configured by the environment of the process: defaults, then the file named by `WATCHKEEPER_CONFIG` (else
    /// `./watchkeeper.toml`, else `./config/default.toml`, else `/etc/watchkeeper/watchkeeper.toml`), then `WATCHKEEPER_*`
    /// variables. Everything is checked by [`Worker::run`], when the jobs are known.
    ///
    /// # Errors
    /// [`Error::Read`] when a file was named that cannot be read.
    pub fn from_env() -> Result<Self> {
        let worker = Self::with(LoadOptions::from_process());
        if let Some(path) = &worker.options.file {
            crate::files::open(path).map_err(|source| Error::Read {
                path: path.clone(),
                source,
            })?;
        }
        Ok(worker)
    }

    /// Configured by these sources.
    #[must_use]
    pub fn with(options: LoadOptions) -> Self {
        let (registry, events) = (Registry::default(), Events::default());
        Self {
            options,
            registry,
            events,
            checks: Vec::new(),
            hooks: Vec::new(),
            carrier: None,
            handle: Handle::default(),
        }
    }

    /// Adds a job. `[jobs.NAME]` in the configuration overrides the keys it names. It takes the place of a job of the same name
    /// that was added before.
    #[must_use]
    pub fn job(mut self, name: &str, job: impl Job, spec: Spec) -> Self {
        self.registry.add_job(name, Body::Job(Arc::new(job)), spec);
        self
    }

    /// Adds a job that is an asynchronous function: called once for each run, and in every other way like
    /// [`Worker::job`]. Any error may be returned with `?`, as from [`Job::run`]; `run.params()` reads the parameters.
    ///
    /// ```
    /// # use watchkeeper::{Outcome, Spec, Worker};
    /// # #[derive(serde::Deserialize)]
    /// # struct Params { path: String }
    /// # fn configured(worker: Worker) -> Worker {
    /// worker.job_fn("size", Spec::cron("@hourly"), |run| async move {
    ///     let Params { path } = run.params()?;
    ///     println!("{} bytes", std::fs::metadata(path)?.len());
    ///     Ok(Outcome::Done)
    /// })
    /// # }
    /// ```
    ///
    /// What the function shares between runs it clones: `move |run| { let db = db.clone(); async move { … } }`.
    #[must_use]
    pub fn job_fn<F, Fut>(self, name: &str, spec: Spec, work: F) -> Self
    where
        F: Fn(Run) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, JobError>> + Send + 'static,
    {
        self.job(name, function::Function(work), spec)
    }

    /// Adds a job that works in batches, claimed by lock: its coordination is [`Coordination::Batch`], whatever the spec
    /// says.
    #[must_use]
    pub fn batch_job(mut self, name: &str, job: impl BatchJob, spec: Spec) -> Self {
        let spec = spec.coordination(Coordination::Batch);
        self.registry
            .add_job(name, Body::Batch(Arc::new(job)), spec);
        self
    }

    /// Adds a kind of job: `[jobs.NAME] kind = "…"` in the configuration makes jobs of it from their `params`. For a
    /// trigger that gives parameters it makes one for each attempt, from both.
    #[must_use]
    pub fn kind<P, J>(mut self, kind: &str, make: impl Fn(P) -> J + Send + Sync + 'static) -> Self
    where
        P: DeserializeOwned + 'static,
        J: Job,
    {
        let make = move |params| Body::Job(Arc::new(make(params)));
        self.registry
            .add_kind(kind, false, make, check_by_reading::<P>);
        self
    }

    /// Adds a kind of batch job.
    #[must_use]
    pub fn batch_kind<P, J>(
        mut self,
        kind: &str,
        make: impl Fn(P) -> J + Send + Sync + 'static,
    ) -> Self
    where
        P: DeserializeOwned + 'static,
        J: BatchJob,
    {
        let make = move |params| Body::Batch(Arc::new(make(params)));
        self.registry
            .add_kind(kind, true, make, check_by_reading::<P>);
        self
    }

    /// Checks the parameters of a kind before anything starts; each finding is reported with its place in the file. Keys are
    /// those of the parameters: `columns.id`.
    ///
    /// The kind is registered before; [`Worker::load`] and [`Worker::run`] refuse a call about one that is not.
    #[must_use]
    pub fn check_params(
        mut self,
        kind: &str,
        check: impl Fn(&Value) -> Findings + Send + Sync + 'static,
    ) -> Self {
        self.registry.set_check(kind, check);
        self
    }

    /// Has `watchkeeper check` look at what the parameters of a kind lead to, such as a database: what differs there is found
    /// before anything starts. Not asked by workers, nor where the parameters themselves are wrong. Runs on a thread of its
    /// own, and may wait for servers.
    /// The kind is registered before, as for [`Worker::check_params`].
    #[doc(hidden)] // for the stock jobs
    #[must_use]
    pub fn look_at(
        mut self,
        kind: &str,
        look: impl Fn(&Value) -> Findings + Send + Sync + 'static,
    ) -> Self {
        self.registry.set_look(kind, look);
        self
    }

    /// Has the page of a worker list and change the items of the jobs of this kind that do not go by themselves.
    /// The kind is registered before, as for [`Worker::check_params`].
    #[cfg(feature = "admin")]
    #[doc(hidden)] // for the stock jobs
    #[must_use]
    pub fn items_of(mut self, kind: &str, items: Arc<dyn crate::fleet::items::KeptItems>) -> Self {
        self.registry.set_items(kind, items);
        self
    }

    /// Parameters of a kind that the configuration alone may say, and no trigger: programs to run, files to write, places
    /// to send to. The right to trigger a job does not include these.
    /// The kind is registered before, as for [`Worker::check_params`].
    #[doc(hidden)] // for the stock jobs
    #[must_use]
    pub fn fixed_params(mut self, kind: &str, keys: &[&str]) -> Self {
        self.registry.set_fixed(kind, keys);
        self
    }

    /// Declares that no run of this kind ever tells its progress ([`Run::progress`](crate::Run::progress)), so that
    /// `progress_deadline` is answered with a warning. The kind is registered before, as for [`Worker::check_params`].
    #[doc(hidden)] // for the stock jobs
    #[must_use]
    pub fn tells_no_progress(mut self, kind: &str) -> Self {
        self.registry.set_silent(kind);
        self
    }

    /// Adds a check of the replica's own health. Asked a few times per ttl; while it fails the replica starts nothing,
    /// stops its work and hands its leases over.
    #[must_use]
    pub fn health<F>(mut self, name: &str, check: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let check: HealthCheck = Arc::new(move || Box::pin(check()));
        self.checks.push((name.to_owned(), check));
        self
    }

    /// Adds something that is called around every run of every job, batches included. Several are called in this order
    /// before a run, and in the reverse order after it.
    #[must_use]
    pub fn hook(mut self, hook: impl RunHook) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// Who makes the receivers of notices (`[notices.NAME]`). Without one the program has none, and its configuration may name none.
    #[doc(hidden)] // for the stock jobs
    #[must_use]
    pub fn carrier(mut self, carrier: impl Carrier) -> Self {
        self.carrier = Some(Arc::new(carrier));
        self
    }

    /// Everything that happens in this worker, as one stream.
    #[must_use]
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Reads and checks the configuration, with the jobs and kinds of this worker.
    ///
    /// # Errors
    /// [`Error::Config`] with every problem at once.
    pub fn load(&self) -> Result<Loaded> {
        load(&self.load_options()).map_err(Error::Config)
    }

    /// The same for `check`: where all is well so far, what the parameters of jobs lead to is looked at, too.
    #[cfg(feature = "cli")]
    pub(crate) fn load_to_check(&self) -> Result<Loaded> {
        let loaded = self.load()?;
        let mut options = self.load_options();
        let registry = self.registry.clone();
        // Asked several times in the course of a load, and looked at once.
        let seen: Mutex<Vec<(String, Value, Findings)>> = Mutex::default();
        options.check_params = Some(Arc::new(move |kind: &str, params: &Value| {
            let mut found = registry.check_params(kind, params);
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            let known = seen.iter().find(|(k, p, _)| k == kind && p == params);
            let there = match known {
                Some((.., there)) => there.clone(),
                None if !found.is_empty() => Findings::default(),
                None => {
                    let look = || registry.look_at(kind, params);
                    let looked = std::thread::scope(|threads| threads.spawn(look).join());
                    let there = looked.unwrap_or_default();
                    seen.push((kind.to_owned(), params.clone(), there.clone()));
                    there
                }
            };
            there.into_iter().for_each(|finding| found.push(finding));
            found
        }));
        let there = load(&options).map_err(Error::Config)?;
        Ok(Loaded {
            problems: there.problems,
            ..loaded
        })
    }

    /// The same for a command that asks something of a fleet: whether the parameters of jobs fit this machine is not
    /// looked at.
    ///
    /// # Errors
    /// As [`Worker::load`].
    #[doc(hidden)] // for the commands
    pub fn load_to_ask(&self) -> Result<Loaded> {
        load_to_ask(&self.load_options()).map_err(Error::Config)
    }

    /// Checks jobs under these settings; `provenance` says where they come from.
    pub(crate) fn check_jobs(&self, config: &Config, provenance: &Provenance) -> Result<()> {
        check_jobs(config, &self.load_options(), provenance).map_err(Error::Config)
    }

    fn load_options(&self) -> LoadOptions {
        let registry = self.registry.clone();
        let mut options = self.options.clone();
        options.kinds = registry.kinds();
        options.kindless = registry.kindless();
        options.specs = registry.specs();
        options.check_params = Some(Arc::new(move |kind: &str, params: &Value| {
            registry.check_params(kind, params)
        }));
        let registry = self.registry.clone();
        let work_of = move |name: &str, spec: &Spec| registry.work_of(name, spec);
        options.work_of = Some(Arc::new(work_of));
        options.check_notice = self.carrier.clone().map(|carrier| {
            let check: NoticeCheck = Arc::new(move |settings| carrier.check(settings));
            check
        });
        options
    }

    /// Stops this worker and its clones, while they run or before; or reloads those that run.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

// === impl Handle ===

impl Handle {
    /// Tells the worker to drain, as SIGTERM does: nothing new starts, what runs may end, leases are handed over, then
    /// [`Worker::run`] returns. Returns at once. A worker that is told before it runs drains as soon as it does.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Tells the worker to read its configuration again, as SIGHUP does: jobs begin, end or go on under another definition, and
    /// a faulty configuration changes nothing. Returns at once; the log and [`Event::Reloaded`](crate::event::Event::Reloaded)
    /// say what came of it. A worker that does not run yet reads its configuration when it does.
    pub fn reload(&self) {
        self.reload.send_replace(());
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("registry", &self.registry)
            .finish_non_exhaustive()
    }
}
