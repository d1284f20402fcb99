//! What surrounds a replica in its own process: signals, heartbeat, status page, metrics, log, presence.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::{sync::oneshot, task::JoinError};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    Worker,
    presence::{self, Identity},
    registry::Registry,
    reload::{Jobs, Reloader},
    replica::{Ready, Replica, gate},
    seeing, start, store,
};
use crate::{
    Locks,
    chance::Chance,
    clock::Clock,
    config::{Config, Loaded, Mode},
    error::{Error, Result},
    event::Event,
    job::{Coordination, Hooks, Spec},
    panics::message,
    scheduler::{Author, Board, Context, History, Intents, Place, Recall},
    signals::{Signal, Signals},
    spawn::Spawn,
    status::{HeldItems, replica_id},
    telemetry::{
        event_log::{self, EventLog},
        metrics::{HeldTerm, Metrics},
    },
};

/// Time between two beats of the runtime's heart.
const BEAT: Duration = Duration::from_millis(50);

/// Runs the worker until a signal drains it, or `told`. When the future is dropped, what has started drains by itself.
pub(super) async fn run(
    worker: Worker,
    mut loaded: Loaded,
    mut signals: Option<Signals>,
    told: CancellationToken,
) -> Result<()> {
    for warning in &loaded.problems {
        tracing::warn!("{warning}");
    }
    say_what_begins(&loaded);
    // Where each value of each job came from is not asked any more, and takes more room than the jobs.
    let mut config = std::mem::take(&mut loaded.config);
    let file = loaded.file.clone();
    drop(loaded);
    let clock = Clock::system();
    let chance = Chance::system();
    let spawn = Spawn::system();
    let events = worker.events.clone();
    let jobs_now = Jobs::new(std::mem::take(&mut config.jobs));
    let jobs = ready_jobs(&worker, &jobs_now)?;

    let stop = CancellationToken::new();
    // Whichever way this ends: observers must not outlive it.
    let observers = stop.clone().drop_guard();
    EventLog::follow(&events, &spawn, stop.clone());
    let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
    metrics.follow(&events, &clock, &spawn, stop.clone());

    let grace = jobs
        .iter()
        .map(|job| job.spec.grace)
        .max()
        .unwrap_or(Duration::from_secs(10));
    let nonce: String = chance.id().chars().take(8).collect();
    let locks = store::open(&config.locks, &config.worker.namespace, &clock, grace)?
        .tag(nonce.clone())
        .chance(chance.clone())
        .events(events.clone())
        .start()
        .map_err(Error::Process)?;
    store::refuse_twins(&locks).await?;
    store::refuse_closed(&locks).await?;
    let beat = AbortOnDropHandle::new(spawn.spawn(beat(locks.clone())));

    let failover = config.worker.mode == Mode::Failover;
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let pid = std::process::id();
    let id = replica_id(&host, pid, &nonce);
    let name = config.worker.name.clone();
    let author = Author {
        id: id.clone(),
        ring: name.clone().unwrap_or_else(|| host.clone()),
        name: name.unwrap_or_else(|| format!("{host}-{pid}")),
    };
    let ctx = Context {
        locks: locks.clone(),
        clock: clock.clone(),
        chance,
        spawn: spawn.clone(),
        events: events.clone(),
        board: Board::default(),
        gate: gate(failover),
        history: History::new(locks.clone(), clock.clone(), spawn.clone(), author.clone()),
        intents: Intents::default(),
        recall: Recall::default(),
        hooks: Hooks::new(worker.hooks.iter().cloned()),
        place: Place::new(
            &id,
            config.worker.priority,
            config.worker.candidate,
            failover,
        ),
        replica: id.clone(),
        drain_timeout: config.worker.drain_timeout,
    };
    spawn.spawn(follow_backlog(ctx.clone(), stop.clone()));
    for job in jobs.iter().filter(|job| job.spec.enabled) {
        declare(&metrics, job, locks.wall());
    }
    let board = ctx.board.clone();
    metrics.terms_from(move || {
        let held = board
            .leases()
            .into_iter()
            .filter(|(_, lease)| lease.is_held());
        let term = |(job, lease): (String, crate::lease::LeaseView)| HeldTerm {
            job,
            token: lease.token(),
            remaining: lease.remaining(),
            margin: lease.margin(),
        };
        held.map(term).collect()
    });
    let (board, fleet) = (ctx.board.clone(), locks.clone());
    metrics.overdue_from(move || board.overdue(fleet.wall()));
    let (board, intents) = (ctx.board.clone(), ctx.intents.clone());
    metrics.paused_from(move || {
        let jobs = board.names().into_iter();
        jobs.map(|job| (intents.is_paused(&job), job))
            .map(|(paused, job)| (job, paused))
            .collect()
    });
    for node in locks.nodes().await? {
        metrics.declare_node(&node.name, node.answers);
    }
    let board = ctx.board.clone();
    metrics.ahead_from(move || board.ahead_of_clock());
    let mut me = Identity {
        name: author.name,
        id,
        host,
        pid,
        started: locks.wall(),
        mode: if failover { "failover" } else { "shared" },
        admin: None,
    };
    #[cfg(feature = "admin")]
    let admin = super::page::start(
        &config,
        &worker.registry,
        &mut me,
        &ctx,
        metrics.clone(),
        jobs_now.clone(),
        stop.clone(),
    )
    .await?;
    #[cfg(not(feature = "admin"))]
    let admin = None::<tokio::task::JoinHandle<()>>;
    tracing::info!(
        replica = me.id,
        name = me.name,
        mode = me.mode,
        jobs = jobs.len(),
        page = me.admin.as_ref().map(|at| format!("http://{at}/")),
        "worker started"
    );
    start::show_jobs(&jobs, locks.wall());

    let presence = AbortOnDropHandle::new(spawn.spawn(presence::publish(me.clone(), ctx.clone())));
    let replica = Replica {
        ctx: ctx.clone(),
        jobs,
        failover,
        checks: worker.checks.clone(),
    };
    let (mut reloader, desk) = Reloader::new(worker, config, file, jobs_now, ctx.clone(), metrics);
    let running = spawn.spawn(replica.run_with(desk));
    // A task of its own: it goes on when nobody waits for the worker any more.
    let (tell, mut winding_down) = oneshot::channel();
    {
        let (me, ctx) = (me.clone(), ctx.clone());
        spawn.spawn(async move {
            let ended = survived(running.await);
            if let Err(error) = &ended {
                tracing::error!(%error, "nothing runs here any more");
            }
            drop(presence);
            take_leave(&me, &ctx).await;
            drop(beat);
            drop(observers);
            if let Some(admin) = admin {
                let _ = admin.await;
            }
            let _ = tell.send(ended);
        });
    }
    // Also when this future is dropped: a replica that nobody can stop would work on for ever.
    let drain = ctx.gate.drain().clone();
    let _drains = drain.clone().drop_guard();
    let ended = loop {
        tokio::select! {
            biased;
            ended = &mut winding_down => break ended.unwrap_or_else(|_| {
                let why = "it could not take its leave".to_owned();
                Err(Error::Died { why })
            }),
            () = told.cancelled(), if !drain.is_cancelled() => drain.cancel(),
            signal = next(&mut signals) => match signal {
                Some(Signal::Drain) | None => drain.cancel(),
                Some(Signal::Dump) => match seeing::fleet(&locks).await {
                    Ok(fleet) => event_log::dump(&fleet),
                    Err(error) => tracing::warn!(%error, "the status cannot be read"),
                },
                Some(Signal::Hangup) if drain.is_cancelled() => {
                    tracing::warn!("SIGHUP: not reloaded, the worker drains");
                }
                // A signal that comes meanwhile is heard afterwards; several are one.
                Some(Signal::Hangup) => reloader.reload().await,
            }
        }
    };
    tracing::info!("worker ended");
    ended
}

