//! Starts an attempt, and tells of it: to the status, the history, the events and its trigger.
//!
//! # Invariants
//! - A2 The start of a run is told before its end.   (a_run_without_a_lock_is_told_in_order)

use std::{future::Future, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::{
    checkpoints::{CheckpointSender, Saving},
    history::Entry,
    term::TermLoop,
};
use crate::{
    clock::Moment,
    event::Event,
    job::{Run, RunFacts, RunSetup, shard::shard_of},
    ledger::{OpenRun, RunKey},
    run::{Ended, PreparedRun, RunInFlight},
};

/// What is still to be told of an attempt that has begun.
pub(super) struct Begun {
    key: RunKey,
    run: Run,
    seq: u64,
    end: oneshot::Receiver<Ended>,
    /// The run's end is told after its start.
    told: oneshot::Sender<Entry>,
    noted: oneshot::Sender<()>,
}

impl TermLoop<'_> {
    /// This attempt, as the ledger shows it, begins at `begins`, as soon as `may` allows it. Tell of it: its end waits for that.
    pub(super) fn begin(
        &self,
        attempt: &OpenRun,
        checkpoints: mpsc::Sender<Box<Saving>>,
        begins: Moment,
        may: impl Future<Output = bool> + Send + 'static,
    ) -> Begun {
        let (engine, ctx, key) = (self.engine, &self.engine.ctx, attempt.key());
        let facts = RunFacts {
            job: engine.name.clone(),
            id: ctx.run_id(),
            tick: attempt.tick,
            attempt: attempt.attempt,
            replica: ctx.replica.clone(),
            batch: None,
            shard: shard_of(&engine.name).map_or(0, |(_, number)| number),
            shards: engine.spec.shards.unwrap_or(1),
            params: attempt.given.over(&engine.spec.params),
            checkpoint: attempt.checkpoint.clone(),
        };
        let sender = CheckpointSender {
            key: key.clone(),
            to: checkpoints,
        };
        let setup = RunSetup {
            lease: self.lease.clone(),
            locks: Some(ctx.locks.clone()),
            also: self.pass.lease().cloned(),
            begins,
            checkpoints: Some(Arc::new(sender)),
            checkpoint_at: attempt.checkpoint_at,
            given: attempt.given.names(),
            trace: self.attempt_trace(&key),
            ..RunSetup::new(facts, ctx.clock.clone())
        };
        let prepared = PreparedRun::by(&engine.spec, ctx.locks.timing(), &ctx.hooks, setup);
        let (seq, is_last) = (attempt.seq, !engine.policy.may_follow(attempt.attempt));
        let (noted, is_noted) = oneshot::channel();
        let (told, is_told) = oneshot::channel::<Entry>();
        let run = prepared.run().clone();
        let job = engine.job.clone();
        let work = move |run| async move { job.run(run).await };
        let (of, clock) = (run.clone(), ctx.clock.clone());
        let local_status = ctx.local_status.clone();
        let locks = ctx.locks.clone();
        let then = move |ended: Ended, mark, tell: oneshot::Sender<Ended>| async move {
            let ended = ended.of_last_attempt(is_last);
            of.tell_attempt(ended.word());
            // Nothing is told of a run whose engine has gone.
            if let Ok(entry) = is_told.await {
                local_status.ended(&of, ended.word(), locks.wall());
                // Before the end is told: a worker that drains writes what it finds here, and no more.
                entry.ended(&of, &ended);
            }
            // The loop does not listen any more when the term was given up.
            let _ = tell.send(ended);
            if let Some(lease) = of.lease() {
                // A lease that is to go goes when its work is over: the outcome is still to be written under it. Not for
                // long, and never so late that the work seems to outlive the lease.
                let timing = locks.timing();
                let margin = timing.abort_margin(lease.ttl());
                let latest = lease.deadline().back(margin + margin / 4);
                let until = (clock.now() + timing.node_timeout * 4).min(latest);
                let _ = clock.timeout_at(until, is_noted).await;
            }
            drop(mark);
        };
        let end = prepared.begin((&ctx.spawn, &ctx.clock), may, work, then);
        Begun {
            key,
            run,
            seq,
            end,
            told,
            noted,
        }
    }

    /// Tells status, history and observers of a run that has begun at this time.
    pub(super) fn tell(&self, begun: Begun, since: Moment, at: Timestamp) -> RunInFlight<RunKey> {
        let Begun {
            key,
            run,
            seq,
            end,
            told,
            noted,
        } = begun;
        let ctx = &self.engine.ctx;
        ctx.local_status.started(&run, at);
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
        RunInFlight {
            key,
            run,
            end,
            started: since,
            at,
            noted: Some(noted),
        }
    }
}
