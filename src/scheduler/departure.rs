//! The start of a run: all that can be done before its moment, the moment itself, and what is told of it afterwards.
//!
//! Jobs without a lock ask nobody before they start a run, so theirs waits for the tick in a task of its own, with all that
//! it needs. A thousand of them that are due at one instant then begin one after the other in a few microseconds each, and
//! are accounted for afterwards: none waits for the bookkeeping of another one.
//!
//! # Invariants
//! - A1 What was made ready starts within the tolerance of its tick, and only if nothing has happened since; otherwise it is
//!   as if it had not been made ready.   (what_was_made_ready_does_not_start_when_something_happened_since)
//! - A2 The start of a run is told before its end.   (a_run_without_a_lock_is_told_in_order)

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::{
    acts::open_run,
    alarm::{self, Alarm, Switch},
    execute::{Ended, Limits, execute},
    flight::{CheckpointDesk, Flight, Flights, Saving},
    history::Entry,
    lead::Lead,
};
use crate::{
    clock::Moment,
    due::{Decision, Plan},
    event::Event,
    intent::TriggerParams,
    job::{Run, RunFacts},
    lease::LeaseView,
    ledger::{Ledger, OpenRun, RunKey},
};

/// How long before its tick a run without a lock is made ready: a thousand of them take less.
const AHEAD: Duration = Duration::from_millis(200);

/// How long after it they are accounted for: whatever is due at the same instant has begun by then. Tasks that merely let
/// others go first would not wait for all of them.
const TELL_AFTER: Duration = Duration::from_millis(10);

/// A run that can begin at once.
pub(super) struct Departure {
    key: RunKey,
    run: Run,
    seq: u64,
    limits: Limits,
    is_last: bool,
}

/// What is still to be told of a run that has begun.
pub(super) struct Begun {
    key: RunKey,
    run: Run,
    seq: u64,
    /// The run's end is told after its start.
    told: oneshot::Sender<Entry>,
    end: oneshot::Receiver<Ended>,
    noted: oneshot::Sender<()>,
}

/// What a job without a lock does at its next tick: its run begins by itself.
pub(super) struct Ready {
    switch: Switch,
    begins: Moment,
    at: Timestamp,
    plan: Plan,
    next_tick: Option<Timestamp>,
    begun: Begun,
}

