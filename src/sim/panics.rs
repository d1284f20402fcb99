//! Everything that a user can write panics: it costs what it was called for and nothing else.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use serde_json::{Value, json};

use super::acts::{Starts, leader, ms, quick};
use crate::{
    Worker,
    batch::{BatchJob, BatchLimits},
    config::{Config, Findings, LoadOptions},
    event::Event,
    job::{Health, Hooks, Job, JobError, Outcome, Run, RunEnd, RunHook, Spec},
    status::{FleetStatus, Presence},
    telemetry::metrics::Metrics,
    testing::{cluster::Cluster, members::Member},
    worker::{
        health::{HealthCheck, watch},
        ready::Body,
        reload::{Jobs, Reloader},
    },
};

const SECOND: Duration = Duration::from_secs(1);

/// Where a job panics, and how often.
#[derive(Clone, Default)]
struct Mines(Arc<Mutex<Vec<(&'static str, u32)>>>);

impl Mines {
    fn lay(&self, place: &'static str, times: u32) {
        self.0.lock().unwrap().push((place, times));
    }

    fn step(&self, place: &'static str) {
        let mut mines = self.0.lock().unwrap();
        let mine = mines
            .iter_mut()
            .find(|(at, left)| *at == place && *left > 0);
        let Some((_, left)) = mine else { return };
        *left -= 1;
        drop(mines);
        panic!("stepped on {place}");
    }
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("tick, tick");
    }
}

/// Batches by number, of which each is done once.
struct Work {
    mines: Mines,
    left: Mutex<Vec<String>>,
    done: Arc<AtomicU32>,
    /// So many looks end by a bomb.
    bombs: AtomicU32,
}

#[async_trait]
impl BatchJob for Work {
    async fn pending(&self, _: usize) -> Result<Vec<String>, JobError> {
        self.mines.step("pending");
        let armed = |left: u32| left.checked_sub(1);
        if self
            .bombs
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, armed)
            .is_ok()
        {
            let _bomb = Bomb;
            std::future::pending::<()>().await;
        }
        Ok(self.left.lock().unwrap().clone())
    }

    async fn process(&self, batch: &str, _: Run) -> Result<Outcome, JobError> {
        self.mines.step("process");
        self.left.lock().unwrap().retain(|left| left != batch);
        self.done.fetch_add(1, Ordering::SeqCst);
        Ok(Outcome::Done)
    }

    async fn health(&self) -> Health {
        self.mines.step("health");
        Health::Fit
    }

    fn limits(&self) -> BatchLimits {
        self.mines.step("limits");
        BatchLimits::default()
    }
}

fn work(mines: &Mines, done: &Arc<AtomicU32>, bombs: u32) -> Body {
    Body::Batch(Arc::new(Work {
        mines: mines.clone(),
        left: Mutex::new((0..20).map(|n| n.to_string()).collect()),
        done: done.clone(),
        bombs: AtomicU32::new(bombs),
    }))
}

fn deaths(member: &Member) -> Vec<Duration> {
    let told = member.told.lock().unwrap();
    let pauses = told.iter().filter_map(|event| match event {
        Event::EngineDied { job, why, pause } => {
            assert_eq!((job.as_str(), why.as_str()), ("work", "tick, tick"));
            Some(*pause)
        }
        _ => None,
    });
    pauses.collect()
}

