//! A worker in a process of its own: opens the store, assembles the replica, and puts signals, heartbeat, metrics, log, status page
//! and service manager around it.

use std::{collections::BTreeMap, io, time::Duration};

use tokio::{sync::oneshot, task::JoinError};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    Worker,
    assemble::Setup,
    gauges,
    heartbeat::{BEAT, beat, turns},
    presence::{Identity, Pace},
    ready::Ready,
    reload::{Jobs, Reloader},
    service_manager::ServiceManager,
    start, store,
};
use crate::{
    chance::Chance,
    clock::Clock,
    config::{Config, Loaded, Mode},
    error::{Error, Result},
    fleet::Fleet,
    job::Hooks,
    latest,
    lock::LocksBuilder,
    notice::Posts,
    panics::message,
    scheduler::Intents,
    signals::{Signal, Signals},
    spawn::Spawn,
    telemetry::{
        event_log::{self, EventLog},
        metrics::Metrics,
        traces::{Origin, Traces},
    },
};

/// Runs the worker until a signal drains it, or `told`. When the future is dropped, what has started drains by itself.
pub(super) async fn run(
    worker: Worker,
    mut loaded: Loaded,
    mut signals: Option<Signals>,
    told: CancellationToken,
) -> Result<()> {
    let mut reload = worker.handle.reload.subscribe();
    for warning in &loaded.problems {
        tracing::warn!("{warning}");
    }
    start::show_sources(&loaded);
    // Where each value of each job came from is not asked any more, and takes more room than the jobs.
    let mut config = std::mem::take(&mut loaded.config);
    let file = loaded.file.clone();
    drop(loaded);
    let (clock, chance, spawn) = (Clock::system(), Chance::system(), Spawn::system());
    let events = worker.events.clone();
    let jobs_now = Jobs::new(std::mem::take(&mut config.jobs), &worker.registry);
    let all = jobs_now.all();
    let all = all
        .iter()
        .map(|(name, spec)| worker.registry.ready(name, spec));
    let jobs = all.collect::<Result<Vec<Vec<Ready>>>>()?.concat();

    let stop = CancellationToken::new();
    // Whichever way this ends: observers must not outlive it.
    let observers = stop.clone().drop_guard();
    EventLog::follow(&events, &spawn, stop.clone());
    let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
    metrics.follow(&events, &clock, &spawn, stop.clone());

    let graces = jobs.iter().map(|job| job.spec.grace);
    let grace = graces.max().unwrap_or(Duration::from_secs(10));
    let nonce: String = chance.id().chars().take(8).collect();
    let Some(opened) = open(&config, &clock, grace, &mut signals, &mut reload, &told).await? else {
        tracing::info!("worker ended");
        return Ok(());
    };
    let locks = opened
        .tag(nonce.clone())
        .chance(chance)
        .events(events.of_locks())
        .start()
        .map_err(Error::Process)?;
    store::refuse_twins(&locks).await?;
    store::refuse_closed(&locks).await?;
    let beat = AbortOnDropHandle::new(spawn.spawn(beat(locks.clone())));

    let me = Identity::here(config.worker.name.as_deref(), &nonce, locks.wall());
    let traces = traces(&config, &me, &metrics);
    let setup = Setup {
        ring: config
            .worker
            .name
            .clone()
            .unwrap_or_else(|| me.host.clone()),
        me,
        failover: config.worker.mode == Mode::Failover,
        priority: config.worker.priority,
        candidate: config.worker.candidate,
        hooks: Hooks::new(worker.hooks.iter().cloned()),
        tracer: traces
            .as_ref()
            .map(|traces| traces.tracer().clone())
            .unwrap_or_default(),
        posts: posts(&worker, &config, &clock, &metrics)?,
        intents: Intents::default(),
        drain_timeout: config.worker.drain_timeout,
        lifetime: Pace::default().lifetime,
        jobs,
        checks: worker.checks.clone(),
    };
    #[cfg_attr(not(feature = "admin"), allow(unused_mut, reason = "it has no page"))]
    let mut replica = setup.assemble(locks.clone(), events, spawn.clone());
    let ctx = replica.ctx.clone();
    gauges::connect(&metrics, &ctx, &replica.jobs).await?;
    #[cfg(feature = "admin")]
    let page = super::admin_source::start(
        &config,
        &worker.registry,
        &mut replica.me,
        &ctx,
        metrics.clone(),
        jobs_now.clone(),
        stop.clone(),
    )
    .await?;
    #[cfg(not(feature = "admin"))]
    let page = None::<tokio::task::JoinHandle<()>>;
    start::show_replica(&replica);

    let (mut reloader, changes) =
        Reloader::new(worker, config, file, jobs_now, ctx.clone(), metrics);
    // A task of its own: it goes on when the future of the worker is dropped.
    let (tell, mut winding_down) = oneshot::channel();
    let time = clock.clone();
    spawn.spawn(async move {
        let ended = survived(replica.live(changes, Some(Pace::default())).await);
        if let Err(error) = &ended {
            tracing::error!(%error, "nothing runs here any more");
        }
        drop(beat);
        // Leases are handed over by now: nobody waits for us.
        if let Some(traces) = traces {
            traces.finish(&time).await;
        }
        drop(observers);
        if let Some(page) = page {
            let _ = page.await;
        }
        let _ = tell.send(ended);
    });
    // Also when this future is dropped: a replica that cannot be stopped any more would work on for ever.
    let drain = ctx.gate.drain().clone();
    let _drains = drain.clone().drop_guard();
    // A program that leaves signals to itself speaks to its service manager itself, too.
    let manager = signals.as_ref().and_then(|_| ServiceManager::of_process());
    let _attends = manager.map(|manager| {
        let fitness = locks.fitness().clone();
        let turns = move || turns(&fitness).is_ok();
        AbortOnDropHandle::new(spawn.spawn(manager.attend(clock.clone(), turns, drain.clone())))
    });
    let ended = loop {
        tokio::select! {
            biased;
            ended = &mut winding_down => break ended.unwrap_or_else(|_| {
                let why = "it could not take its leave".to_owned();
                Err(Error::Died { why })
            }),
            () = told.cancelled(), if !drain.is_cancelled() => drain.cancel(),
            signal = next(&mut signals, &mut reload) => match signal {
                Some(Signal::Drain) | None => drain.cancel(),
                Some(Signal::Dump) => match Fleet::over(&locks, "the dump").status().await {
                    Ok(fleet) => event_log::dump(&fleet),
                    Err(error) => tracing::warn!(%error, "the status cannot be read"),
                },
                Some(Signal::Hangup) if drain.is_cancelled() => {
                    tracing::warn!("not reloaded: the worker drains");
                }
                // A signal that comes meanwhile is heard afterwards; several are one.
                Some(Signal::Hangup) => reloader.reload().await,
            }
        }
    };
    tracing::info!("worker ended");
    ended
}

