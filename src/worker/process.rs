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
    lock::LocksBuilder,
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
    let Some(opened) = open(&config, &clock, grace, &mut signals, &told).await? else {
        tracing::info!("worker ended");
        return Ok(());
    };
    let locks = opened
        .tag(nonce.clone())
        .chance(chance.clone())
        .events(events.of_locks())
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
    let admin = admin::start(
        &config,
        &worker.registry,
        &mut me,
        &ctx,
        metrics.clone(),
        jobs_now.clone(),
        stop.clone(),
    )
    .await?;
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

/// The store, as soon as no other process keeps it locked; `None` when the worker was told to end before that.
async fn open(
    config: &Config,
    clock: &Clock,
    grace: Duration,
    signals: &mut Option<Signals>,
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
            signal = next(signals) => match signal {
                Some(Signal::Drain) | None => return Ok(None),
                Some(_) => tracing::warn!("not now: the worker waits for its store"),
            },
            () = clock.sleep(BEAT) => {}
        }
    }
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

#[cfg(feature = "admin")]
mod admin {
    use std::sync::Arc;

    use async_trait::async_trait;
    use jiff::Timestamp;
    use tokio::task::JoinHandle;

    use super::{
        CancellationToken, Config, Context, Duration, Error, Identity, Jobs, Metrics, Registry,
        Result, presence,
    };
    use crate::{
        admin::{Admin, AdminSource, Done, Order, OrderError, bind, serve},
        clock::Moment,
        intent::TriggerState,
        secret::Secret,
        status::{FleetStatus, LockStatus, Role, RunRecord},
        worker::{
            asking::{self, AskError, Asker, PASSING, Until, WaitingTrigger},
            given, runs, seeing, token,
        },
    };

    /// How long an answer waits for those whom it concerns.
    const HEARD: Duration = Duration::from_millis(2_500);
    /// Nothing is written later than this after an order came: the server gives up an answer after 5 s, and what is written is
    /// answered as that. With what an order waits for its turn, and for those whom it concerns.
    const LAST_WRITE: Duration = Duration::from_millis(2_200);
    /// When nobody is waited for any more.
    const ENOUGH: Duration = Duration::from_millis(3_500);
    /// Between two looks at a store that is busy.
    const LOOK: Duration = Duration::from_millis(100);

    struct Source {
        me: Identity,
        ctx: Context,
        registry: Registry,
        jobs: Jobs,
        seen: seeing::Shared,
    }

    #[async_trait]
    impl AdminSource for Source {
        fn replica(&self) -> String {
            self.me.id.clone()
        }

        fn wall(&self) -> Timestamp {
            self.ctx.locks.wall()
        }

        async fn fleet(&self) -> FleetStatus {
            let me = presence::now(&self.me, &self.ctx, 0);
            let remembered = self.ctx.board.last_seen();
            let pauses = self.ctx.intents.pauses();
            let fleet = self
                .seen
                .fleet(&self.ctx.locks, me, pauses, remembered)
                .await;
            fleet.unwrap_or_default()
        }

        async fn locks(&self) -> Result<Vec<LockStatus>, String> {
            let locks = &self.ctx.locks;
            let until = locks.clock().now() + PASSING;
            loop {
                match seeing::locks(locks, "").await {
                    Err(error) if error.passes() && again(locks, until).await => {}
                    found => return found.map_err(|error| error.to_string()),
                }
            }
        }

        async fn runs(&self, job: &str, limit: usize) -> Result<Option<Vec<RunRecord>>, String> {
            let locks = &self.ctx.locks;
            let until = locks.clock().now() + PASSING;
            let mut found = loop {
                match runs::last(locks, job, limit).await {
                    Err(error) if error.passes() && again(locks, until).await => {}
                    found => break found.map_err(|error| error.to_string())?,
                }
            };
            let fleet = self.fleet().await;
            let known = !found.is_empty() || fleet.job(job).is_some();
            RunRecord::add_progress(&mut found, &fleet);
            Ok(known.then_some(found))
        }

        fn live(&self) -> Result<(), String> {
            match self.ctx.locks.fitness().silence() {
                Some(silence) if silence > Duration::from_secs(5) => Err(format!(
                    "the runtime has stood still for {}",
                    crate::human::Brief(silence)
                )),
                _ => Ok(()),
            }
        }