#[tokio::test(start_paused = true)]
async fn whatever_of_a_batch_job_panics_its_engine_lives_and_the_work_is_done() {
    for place in ["limits", "pending", "process", "health"] {
        let fleet = Cluster::new(3);
        let (mines, done) = (Mines::default(), Arc::default());
        mines.lay(place, 7);
        let jobs = vec![("work", work(&mines, &done, 0), Spec::every(SECOND))];
        let a = fleet.join_with("a", jobs, false);
        fleet.sleep(SECOND * 300).await;
        assert_eq!(done.load(Ordering::SeqCst), 20, "{place}");
        assert!(deaths(&a).is_empty(), "{place}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_dies_begins_again_after_a_growing_pause() {
    let fleet = Cluster::new(3);
    let (done, starts) = (Arc::default(), Starts::default());
    let body = Body::Job(Arc::new(quick(&starts)));
    let jobs = vec![
        (
            "work",
            work(&Mines::default(), &done, 3),
            Spec::every(SECOND),
        ),
        ("other", body, Spec::every(SECOND)),
    ];
    let a = fleet.join_with("a", jobs, false);
    let mut ill = 0;
    for _ in 0..120 {
        fleet.sleep(SECOND).await;
        if let Some((job, why)) = a.ctx.local_status.dead_engine() {
            assert_eq!((job.as_str(), why.as_str()), ("work", "tick, tick"));
            ill += 1;
            let presence = Presence {
                jobs: a.ctx.local_status.jobs(),
                ..Presence::default()
            };
            let shown = FleetStatus::from_presences([presence], Vec::new(), fleet.clock().wall());
            let unfit = shown.replicas[0].unfit.clone().unwrap_or_default();
            assert_eq!(
                unfit,
                "the engine of work has died, and begins again: tick, tick"
            );
        }
    }
    // Each look is given up after thirty seconds.
    assert_eq!(deaths(&a), [1, 2, 4].map(|n| SECOND * n));
    assert_eq!(done.load(Ordering::SeqCst), 20);
    // Until it begins, and for as long after it: what dies at once looks ill all the time.
    assert!((10..=18).contains(&ill), "{ill}");
    assert_eq!(a.ctx.local_status.dead_engine(), None);
    assert!(starts.len() > 100, "the other job has not heard of it");
    // Or its definition would be taken for the newest of the fleet.
    let loaded: Vec<_> = a
        .ctx
        .local_status
        .jobs()
        .iter()
        .map(|job| job.loaded)
        .collect();
    assert_eq!(loaded[0], loaded[1], "nothing was loaded since it began");
    a.drain();
    a.ended().await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_whose_engine_waits_after_its_death_drains_and_takes_orders() {
    let fleet = Cluster::new(1);
    let done = Arc::default();
    let jobs = vec![(
        "work",
        work(&Mines::default(), &done, 99),
        Spec::every(SECOND),
    )];
    let a = fleet.join_with("a", jobs, false);
    fleet.sleep(SECOND * 30 + ms(500)).await;
    assert!(a.ctx.local_status.dead_engine().is_some());
    let next = (
        "work",
        work(&Mines::default(), &done, 0),
        Spec::every(SECOND),
    );
    let changes = crate::worker::supervisor::JobChanges {
        begin: vec![crate::testing::members::ready(next)],
        end: Vec::new(),
    };
    a.changer
        .send(changes)
        .await
        .unwrap_or_else(|_| panic!("it is not taken"));
    fleet.sleep(SECOND * 5).await;
    assert_eq!(done.load(Ordering::SeqCst), 20);
    assert_eq!(a.ctx.local_status.dead_engine(), None);
    a.drain();
    a.ended().await;
    assert_eq!(deaths(&a).len(), 1);
}

/// Panics where the mines say; its health at the call, before anything is waited for.
struct Plain {
    mines: Mines,
    starts: Starts,
}

impl Job for Plain {
    fn run<'a, 'b>(
        &'a self,
        run: Run,
    ) -> futures_util::future::BoxFuture<'b, Result<Outcome, JobError>>
    where
        'a: 'b,
        Self: 'b,
    {
        self.mines.step("run");
        self.starts.note(&run);
        Box::pin(async { Ok(Outcome::Done) })
    }

    fn health<'a, 'b>(&'a self) -> futures_util::future::BoxFuture<'b, Health>
    where
        'a: 'b,
        Self: 'b,
    {
        self.mines.step("health");
        Box::pin(async { Health::Fit })
    }
}

struct Hook(Mines);

#[async_trait]
impl RunHook for Hook {
    async fn before(&self, _: &Run) -> Result<(), JobError> {
        self.0.step("before");
        Ok(())
    }

    async fn after(&self, _: &Run, _: &RunEnd) {
        self.0.step("after");
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_of_a_job_or_its_hooks_panics_later_ticks_run() {
    for place in ["run", "health", "before", "after"] {
        let mut fleet = Cluster::new(3);
        let (mines, starts) = (Mines::default(), Starts::default());
        fleet.hooks = Hooks::new([Arc::new(Hook(mines.clone())) as Arc<dyn RunHook>]);
        mines.lay(place, 3);
        let job = Plain {
            mines,
            starts: starts.clone(),
        };
        let a = fleet.join("a", job, Spec::every(SECOND));
        leader(&fleet, &[&a]).await;
        fleet.sleep(SECOND * 60).await;
        assert!(starts.len() > 30, "{place}: {}", starts.len());
        assert!(!a.heard(|event| matches!(event, Event::EngineDied { .. })));
    }
}

#[tokio::test(start_paused = true)]
async fn a_health_check_of_the_replica_that_panics_makes_it_unfit_until_it_does_not() {
    let fleet = Cluster::new(3);
    let a = fleet.join("a", quick(&Starts::default()), Spec::every(SECOND));
    let mines = Mines::default();
    mines.lay("check", 4);
    let check: HealthCheck = Arc::new(move || {
        mines.step("check");
        Box::pin(async { Ok(()) })
    });
    let watched = watch("db".to_owned(), check, a.ctx.clone());
    let watched = a.ctx.spawn.spawn(watched);
    fleet.sleep(ms(100)).await;
    let (why, _) = a.ctx.locks.fitness().unfit().unwrap();
    assert!(
        why.contains("the check panicked: stepped on check"),
        "{why}"
    );
    fleet.sleep(SECOND * 30).await;
    assert_eq!(a.ctx.locks.fitness().unfit().map(|(why, _)| why), None);
    watched.abort();
}

/// Jobs of two kinds: one whose factory panics, one whose check does.
fn with_bad_kinds() -> Worker {
    Worker::with(LoadOptions::default())
        .kind("bad", |params: Value| -> Plain {
            panic!("made of {params}")
        })
        .kind("strict", |_: Value| Plain {
            mines: Mines::default(),
            starts: Starts::default(),
        })
        .check_params("strict", |_: &Value| -> Findings { panic!("too strict") })
}

#[tokio::test(start_paused = true)]
async fn a_reload_that_panics_changes_nothing() {
    let fleet = Cluster::new(1);
    let a = fleet.join("a", quick(&Starts::default()), Spec::every(SECOND));
    for (kind, why) in [
        ("bad", "the kind `bad` panicked: made of {\"x\":1}"),
        ("strict", "the check of the parameters panicked: too strict"),
    ] {
        let file =
            std::env::temp_dir().join(format!("watchkeeper-{}-{kind}.toml", std::process::id()));
        let text = format!(
            "[locks]\nbackend = \"memory\"\n[jobs.new]\nkind = \"{kind}\"\nschedule = \"@every 1m\"\nparams = {{ x = 1 }}\n"
        );
        std::fs::write(&file, text).unwrap();
        let (mut reloader, mut changes) = Reloader::new(
            with_bad_kinds(),
            in_memory(),
            Some(file.clone()),
            Jobs::new(Default::default(), &Default::default()),
            a.ctx.clone(),
            Metrics::new("0"),
        );
        reloader.reload().await;
        let _ = std::fs::remove_file(&file);
        let told = a.ctx.local_status.reload().unwrap();
        let error = told.error.unwrap_or_default();
        assert!(!told.ok && error.contains(why), "{kind}: {error}");
        assert!(changes.try_recv().is_err(), "{kind}: nothing is ordered");
    }
}

fn in_memory() -> Config {
    let mut config = Config::default();
    config.locks.backend = crate::lock::settings::Backend::Memory;
    config
}

#[test]
fn a_kind_that_panics_is_a_fault_of_its_job() {
    let worker = with_bad_kinds();
    let mut spec = Spec::every(SECOND).params(json!({"x": 1}));
    spec.kind = Some("bad".to_owned());
    let why = worker.registry.body("job", &spec).err().unwrap();
    assert_eq!(why, "the kind `bad` panicked: made of {\"x\":1}");
    let found = worker.registry.check_params("strict", &json!({}));
    assert_eq!(
        found.iter().next().unwrap().message,
        "the check of the parameters panicked: too strict"
    );
}
