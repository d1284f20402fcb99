//! Reads the configuration again, and changes the jobs of a running worker.
//!
//! # Invariants
//! - All is checked before anything changes; a faulty configuration changes nothing.   (a_faulty_file_changes_nothing_and_says_why)
//! - A configuration without any job changes nothing where there are some.   (an_empty_file_is_no_reload)
//! - Jobs are checked under the settings in effect, not under those that wait for a restart.
//!   (jobs_are_checked_under_the_settings_in_effect)
//! # When things fail
//! Every fault is logged as `check` shows it; the worker goes on, and status and metrics show that the last reload failed.

mod plan;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
};

use tokio::sync::mpsc;

use super::{
    Worker,
    gauges::declare,
    ready::Ready,
    registry::Registry,
    supervisor::{Changes, JobChanges, TAKEN},
};
use crate::{
    config::{Config, Problems, Severity},
    error::Error,
    event::Event,
    job::{Spec, shard::names_of},
    scheduler::Context,
    status::ReloadStatus,
    telemetry::metrics::Metrics,
};
pub(crate) use plan::{Reload, plan};

/// The jobs that are configured now. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Jobs(Arc<RwLock<Specs>>);

/// Shared with the engines.
type Specs = BTreeMap<String, Arc<Spec>>;

/// Reloads one worker.
pub(crate) struct Reloader {
    worker: Worker,
    /// In effect since the start, without its jobs.
    config: Config,
    /// In effect since the last reload.
    jobs: Jobs,
    changer: mpsc::Sender<JobChanges>,
    ctx: Context,
    metrics: Metrics,
}

// === impl Jobs ===

impl Jobs {
    pub(crate) fn new(jobs: BTreeMap<String, Spec>, registry: &Registry) -> Self {
        let jobs = jobs.into_iter().map(|(name, spec)| {
            let spec = registry.shared(&name, spec);
            (name, spec)
        });
        Self(Arc::new(RwLock::new(jobs.collect())))
    }

    pub(super) fn all(&self) -> Specs {
        let jobs = self.0.read().unwrap_or_else(PoisonError::into_inner);
        jobs.clone()
    }

    /// Also by the name of a shard.
    #[cfg(feature = "admin")]
    pub(super) fn get(&self, job: &str) -> Option<Spec> {
        let jobs = self.0.read().unwrap_or_else(PoisonError::into_inner);
        crate::job::shard::spec_of(&jobs, job).cloned()
    }

    fn set(&self, jobs: Specs) {
        let mut place = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *place = jobs;
    }
}

// === impl Reloader ===

impl Reloader {
    /// For a worker that runs with `config`, and where its replica reads what is to change.
    pub(crate) fn new(
        mut worker: Worker,
        config: Config,
        file: Option<PathBuf>,
        jobs: Jobs,
        ctx: Context,
        metrics: Metrics,
    ) -> (Self, Changes) {
        if file.is_some() {
            // A file that is gone is a fault, and no configuration without jobs.
            worker.options.file = file;
        }
        let (changer, changes) = mpsc::channel(1);
        let now = ctx.locks.wall();
        ctx.events.tell(Event::Reloaded { ok: true, at: now });
        let reloader = Self {
            worker,
            config,
            jobs,
            changer,
            ctx,
            metrics,
        };
        (reloader, changes)
    }

    /// Reads the configuration again and takes up what it says of jobs.
    pub(crate) async fn reload(&mut self) {
        let at = self.ctx.locks.wall();
        let mut needs_restart = Vec::new();
        let read = self.read(&mut needs_restart);
        let error = match &read {
            Ok(_) => None,
            Err(Error::Config(problems)) => Some(judged(told(problems), &needs_restart)),
            Err(error) => {
                tracing::error!(%error, "the configuration is faulty");
                Some(error.to_string())
            }
        };
        if let Ok((jobs, reload, changes)) = read {
            self.take_up(jobs, &reload, changes).await;
        } else {
            tracing::error!(
                why = error,
                "the configuration was not reloaded: nothing has changed, and the worker goes on with the old one"
            );
        }
        let ok = error.is_none();
        self.ctx.events.tell(Event::Reloaded { ok, at });
        self.ctx.local_status.reloaded(ReloadStatus {
            at,
            ok,
            error,
            needs_restart,
        });
    }

