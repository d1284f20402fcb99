//! What the status page of a worker shows and takes: this replica as it is now, the fleet as the store tells it, and the orders
//! of people, each answered in time.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::{
    heartbeat,
    presence::{self, Identity},
    registry::Registry,
    reload::Jobs,
};
use crate::{
    admin::{Admin, AdminSource, Asked, Done, Order, OrderError, RecentAsked, What, bind, serve},
    clock::Clock,
    config::Config,
    error::{Error, Result},
    fleet::{
        Fleet, FleetError, JobFacts, RunFilter, TriggerState, Until,
        audit::{AuditEntry, InForce},
        client::{
            locks::breakable,
            pausing_all::AllPaused,
            recent::{JobPattern, MOST_READ_FOR_A_PAGE, RecentRuns},
        },
        items::{ItemOrder, ItemPage, ItemsAsked, ItemsChanged, KeptItems},
    },
    job::{Coordination, shard::is_of},
    lock::{BreakReport, Broken},
    scheduler::Context,
    secret::Secret,
    status::{FleetStatus, LockDetail, LockStatus, RunRecord},
    telemetry::metrics::Metrics,
    worker::{given, token},
};

/// How long an answer waits for the replicas that it concerns.
const HEARD: Duration = Duration::from_millis(2_500);
/// Nothing is written later than this after a command came: the server gives up an answer after 5 s, and what is written is
/// answered as that. With the time that a command waits for its turn, and for the replicas that it concerns.
const LAST_WRITE: Duration = Duration::from_millis(2_200);
/// When no replica is waited for any more.
const ENOUGH: Duration = Duration::from_millis(3_500);
/// How long the database of a job may take to list its items, or to change them.
const ANSWERED: Duration = Duration::from_millis(3_500);
/// Databases of jobs that are asked at one time: to list items, and to change them.
const DATABASES: usize = 2;

struct Source {
    me: Identity,
    ctx: Context,
    registry: Registry,
    jobs: Jobs,
    /// Its clones share what they read.
    asked: Fleet,
    listing: Databases,
    changing: Databases,
    trace_link: Option<String>,
}