        fn ready(&self) -> Result<(), String> {
            if self.ctx.gate.drain().is_cancelled() {
                return Err("draining".to_owned());
            }
            if let Some((why, _)) = self.ctx.locks.fitness().unfit() {
                return Err(why);
            }
            if let Some((job, why)) = self.ctx.board.dead_engine() {
                return Err(format!(
                    "the engine of {job} has died, and begins again: {why}"
                ));
            }
            if self.ctx.locks.reached() {
                Ok(())
            } else {
                Err("no store was reached yet".to_owned())
            }
        }

        fn leads(&self, job: &str) -> Option<bool> {
            self.ctx.board.is_leading(job)
        }

        fn leads_any(&self) -> bool {
            presence::now(&self.me, &self.ctx, 0).role == Role::Leader
        }

        async fn order(&self, job: &str, order: Order) -> Result<Done, OrderError> {
            self.ask(job, order).await.map_err(refused)
        }

        async fn triggers(&self, job: Option<&str>) -> Result<serde_json::Value, String> {
            let found = self.asker().outstanding(job).await;
            let found = found.map_err(|error| error.to_string())?;
            let fleet = self.fleet().await;
            let shown = found.into_iter().map(|trigger| {
                let enabled = self.jobs.get(&trigger.job).map(|spec| spec.enabled);
                WaitingTrigger::of(trigger, &fleet, enabled)
            });
            let shown: Vec<_> = shown.collect();
            Ok(serde_json::to_value(shown).unwrap_or_default())
        }

        async fn withdraw(&self, id: &str) -> Result<Done, OrderError> {
            let (asker, came) = (self.asker(), self.ctx.clock.now());
            let mut found = asker.outstanding(None).await.map_err(refused)?;
            found.retain(|trigger| trigger.id == id);
            if found.is_empty() {
                return Err(OrderError::Unknown(format!(
                    "no trigger {id} is outstanding"
                )));
            }
            let asked = asker.withdraw(found, self.heard(came)).await;
            let asked = asked.map_err(refused)?;
            let Some(trigger) = asked.into_iter().next() else {
                return Err(OrderError::Unknown(format!(
                    "no trigger {id} is outstanding"
                )));
            };
            let over = trigger.outcome == "withdrawn";
            match trigger.state > TriggerState::Withdrawing && !over {
                true => Err(OrderError::NotPossible(format!(
                    "trigger {id} has started, as run {}",
                    trigger.run_id
                ))),
                false => Ok(Done {
                    heard: over,
                    answer: trigger.shown(),
                }),
            }
        }

        async fn drain(&self, replica: &str) -> Result<Done, OrderError> {
            let asked = self.asker().drain(replica, Until::Heard, HEARD).await;
            let answer = asked.map_err(refused)?;
            Ok(Done {
                heard: answer.heard,
                answer: serde_json::to_value(&answer).unwrap_or_default(),
            })
        }
    }

    /// Whether there is time for another look at a store that is busy.
    async fn again(locks: &crate::Locks, until: Moment) -> bool {
        locks.clock().sleep(LOOK).await;
        locks.clock().now() < until
    }

    fn refused(error: AskError) -> OrderError {
        let why = error.to_string();
        match error {
            AskError::Unknown { .. } | AskError::UnknownReplica { .. } => OrderError::Unknown(why),
            AskError::NotPossible(_) => OrderError::NotPossible(why),
            AskError::TooMany(_) => OrderError::TooMany(why),
            AskError::Misfit(_) => OrderError::Misfit(why),
            AskError::TooFew { .. }
            | AskError::Late
            | AskError::Doubtful { .. }
            | AskError::Locks(_) => OrderError::Unavailable(why),
        }
    }

    impl Source {
        fn asker(&self) -> Asker {
            let last = self.ctx.clock.now() + LAST_WRITE;
            Asker::new(&self.ctx.locks, format!("http to {}", self.me.name)).no_later_than(last)
        }

        /// How long those whom an order concerns are waited for that came then.
        fn heard(&self, came: Moment) -> Duration {
            HEARD.min((came + ENOUGH).since(self.ctx.clock.now()))
        }

