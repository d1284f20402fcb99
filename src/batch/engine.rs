//! Claims batches and works on them, in every replica at once.
//!
//! # Invariants
//! - B1 A batch is processed only under a claim of this replica.           (a_batch_is_processed_under_its_claim)
//! - B2 A lost claim cancels that batch only.                              (a_lost_claim_cancels_one_batch)
//! - B3 A claim is released after the batch's work has ended.              (a_claim_outlives_its_work)
//! - B4 Nothing is claimed once the worker drains.                       (nothing_is_claimed_once_the_worker_drains)
//! - B5 Where batches are messages, one that was done is not done again, and one that failed waits for its pause on every replica.
//!   (a_message_is_handled_once_by_all_replicas, a_message_that_fails_waits_on_every_replica)
//! - B6 A message that is too old to know whether it was done is shown to the job under a claim, and not processed.
//!   (a_message_that_is_too_old_is_refused_by_one_replica)
//! - B7 Batches that rest or are worked on hide no others.        (batches_that_wait_do_not_hide_those_behind_them)
//! - B8 A message that is dated too far ahead is told by its id.    (a_message_that_is_dated_too_far_ahead_is_told)
//! - B9 A look serves many claims, where it has found much; and no longer than a moment.
//!   (many_claims_are_made_of_one_look, what_was_found_is_claimed_in_its_order_and_only_for_a_moment)
//! - B10 A replica that is unfit, or not the active one, tells no backlog, dead items or trouble. One that is paused tells those of
//!   the moment at which it was.
//!   (an_unfit_replica_tells_no_backlog, what_was_the_active_replica_tells_no_backlog)
//! - B11 The pause of a batch that fails grows on each replica, also where others work on it in between.
//!   (the_pause_of_a_batch_that_fails_grows_on_every_replica)
//! # When things fail  A batch that fails is left alone here for a growing pause; others may try it meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt;
use jiff::Timestamp;
use tokio::sync::oneshot;

use super::{
    BatchJob, BatchLimits,
    hold::{Hold, NO_PROGRESS, pause},
    kept::Kept,
    order::rendezvous,
    pressure::Pressure,
    record::Records,
};
use crate::{
    backoff::Backoff,
    clock::Moment,
    event::Event,
    job::{Run, RunFacts, RunSetup, Spec},
    lease::{LeaseView, StopPolicy},
    lock::{Claim, Claimed, LockError},
    node::Kind,
    once::{self, Once},
    panics::{caught, caught_later},
    run::{Ended, InFlight, Pass, PreparedRun, RunInFlight, WindDown, stuck_at},
    scheduler::Context,
    seldom::Seldom,
    status::JobStanding,
};

/// How long `pending` may take.
const PENDING_LIMIT: Duration = Duration::from_secs(30);
/// How long a job may take to say what is to be said when it stops.
const LAST_WORD: Duration = Duration::from_secs(2);
/// Characters of a trouble that are told.
const MOST_TROUBLE: usize = 300;
/// The same trouble is said so often: a person has to mend it.
const LASTING: Duration = Duration::from_secs(60);
/// A batch that was told to stop is gone so long after its grace, or does not hear.
const UNHEARD: Duration = Duration::from_secs(2);
/// For each message that may be claimed now, so many are looked at: most were done by others.
const LOOKED_AT: usize = 8;
/// Pauses between looks when there is nothing to do.
const IDLE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// The least pause between looks when the job says that there is work.
const WOKEN: Duration = Duration::from_millis(10);

/// One batch job of this replica.
pub(crate) struct BatchEngine {
    pub(crate) name: String,
    pub(crate) job: Arc<dyn BatchJob>,
    pub(crate) spec: Arc<Spec>,
    pub(crate) ctx: Context,
}

/// Batches in flight, and those to be left alone for a while.
#[derive(Default)]
struct Batches {
    in_flight: InFlight<String>,
    resting: BTreeMap<String, (Moment, u32)>,
    kept: Kept,
    records: Records,
    /// As the job said last.
    limits: BatchLimits,
    pressure: Pressure,
    /// Where batches are messages.
    once: Option<(Duration, Once)>,
    /// A message that is dated too far ahead, of which the log was told.
    ahead: Option<String>,
    said: Seldom,
}