/// Whom jobs tell that break. What fails here is a defect of the check before it, or a file that has gone since.
fn posts(worker: &Worker, config: &Config, clock: &Clock, metrics: &Metrics) -> Result<Posts> {
    let mut receivers = BTreeMap::new();
    for (name, settings) in &config.notices {
        let Some(carrier) = &worker.carrier else {
            continue;
        };
        let failed = |why| Error::Process(io::Error::other(format!("notices.{name}: {why}")));
        let receiver = carrier.open(settings, clock).map_err(failed)?;
        metrics.declare_notice(name);
        receivers.insert(name.clone(), receiver);
    }
    Ok(Posts {
        namespace: config.worker.namespace.clone(),
        usual: config.worker.notify.clone(),
        receivers,
    })
}

/// Where spans are sent, if they are. Without them the work is the same: what is wrong with their receiver stops no worker.
fn traces(config: &Config, me: &Identity, metrics: &Metrics) -> Option<Traces> {
    let origin = Origin {
        namespace: config.worker.namespace.clone(),
        replica: me.id.clone(),
        host: me.host.clone(),
    };
    let counted = metrics.clone();
    let count = Box::new(move |became, count| counted.spans(became, count));
    match Traces::begin(&config.telemetry, &origin, count) {
        Ok(traces) => {
            traces.iter().for_each(|_| metrics.declare_spans());
            traces
        }
        Err(error) => {
            tracing::error!(%error, "no traces are sent");
            None
        }
    }
}

/// What the end of the replica means to the program that runs the worker: a service manager starts it again after a failure
/// alone.
fn survived(ended: Result<(), JoinError>) -> Result<()> {
    ended.map_err(|error| Error::Died {
        why: match error.try_into_panic() {
            Ok(panic) => message(&*panic),
            Err(error) => error.to_string(),
        },
    })
}

/// The store, as soon as no other process keeps it locked; `None` when the worker was told to end before that.
async fn open(
    config: &Config,
    clock: &Clock,
    grace: Duration,
    signals: &mut Option<Signals>,
    reload: &mut latest::Receiver<()>,
    told: &CancellationToken,
) -> Result<Option<LocksBuilder>> {
    let mut said = false;
    loop {
        let opened = store::open_aside(&config.locks, &config.worker.namespace, clock, grace);
        match opened.await {
            Err(error @ Error::StoreLocked { .. }) if !said => {
                tracing::warn!("{error}; waiting for it");
                said = true;
            }
            Err(Error::StoreLocked { .. }) => {}
            done => return done.map(Some),
        }
        tokio::select! {
            biased;
            () = told.cancelled() => return Ok(None),
            signal = next(signals, reload) => match signal {
                Some(Signal::Drain) | None => return Ok(None),
                Some(_) => tracing::warn!("not now: the worker waits for its store"),
            },
            () = clock.sleep(BEAT) => {}
        }
    }
}

/// The next signal, or a reload by the worker's handle. Without signals the program hears them itself.
async fn next(signals: &mut Option<Signals>, reload: &mut latest::Receiver<()>) -> Option<Signal> {
    let signal = async {
        match signals {
            Some(signals) => signals.recv().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        signal = signal => signal,
        Ok(()) = reload.changed() => Some(Signal::Hangup),
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