impl Lead<'_> {
    /// This attempt, as the ledger shows it, which begins at `now`.
    pub(super) fn departure(
        &self,
        key: RunKey,
        kept: Option<OpenRun>,
        tick: Timestamp,
        checkpoint: Option<Value>,
        to: mpsc::Sender<Box<Saving>>,
        now: Moment,
    ) -> Departure {
        let (engine, ctx) = (self.engine, &self.engine.ctx);
        let timing = ctx.locks.timing();
        let ttl = self.lease.as_ref().map_or(timing.ttl, LeaseView::ttl);
        let grace = engine.spec.grace;
        let (seq, given, checkpoint_at) = kept.map_or((0, TriggerParams::default(), None), |run| {
            (run.seq, run.given, run.checkpoint_at)
        });
        let facts = RunFacts {
            job: engine.name.clone(),
            id: ctx.run_id(),
            tick,
            attempt: key.attempt,
            replica: ctx.replica.clone(),
            batch: None,
            params: given.over(&engine.spec.params),
            checkpoint,
        };
        let until = engine
            .spec
            .timeout
            .map_or(Moment::NEVER, |limit| now + limit);
        let margin = timing.cancel_margin(ttl, grace);
        let desk = CheckpointDesk {
            key: key.clone(),
            to,
        };
        let run = Run::new(facts, ctx.clock.clone(), self.lease.clone(), margin, until)
            .with_checkpoints(Arc::new(desk))
            .kept(given.names(), checkpoint_at)
            .within(grace, self.pass.lease().cloned())
            .begins_at(now);
        let limits = Limits {
            grace,
            abort_margin: timing.abort_margin(ttl),
            also: self.pass.lease().cloned(),
            hooks: ctx.hooks.clone(),
        };
        let is_last = !engine.policy.may_follow(key.attempt);
        Departure {
            key,
            run,
            seq,
            limits,
            is_last,
        }
    }

    /// The run begins, now or when the alarm rings. Tell of it: its end waits for that.
    pub(super) fn begin(&self, departure: Departure, alarm: Option<Alarm>) -> Begun {
        let Departure {
            key,
            run,
            seq,
            limits,
            is_last,
        } = departure;
        let (engine, ctx) = (self.engine, &self.engine.ctx);
        let (tell, end) = oneshot::channel();
        let (noted, is_noted) = oneshot::channel();
        let (told, is_told) = oneshot::channel::<Entry>();
        // The work is marked before its task exists: the lease is not let go in between.
        let work = self.lease.as_ref().map(LeaseView::begin_work);
        let (job, clock, board) = (engine.job.clone(), ctx.clock.clone(), ctx.board.clone());
        let locks = ctx.locks.clone();
        let patience = ctx.locks.timing().node_timeout * 4;
        let margin = limits.abort_margin + limits.abort_margin / 4;
        let of = run.clone();
        ctx.spawn.spawn(async move {
            if let Some(alarm) = alarm
                && !alarm.rings().await
            {
                return;
            }
            let ended = execute(async { job.run(of.clone()).await }, &of, limits, &clock).await;
            let ended = ended.of_last_attempt(is_last);
            drop(job);
            // Nothing is told of a run whose engine has gone.
            if let Ok(entry) = is_told.await {
                board.ended(&of, ended.word(), locks.wall());
                // Before the end is told: a worker that drains writes what it finds here, and no more.
                entry.ended(&of, &ended);
            }
            // Nobody listens any more when the term was given up.
            let _ = tell.send(ended);
            if let Some(lease) = of.lease() {
                // A lease that is to go goes when its work is over: the outcome is still to be written under it. Not for
                // long, and never so late that the work seems to outlive the lease.
                let until = (clock.now() + patience).min(lease.deadline().back(margin));
                let _ = clock.timeout_at(until, is_noted).await;
            }
            drop(work);
        });
        Begun {
            key,
            run,
            seq,
            told,
            end,
            noted,
        }
    }

    /// Tells status, history and observers of a run that has begun at this time.
    pub(super) fn tell(&self, begun: Begun, since: Moment, at: Timestamp) -> Flight {
        let Begun {
            key,
            run,
            seq,
            told,
            end,
            noted,
        } = begun;
        let ctx = &self.engine.ctx;
        ctx.board.started(&run, at);
        let entry = ctx.history.started(&run, seq, (since, at));
        self.trigger_started(&key.id, run.id());
        ctx.events.tell(Event::RunStarted {
            job: self.engine.name.clone(),
            run_id: run.id().to_owned(),
            tick: run.tick(),
            attempt: key.attempt,
            token: self.token(),
            delay: Duration::try_from(at.duration_since(run.tick())).unwrap_or_default(),
        });
        // A task that was stopped has nothing to tell.
        let _ = told.send(entry);
        Flight {
            key,
            run,
            end,
            started: since,
            noted,
        }
    }

    // --- ahead of the tick ---

    /// Lets the run that is due at `wake` wait for it, if that is near: for jobs without a lock, since others write it
    /// first. It is as if nothing had been done until [`Lead::settle`], which is to come before anything else. Moves `wake` to
    /// when there is something to do.
    pub(super) fn make_ready(
        &self,
        ledger: &Ledger,
        flights: &Flights,
        desk: &mpsc::Sender<Box<Saving>>,
        wake: &mut Option<Timestamp>,
    ) -> Option<Box<Ready>> {
        // In failover mode the replica's lock is asked at the last moment.
        let alone = self.lease.is_none() && self.pass.lease().is_none();
        let at = (*wake).filter(|_| alone && flights.is_empty())?;
        let ahead = Duration::try_from(at.duration_since(self.wall())).ok()?;
        if ahead > AHEAD {
            *wake = at.checked_sub(SignedDuration::try_from(AHEAD).ok()?).ok();
            return None;
        }
        let plan = self.decide_at(at, ledger, flights, true).ok()?;
        let [
            Decision::Start {
                id,
                tick,
                attempt: attempt @ 1,
                checkpoint: None,
                ..
            },
        ] = &plan.decisions[..]
        else {
            return None;
        };
        let key = RunKey {
            id: id.clone(),
            attempt: *attempt,
        };
        let ctx = &self.engine.ctx;
        let kept = open_run(&plan.ledger, &key).cloned();
        let begins = self.clock().now() + ahead;
        let departure = self.departure(key, kept, *tick, None, desk.clone(), begins);
        // By the fleet's time as it is known now, a moment before.
        let (alarm, switch) = alarm::set(begins, ctx.clock.clone());
        *wake = at.checked_add(TELL_AFTER).ok();
        Some(Box::new(Ready {
            switch,
            begins,
            at,
            next_tick: self.engine.next_tick(&plan.ledger, at),
            begun: self.begin(departure, Some(alarm)),
            plan,
        }))
    }

    /// Accounts for the run that was made ready, if it has begun; otherwise it does not begin any more.
    pub(super) fn settle(
        &self,
        ready: &mut Option<Box<Ready>>,
        ledger: &mut Ledger,
        flights: &mut Flights,
    ) {
        let Some(ready) = ready.take() else { return };
        let Some(since) = ready.switch.off() else {
            return;
        };
        let late = since.since(ready.begins);
        let at = ready.at.checked_add(late).unwrap_or(ready.at);
        *ledger = ready.plan.ledger;
        self.pad.keep(ledger);
        let (engine, board) = (self.engine, &self.engine.ctx.board);
        board.ticks(&engine.name, engine.last_tick(ledger), ready.next_tick);
        flights.add(self.tell(ready.begun, since, at));
    }
}