/// What became of a wish to work on a batch.
enum Answer {
    /// It is ours to work on.
    Ours(Hold),
    /// Not now; to be asked again after this pause.
    Held(Duration),
    /// It needs no work.
    Settled,
    /// It was not decided.
    Open,
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
            self.ctx
                .local_status
                .stands(&self.name, JobStanding::Working);
            let mut batches = Batches::default();
            self.work(&pass, &mut batches).await;
            self.ctx.local_status.rests(&self.name);
            self.wind_down(&pass, &mut batches).await;
            let last = caught_later(|| self.job.stopped());
            // Of what it does not say in time, or in a panic, others find out by themselves.
            let _ = self.ctx.clock.timeout(LAST_WORD, last).await;
            batches.tell(&self, true);
        }
        self.ctx.local_status.stands(&self.name, JobStanding::Off);
    }

    async fn work(&self, pass: &Pass, batches: &mut Batches) {
        let ctx = &self.ctx;
        let mut idle = Backoff::new(IDLE.0, IDLE.1);
        // Batches have no ticks: their runs carry the moment at which this replica began to work.
        let tick = ctx.locks.wall();
        while !pass.is_over() {
            batches.stop_what_is_stuck(self);
            batches.tell(self, false);
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
                match ctx.why_unfit_here(|| self.job.health()).await {
                    None => {
                        ctx.local_status.works(&self.name);
                        self.look(batches, pass, tick).await
                    }
                    Some(why) => {
                        ctx.local_status.rests(&self.name);
                        // The same ladder as a term's: the work is told to stop while its claim is renewed.
                        let leases = batches.in_flight.runs().filter_map(Run::lease);
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
            let full = batches.in_flight.len() >= batches.room();
            // While there is no room the job is still asked whether this replica is fit for it.
            let pause_when_full = ctx.health_every();
            let may_be_woken = !full && look != Look::Claimed;
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
                (batch, ended) = batches.in_flight.next_end() => {
                    batches.ended(&batch, &ended, self);
                    // What has ended with it makes room with it, for one claim of them all.
                    while let Some((batch, ended)) = batches.in_flight.next_end().now_or_never() {
                        batches.ended(&batch, &ended, self);
                    }
                }
                () = ctx.clock.sleep(if full { pause_when_full } else { pause }) => {}
                () = self.woken(), if may_be_woken => idle.reset(),
            }
        }
    }

    /// Returns when the job knows of work, and no sooner than a moment after the last look: who is told of each row does
    /// not look for each.
    async fn woken(&self) {
        self.ctx.clock.sleep(WOKEN).await;
        if caught_later(|| self.job.woken()).await.is_err() {
            // Looks find its work.
            std::future::pending::<()>().await;
        }
    }

    /// Looks for work and claims what there is room for.
    async fn look(&self, batches: &mut Batches, pass: &Pass, tick: Timestamp) -> Look {
        let ctx = &self.ctx;
        let limits = match caught(|| self.job.limits()) {
            Ok(limits) => limits,
            Err(panic) => {
                return self.trouble(batches, &format!("the job's limits panicked: {panic}"));
            }
        };
        batches.limits = limits;
        let room = batches.room().saturating_sub(batches.in_flight.len());
        if room == 0 {
            return Look::Claimed;
        }
        let at_once = room.min(limits.claim.max(1));
        let kept = batches.take_kept(at_once, ctx.clock.now());
        if !kept.is_empty() {
            let answers = match self.claim(&kept).await {
                Ok(answers) => answers,
                Err(error) => return self.trouble(batches, &error.to_string()),
            };
            if answers
                .iter()
                .any(|answer| matches!(answer, Answer::Held(_)))
            {
                batches.kept.forget();
            }
            self.went_well(batches, None);
            return self.take(batches, kept, answers, pass, tick);
        }
        // What is not to be claimed now must not hide what lies behind it.
        let known = batches.resting.len() + batches.in_flight.len();
        let most = limits.claim.max(1).saturating_mul(64).saturating_add(known);
        let asking = caught_later(|| self.job.pending(most));
        let mut pending = match ctx.clock.timeout(PENDING_LIMIT, asking).await {
            Ok(Ok(Ok(pending))) => pending,
            Ok(Ok(Err(error))) => return self.trouble(batches, &error.to_string()),
            Ok(Err(panic)) => return self.trouble(batches, &format!("it panicked: {panic}")),
            Err(_) => return self.trouble(batches, "no answer in time"),
        };
        let once = match self.once(batches) {
            Ok(once) => once,
            Err(panic) => {
                let why = format!("its retention or source panicked: {panic}");
                return self.trouble(batches, &why);
            }
        };
        // Of all that is pending: it rests like the others, and takes up room until a person removes it.
        let ahead = once.as_ref().and_then(|once| {
            let ahead = |batch: &&String| once.is_too_far_ahead(self.produced_at(batch));
            pending.iter().find(ahead).cloned()
        });
        let now = ctx.clock.now();
        batches.forget(now, self.spec.retry.max_backoff);
        pending.retain(|batch| batches.may_be_claimed(batch, now));
        let unique: BTreeSet<String> = pending.into_iter().collect();
        let mut pending: Vec<String> = unique.into_iter().collect();
        if pending.is_empty() {
            self.went_well(batches, ahead);
            return Look::Idle;
        }
        rendezvous(&ctx.replica, &mut pending);
        let answers = match once {
            None => {
                // Whoever would begin with them: so nobody's are left alone for long.
                let rest = pending.split_off(at_once.min(pending.len()));
                let others = ctx.peers.others(now);
                batches.kept = Kept::of(rest, &ctx.replica, &others, now);
                self.claim(&pending).await
            }
            Some(once) => {
                pending.truncate(at_once.saturating_mul(LOOKED_AT));
                self.claim_messages(&once, &pending, at_once).await
            }
        };
        let answers = match answers {
            Ok(answers) => answers,
            Err(error) => return self.trouble(batches, &error.to_string()),
        };
        self.went_well(batches, ahead);
        self.take(batches, pending, answers, pass, tick)
    }

    /// Begins what was won of these.
    fn take(
        &self,
        batches: &mut Batches,
        asked: Vec<String>,
        answers: Vec<Answer>,
        pass: &Pass,
        tick: Timestamp,
    ) -> Look {
        let now = self.ctx.clock.now();
        let mut any = Look::Taken;
        for (batch, answer) in asked.into_iter().zip(answers) {
            match answer {
                Answer::Ours(hold) => {
                    any = Look::Claimed;
                    self.start(batches, batch, hold, pass, tick);
                }
                // Another replica works on it: look at others first next time.
                Answer::Held(pause) => batches.held(batch, now + pause),
                Answer::Settled => {
                    any = Look::Claimed;
                    batches.resting.remove(&batch);
                    self.settled(&batch);
                }
                // No quorum, or won too late: it is looked at again in the next pass.
                Answer::Open => {}
            }
        }
        any
    }

    /// Where batches are messages, who claims them.
    fn once(&self, batches: &mut Batches) -> Result<Option<Once>, String> {
        let Some(retention) = caught(|| self.job.retention())? else {
            return Ok(None);
        };
        if let Some((known, once)) = &batches.once
            && *known == retention
        {
            return Ok(Some(once.clone()));
        }
        let name = match caught(|| self.job.source().to_owned())? {
            source if source.is_empty() => self.name.clone(),
            // The first slash ends the job's name.
            source => format!("{}/{source}", self.name.replace('/', "%2F")),
        };
        let once = Once::new(&self.ctx.locks, &name, retention).claiming_what_is_too_old();
        let once = self.spec.ttl.map_or(once.clone(), |ttl| once.ttl(ttl));
        batches.once = Some((retention, once.clone()));
        Ok(Some(once))
    }

    async fn claim(&self, pending: &[String]) -> Result<Vec<Answer>, LockError> {
        let claims = pending.iter().map(|batch| Claim {
            key: format!("batch/{}/{batch}", self.name),
            kind: Kind::Claim,
            ttl: self.spec.ttl,
        });
        let claimed = self.ctx.locks.claim(claims.collect()).await?;
        let answer = |claimed| match claimed {
            Claimed::Acquired(lease) => Answer::Ours(Hold::Claim(lease)),
            Claimed::Held { .. } => Answer::Held(IDLE.0 * 2),
            _ => Answer::Open,
        };
        Ok(claimed.into_iter().map(answer).collect())
    }

    async fn claim_messages(
        &self,
        once: &Once,
        pending: &[String],
        most: usize,
    ) -> Result<Vec<Answer>, LockError> {
        let messages: Vec<(&str, Timestamp)> = pending
            .iter()
            .map(|batch| (batch.as_str(), self.produced_at(batch)))
            .collect();
        let claims = once.claim_many(&messages, most).await?;
        let answer = |claim| match claim {
            Some(once::Claim::Ours(work)) => Answer::Ours(Hold::Message(work)),
            Some(once::Claim::Done) => Answer::Settled,
            Some(once::Claim::Held { for_at_most }) => {
                // A lease may be released at any time before its end.
                let pause = for_at_most.unwrap_or_default();
                Answer::Held(pause.clamp(IDLE.0 * 2, IDLE.1))
            }
            _ => Answer::Open,
        };
        Ok(claims.into_iter().map(answer).collect())
    }

    /// One whose date cannot be told is too old.
    fn produced_at(&self, batch: &str) -> Timestamp {
        let date = caught(|| self.job.produced_at(batch));
        date.unwrap_or(Timestamp::UNIX_EPOCH)
    }

    fn settled(&self, batch: &str) {
        if let Err(panic) = caught(|| self.job.settled(batch)) {
            tracing::warn!(
                job = self.name,
                batch,
                panic,
                "it panicked when it was told that a batch needs no work any more"
            );
        }
    }

    fn start(
        &self,
        batches: &mut Batches,
        batch: String,
        hold: Hold,
        pass: &Pass,
        tick: Timestamp,
    ) {
        let ctx = &self.ctx;
        let facts = RunFacts {
            job: self.name.clone(),
            id: ctx.run_id(),
            tick,
            attempt: hold.attempt(),
            replica: ctx.replica.clone(),
            batch: Some(batch.clone()),
            shard: 0,
            shards: 1,
            params: self.spec.params.clone(),
            checkpoint: None,
        };
        let trace = ctx.tracer.batch(&self.name, &facts.id);
        let setup = RunSetup {
            trace,
            lease: Some(hold.view().clone()),
            locks: Some(ctx.locks.clone()),
            also: pass.lease().cloned(),
            ..RunSetup::new(facts, ctx.clock.clone())
        };
        let (now, at) = (setup.begins, ctx.locks.wall());
        let prepared = PreparedRun::by(&self.spec, ctx.locks.timing(), &ctx.hooks, setup);
        let run = prepared.run().clone();
        ctx.local_status.started(&run, at);
        let (job, token) = (self.name.clone(), hold.view().token());
        ctx.events.tell(Event::BatchClaimed {
            job,
            batch: batch.clone(),
            token,
        });
        hold.view().set_stop_policy(StopPolicy {
            grace: Some(self.spec.grace),
            unstoppable: self.spec.unstoppable,
        });
        let view = hold.view().clone();
        let may = async move {
            // Frozen since the claim: what cannot be confirmed any more does not begin, as the run finds by itself.
            let _ = view.startable().await;
            true
        };
        let (job, name, refused) = (self.job.clone(), batch.clone(), hold.is_refused());
        let work = move |run: Run| async move {
            match refused {
                true => job.refused(&name, run).await,
                false => job.process(&name, run).await,
            }
        };
        let (of, clock, local_status) = (run.clone(), ctx.clock.clone(), ctx.local_status.clone());
        let (events, locks) = (ctx.events.clone(), ctx.locks.clone());
        let (name, retry) = (batch.clone(), self.spec.retry);
        let then = move |ended: Ended, mark, tell: oneshot::Sender<Ended>| async move {
            // Order matters: the work is gone, then the claim.
            drop(mark);
            of.tell_attempt(ended.word());
            local_status.ended(&of, ended.word(), locks.wall());
            let ended = hold.end(ended, &retry).await;
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
                took: clock.now().since(now),
            });
            // The engine does not listen any more when the worker has gone on.
            let _ = tell.send(ended);
        };
        let end = prepared.begin((&ctx.spawn, &ctx.clock), may, work, then);
        batches.in_flight.add(RunInFlight {
            key: batch,
            run,
            end,
            started: now,
            at,
            noted: None,
        });
    }

    /// Nothing new is claimed; batches in flight go on to their end, or are told to stop after the drain timeout.
    async fn wind_down(&self, pass: &Pass, batches: &mut Batches) {
        let ctx = &self.ctx;
        let patience = if pass.is_draining() {
            ctx.drain_timeout
        } else {
            Duration::ZERO
        };
        let mut wind_down = WindDown::until(ctx.clock.now() + patience);
        while !batches.in_flight.is_empty() {
            tokio::select! {
                biased;
                (batch, ended) = batches.in_flight.next_end() => batches.ended(&batch, &ended, self),
                why = wind_down.over(pass, &ctx.clock) => {
                    batches.in_flight.stop_all(why.unwrap_or_else(|| pass.why_draining()));
                }
            }
        }
    }

    /// A look has brought an answer. What may be wrong all the same is a message that is dated too far ahead.
    fn went_well(&self, batches: &mut Batches, ahead: Option<String>) {
        if let Some(batch) = ahead.as_ref().filter(|_| batches.ahead != ahead) {
            tracing::warn!(
                job = self.name,
                batch,
                "dated further ahead than a record is kept: it is left alone, and takes up room"
            );
        }
        let why = |batch: &String| {
            let why = format!(
                "{batch} is dated further ahead than a record is kept: it is left alone, and takes up room"
            );
            why.chars().take(MOST_TROUBLE).collect()
        };
        let why = ahead.as_ref().map(why);
        self.ctx.local_status.trouble(&self.name, why);
        batches.ahead = ahead;
    }

    fn trouble(&self, batches: &mut Batches, why: &str) -> Look {
        if let Some(held_back) = batches.said.say_after(why, LASTING, self.ctx.clock.now()) {
            tracing::warn!(job = self.name, why, held_back, "cannot look for batches");
        }
        // A sentence, and not a text of any length that others read again and again.
        let why: String = why.chars().take(MOST_TROUBLE).collect();
        self.ctx.local_status.trouble(&self.name, Some(why));
        Look::Taken
    }
}