    /// The new jobs, how the configuration differs, and what is to be done about it; nothing has changed yet. Fills in which keys have
    /// changed that wait for a restart, also where the rest is faulty.
    fn read(&self, needs_restart: &mut Vec<String>) -> Result<(Specs, Reload, JobChanges), Error> {
        let mut loaded = self.worker.load()?;
        if !self.jobs.all().is_empty() {
            loaded = loaded.still_runnable().map_err(Error::Config)?;
        }
        for warning in &loaded.problems {
            tracing::warn!("{warning}");
        }
        let known = self.jobs.all();
        let jobs = known.iter();
        let jobs = jobs.map(|(name, spec)| (name.clone(), Spec::clone(spec)));
        let was = Config {
            jobs: jobs.collect(),
            ..self.config.clone()
        };
        let reload = plan(&was, &loaded.config);
        needs_restart.clone_from(&reload.needs_restart);
        let config = Config {
            jobs: loaded.config.jobs,
            ..was
        };
        if !reload.needs_restart.is_empty() {
            self.worker.check_jobs(&config, &loaded.provenance)?;
        }
        let jobs: Specs = config
            .jobs
            .into_iter()
            .map(|(name, spec)| match known.get(&name) {
                // The one that its engine has.
                Some(known) if **known == spec => (name, known.clone()),
                _ => (name, Arc::new(spec)),
            })
            .collect();
        let begin = reload.added.iter().chain(&reload.changed);
        let begin: Result<Vec<Vec<Ready>>, Error> = begin
            .filter_map(|name| Some(self.worker.registry.ready(name, jobs.get(name)?)))
            .collect();
        let changes = JobChanges {
            begin: begin?.concat(),
            end: ended(&reload, &known, &jobs),
        };
        Ok((jobs, reload, changes))
    }

    async fn take_up(&mut self, jobs: Specs, reload: &Reload, changes: JobChanges) {
        for job in &changes.begin {
            declare(&self.metrics, job, &self.ctx);
        }
        // The replica takes them one after the other, at once; one that does not is about to end.
        let sent = self
            .ctx
            .clock
            .timeout(TAKEN, self.changer.send(changes))
            .await;
        if !matches!(sent, Ok(Ok(()))) {
            tracing::warn!("the worker is about to end: the reload has no effect");
            return;
        }
        self.jobs.set(jobs);
        let Reload {
            added,
            removed,
            changed,
            unchanged,
            needs_restart,
        } = reload;
        tracing::info!(
            added = added.join(", "),
            removed = removed.join(", "),
            changed = changed.join(", "),
            unchanged = unchanged.len(),
            "configuration reloaded"
        );
        if !needs_restart.is_empty() {
            tracing::warn!(
                keys = needs_restart.join(", "),
                "these keys have changed and are not in effect: restart the worker"
            );
        }
    }
}

/// The jobs that end: those that are removed with all their shards, and of those that are changed the shards that there are no
/// more.
fn ended(reload: &Reload, was: &Specs, is: &Specs) -> Vec<String> {
    let names = |jobs: &Specs, name: &String| {
        let spec = jobs.get(name).filter(|spec| spec.enabled);
        spec.map_or_else(Vec::new, |spec| names_of(name, spec))
    };
    let touched = reload.removed.iter().chain(&reload.changed);
    let gone = touched.flat_map(|name| {
        let stay: BTreeSet<String> = names(is, name).into_iter().collect();
        let all = names(was, name).into_iter();
        all.filter(move |name| !stay.contains(name))
    });
    gone.collect()
}

