//! One replica: the engines of all jobs behind one gate. Knows nothing of processes, so that a simulation can run many.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use jiff::Timestamp;

use super::{
    crew::{Desk, Supervisor},
    registry::Body,
};
use crate::{
    batch::engine::BatchEngine,
    due::Policy,
    election::Elector,
    event::Event,
    job::{Coordination, Spec},
    lease::LeaseView,
    panics::caught_later,
    run::Gate,
    schedule::Schedule,
    scheduler::{Context, Engine, NextDefinition, WHOLE_REPLICA},
    status::{JobPresence, Standing},
};

/// The key of the lock that makes one replica the active one of a failover fleet.
const REPLICA_LOCK: &str = WHOLE_REPLICA;

/// How long the history of the last runs may take to be written when the worker drains.
const LAST_HISTORY: Duration = Duration::from_secs(1);

/// A job, ready to run. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Ready {
    pub(crate) name: String,
    pub(crate) body: Body,
    pub(crate) spec: Arc<Spec>,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) policy: Policy,
}

/// A check of the replica's own health: fit, or why not.
pub(crate) type HealthCheck =
    Arc<dyn Fn() -> futures_util::future::BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// One replica.
pub(crate) struct Replica {
    pub(crate) ctx: Context,
    pub(crate) jobs: Vec<Ready>,
    pub(crate) failover: bool,
    pub(crate) checks: Vec<(String, HealthCheck)>,
}

impl Replica {
    /// Runs all jobs, following the orders of reloads, until the gate drains and everything has wound down.
    pub(crate) async fn run_with(self, desk: Desk) {
        let ctx = self.ctx;
        let (intents, locks) = (ctx.intents.clone(), ctx.locks.clone());
        let intents = intents.follow(locks, ctx.clock.clone(), ctx.board.clone());
        let intents = ctx.spawn.spawn(intents);
        let recall =
            ctx.recall
                .clone()
                .follow(ctx.locks.clone(), ctx.clock.clone(), ctx.intents.pace());
        let recall = ctx.spawn.spawn(recall);
        let crew = Supervisor::begin(ctx.clone(), self.failover, self.jobs);
        let crew = ctx.spawn.spawn(crew.work(desk));
        let guard = (self.failover && ctx.place.candidate)
            .then(|| ctx.spawn.spawn(hold_the_gate(ctx.clone())));
        let checks: Vec<_> = self
            .checks
            .into_iter()
            .map(|(name, check)| ctx.spawn.spawn(watch(name, check, ctx.clone())))
            .collect();
        let drain = ctx.gate.drain();
        tokio::select! {
            biased;
            () = drain.cancelled() => {}
            asked = ctx.intents.drain(&ctx.replica) => {
                tracing::info!(by = asked.by, "asked to drain");
                // As a signal does it.
                drain.cancel();
            }
        }
        ctx.events.tell(Event::Draining);
        ctx.board.told();
        let _ = crew.await;
        if let Some(guard) = guard {
            let _ = guard.await;
        }
        checks.iter().for_each(tokio::task::JoinHandle::abort);
        intents.abort();
        recall.abort();
        // What became of the last triggers.
        let last = ctx.intents.refresh(&ctx.locks);
        let _ = ctx.clock.timeout(LAST_HISTORY, last).await;
        // After everything was handed over: nobody waits for it.
        ctx.history.flush(LAST_HISTORY).await;
        ctx.locks.settle().await;
    }
}

/// The engine of one job. It stands in one place and is borrowed from there: moved into a task, each of its stages would
/// have room for another one.
pub(super) fn run_job(
    job: Ready,
    ctx: Context,
    successor: NextDefinition,
    loaded: Timestamp,
) -> BoxFuture<'static, ()> {
    let Ready {
        name,
        body,
        spec,
        schedule,
        policy,
    } = job;
    let job = match body {
        Body::Batch(job) => {
            let engine = BatchEngine {
                name,
                job,
                spec,
                ctx,
            };
            return Box::pin(engine.run());
        }
        Body::Job(job) => job,
    };
    let print = spec.fingerprint();
    let coordination = spec.coordination;
    let mut engine = Box::new(Engine {
        name,
        job,
        spec,
        schedule,
        policy,
        print,
        loaded,
        successor,
        ahead: std::sync::Mutex::default(),
        ctx,
    });
    match coordination {
        Coordination::Everywhere => Box::pin(async move { engine.run_everywhere().await }),
        Coordination::Tick => Box::pin(async move { engine.run_by_tick().await }),
        Coordination::Leader | Coordination::Batch => {
            Box::pin(async move { engine.run_led().await })
        }
    }
}

