//! Claims batches and works on them, in every replica at once.
//!
//! # Invariants
//! - B1 A batch is processed only under a claim of this replica.           (a_batch_is_processed_under_its_claim)
//! - B2 A lost claim cancels that batch only.                              (a_lost_claim_cancels_one_batch)
//! - B3 A claim is released after the batch's work has ended.              (a_claim_outlives_its_work)
//! - B4 Nothing is claimed once the worker drains.                       (nothing_is_claimed_once_the_worker_drains)
//! # When things fail  A batch that fails is left alone here for a growing pause; others may try it meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use jiff::Timestamp;
use tokio::sync::oneshot;

use super::{BatchJob, BatchLimits, order::rendezvous, record::Records};
use crate::{
    backoff::Backoff,
    clock::Moment,
    event::Event,
    job::{Run, RunFacts, Spec},
    lease::{Care, Lease, LeaseView},
    lock::{Claim, Claimed},
    node::Kind,
    panics::{caught, caught_later},
    scheduler::{
        Context, Pass,
        execute::{Ended, Limits, execute},
        stuck_at,
    },
    seldom::Seldom,
    status::Standing,
};

/// How long `pending` may take.
const PENDING_LIMIT: Duration = Duration::from_secs(30);
/// Why a batch was told to stop that has said nothing for longer than its job allows.
const NO_PROGRESS: &str = "the batch makes no progress";
/// Pauses between looks when there is nothing to do.
const IDLE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// One batch job of this replica.
pub(crate) struct BatchEngine {
    pub(crate) name: String,
    pub(crate) job: Arc<dyn BatchJob>,
    pub(crate) spec: Arc<Spec>,
    pub(crate) ctx: Context,
}

/// Batches in flight, and those to be left alone for a while.
#[derive(Default)]
struct Floor {
    running: FuturesUnordered<BoxFuture<'static, (String, Option<Ended>)>>,
    runs: BTreeMap<String, Run>,
    resting: BTreeMap<String, (Moment, u32)>,
    records: Records,
    /// As the job said last.
    limits: BatchLimits,
    said: Seldom,
}

/// What one look brought.
#[derive(PartialEq)]
enum Look {
    /// Nothing pending that is not in flight or resting.
    Idle,
    /// There is work, but others hold it.
    Taken,
    /// Claimed something.
    Claimed,
}

impl BatchEngine {
    /// Works on batches until the worker drains.
    pub(crate) async fn run(self) {
        // A name that it cannot bear is no reason not to work.
        let _ = caught(|| self.job.named(&self.name));
        while let Some(pass) = self.ctx.gate.pass().await {
            self.ctx.board.stands(&self.name, Standing::Working);
            let mut floor = Floor::default();
            self.work(&pass, &mut floor).await;
            self.wind_down(&pass, &mut floor).await;
            floor.tell(&self, true);
        }
        self.ctx.board.stands(&self.name, Standing::Off);
    }

    async fn work(&self, pass: &Pass, floor: &mut Floor) {
        let ctx = &self.ctx;
        let mut idle = Backoff::new(IDLE.0, IDLE.1);
        // Batches have no ticks: their runs carry the moment at which this replica began to work.
        let tick = ctx.locks.wall();
        while !pass.is_over() {
            floor.stop_what_is_stuck(self);
            floor.tell(self, false);
            let looking = async {
                // Frozen as the active replica: whether it still is comes before anything new.
                if let Some(replica) = pass.lease()
                    && replica.startable().await.is_err()
                {
                    return Look::Idle;
                }
                if ctx.intents.is_paused(&self.name) {
                    return Look::Idle;
                }
                match self.why_unfit().await {
                    None => self.look(floor, pass, tick).await,
                    Some(why) => {
                        // The same ladder as a term's: the work is told to stop while its claim is renewed.
                        let leases = floor.runs.values().filter_map(Run::lease);
                        leases.for_each(|lease| lease.cordon(&why));
                        Look::Idle
                    }
                }
            };
            let look = tokio::select! {
                biased;
                // A slow look must not hold up the end, nor claim anything after it.
                () = pass.over() => return,
                look = looking => look,
            };
            let full = floor.runs.len() >= floor.limits.concurrency.max(1);
            // While there is no room the job is still asked whether this replica is fit for it.
            let pause_when_full = ctx.health_every();
            let pause = match look {
                Look::Claimed => {
                    idle.reset();
                    Duration::ZERO
                }
                Look::Taken | Look::Idle => idle.next(&ctx.chance),
            };
            tokio::select! {
                biased;
                () = pass.over() => return,
                Some((batch, ended)) = floor.running.next(), if !floor.running.is_empty() => {
                    floor.ended(&batch, ended.as_ref(), self);
                }
                () = ctx.clock.sleep(if full { pause_when_full } else { pause }) => {}
            }
        }
    }

