//! One term of a job: gather facts, decide, write, act, wait.
//!
//! # Invariants
//! - D1 Nothing starts when it would be told to stop at once, because the lease is about to end: no attempt is lost for
//!   nothing.   (every_tick_is_started_once_per_attempt_whatever_dies)

use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    Engine, by_tick,
    execute::Ended as RunEnd,
    flight::{Flight, Flights, Saving},
    gate::Pass,
    limits::{has_standby, stuck_at},
    orders::Notice,
    pad::Pad,
};
use crate::{
    clock::Moment,
    due::{self, Decision, Facts, Interrupted, Plan},
    event::Event,
    job::{JobError, Run},
    lease::{LeaseView, Loss, Unstoppable},
    ledger::{Ledger, OpenRun, RunKey, is_trigger_id},
    lock::WriteError,
    node::Token,
    status::runs::INTERRUPTED,
};

/// The longest sleep between two looks at the wall clock: it may be set meanwhile.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The shortest and the longest wait for the nodes' clocks to reach a tick.
const AGREE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// How soon a leader that holds back a start looks again whether its lease was extended.
const LOOK_AT_LEASE: Duration = Duration::from_millis(50);

/// One term.
pub(super) struct Lead<'a> {
    pub(super) engine: &'a Engine,
    pub(super) pad: &'a Pad,
    /// None for a job that runs everywhere.
    pub(super) lease: Option<LeaseView>,
    pub(super) pass: &'a Pass,
    /// Whether the term ends with its work: when nothing of the job is open and no retry is near.
    pub(super) brief: bool,
    /// Cancelled when a replica that leads without a lock is not fit to go on; a lock's keeper says so by its lease.
    pub(super) unfit: CancellationToken,
}

/// What became of a plan.
enum Carried {
    /// Written, and its runs have started.
    Written,
    /// Refused by a majority of nodes, whose clocks are so far behind.
    TooEarly(Duration),
}

/// The term is over, or nothing more can be done in it.
pub(super) struct Over;

/// Why a term was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Its lease says why, or it was handed over.
    Over,
    /// It has lasted long enough, and somebody else stands by.
    MaxTerm,
    /// Somebody asked for it.
    Resigned,
    /// There is a new definition of the job, and nothing of it runs.
    Changed,
    /// Another replica has a newer definition of the job, and nothing of it runs here.
    Outdated,
    /// There is nothing to do before the next tick.
    Idle,
}