/// What the end of the replica's task means to whoever started the worker: a service manager starts it again after a failure
/// alone.
fn survived(ended: Result<(), JoinError>) -> Result<()> {
    ended.map_err(|error| Error::Died {
        why: match error.try_into_panic() {
            Ok(panic) => message(&*panic),
            Err(error) => error.to_string(),
        },
    })
}

/// The next signal; never one where the program hears them itself.
async fn next(signals: &mut Option<Signals>) -> Option<Signal> {
    match signals {
        Some(signals) => signals.recv().await,
        None => std::future::pending().await,
    }
}

/// The first lines, before anything is opened that may take its time.
fn say_what_begins(loaded: &Loaded) {
    let config = &loaded.config;
    let configuration = loaded.file.as_ref().map(|file| file.display().to_string());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        store = start::store(&config.locks),
        namespace = config.worker.namespace,
        configuration,
        "starting"
    );
    if let Some(why) = loaded.store_by_default() {
        tracing::info!("{why}");
    }
}

/// After the last run: the document goes, and what was released has arrived.
async fn take_leave(me: &Identity, ctx: &Context) {
    let name = presence::now(me, ctx, 0).document_name();
    let gone = ctx.locks.remove_doc(&name);
    let _ = ctx.clock.timeout(Duration::from_secs(1), gone).await;
    ctx.locks.settle().await;
}