/// The turns at databases of jobs. Each is over when its thread is, and not when no caller waits for it any more: threads and
/// connections are no more than turns, however long a server keeps them waiting.
struct Databases {
    clock: Clock,
    turns: Arc<Semaphore>,
    /// How long an answer waits for one.
    limit: Duration,
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
        let remembered = self.ctx.local_status.last_seen();
        let pauses = self.ctx.intents.pauses();
        let fleet = self.asked.status_around(me, pauses, remembered).await;
        fleet.unwrap_or_default()
    }

    async fn some(&self, names: &BTreeSet<String>) -> FleetStatus {
        let me = presence::with_some(&self.me, &self.ctx, names);
        let remembered = self.ctx.local_status.last_seen_of(names);
        let pauses = self.ctx.intents.pauses();
        let fleet = self.asked.some_around(me, names, pauses, remembered).await;
        fleet.unwrap_or_default()
    }

    fn known(&self) -> FleetStatus {
        let me = presence::now(&self.me, &self.ctx, 0);
        let remembered = self.ctx.local_status.last_seen();
        self.asked.known_to(me, remembered)
    }

    fn jobs(&self) -> usize {
        self.ctx.local_status.count()
    }

    async fn locks(&self) -> Result<Vec<LockStatus>, String> {
        let found = self.client().locks("").await;
        found.map_err(|error| error.to_string())
    }

    async fn some_runs(
        &self,
        job: &str,
        filter: &RunFilter,
        limit: usize,
    ) -> Result<Option<Vec<RunRecord>>, String> {
        let fleet = self.fleet().await;
        let shards = fleet.job(job).map_or(&[][..], |job| &job.by_shard);
        let names: Vec<String> = shards.iter().map(|shard| shard.name.clone()).collect();
        let client = self.client();
        let told = |error: FleetError| error.to_string();
        let mut found = client
            .some_runs(job, &names, filter, limit)
            .await
            .map_err(told)?;
        let mut known = !found.is_empty() || fleet.job(job).is_some();
        if !known {
            // One that no replica runs any more, and of which nothing is wanted.
            let any = RunFilter::default();
            let any = client.some_runs(job, &names, &any, 1).await;
            known = !any.map_err(told)?.is_empty();
        }
        RunRecord::add_progress(&mut found, &fleet);
        Ok(known.then_some(found))
    }

    async fn recent(&self, asked: RecentAsked) -> Result<RecentRuns, String> {
        let jobs = JobPattern::has(&asked.job_has);
        let client = self.client();
        let found = client.recent(
            &jobs,
            &asked.filter,
            asked.most,
            MOST_READ_FOR_A_PAGE,
            asked.outputs,
        );
        found.await.map_err(|error| error.to_string())
    }

    fn live(&self) -> Result<(), String> {
        heartbeat::turns(self.ctx.locks.fitness())
    }

    fn ready(&self) -> Result<(), String> {
        if self.ctx.gate.drain().is_cancelled() {
            return Err("draining".to_owned());
        }
        if let Some((why, _)) = self.ctx.locks.fitness().unfit() {
            return Err(why);
        }
        if let Some((job, why)) = self.ctx.local_status.dead_engine() {
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
        let status = &self.ctx.local_status;
        // Of a job with shards: any of them.
        let shards = || status.names().into_iter().filter(|name| is_of(name, job));
        status
            .is_leading(job)
            .or_else(|| shards().filter_map(|name| status.is_leading(&name)).max())
    }

    fn leads_any(&self) -> bool {
        let leases = self.ctx.local_status.leases();
        leases.iter().any(|(_, lease)| lease.is_held())
    }

    async fn order(&self, job: &str, order: Order) -> Result<Done, OrderError> {
        let reason = match &order {
            Order::Pause { reason } => reason.clone(),
            _ => String::new(),
        };
        let what = What::Job(job.to_owned(), order);
        self.give(unnamed(reason, what)).await
    }

    async fn triggers(&self, job: Option<&str>) -> Result<Value, String> {
        let client = self.client().configured(self.jobs.all());
        let found = client.outstanding(job).await;
        let found = found.map_err(|error| error.to_string())?;
        let shown = client.waiting(found, &self.fleet().await);
        Ok(serde_json::to_value(shown).unwrap_or_default())
    }

    async fn audit(&self) -> Result<Vec<AuditEntry>, String> {
        let orders = self.client().orders().await;
        orders.map_err(|error| error.to_string())
    }

    async fn withdraw(&self, id: &str) -> Result<Done, OrderError> {
        let what = What::Withdraw(id.to_owned());
        self.give(unnamed(String::new(), what)).await
    }

    async fn drain(&self, replica: &str) -> Result<Done, OrderError> {
        let what = What::Drain(replica.to_owned());
        self.give(unnamed(String::new(), what)).await
    }

    async fn give(&self, asked: Asked) -> Result<Done, OrderError> {
        let client = self.client().configured(self.jobs.all());
        self.refuse_known_bad(&client, &asked.what).await?;
        let by = match asked.who.is_empty() {
            true => client.clone(),
            false => {
                let by = format!("{}, http to {}", asked.who, self.me.name);
                client.clone().asking_as(by)
            }
        };
        let entry = entry(&asked);
        let order = self.carry_out(by, asked.what);
        let given = client.in_writing(entry, order, result).await;
        // The answer need not wait until older orders are forgotten.
        let pruned = async move { client.prune_orders().await };
        drop(self.ctx.spawn.spawn(pruned));
        given.map_err(refused)?
    }

    fn trace_link(&self) -> Option<String> {
        self.trace_link.clone()
    }

    fn told_of(&self, job: &str) -> Vec<String> {
        let spec = self.jobs.get(job);
        let spec = spec.filter(|spec| spec.coordination != Coordination::Batch);
        spec.map_or_else(Vec::new, |spec| {
            self.ctx.notices.names(spec.notify.as_deref())
        })
    }

    fn rules_of(&self, job: &str) -> Vec<(String, String)> {
        self.jobs
            .get(job)
            .map_or_else(Vec::new, |spec| spec.rules())
    }

    async fn facts(&self, job: &str) -> Result<Option<JobFacts>, String> {
        let client = self.client().configured(self.jobs.all());
        match client.facts_of(job).await {
            Ok(facts) => Ok(Some(facts)),
            Err(FleetError::UnknownJob { .. }) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn run(&self, job: &str, run_id: &str) -> Result<Option<RunRecord>, String> {
        let found = self.client().run_of(job, run_id).await;
        found.map_err(|error| error.to_string())
    }

    async fn in_force(&self) -> Result<Vec<InForce>, String> {
        let found = self.client().in_force().await;
        found.map_err(|error| error.to_string())
    }

    async fn lock(&self, key: &str) -> Result<LockDetail, String> {
        let found = self.client().lock(key).await;
        found.map_err(|error| error.to_string())
    }

    async fn items(&self, job: &str, asked: ItemsAsked) -> Result<ItemPage, OrderError> {
        let (kept, params) = self.kept(job).await?;
        let list = move || kept.list(&params, &asked);
        self.listing.read(job, list).await
    }
}

// === impl Databases ===

impl Databases {
    fn new(clock: &Clock, limit: Duration) -> Self {
        Self {
            clock: clock.clone(),
            turns: Arc::new(Semaphore::new(DATABASES)),
            limit,
        }
    }

    /// What is only read: the wait for a turn is part of the time that it may take.
    async fn read<T: Send + 'static>(
        &self,
        job: &str,
        ask: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, OrderError> {
        let asked = async {
            // Closed never: the semaphore lives as long as this.
            let turn = self.turns.clone().acquire_owned().await.ok();
            blocking(turn, ask).await
        };
        let read = self.clock.timeout(self.limit, asked).await;
        read.unwrap_or_else(|_| {
            let why = format!("the database of {job} has not answered in time");
            Err(OrderError::NoItems(why))
        })
    }

    /// What changes something: without a turn it is not begun, and what was begun goes on although no caller waits for it any
    /// more.
    async fn change<T: Send + 'static>(
        &self,
        job: &str,
        ask: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, OrderError> {
        let Ok(turn) = self.turns.clone().try_acquire_owned() else {
            let why = "earlier orders still wait for their databases: nothing was changed";
            return Err(OrderError::NoItems(why.to_owned()));
        };
        let changed = blocking(Some(turn), ask);
        let changed = self.clock.timeout(self.limit, changed).await;
        changed.unwrap_or_else(|_| {
            let why = format!(
                "the database of {job} has not answered in time: whether the order is carried out is not known, look before you \
                 give it again"
            );
            Err(OrderError::NotKnown(why))
        })
    }
}

/// Asks the database of a job, on a thread that may wait, and that keeps its turn until then.
async fn blocking<T: Send + 'static>(
    turn: Option<OwnedSemaphorePermit>,
    ask: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, OrderError> {
    let ask = move || {
        let _turn = turn;
        ask()
    };
    let answer = tokio::task::spawn_blocking(ask).await;
    let answer = answer.unwrap_or_else(|_| {
        Err("what asks the database of the job has panicked: the log says where".to_owned())
    });
    answer.map_err(OrderError::NoItems)
}

/// What became of items, as the commands print it with `--json`, and in a sentence.
///
/// # Errors
/// [`OrderError::NotKnown`], where it is unknown whether anything was changed.
fn items_changed(job: &str, order: ItemOrder, changed: &ItemsChanged) -> Result<Done, OrderError> {
    if let Some(why) = &changed.stopped
        && changed.changed + changed.forgotten == 0
    {
        let why = format!("{why}: look before you give it again");
        return Err(OrderError::NotKnown(why));
    }
    // Numbers and strings: always serializable.
    let mut answer = serde_json::to_value(changed).unwrap_or_default();
    answer["job"] = job.into();
    answer["order"] = order.word().into();
    answer["said"] = changed.in_words(order).into();
    Ok(Done {
        answer,
        heard: true,
    })
}

/// An order of a client that has not said who it is.
fn unnamed(reason: String, what: What) -> Asked {
    Asked {
        who: String::new(),
        reason,
        what,
    }
}

/// An order, as it is written down before it is given.
fn entry(asked: &Asked) -> AuditEntry {
    let (order, of) = asked.what.words();
    AuditEntry {
        who: asked.who.clone(),
        order: order.to_owned(),
        of: of.to_owned(),
        items: asked.what.items(),
        owner: asked.what.owner().to_owned(),
        to: asked.what.to().to_owned(),
        reason: asked.reason.clone(),
        ..AuditEntry::default()
    }
}

/// What came of an order, as it is written down.
fn result(given: &Result<Done, OrderError>) -> String {
    match given {
        Ok(done) => match (&done.answer["said"], done.heard) {
            // What became of items, which no replica need hear of; or of all jobs, and which have heard of it.
            (Value::String(said), _) => said.clone(),
            (_, true) => "heard".to_owned(),
            (_, false) => "written, and not heard of by all yet".to_owned(),
        },
        Err(OrderError::NotKnown(why)) => format!("not known: {why}"),
        Err(error) => format!("refused: {}", error.why()),
    }
}

/// What came of a lease that was to end by force.
fn broken(report: &BreakReport) -> Result<Done, OrderError> {
    let key = &report.key;
    match report.outcome() {
        Broken::Final => {
            let remaining = report.remaining();
            let remaining_ms =
                remaining.map(|life| u64::try_from(life.as_millis()).unwrap_or(u64::MAX));
            let within =
                remaining_ms.map_or_else(|| "max_ttl".to_owned(), |life| format!("{life} ms"));
            let said = format!(
                "The lease of {key} has ended, which {} had, under token {}: the lock is free when its holder has released it, \
                 within {within} at the latest.",
                report.owner, report.token
            );
            Ok(Done {
                answer: serde_json::json!({
                    "key": report.key,
                    "owner": report.owner,
                    "token": report.token,
                    "remaining_ms": remaining_ms,
                    "said": said,
                }),
                heard: true,
            })
        }
        Broken::Gone => Err(OrderError::NotPossible(format!(
            "{key} was not held any more: its lease had ended"
        ))),
        Broken::ChangedHands => Err(OrderError::NotPossible(format!(
            "{key} has changed hands meanwhile: nothing of its new holder was changed"
        ))),
        Broken::Unsure => Err(OrderError::NotKnown(format!(
            "too few nodes answered: {key} may be broken or not; do it again when a majority answers"
        ))),
    }
}

fn refused(error: FleetError) -> OrderError {
    let why = error.to_string();
    match error {
        FleetError::UnknownJob { .. } | FleetError::UnknownReplica { .. } => {
            OrderError::Unknown(why)
        }
        FleetError::NotPossible(_) => OrderError::NotPossible(why),
        FleetError::TooManyTriggers(_) => OrderError::TooMany(why),
        // Asked for once more it may run twice.
        FleetError::Doubtful { .. } | FleetError::Partly => OrderError::NotKnown(why),
        FleetError::Unreadable(_)
        | FleetError::TooFewNodes { .. }
        | FleetError::Late
        | FleetError::Locks(_) => OrderError::Unavailable(why),
    }
}

impl Source {
    /// For a command that has just come: it is answered in time.
    fn client(&self) -> Fleet {
        let now = self.ctx.clock.now();
        self.asked
            .clone()
            .no_later_than(now + LAST_WRITE, now + ENOUGH)
    }

    /// Refuses what is about no job that there is, or what its job cannot take: nothing of it is written down, so that it takes the
    /// place of no order that was given.
    async fn refuse_known_bad(&self, client: &Fleet, what: &What) -> Result<(), OrderError> {
        let (job, order) = match what {
            What::Job(job, order) => (job, order),
            What::Items { job, .. } => return self.kept(job).await.map(drop),
            What::Drain(_)
            | What::Withdraw(_)
            | What::Break { .. }
            | What::PauseAll { .. }
            | What::ResumeAll => return Ok(()),
        };
        let known = client.refuse_order_for_no_job(job).await;
        known.map_err(refused)?;
        if let Order::Trigger { given } = order {
            let spec = self.jobs.get(job);
            given::refuse_misfit(&self.registry, job, spec.as_ref(), given)
                .map_err(OrderError::Misfit)?;
        }
        Ok(())
    }

    /// Does what is asked for, in the name of this client.
    async fn carry_out(&self, client: Fleet, what: What) -> Result<Done, OrderError> {
        match what {
            What::Job(job, order) => self.ask(&client, &job, order).await.map_err(refused),
            What::Drain(replica) => {
                let asked = client.drain(&replica, Until::Heard, HEARD).await;
                let answer = asked.map_err(refused)?;
                Ok(Done {
                    heard: answer.heard,
                    answer: serde_json::to_value(&answer).unwrap_or_default(),
                })
            }
            What::Withdraw(id) => withdraw(&client, &id).await,
            What::Break { key, owner } => {
                let lock = client.lock(&key).await.map_err(refused)?;
                let owner = breakable(&lock, owner.as_deref()).map_err(refused)?;
                let report = client.break_lock(&key, &owner, false).await;
                broken(&report.map_err(refused)?)
            }
            What::PauseAll { reason } => {
                let client = client.configured(self.jobs.all());
                let answer = client.pause_all(&reason, HEARD).await;
                Ok(all_paused(&answer.map_err(refused)?))
            }
            What::ResumeAll => {
                let answer = client.resume_all(HEARD).await;
                Ok(all_paused(&answer.map_err(refused)?))
            }
            What::Items { job, order, which } => {
                let (kept, params) = self.kept(&job).await?;
                let change = move || kept.change(&params, order, &which);
                let changed = self.changing.change(&job, change).await?;
                items_changed(&job, order, &changed)
            }
        }
    }

    /// What lists and changes the items of a job, and the parameters of the job, as this replica has it.
    async fn kept(&self, job: &str) -> Result<(Arc<dyn KeptItems>, Value), OrderError> {
        let Some(spec) = self.jobs.get(job) else {
            let known = self.client().refuse_order_for_no_job(job).await;
            known.map_err(refused)?;
            return Err(OrderError::NotPossible(format!(
                "{} does not have the job {job} in its configuration: ask a replica that does",
                self.me.name
            )));
        };
        let found = spec
            .kind
            .as_deref()
            .and_then(|of| self.registry.items_of(of));
        match (found, spec.kind) {
            (Some(kept), _) => Ok((kept, spec.params)),
            (None, Some(kind)) => Err(OrderError::NotPossible(format!(
                "{job} has no items that can be listed: it is of the kind {kind}"
            ))),
            (None, None) => Err(OrderError::NotPossible(format!(
                "{job} has no items that can be listed: the program has registered it itself, and not by a kind"
            ))),
        }
    }

    async fn ask(&self, client: &Fleet, job: &str, order: Order) -> Result<Done, FleetError> {
        let (answer, heard) = match order {
            Order::Pause { .. } | Order::Resume => {
                let answer = match order {
                    Order::Pause { reason } => client.pause(job, &reason, HEARD).await?,
                    _ => client.resume(job, HEARD).await?,
                };
                let heard = answer.known && answer.unheard_by.is_empty();
                (serde_json::to_value(&answer), heard)
            }
            Order::Trigger { given } => {
                let trigger = client.trigger(job, given).await?;
                let found = client.follow(trigger, TriggerState::Accepted, HEARD).await;
                let heard = found.state > TriggerState::Asked;
                (Ok(found.shown()), heard)
            }
            Order::Resign { to } => {
                let answer = client.resign(job, to.as_deref(), HEARD).await?;
                (serde_json::to_value(&answer), answer.leader.is_some())
            }
        };
        let answer = answer.unwrap_or_default();
        Ok(Done { answer, heard })
    }
}

/// What became of all jobs, as the commands print it with `--json`, and in a sentence.
fn all_paused(all: &AllPaused) -> Done {
    // Numbers and strings: always serializable.
    let mut answer = serde_json::to_value(all).unwrap_or_default();
    answer["said"] = all.in_words().into();
    Done {
        answer,
        heard: all.is_heard(),
    }
}

async fn withdraw(client: &Fleet, id: &str) -> Result<Done, OrderError> {
    let asked = client.withdraw(id, HEARD).await.map_err(refused)?;
    let Some(trigger) = asked else {
        return Err(OrderError::Unknown(format!(
            "no trigger {id} is outstanding"
        )));
    };
    let over = trigger.outcome == "withdrawn";
    let why = match trigger.detail.as_str() {
        "" => String::new(),
        detail => format!(": {detail}"),
    };
    match trigger.state > TriggerState::Withdrawing && !over {
        true => Err(OrderError::NotPossible(format!(
            "trigger {id} has started, as run {}{why}",
            trigger.run_id
        ))),
        false => Ok(Done {
            heard: over,
            answer: trigger.shown(),
        }),
    }
}

/// What must be said to the page. A worker works without one, but takes no commands there.
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
        asked: Fleet::of_page(&ctx.locks, format!("http to {}", me.name)),
        listing: Databases::new(&ctx.clock, ANSWERED),
        changing: Databases::new(&ctx.clock, ANSWERED),
        trace_link: config.telemetry.trace_link.clone(),
    });
    let admin = Admin {
        source,
        metrics,
        clock: ctx.clock.clone(),
        spawn: ctx.spawn.clone(),
        events: ctx.events.clone(),
        token: said(config, ctx),
        hosts: config
            .admin
            .hosts
            .iter()
            .chain([&me.host])
            .cloned()
            .collect(),
        proxies: config.admin.trusted_proxies.clone(),
        user_header: config.admin.user_header.clone(),
        read_only: config.admin.read_only,
    };
    let served = async move {
        if let Err(error) = serve(listener, admin, stop).await {
            tracing::error!(%error, "the status page has ended");
        }
    };
    Ok(Some(ctx.spawn.spawn(served)))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::{
        clock::Moment,
        fleet::{Trigger, TriggerParams, intent::Intent},
        lock::Locks,
        node::memory::MemoryNode,
    };

    /// Databases of which each has a thread that hangs until this is dropped.
    async fn all_hang(databases: &Databases) -> Vec<mpsc::Sender<()>> {
        let mut held = Vec::new();
        for _ in 0..DATABASES {
            let (hold, hangs) = mpsc::channel::<()>();
            let hang = move || {
                let _ = hangs.recv();
                Ok(())
            };
            let late = databases.change("mail", hang).await;
            assert!(matches!(late, Err(OrderError::NotKnown(_))), "{late:?}");
            held.push(hold);
        }
        held
    }

    #[tokio::test]
    async fn threads_that_hang_keep_their_turns_when_nobody_waits_for_them_any_more() {
        let databases = Databases::new(&Clock::system(), Duration::from_millis(50));
        let held = all_hang(&databases).await;
        let refused = databases.change("mail", || Ok(7)).await;
        let nothing = |why: &str| why.contains("nothing was changed");
        assert!(
            matches!(&refused, Err(OrderError::NoItems(why)) if nothing(why)),
            "{refused:?}"
        );
        // The wait for a turn has an end as well.
        let late = databases.read("mail", || Ok(7)).await;
        let in_time = |why: &str| why.contains("in time");
        assert!(
            matches!(&late, Err(OrderError::NoItems(why)) if in_time(why)),
            "{late:?}"
        );
        drop(held);
        let all = databases.turns.acquire_many(2).await;
        drop(all.unwrap());
        assert_eq!(databases.change("mail", || Ok(7)).await, Ok(7));
    }

    #[test]
    fn an_order_is_written_down_with_whom_it_concerns() {
        let to = Some("beta".to_owned());
        let resign = What::Job("report".to_owned(), Order::Resign { to });
        assert_eq!(entry(&unnamed(String::new(), resign)).to, "beta");
        let of_a_lease = What::Break {
            key: "k".to_owned(),
            owner: Some("w-1".to_owned()),
        };
        let written = entry(&unnamed(String::new(), of_a_lease));
        assert_eq!((written.of.as_str(), written.owner.as_str()), ("k", "w-1"));
    }

    #[test]
    fn an_order_that_may_stand_in_part_is_not_told_to_be_refused() {
        let doubtful = FleetError::Doubtful {
            id: "t-17".to_owned(),
            why: "only 1 of 3 lock nodes answered".to_owned(),
        };
        for (error, says) in [(doubtful, "trigger t-17"), (FleetError::Partly, "not all")] {
            let given = Err(refused(error));
            let known = |why: &String| why.contains(says) && !why.contains("nothing");
            assert!(
                matches!(&given, Err(OrderError::NotKnown(why)) if known(why)),
                "{given:?}"
            );
            assert!(result(&given).starts_with("not known: "), "{given:?}");
        }
        // Nothing of it stands.
        let late = refused(FleetError::Late);
        assert!(matches!(late, OrderError::Unavailable(_)), "{late:?}");
    }

    #[tokio::test]
    async fn a_trigger_of_which_a_shard_has_started_is_not_answered_as_withdrawn() {
        let node = Arc::new(MemoryNode::new("n", Clock::system()));
        let locks = Locks::over(vec![node]).start().unwrap();
        let now = locks.clock().now();
        let client = Fleet::over(&locks, "page").no_later_than(Moment::NEVER, now);
        let shards = vec!["mail.0".to_owned(), "mail.1".to_owned()];
        let asked = client.ask_for_all("mail", shards, TriggerParams::default());
        let asked = asked.await.unwrap();
        let runs = Trigger {
            job: "mail.1".to_owned(),
            state: TriggerState::Started,
            run_id: "r1".to_owned(),
            ..asked.clone()
        };
        let doc = Intent::Trigger(runs).to_doc(TriggerState::Started as u64);
        let put = locks.put_doc(&doc.name, doc.rev, Duration::from_secs(60), doc.body);
        put.await.unwrap();
        let refused = withdraw(&client, &asked.id).await;
        let says = |why: &str| {
            why.ends_with("as run r1: 1 of 2 shards have started, the others are to be withdrawn")
        };
        assert!(
            matches!(&refused, Err(OrderError::NotPossible(why)) if says(why)),
            "{refused:?}"
        );
    }

    #[test]
    fn what_is_not_known_is_not_written_down_as_refused() {
        let mut changed = ItemsChanged {
            stopped: Some("db: it went away".to_owned()),
            more: true,
            ..ItemsChanged::default()
        };
        let told = |changed: &ItemsChanged| {
            let given = items_changed("mail", ItemOrder::Retry, changed);
            result(&given)
        };
        assert!(told(&changed).starts_with("not known: db: it went away"));
        changed.changed = 300;
        let half = told(&changed);
        assert!(
            half.starts_with("300 to be sent again; it has stopped there"),
            "{half}"
        );
    }
}