impl Lead<'_> {
    /// Leads until nothing new may start, then winds down. Each step has its room only while it goes on: a thousand leaders
    /// are nearly always between two of them.
    pub(super) async fn run(self) -> Ended {
        let job = &self.engine.name;
        let mut ledger = match self.pad.found() {
            Ok(ledger) => ledger,
            Err(error) => {
                // Writing over it would lose what a newer version knows.
                tracing::error!(job, %error, "cannot read the ledger: leaving the job to others");
                self.clock().sleep(self.engine.ctx.locks.timing().ttl).await;
                return Ended::Over;
            }
        };
        if !self.engine.may_lead_after(&ledger) {
            return Ended::Outdated;
        }
        // First of all: a minority write of the last leader becomes the truth, or is gone, for everybody.
        if ledger != Ledger::default() && Box::pin(self.write(&ledger, None)).await.is_err() {
            return Ended::Over;
        }
        if Box::pin(self.account_for_blank(&mut ledger)).await.is_err() {
            return Ended::Over;
        }
        if Box::pin(self.account_for_change(&mut ledger))
            .await
            .is_err()
        {
            return Ended::Over;
        }
        // Also after it: the pause of a job must be known to whoever leads it next.
        let Some(mut seen) = Box::pin(self.knows_intents()).await else {
            return Ended::Over;
        };
        // Of the last term, or of nobody, until something is decided in this one.
        let next = self.engine.next_tick(&ledger, self.wall());
        let board = &self.engine.ctx.board;
        board.ticks(job, self.engine.last_tick(&ledger), next);
        let (desk, mut saving) = mpsc::channel(4);
        let mut flights = Flights::default();
        let mut end = Ended::Over;
        let mut term_end = self.term_end();
        let mut notice = Notice::default();
        let mut ready = None;
        while self.is_open() {
            self.settle(&mut ready, &mut ledger, &mut flights);
            if self.leaves(&mut notice, !flights.is_empty()) {
                end = Ended::Resigned;
                break;
            }
            let leaving = self.leaving();
            if let Some(why) = leaving {
                if flights.is_empty() {
                    end = why;
                    break;
                }
                if self.engine.schedule.is_continuous() {
                    // It would never end by itself.
                    flights.stop_all("the definition of the job has changed");
                }
            }
            let Ok(plan) = self.decide(&ledger, &flights, leaving.is_none()) else {
                break;
            };
            let mut wake = plan.wake;
            let mut held_back = false;
            if self.starts_too_late(&plan) {
                held_back = true;
                wake = self.wall().checked_add(LOOK_AT_LEASE).ok();
            } else {
                match Box::pin(self.carry_out(plan, &mut ledger, &mut flights, &desk)).await {
                    Ok(Carried::Written) => {}
                    Ok(Carried::TooEarly(ahead)) => {
                        held_back = true;
                        wake = self.wall().checked_add(ahead).ok();
                    }
                    Err(Over) => break,
                }
            }
            let idle = !held_back && flights.is_empty() && by_tick::is_done(&ledger, self.wall());
            if self.brief && idle {
                end = Ended::Idle;
                break;
            }
            if !held_back && leaving.is_none() {
                ready = self.make_ready(&ledger, &flights, &desk, &mut wake);
            }
            let runs = flights.runs();
            tokio::select! {
                biased;
                () = self.closing() => break,
                (key, ended) = flights.next_end() => {
                    if Box::pin(self.record(&mut ledger, &mut flights, &key, ended)).await.is_err() {
                        break;
                    }
                }
                Some(saving) = saving.recv() => {
                    self.settle(&mut ready, &mut ledger, &mut flights);
                    Box::pin(self.save(&mut ledger, &flights, saving)).await;
                }
                () = self.stuck(&runs) => self.give_up("the run makes no progress"),
                () = self.clock().sleep_until(term_end) => {
                    let Some(standby) = Box::pin(has_standby(&self.engine.ctx, job)).await else {
                        term_end = self.clock().now() + self.engine.ctx.locks.timing().ttl;
                        continue;
                    };
                    if standby {
                        end = Ended::MaxTerm;
                        break;
                    }
                    // Nobody to hand over to: the time begins anew, and the work goes on.
                    term_end = self.clock().now() + self.engine.spec.max_term;
                }
                () = self.to_leave(), if leaving.is_none() => {}
                () = self.engine.ctx.intents.changed(&mut seen) => {}
                () = self.clock().sleep_until(notice.wake(self.clock().now())) => {}
                () = self.sleep_until(wake) => {}
            }
        }
        self.settle(&mut ready, &mut ledger, &mut flights);
        Box::pin(self.wind_down(&mut ledger, flights, &mut saving, end)).await;
        end
    }

    /// When somebody else is to lead. In failover mode nobody else can: all jobs are where the replica lock is. A lock that
    /// was taken for a tick goes with the tick's work, and no earlier.
    fn term_end(&self) -> Moment {
        match (&self.lease, self.pass.lease()) {
            (Some(lease), None) if !self.brief => lease.since() + self.engine.spec.max_term,
            _ => Moment::NEVER,
        }
    }

    /// Completes when one of the runs has said nothing for longer than its job allows; never without a run.
    async fn stuck(&self, runs: &[Run]) {
        loop {
            let thawed = self.engine.ctx.locks.fitness().thawed();
            let limit = self.engine.spec.progress_deadline;
            let ends = runs
                .iter()
                .map(|run| stuck_at(run.progress_at(), thawed, limit));
            let at = ends.min().unwrap_or(Moment::NEVER);
            // What it says meanwhile moves it on. A keeper that is late has not told of its freeze yet.
            if self.clock().now() < at {
                self.clock().sleep_until(at).await;
            } else if self.in_doubt() {
                self.clock().sleep(LOOK_AT_LEASE).await;
            } else {
                return;
            }
        }
    }

    /// This replica does not do the job as it should: nothing new starts, and the work is to stop.
    fn give_up(&self, why: &str) {
        self.engine.ctx.events.tell(Event::Fitness {
            job: self.engine.name.clone(),
            unfit: Some(why.to_owned()),
        });
        match &self.lease {
            // From here the keeper's ladder leads.
            Some(lease) => lease.cordon(why),
            None => self.unfit.cancel(),
        }
    }

    /// Reads what is asked of the job; says at which change of it. Nothing when the term is over before that.
    async fn knows_intents(&self) -> Option<u64> {
        let ctx = &self.engine.ctx;
        let known = ctx.intents.known_to_majority(&ctx.locks, &ctx.clock);
        if self.lease.is_none() {
            // Nothing is shared: a store that does not answer keeps nobody from work of his own.
            let _ = ctx
                .clock
                .timeout(ctx.locks.timing().node_timeout * 2, known)
                .await;
            return Some(ctx.intents.seen());
        }
        tokio::select! {
            biased;
            () = self.closing() => None,
            () = known => Some(ctx.intents.seen()),
        }
    }

    fn decide(&self, ledger: &Ledger, flights: &Flights, may_start: bool) -> Result<Plan, Over> {
        self.decide_at(self.wall(), ledger, flights, may_start)
    }

    pub(super) fn decide_at(
        &self,
        now: Timestamp,
        ledger: &Ledger,
        flights: &Flights,
        may_start: bool,
    ) -> Result<Plan, Over> {
        let engine = self.engine;
        let triggers = self.triggers(ledger);
        let alive = flights.keys();
        let facts = Facts {
            ledger,
            schedule: &engine.schedule,
            policy: &engine.policy,
            now,
            token: self.token(),
            alive: &alive,
            may_start,
            triggers: &triggers,
            paused_upto: engine.ctx.intents.paused_upto(&engine.name),
        };
        due::decide(&facts).map_err(|refused| {
            tracing::warn!(job = engine.name, %refused, "a later leader has written the ledger");
            Over
        })
    }

    /// Writes what was decided, then reports it, then starts what is to start.
    async fn carry_out(
        &self,
        mut plan: Plan,
        ledger: &mut Ledger,
        flights: &mut Flights,
        desk: &mpsc::Sender<Box<Saving>>,
    ) -> Result<Carried, Over> {
        if plan.decisions.is_empty() {
            return Ok(Carried::Written);
        }
        let next = self.engine.next_tick(&plan.ledger, self.wall());
        self.keep_given(&mut plan);
        let ticks = plan.starts().filter_map(|d| match d {
            // A trigger is due whatever the nodes' clocks say.
            Decision::Start { id, tick, .. } if !is_trigger_id(id) => Some(*tick),
            _ => None,
        });
        let start = ticks.max();
        match self.write(&plan.ledger, start).await {
            Ok(()) => {}
            Err(WriteError::TooEarly { ahead }) => {
                tracing::warn!(
                    job = self.engine.name,
                    ahead_ms = ahead.as_millis(),
                    "this machine's clock is ahead of a majority of nodes: the tick waits"
                );
                // Decided anew, but not before they can agree; a clock may also be set back.
                return Ok(Carried::TooEarly(ahead.clamp(AGREE.0, AGREE.1)));
            }
            Err(_) => return Err(Over),
        }
        let before = std::mem::replace(ledger, plan.ledger);
        self.engine
            .ctx
            .board
            .ticks(&self.engine.name, self.engine.last_tick(ledger), next);
        for decision in plan.decisions {
            if let Decision::Start {
                id,
                tick,
                attempt,
                checkpoint,
                ..
            } = decision
            {
                self.extended().await;
                // The lease may have ended while the start was written: then it does not happen here. A drain that
                // began meanwhile waits for it: left out now, it would look like a run that died.
                let lost = self.pass.is_lost();
                if lost || self.lease.as_ref().is_some_and(|l| !l.is_open()) {
                    return Err(Over);
                }
                let key = RunKey { id, attempt };
                let kept = open_run(ledger, &key).cloned();
                let now = self.clock().now();
                let run = self.departure(key, kept, tick, checkpoint, desk.clone(), now);
                let begun = self.begin(run, None);
                flights.add(self.tell(begun, now, self.wall()));
            } else {
                self.report(decision, &before, flights);
            }
        }
        Ok(Carried::Written)
    }

    /// Tells what was decided, also the run whose place a newer tick takes. `before` is the ledger that it was decided from.
    pub(super) fn report(&self, decision: Decision, before: &Ledger, flights: &Flights) {
        let engine = self.engine;
        let (ticks, why) = match decision {
            Decision::Missed { ticks, why } => (ticks, why.as_str()),
            Decision::Overlap { ticks } => (ticks, "overlap"),
            Decision::Interrupted {
                id,
                tick,
                attempt,
                action,
                exhausted,
                ..
            } => {
                let again = action == Interrupted::Rerun;
                if !again {
                    self.trigger_ended(&id, INTERRUPTED, String::new());
                }
                let of_trigger = is_trigger_id(&id);
                if let Some(dead) = open_run(before, &RunKey { id, attempt }) {
                    engine.ctx.history.interrupted(&engine.name, dead);
                }
                tracing::warn!(
                    job = engine.name, %tick, attempt, again, exhausted,
                    "a run was interrupted: its replica died or lost its lease"
                );
                let ticks = due::Ticks::single(tick);
                if again || of_trigger {
                    return;
                }
                (ticks, INTERRUPTED)
            }
            Decision::Replaced { key, by } => {
                let why = format!("tick {by} takes its place (overlap = \"cancel-previous\")");
                return flights.stop(&key, &why);
            }
            Decision::Queued { ticks } => {
                tracing::debug!(
                    job = engine.name, first = %ticks.from, last = %ticks.to,
                    "all places are taken: the tick waits in the ledger"
                );
                return;
            }
            Decision::FirstSight { .. } | Decision::Start { .. } => return,
        };
        engine.ctx.events.tell(Event::TicksSkipped {
            job: engine.name.clone(),
            first: ticks.from,
            last: ticks.to,
            count: ticks.count,
            why,
        });
    }

    /// Writes how a run ended. What cannot be written stays open, and the next leader finds it interrupted.
    async fn record(
        &self,
        ledger: &mut Ledger,
        flights: &mut Flights,
        key: &RunKey,
        ended: RunEnd,
    ) -> Result<(), Over> {
        // Ticks that fell due while it ran are overlap: decided while it still counts as alive.
        let plan = self.decide(ledger, flights, false);
        let Some(Flight {
            key,
            run,
            started,
            noted: _noted,
            ..
        }) = flights.remove(key)
        else {
            return Ok(());
        };
        let plan = plan?;
        let mut next = plan.ledger;
        let replaced = open_run(&next, &key).is_some_and(|run| run.replaced);
        let again = self.again(&ended, key.attempt).filter(|_| !replaced);
        let closed = match again {
            Some(at) => next.retry_later(&key, self.token(), at),
            None => next.finish(&key, self.token()),
        };
        if let Err(refused) = closed {
            tracing::warn!(job = self.engine.name, %refused, "the outcome does not fit the ledger");
            return Err(Over);
        }
        let ctx = &self.engine.ctx;
        ctx.events.tell(Event::RunEnded {
            job: self.engine.name.clone(),
            run_id: run.id().to_owned(),
            tick: run.tick(),
            attempt: key.attempt,
            outcome: ended.word(),
            detail: ended.detail(),
            took: ctx.clock.now().since(started),
        });
        self.write(&next, None).await.map_err(|_| Over)?;
        if again.is_none() {
            self.trigger_ended(&key.id, ended.word(), ended.detail());
        }
        let before = std::mem::replace(ledger, next);
        for decision in plan.decisions {
            self.report(decision, &before, flights);
        }
        Ok(())
    }

    /// When the next attempt may start; `None` when there is none.
    fn again(&self, ended: &RunEnd, attempt: u32) -> Option<Timestamp> {
        let engine = self.engine;
        let now = self.wall();
        let pause = match ended {
            RunEnd::Done | RunEnd::Skipped(_) | RunEnd::Failed { retry: false, .. } => return None,
            RunEnd::RetryAfter(pause) => engine.policy.may_follow(attempt).then_some(*pause)?,
            RunEnd::Failed { .. } | RunEnd::TimedOut | RunEnd::Panicked(_) => {
                engine.spec.retry.pause_after(attempt)?
            }
            // Told to stop in the middle: the same as a run whose replica died, only known in time.
            RunEnd::Cancelled(_) => {
                let rerun = engine.policy.interrupted == Interrupted::Rerun
                    && engine.policy.may_follow(attempt)
                    && !engine.schedule.is_continuous();
                rerun.then_some(Duration::ZERO)?
            }
        };
        now.checked_add(pause).ok()
    }

    async fn save(&self, ledger: &mut Ledger, flights: &Flights, saving: Box<Saving>) {
        let Saving {
            key,
            checkpoint,
            reply,
        } = *saving;
        let saved = async {
            if !flights.has(&key) {
                return Err(JobError::retry("the run has ended"));
            }
            let mut next = ledger.clone();
            next.save_checkpoint(&key, self.token(), checkpoint)
                .map_err(JobError::fatal)?;
            next.note_checkpoint(&key, self.wall());
            self.write(&next, None).await?;
            *ledger = next;
            Ok(())
        };
        // The run may have ended meanwhile.
        let _ = reply.send(saved.await);
    }

    /// Nothing new starts. Runs go on while their lease is renewed: to their end when the worker drains, or until their
    /// grace is over; each outcome is written before the lease goes.
    async fn wind_down(
        &self,
        ledger: &mut Ledger,
        mut flights: Flights,
        saving: &mut mpsc::Receiver<Box<Saving>>,
        end: Ended,
    ) {
        let ctx = &self.engine.ctx;
        let calm = (self.pass.is_draining() || end != Ended::Over)
            && !self.pass.is_lost()
            && !self.unfit.is_cancelled()
            && self.lease.as_ref().is_none_or(LeaseView::is_open)
            && !self.engine.schedule.is_continuous();
        let patience = if calm {
            ctx.drain_timeout
        } else {
            Duration::ZERO
        };
        let stop_at = ctx.clock.now() + patience;
        let mut stopped = false;
        while !flights.is_empty() {
            tokio::select! {
                biased;
                (key, ended) = flights.next_end() => {
                    if self.record(ledger, &mut flights, &key, ended).await.is_err() {
                        tracing::warn!(
                            job = self.engine.name,
                            "the outcome of the last run could not be written"
                        );
                    }
                }
                Some(saving) = saving.recv() => self.save(ledger, &flights, saving).await,
                () = self.abandoned() => return,
                () = self.pass.lost(), if !stopped => {
                    stopped = true;
                    flights.stop_all("this replica is no longer the active one");
                }
                () = ctx.clock.sleep_until(stop_at), if !stopped => {
                    stopped = true;
                    let unfit = self.lease.as_ref().and_then(LeaseView::cordoned);
                    flights.stop_all(match &unfit {
                        _ if self.pass.is_draining() => self.pass.why_draining(),
                        Some(why) => why,
                        None => "the term ends",
                    });
                }
            }
        }
    }

    /// Completes when the keeper has let the lease go although its work goes on: nothing can be written any more, and
    /// nobody waits for the run.
    async fn abandoned(&self) {
        match &self.lease {
            Some(lease) if self.engine.spec.unstoppable == Unstoppable::Abandon => {
                lease.lost().await;
                // A run that can be stopped is stopped by then, or a little later.
                let margin = self.engine.ctx.locks.timing().abort_margin(lease.ttl());
                self.clock().sleep(margin).await;
            }
            _ => std::future::pending().await,
        }
    }

    /// Writes the ledger, as long as there is time for it: a store that does not answer must not keep the active replica
    /// from standing down before its own lease ends.
    pub(super) async fn write(
        &self,
        ledger: &Ledger,
        not_before: Option<Timestamp>,
    ) -> Result<(), WriteError> {
        tokio::select! {
            biased;
            written = self.pad.write(ledger, not_before) => written,
            () = self.out_of_time() => Err(WriteError::Lost(Loss::Expired)),
        }
    }

    async fn out_of_time(&self) {
        let Some(replica) = self.pass.lease() else {
            return std::future::pending().await;
        };
        let timing = self.engine.ctx.locks.timing();
        let abort_margin = timing.abort_margin(replica.ttl());
        // What comes after: the release of the term, which waits for its nodes.
        let margin = abort_margin + abort_margin / 2 + timing.node_timeout * 2;
        loop {
            // Extensions move it on.
            let at = replica.deadline().back(margin);
            if self.clock().now() >= at {
                return;
            }
            self.clock().sleep_until(at).await;
        }
    }

    /// Whether what would start were told to stop at once, because the lease is about to end: an attempt would be lost
    /// for nothing. The lease may be extended yet. The same for a lease in doubt, which may be confirmed yet.
    fn starts_too_late(&self, plan: &Plan) -> bool {
        let starts = |d: &Decision| matches!(d, Decision::Start { .. });
        (self.is_about_to_end() || self.in_doubt()) && plan.decisions.iter().any(starts)
    }

    /// Whether this process was frozen, and its leases are not confirmed yet.
    fn in_doubt(&self) -> bool {
        let leases = self.lease.iter().chain(self.pass.lease());
        leases.into_iter().any(LeaseView::in_doubt)
    }

    fn is_about_to_end(&self) -> bool {
        let Some(lease) = self.lease.as_ref() else {
            return false;
        };
        let timing = self.engine.ctx.locks.timing();
        let margin = timing.cancel_margin(lease.ttl(), self.engine.spec.grace);
        lease.remaining() <= margin
    }

    /// Waits until the lease was extended and is beyond doubt, or is over: the same for a start whose writing took long.
    async fn extended(&self) {
        while (self.is_about_to_end() || self.in_doubt()) && self.is_open() {
            tokio::select! {
                biased;
                () = self.closing() => return,
                () = self.clock().sleep(LOOK_AT_LEASE) => {}
            }
        }
    }

    pub(super) fn is_open(&self) -> bool {
        !self.pass.is_over()
            && !self.unfit.is_cancelled()
            && self.lease.as_ref().is_none_or(LeaseView::is_open)
    }

    async fn closing(&self) {
        let lease = async {
            match &self.lease {
                Some(lease) => drop(lease.closing().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.pass.over() => {}
            () = self.unfit.cancelled() => {}
            () = lease => {}
        }
    }

    async fn sleep_until(&self, wake: Option<Timestamp>) {
        let left = wake.map(|at| Duration::try_from(at.duration_since(self.wall())));
        let pause = match left {
            // A timer ends on a whole millisecond after its time: never look before the tick.
            Some(left) => left.unwrap_or_default().min(LOOK_AGAIN),
            None => LOOK_AGAIN,
        };
        self.clock().sleep(pause).await;
    }

    pub(super) fn token(&self) -> Token {
        self.lease.as_ref().map_or(Token(0), LeaseView::token)
    }

    /// What time it is for ticks: by the nodes' clocks, so that it is the same wherever the job is led.
    pub(super) fn wall(&self) -> Timestamp {
        self.engine.ctx.locks.wall()
    }

    pub(super) fn clock(&self) -> &crate::clock::Clock {
        &self.engine.ctx.clock
    }
}

/// This attempt, as the ledger shows it.
pub(super) fn open_run<'a>(ledger: &'a Ledger, key: &RunKey) -> Option<&'a OpenRun> {
    ledger.open().iter().find(|run| run.key() == *key)
}
