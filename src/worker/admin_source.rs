//! What the status page of a worker shows and takes: this replica as it is now, the fleet as the store tells it, and the orders
//! of people, each answered in time.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{
    heartbeat,
    presence::{self, Identity},
    registry::Registry,
    reload::Jobs,
};
use crate::{
    admin::{Admin, AdminSource, Done, Order, OrderError, bind, serve},
    config::Config,
    error::{Error, Result},
    fleet::{Fleet, FleetError, TriggerState, Until},
    job::shard::is_of,
    scheduler::Context,
    secret::Secret,
    status::{FleetStatus, LockStatus, RunRecord},
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

struct Source {
    me: Identity,
    ctx: Context,
    registry: Registry,
    jobs: Jobs,
    /// Its clones share what they read.
    asked: Fleet,
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

    async fn locks(&self) -> Result<Vec<LockStatus>, String> {
        let found = self.client().locks("").await;
        found.map_err(|error| error.to_string())
    }

    async fn runs(&self, job: &str, limit: usize) -> Result<Option<Vec<RunRecord>>, String> {
        let fleet = self.fleet().await;
        let shards = fleet.job(job).map_or(&[][..], |job| &job.by_shard);
        let found = match shards.len() {
            0 => self.client().runs(job, limit).await,
            _ => {
                let names: Vec<String> = shards.iter().map(|shard| shard.name.clone()).collect();
                self.client().runs_of_few(job, &names, limit).await
            }
        };
        let mut found = found.map_err(|error| error.to_string())?;
        let known = !found.is_empty() || fleet.job(job).is_some();
        RunRecord::add_progress(&mut found, &fleet);
        Ok(known.then_some(found))
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
        if let Order::Trigger { given } = &order {
            let spec = self.jobs.get(job);
            given::refuse_misfit(&self.registry, job, spec.as_ref(), given)
                .map_err(OrderError::Misfit)?;
        }
        self.ask(job, order).await.map_err(refused)
    }

    async fn triggers(&self, job: Option<&str>) -> Result<serde_json::Value, String> {
        let client = self.client().configured(self.jobs.all());
        let found = client.outstanding(job).await;
        let found = found.map_err(|error| error.to_string())?;
        let shown = client.waiting(found, &self.fleet().await);
        Ok(serde_json::to_value(shown).unwrap_or_default())
    }

    async fn withdraw(&self, id: &str) -> Result<Done, OrderError> {
        let asked = self.client().withdraw(id, HEARD).await.map_err(refused)?;
        let Some(trigger) = asked else {
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
        let asked = self.client().drain(replica, Until::Heard, HEARD).await;
        let answer = asked.map_err(refused)?;
        Ok(Done {
            heard: answer.heard,
            answer: serde_json::to_value(&answer).unwrap_or_default(),
        })
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
        FleetError::Unreadable(_)
        | FleetError::TooFewNodes { .. }
        | FleetError::Late
        | FleetError::Doubtful { .. }
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

    async fn ask(&self, job: &str, order: Order) -> Result<Done, FleetError> {
        let client = self.client().configured(self.jobs.all());
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