/// Writes every fault to the log, and says the first one and how many there are.
/// What is wrong, and why it may be none where keys have changed that wait for a restart.
fn judged(error: String, needs_restart: &[String]) -> String {
    match needs_restart {
        [] => error,
        keys => format!(
            "{error} (by the settings in effect: {} differ in the file, and take effect at a restart)",
            keys.join(", ")
        ),
    }
}

fn told(problems: &Problems) -> String {
    let mut first = String::new();
    let mut errors = 0_usize;
    for problem in problems {
        if problem.severity == Severity::Error {
            tracing::error!("{problem}");
            errors += 1;
            if first.is_empty() {
                let text = problem.to_string();
                first = text.split_whitespace().collect::<Vec<_>>().join(" ");
            }
        } else {
            tracing::warn!("{problem}");
        }
    }
    match errors {
        0 | 1 => first,
        n => format!("{first} (and {} more)", n - 1),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        config::{LoadOptions, Provenance},
        job::{Job, JobError, Outcome, Run},
    };

    struct Nothing;

    #[async_trait::async_trait]
    impl Job for Nothing {
        async fn run(&self, _: Run) -> Result<Outcome, JobError> {
            Ok(Outcome::Done)
        }
    }

    #[test]
    fn an_empty_file_is_no_reload() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("w.toml");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let options = LoadOptions {
                file: Some(file.clone()),
                root: folder.path().to_owned(),
                ..LoadOptions::default()
            };
            Worker::with(options).load().unwrap().still_runnable()
        };
        for text in ["", "[locks]\n"] {
            let problems = read(text).unwrap_err();
            let said = told(&problems);
            assert!(said.contains("w.toml: jobs: no job is left"), "{said}");
        }
        // A replica that only shows and commands the fleet has none.
        assert!(read("worker.candidate = false").is_ok());
    }

    #[test]
    fn a_reload_ends_the_shards_that_there_are_no_more() {
        let sharded = |shards| {
            let spec = Spec::every(Duration::from_secs(60));
            Arc::new(Spec { shards, ..spec })
        };
        let jobs = |all: &[(&str, Option<usize>)]| -> Specs {
            let jobs = all.iter();
            jobs.map(|(name, n)| ((*name).to_owned(), sharded(*n)))
                .collect()
        };
        let was = jobs(&[
            ("less", Some(4)),
            ("more", Some(1)),
            ("one", Some(2)),
            ("many", None),
            ("gone", Some(2)),
        ]);
        let is = jobs(&[
            ("less", Some(2)),
            ("more", Some(3)),
            ("one", None),
            ("many", Some(2)),
        ]);
        let reload = Reload {
            removed: vec!["gone".to_owned()],
            changed: ["less", "more", "one", "many"].map(str::to_owned).to_vec(),
            ..Reload::default()
        };
        let ends = ended(&reload, &was, &is);
        assert_eq!(
            ends,
            [
                "gone.0", "gone.1", "less.2", "less.3", "one.0", "one.1", "many"
            ]
        );
    }

    #[test]
    fn jobs_are_checked_under_the_settings_in_effect() {
        let spec = Spec::every(Duration::from_secs(60)).ttl(Duration::from_secs(50));
        let worker = Worker::with(LoadOptions::default()).job("report", Nothing, spec.clone());
        let in_effect = Config {
            jobs: BTreeMap::from([("report".to_owned(), spec)]),
            ..Config::default()
        };
        // As a file has them that raises max_ttl, too: that waits for a restart.
        let mut read = in_effect.clone();
        read.locks.max_ttl = Duration::from_secs(60);
        let check = |config: &Config| worker.check_jobs(config, &Provenance::default());
        check(&read).unwrap();
        let Err(Error::Config(problems)) = check(&in_effect) else {
            panic!("it would run with a ttl that no node takes")
        };
        assert!(told(&problems).contains("jobs.report.ttl"), "{problems}");
        let keys = plan(&in_effect, &read).needs_restart;
        let said = judged(told(&problems), &keys);
        assert!(said.contains("locks.max_ttl differ in the file"), "{said}");
        assert_eq!(judged(told(&problems), &[]), told(&problems));
    }
}