impl Batches {
    /// A batch that makes no progress is told to stop, under its claim: what became of it is written down. When that is of no use its
    /// claim is given up, and from there the keeper's ladder leads.
    fn stop_what_is_stuck(&self, engine: &BatchEngine) {
        let ctx = &engine.ctx;
        let thawed = ctx.locks.fitness().thawed();
        for run in self.in_flight.runs() {
            let at = stuck_at(run.progress_at(), thawed, engine.spec.progress_deadline);
            let doubt = run.lease().is_some_and(LeaseView::in_doubt);
            let now = ctx.clock.now();
            if now < at || doubt {
                continue;
            }
            run.stop(NO_PROGRESS);
            if now >= at + engine.spec.grace + UNHEARD {
                run.lease()
                    .into_iter()
                    .for_each(|lease| lease.cordon(NO_PROGRESS));
            }
        }
    }

    fn ended(&mut self, batch: &str, ended: &Ended, engine: &BatchEngine) {
        let ctx = &engine.ctx;
        let now = ctx.clock.now();
        let mut again = None;
        if let Some(entry) = self.in_flight.remove(&batch.to_owned()) {
            again = entry.run.items_again();
            let (began, over) = ((entry.started, entry.at), (now, ctx.locks.wall()));
            let record = self.records.ended(&entry.run, began, ended, over);
            record
                .into_iter()
                .for_each(|record| ctx.history.batch(record));
        }
        let (before, most) = (self.room(), self.limits.concurrency);
        match ended {
            Ended::Done => self.pressure.done(most),
            Ended::RetryAfter(_) => self.pressure.asked_to_wait(most),
            _ => {}
        }
        let at_a_time = self.room();
        if at_a_time < before {
            let job = &engine.name;
            tracing::info!(
                job,
                at_a_time,
                most,
                "batches are to wait: fewer are worked on"
            );
        }
        if matches!(ended, Ended::Skipped(_) | Ended::RetryAfter(_)) {
            // Another replica may have done it since it was found, and others with it; or a receiver wants to rest, and the next
            // look finds less.
            self.kept.forget();
        }
        let failures = self.failures(batch);
        match ended {
            Ended::Cancelled(why) if why != NO_PROGRESS => {
                self.resting.remove(batch);
            }
            // What is settled as a message does not come back for a part of it.
            Ended::Done | Ended::Skipped(_) => match again.filter(|_| self.once.is_none()) {
                Some(again) => self.rest(batch.to_owned(), again, 0),
                None => {
                    self.resting.remove(batch);
                    if self.once.is_some() {
                        engine.settled(batch);
                    }
                }
            },
            Ended::RetryAfter(pause) => self.rest(batch.to_owned(), now + *pause, 0),
            Ended::Failed { .. } | Ended::TimedOut | Ended::Panicked(_) | Ended::Cancelled(_) => {
                let pause = pause(&engine.spec.retry, failures).max(IDLE.0);
                self.rest(batch.to_owned(), now + pause, failures + 1);
            }
        }
    }