fn ready_jobs(worker: &Worker, jobs: &Jobs) -> Result<Vec<Ready>> {
    let jobs = jobs.all();
    let jobs = jobs.iter();
    jobs.map(|(name, spec)| ready(worker, name, spec)).collect()
}

pub(super) fn ready(worker: &Worker, name: &str, spec: &Arc<Spec>) -> Result<Ready> {
    // Checked before: what fails here is a defect of the check, and still nothing has started.
    let body = worker.registry.body(name, spec);
    let schedule = spec.schedule_of(name).map_err(|error| error.to_string());
    match (body, schedule) {
        (Ok(body), Ok(schedule)) => Ok(Ready {
            name: name.to_owned(),
            body,
            spec: spec.clone(),
            schedule: Arc::new(schedule),
            policy: spec.policy(),
        }),
        (Err(why), _) | (_, Err(why)) => Err(Error::Job {
            name: name.to_owned(),
            why,
        }),
    }
}

/// Shows a job in the metrics before anything of it has happened.
pub(super) fn declare(metrics: &Metrics, job: &Ready, now: Timestamp) {
    let led = !job.body.is_batch() && job.spec.coordination == Coordination::Leader;
    metrics.declare_job(&job.name, led);
    let has_ticks = !job.body.is_batch()
        && !job.schedule.is_continuous()
        && job.schedule.next_after(now).is_some();
    if has_ticks {
        metrics.expect_success(&job.name);
    }
}

/// The heart of the worker's runtime: when it stands still, so do the jobs, and the keeper must know.
async fn beat(locks: Locks) {
    let fitness = locks.fitness().clone();
    // Shorter than a third of a lease, or the lease would be lost before the stall is noticed.
    let limit = (locks.timing().ttl / 4).max(BEAT * 5);
    fitness.beat();
    fitness.expect_beats(Some(limit));
    loop {
        fitness.beat();
        locks.clock().sleep(BEAT).await;
    }
}

async fn follow_backlog(ctx: Context, stop: CancellationToken) {
    let mut events = ctx.events.observe();
    loop {
        let event = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            event = events.recv() => event,
        };
        match event {
            Ok(Event::Backlog { job, items }) => ctx.board.backlog(&job, items),
            Ok(Event::HeldItems {
                job,
                retry,
                dead,
                in_doubt,
                parked,
            }) => {
                let held = HeldItems {
                    retry,
                    dead,
                    in_doubt,
                    parked,
                };
                ctx.board.held(&job, held);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_replica_that_dies_is_an_error() {
        let spawn = Spawn::system();
        assert!(survived(spawn.spawn(async {}).await).is_ok());
        let dead = spawn.spawn(async { panic!("no {}", "more") }).await;
        let error = survived(dead).unwrap_err();
        assert_eq!(error.to_string(), "the replica has died: no more");
        let stuck = spawn.spawn(std::future::pending());
        stuck.abort();
        assert!(matches!(survived(stuck.await), Err(Error::Died { .. })));
    }
}