    /// Looks for work and claims what there is room for.
    async fn look(&self, floor: &mut Floor, pass: &Pass, tick: Timestamp) -> Look {
        let ctx = &self.ctx;
        let limits = match caught(|| self.job.limits()) {
            Ok(limits) => limits,
            Err(panic) => {
                return self.trouble(floor, &format!("the job's limits panicked: {panic}"));
            }
        };
        floor.limits = limits;
        let room = limits.concurrency.max(1).saturating_sub(floor.runs.len());
        if room == 0 {
            return Look::Claimed;
        }
        let most = limits.claim.max(1).saturating_mul(64);
        let asking = caught_later(|| self.job.pending(most));
        let mut pending = match ctx.clock.timeout(PENDING_LIMIT, asking).await {
            Ok(Ok(Ok(pending))) => pending,
            Ok(Ok(Err(error))) => return self.trouble(floor, &error.to_string()),
            Ok(Err(panic)) => return self.trouble(floor, &format!("it panicked: {panic}")),
            Err(_) => return self.trouble(floor, "no answer in time"),
        };
        let now = ctx.clock.now();
        floor
            .resting
            .retain(|_, (until, failures)| now < *until || *failures > 0);
        pending.retain(|batch| {
            !floor.runs.contains_key(batch)
                && floor
                    .resting
                    .get(batch)
                    .is_none_or(|(until, _)| now >= *until)
        });
        let unique: BTreeSet<String> = pending.into_iter().collect();
        let mut pending: Vec<String> = unique.into_iter().collect();
        if pending.is_empty() {
            return Look::Idle;
        }
        rendezvous(&ctx.replica, &mut pending);
        pending.truncate(room.min(limits.claim.max(1)));
        let claims = pending.iter().map(|batch| Claim {
            key: format!("batch/{}/{batch}", self.name),
            kind: Kind::Claim,
            ttl: self.spec.ttl,
        });
        let claimed = match ctx.locks.claim(claims.collect()).await {
            Ok(claimed) => claimed,
            Err(error) => return self.trouble(floor, &error.to_string()),
        };
        let mut any = Look::Taken;
        for (batch, claimed) in pending.into_iter().zip(claimed) {
            match claimed {
                Claimed::Acquired(lease) => {
                    any = Look::Claimed;
                    self.start(floor, batch, lease, pass, tick);
                }
                // Somebody works on it: look at others first next time.
                Claimed::Held { .. } => floor.rest(batch, now + IDLE.0 * 2, 0),
                // No quorum, or won too late: it is looked at again in the next pass.
                _ => {}
            }
        }
        any
    }

    fn start(&self, floor: &mut Floor, batch: String, lease: Lease, pass: &Pass, tick: Timestamp) {
        let ctx = &self.ctx;
        let timing = ctx.locks.timing();
        let (ttl, grace) = (lease.ttl(), self.spec.grace);
        let facts = RunFacts {
            job: self.name.clone(),
            id: ctx.run_id(),
            tick,
            attempt: 1,
            replica: ctx.replica.clone(),
            batch: Some(batch.clone()),
            params: self.spec.params.clone(),
            checkpoint: None,
        };
        let now = ctx.clock.now();
        let until = self.spec.timeout.map_or(Moment::NEVER, |limit| now + limit);
        let margin = timing.cancel_margin(ttl, grace);
        let run = Run::new(
            facts,
            ctx.clock.clone(),
            Some(lease.view().clone()),
            margin,
            until,
        )
        .within(grace, pass.lease().cloned());
        let at = ctx.locks.wall();
        ctx.board.started(&run, at);
        floor.records.begun(&batch, &run, now, at);
        let (job, token) = (self.name.clone(), lease.token());
        ctx.events.tell(Event::BatchClaimed {
            job,
            batch: batch.clone(),
            token,
        });
        let limits = Limits {
            grace,
            abort_margin: timing.abort_margin(ttl),
            also: pass.lease().cloned(),
            hooks: ctx.hooks.clone(),
        };
        let (told, end) = oneshot::channel();
        let (job, of, name) = (self.job.clone(), run.clone(), batch.clone());
        let (clock, board, events) = (ctx.clock.clone(), ctx.board.clone(), ctx.events.clone());
        let locks = ctx.locks.clone();
        let work = lease.begin_work();
        lease.take_care(Care {
            grace: Some(grace),
            unstoppable: self.spec.unstoppable,
        });
        ctx.spawn.spawn(async move {
            // Frozen since the claim: what cannot be confirmed any more does not begin, as the run finds by itself.
            let _ = lease.startable().await;
            let ended = execute(
                async { job.process(&name, of.clone()).await },
                &of,
                limits,
                &clock,
            )
            .await;
            // Order matters: the work is gone, then the claim.
            drop((job, work));
            board.ended(&of, ended.word(), locks.wall());
            lease.release().await;
            let took = clock.now().since(now);
            let (job, outcome) = (of.job().to_owned(), ended.word());
            if !matches!(ended, Ended::Done | Ended::Skipped(_)) {
                tracing::warn!(
                    job,
                    batch = name,
                    outcome,
                    detail = ended.detail(),
                    "batch not finished"
                );
            }
            events.tell(Event::BatchEnded {
                job,
                batch: name,
                outcome,
                took,
            });
            // Nobody listens any more when the worker has gone on.
            let _ = told.send(ended);
        });
        floor.runs.insert(batch.clone(), run);
        floor
            .running
            .push(Box::pin(async move { (batch, end.await.ok()) }));
    }

