//! One replica: the engines of all jobs behind one gate. Knows nothing of processes, so that a simulation can run many.

use std::time::Duration;

use tokio::{sync::oneshot, task::JoinError};
use tokio_util::task::AbortOnDropHandle;

use super::{
    failover,
    health::{self, HealthCheck},
    presence::{self, Identity, Pace},
    ready::Ready,
    supervisor::{Changes, Supervisor},
};
use crate::{event::Event, scheduler::Context, status::HeldItems};

/// How long the history of the last runs may take to be written when the worker drains.
const LAST_HISTORY: Duration = Duration::from_secs(1);
/// How long the last notices may take then, of the time that is left for the drain.
const LAST_NOTICES: Duration = Duration::from_secs(5);

/// One replica, made by [`Setup::assemble`](super::assemble::Setup::assemble).
pub(crate) struct Replica {
    pub(crate) ctx: Context,
    pub(crate) me: Identity,
    pub(crate) jobs: Vec<Ready>,
    pub(crate) checks: Vec<(String, HealthCheck)>,
}

// === impl Replica ===

impl Replica {
    /// Runs until the gate drains and everything has wound down. With a pace it tells the fleet of itself meanwhile, and takes
    /// its leave. An error is a panic of its own.
    pub(crate) async fn live(self, changes: Changes, pace: Option<Pace>) -> Result<(), JoinError> {
        let (me, ctx) = (self.me.clone(), self.ctx.clone());
        let _backlog = AbortOnDropHandle::new(ctx.spawn.spawn(follow_backlog(ctx.clone())));
        let (knows_jobs, jobs_known) = oneshot::channel();
        let told = pace.map(|pace| {
            let publish = presence::publish(me.clone(), ctx.clone(), pace);
            let publish = async move {
                // With fewer jobs than it has, the others would take its definitions for different ones.
                let _ = jobs_known.await;
                publish.await;
            };
            AbortOnDropHandle::new(ctx.spawn.spawn(publish))
        });
        // A task of its own: what is told of it must go also when it has died.
        let ended = ctx.spawn.spawn(self.run(changes, knows_jobs)).await;
        if let Some(told) = told {
            drop(told);
            presence::withdraw(&me, &ctx).await;
            ctx.locks.settle().await;
        }
        ended
    }

    /// Runs all jobs, following reloads, until the gate drains and everything has wound down.
    async fn run(self, changes: Changes, knows_jobs: oneshot::Sender<()>) {
        let ctx = self.ctx;
        let intents = ctx.spawn.spawn(ctx.intents.clone().follow(ctx.clone()));
        let recall =
            ctx.recall
                .clone()
                .follow(ctx.locks.clone(), ctx.clock.clone(), ctx.intents.pace());
        let recall = ctx.spawn.spawn(recall);
        let wakes = ctx.spawn.spawn(ctx.clone().wake_what_rests());
        let asks = ctx.spawn.spawn(ctx.clone().ask_for_health());
        let senders = ctx.notices.follow(&ctx.spawn);
        let supervisor = Supervisor::begin(ctx.clone(), self.jobs);
        let _ = knows_jobs.send(());
        let supervisor = ctx.spawn.spawn(supervisor.work(changes));
        let guard = (ctx.peers.failover && ctx.peers.candidate)
            .then(|| ctx.spawn.spawn(failover::hold_the_gate(ctx.clone())));
        let checks: Vec<_> = self
            .checks
            .into_iter()
            .map(|(name, check)| ctx.spawn.spawn(health::watch(name, check, ctx.clone())))
            .collect();
        let drain = ctx.gate.drain();
        tokio::select! {
            biased;
            () = drain.cancelled() => {}
            asked = ctx.intents.drain(&ctx.replica) => {
                tracing::info!(by = asked.by, "asked to drain");
                // As a signal does it.
                drain.cancel();
            }
        }
        let end = ctx.clock.now() + ctx.drain_timeout;
        ctx.events.tell(Event::Draining);
        ctx.local_status.told();
        let _ = supervisor.await;
        if let Some(guard) = guard {
            let _ = guard.await;
        }
        checks.iter().for_each(tokio::task::JoinHandle::abort);
        intents.abort();
        [recall, wakes, asks]
            .iter()
            .for_each(tokio::task::JoinHandle::abort);
        // What became of the last triggers.
        let last = ctx.intents.refresh(&ctx.locks);
        let _ = ctx.clock.timeout(LAST_HISTORY, last).await;
        // After everything was handed over: no other replica waits for it.
        ctx.history.flush(LAST_HISTORY).await;
        ctx.locks.settle().await;
        let left = end.since(ctx.clock.now());
        // What the drain itself has ended is told now, also where it has taken all of its time.
        ctx.notices
            .flush(left.clamp(LAST_HISTORY, LAST_NOTICES))
            .await;
        drop(senders);
    }
}

/// What jobs tell of the work that waits for them goes to the local status, where status and presence read it.
async fn follow_backlog(ctx: Context) {
    let mut events = ctx.events.observe();
    loop {
        match events.recv().await {
            Ok(Event::Backlog { job, items, since }) => {
                ctx.local_status.backlog(&job, items, since);
            }
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
                ctx.local_status.held(&job, held);
            }
            _ => {}
        }
    }
}