/// Failover mode: opens the gate while this replica holds the replica lock. The engines watch their jobs' locks all the while,
/// so that they have them as soon as it is open.
async fn hold_the_gate(ctx: Context) {
    let elector = Elector::for_key(&ctx.locks, REPLICA_LOCK.to_owned())
        .hesitating(ctx.hesitation(REPLICA_LOCK, None));
    let drain = ctx.gate.drain().clone();
    while !drain.is_cancelled() {
        let elected = tokio::select! {
            biased;
            () = drain.cancelled() => return,
            elected = elector.campaign_timed() => elected,
        };
        let Ok(elected) = elected else {
            ctx.clock.sleep(Duration::from_secs(1)).await;
            continue;
        };
        let lease = elected.term.lease().clone();
        let (job, token) = ("replica".to_owned(), lease.token());
        ctx.events.tell(Event::Leading {
            job,
            token,
            leaderless: elected.leaderless,
        });
        ctx.gate.hold(lease.clone());
        let held = async {
            let why = tokio::select! {
                biased;
                () = drain.cancelled() => crate::lease::Loss::Released,
                why = lease.closing() => why,
            };
            ctx.gate.close();
            // The passes of all jobs hold the lease: it is handed over when the last of them has wound down.
            while lease.work_in_flight() > 0 && lease.is_held() {
                lease.work_changed().await;
            }
            why
        };
        // Also while the jobs wind down: work that is told only at the end of the lease outlives it.
        let why = tokio::select! {
            biased;
            why = held => why,
            never = cordon_in_time(&lease, &ctx) => match never {},
        };
        elected.term.resign().await;
        ctx.events.tell(Event::StandingBy {
            job: "replica".to_owned(),
            why,
        });
    }
}

/// Closes a lease that could not be extended so early that the work under it can still end before it does.
async fn cordon_in_time(lease: &LeaseView, ctx: &Context) -> Infallible {
    let timing = ctx.locks.timing();
    let margin = timing.cancel_margin(lease.ttl(), timing.grace);
    while lease.is_open() {
        // Extensions move it on.
        let at = lease.valid_until().back(margin);
        if ctx.clock.now() >= at {
            lease.cordon("the replica lock is about to end and could not be extended");
        } else {
            ctx.clock.sleep_until(at).await;
        }
    }
    std::future::pending().await
}

/// Reports a health check of the replica to the keeper, again and again.
pub(crate) async fn watch(name: String, check: HealthCheck, ctx: Context) {
    let mut was_fit = true;
    loop {
        let limit = ctx.locks.timing().ttl / 2;
        let verdict = match ctx.clock.timeout(limit, caught_later(&*check)).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(panic)) => Err(format!("the check panicked: {panic}")),
            Err(_) => Err("no answer in time".to_owned()),
        };
        if verdict.is_ok() != was_fit {
            was_fit = verdict.is_ok();
            let unfit = verdict.as_ref().err().map(|why| format!("{name}: {why}"));
            ctx.events.tell(Event::Fitness {
                job: "replica".to_owned(),
                unfit,
            });
        }
        ctx.locks.fitness().report(&name, verdict);
        ctx.clock.sleep(ctx.health_every()).await;
    }
}

impl Ready {
    /// Whether one replica leads it.
    pub(super) fn is_led(&self) -> bool {
        matches!(self.body, Body::Job(_)) && self.spec.coordination != Coordination::Everywhere
    }
}

pub(super) fn min_terms<'a>(jobs: impl Iterator<Item = &'a Ready>) -> BTreeMap<String, Duration> {
    // A lock that is taken for a tick is given back before anybody could hand it over.
    let led = jobs.filter(|job| job.is_led() && job.spec.coordination != Coordination::Tick);
    led.map(|job| (job.name.clone(), job.spec.min_term))
        .collect()
}

pub(super) fn presence_of(job: &Ready) -> JobPresence {
    JobPresence {
        name: job.name.clone(),
        coordination: job.spec.coordination.to_string(),
        schedule: job.schedule.to_string(),
        zone: job.schedule.zone().map(str::to_owned),
        definition: job.spec.fingerprint().whole,
        standing: Standing::StandingBy,
        ..JobPresence::default()
    }
}

/// A gate for this mode.
pub(crate) fn gate(failover: bool) -> Gate {
    if failover {
        Gate::failover()
    } else {
        Gate::open()
    }
}