    /// Nothing new is claimed; batches in flight go on to their end, or are told to stop after the drain timeout.
    async fn wind_down(&self, pass: &Pass, floor: &mut Floor) {
        let ctx = &self.ctx;
        let patience = if pass.is_draining() {
            ctx.drain_timeout
        } else {
            Duration::ZERO
        };
        let stop_at = ctx.clock.now() + patience;
        let mut stopped = false;
        while !floor.running.is_empty() {
            tokio::select! {
                biased;
                Some((batch, ended)) = floor.running.next() => {
                    floor.ended(&batch, ended.as_ref(), self);
                }
                () = pass.lost(), if !stopped => {
                    stopped = true;
                    floor.runs.values().for_each(|run| run.stop("this replica is no longer the active one"));
                }
                () = ctx.clock.sleep_until(stop_at), if !stopped => {
                    stopped = true;
                    floor.runs.values().for_each(|run| run.stop(pass.why_draining()));
                }
            }
        }
    }

    async fn why_unfit(&self) -> Option<String> {
        let ctx = &self.ctx;
        if let Some((why, _)) = ctx.locks.fitness().unfit() {
            return Some(why);
        }
        ctx.why_unfit(|| self.job.health(), ctx.locks.timing().ttl / 2)
            .await
    }

    fn trouble(&self, floor: &mut Floor, why: &str) -> Look {
        if let Some(held_back) = floor.said.say(why, self.ctx.clock.now()) {
            tracing::warn!(job = self.name, why, held_back, "cannot look for batches");
        }
        Look::Taken
    }
}

impl Floor {
    /// A batch that makes no progress is told to stop, and its claim is given up.
    fn stop_what_is_stuck(&self, engine: &BatchEngine) {
        let ctx = &engine.ctx;
        let thawed = ctx.locks.fitness().thawed();
        for run in self.runs.values() {
            let at = stuck_at(run.progress_at(), thawed, engine.spec.progress_deadline);
            let doubt = run.lease().is_some_and(LeaseView::in_doubt);
            if ctx.clock.now() >= at && !doubt {
                run.lease()
                    .into_iter()
                    .for_each(|lease| lease.cordon(NO_PROGRESS));
            }
        }
    }

    fn ended(&mut self, batch: &str, ended: Option<&Ended>, engine: &BatchEngine) {
        self.runs.remove(batch);
        let ctx = &engine.ctx;
        let now = ctx.clock.now();
        if let Some(record) = self.records.ended(batch, ended, now, ctx.locks.wall()) {
            ctx.history.batch(record);
        }
        let failures = self.resting.get(batch).map_or(0, |(_, failures)| *failures);
        match ended {
            Some(Ended::Cancelled(why)) if why != NO_PROGRESS => {
                self.resting.remove(batch);
            }
            Some(Ended::Done | Ended::Skipped(_)) => {
                self.resting.remove(batch);
            }
            Some(Ended::RetryAfter(pause)) => self.rest(batch.to_owned(), now + *pause, 0),
            Some(
                Ended::Failed { .. } | Ended::TimedOut | Ended::Panicked(_) | Ended::Cancelled(_),
            )
            | None => {
                let retry = &engine.spec.retry;
                let pause = retry.backoff.saturating_mul(1 << failures.min(16));
                let pause = pause.min(retry.max_backoff).max(IDLE.0);
                self.rest(batch.to_owned(), now + pause, failures + 1);
            }
        }
    }

    /// Writes down what is told of batches together, when it is time, or all of it.
    fn tell(&mut self, engine: &BatchEngine, all: bool) {
        let ctx = &engine.ctx;
        if let Some(record) = self.records.summary(&engine.name, ctx.clock.now(), all) {
            ctx.history.batch(record);
        }
    }

    fn rest(&mut self, batch: String, until: Moment, failures: u32) {
        self.resting.insert(batch, (until, failures));
    }
}