    /// Writes down what is told of batches together, when it is time, or all of it.
    fn tell(&mut self, engine: &BatchEngine, all: bool) {
        let ctx = &engine.ctx;
        let at_work = !self.in_flight.is_empty();
        if let Some(record) = self
            .records
            .summary(&engine.name, ctx.clock.now(), at_work, all)
        {
            ctx.history.batch(record);
        }
    }

    /// Forgets what may be claimed again. How often it has failed is remembered for its next pause: while it is worked on, and for
    /// the longest pause beyond its last one.
    fn forget(&mut self, now: Moment, longest: Duration) {
        let in_flight = &self.in_flight;
        self.resting.retain(|batch, (until, failures)| {
            let failed = *failures > 0;
            now < *until || failed && (now < *until + longest || in_flight.has(batch))
        });
    }

    /// What the last look has found, and may be claimed without another.
    fn take_kept(&mut self, most: usize, now: Moment) -> Vec<String> {
        let mut kept = std::mem::take(&mut self.kept);
        let taken = kept.take(most, now, |batch| self.may_be_claimed(batch, now));
        self.kept = kept;
        taken
    }

    /// It is neither worked on nor left alone.
    fn may_be_claimed(&self, batch: &String, now: Moment) -> bool {
        let rests = |(until, _): &(Moment, u32)| now < *until;
        !self.in_flight.has(batch) && !self.resting.get(batch).is_some_and(rests)
    }

    /// How many are worked on at a time.
    fn room(&self) -> usize {
        self.pressure.of(self.limits.concurrency)
    }

    fn rest(&mut self, batch: String, until: Moment, failures: u32) {
        self.resting.insert(batch, (until, failures));
    }

    /// Another replica has it. That says nothing of how it ends: it has failed here as often as before.
    fn held(&mut self, batch: String, until: Moment) {
        let failures = self.failures(&batch);
        self.rest(batch, until, failures);
    }

    fn failures(&self, batch: &str) -> u32 {
        self.resting.get(batch).map_or(0, |(_, failures)| *failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_and_does_not_come_back_is_forgotten() {
        let at = |second| Moment::from_boot(Duration::from_secs(second));
        let mut batches = Batches::default();
        batches.rest("held".to_owned(), at(10), 0);
        batches.rest("failed".to_owned(), at(10), 3);
        let mut left = |now| {
            batches.forget(now, Duration::from_secs(60));
            batches.resting.keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!(left(at(9)), ["failed", "held"]);
        assert_eq!(left(at(10)), ["failed"]);
        assert_eq!(left(at(69)), ["failed"]);
        assert_eq!(left(at(70)), [""; 0]);
    }
}