        async fn ask(&self, job: &str, order: Order) -> Result<Done, AskError> {
            // One deadline for all of it.
            let (asker, came) = (self.asker(), self.ctx.clock.now());
            let mut fleet = self.fleet().await;
            if asking::refuse_unknown(job, &fleet, []).is_err() {
                // What others run is unknown here while the store cannot be read, and that is another answer.
                fleet = asker.fleet().await?;
                asking::refuse_unknown(job, &fleet, [])?;
            }
            if matches!(order, Order::Trigger { .. }) {
                asking::refuse_disabled(job, &fleet, self.jobs.get(job).as_ref())?;
            }
            if matches!(order, Order::Trigger { .. } | Order::Resign { .. }) {
                let coordination = fleet.job(job).map(|job| job.coordination.as_str());
                asking::refuse_unled(job, coordination.unwrap_or_default())?;
            }
            if let Order::Trigger { given } = &order {
                given::refuse_misfit(&self.registry, job, self.jobs.get(job).as_ref(), given)
                    .map_err(AskError::Misfit)?;
            }
            let (answer, heard) = match order {
                Order::Pause { .. } | Order::Resume => {
                    let (paused, reason) = match order {
                        Order::Pause { reason } => (true, reason),
                        _ => (false, String::new()),
                    };
                    let answer = asker.pause(job, paused, &reason, self.heard(came)).await?;
                    let heard = answer.known && answer.unheard_by.is_empty();
                    (serde_json::to_value(&answer), heard)
                }
                Order::Trigger { given } => {
                    let trigger = asker.trigger_with(job, given).await?;
                    let patience = self.heard(came);
                    let found = asker.until(trigger, TriggerState::Accepted, patience);
                    let found = found.await?;
                    let heard = found.state > TriggerState::Asked;
                    (Ok(found.shown()), heard)
                }
                Order::Resign { to } => {
                    let answer = asker.resign(job, to.as_deref(), self.heard(came)).await?;
                    (serde_json::to_value(&answer), answer.leader.is_some())
                }
            };
            let answer = answer.unwrap_or_default();
            Ok(Done { answer, heard })
        }
    }

    /// What must be said to the page. A worker works without one, but nobody can order anything there.
    fn said(config: &Config, ctx: &Context) -> Option<Secret> {
        if let Some(token) = &config.admin.token {
            return Some(token.clone());
        }
        match token::obtain(config, &ctx.chance) {
            Ok((token, file)) => {
                let file = file.display().to_string();
                tracing::info!(file, "this file holds the token of the status page");
                Some(token)
            }
            Err(error) => {
                tracing::warn!(
                    %error,
                    "the status page has no token: it takes no orders and shows no outputs; set admin.token"
                );
                None
            }
        }
    }

    pub(super) async fn start(
        config: &Config,
        registry: &Registry,
        me: &mut Identity,
        ctx: &Context,
        metrics: Metrics,
        jobs: Jobs,
        stop: CancellationToken,
    ) -> Result<Option<JoinHandle<()>>> {
        let Some(address) = config.admin.address() else {
            return Ok(None);
        };
        let failed = |source| Error::Listen {
            address: address.to_string(),
            source,
        };
        let listener = bind(address).await.map_err(failed)?;
        me.admin = listener.local_addr().ok().map(|at| at.to_string());
        let source = Arc::new(Source {
            me: me.clone(),
            ctx: ctx.clone(),
            registry: registry.clone(),
            jobs,
            seen: seeing::Shared::default(),
        });
        let admin = Admin {
            source,
            metrics,
            clock: ctx.clock.clone(),
            token: said(config, ctx),
            hosts: config
                .admin
                .hosts
                .iter()
                .chain([&me.host])
                .cloned()
                .collect(),
            proxies: config.admin.trusted_proxies.clone(),
            read_only: config.admin.read_only,
        };
        let served = async move {
            if let Err(error) = serve(listener, admin, stop).await {
                tracing::error!(%error, "the status page has ended");
            }
        };
        Ok(Some(ctx.spawn.spawn(served)))
    }
}

#[cfg(not(feature = "admin"))]
mod admin {
    use super::{CancellationToken, Config, Context, Identity, Jobs, Metrics, Registry, Result};

    pub(super) async fn start(
        _: &Config,
        _: &Registry,
        _: &mut Identity,
        _: &Context,
        _: Metrics,
        _: Jobs,
        _: CancellationToken,
    ) -> Result<Option<tokio::task::JoinHandle<()>>> {
        Ok(None)
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
