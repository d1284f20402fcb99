//! One replica as a process of a simulation: clocks and connections of its own, and all its tasks together.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::process_tasks::ProcessTasks;
use crate::{
    chance::Chance,
    event::Events,
    job::Hooks,
    lock::{FleetConfig, Locks, Timing},
    node::{Expiry, Node},
    scheduler::{Author, Board, Context, History, Intents, Place, Recall},
    sim_clock::SimTime,
    worker::{
        crew::Desk,
        replica::{Ready, Replica, gate},
    },
};

/// What a process is started with.
pub(crate) struct Plan {
    /// Unique among all processes there ever were.
    pub(crate) id: String,
    /// What people call it; it keeps it when it is started again.
    pub(crate) name: String,
    /// Its connections.
    pub(crate) nodes: Vec<Arc<dyn Node>>,
    /// The clocks of its machine.
    pub(crate) time: SimTime,
    pub(crate) chance: Chance,
    pub(crate) timing: Timing,
    /// What its nodes are guarded with, as masters of Redis are; `None` when they cannot lose their memory.
    pub(crate) guard: Option<FleetConfig>,
    /// What decides that a holder is over, where the nodes are not guarded.
    pub(crate) expiry: Expiry,
    pub(crate) jobs: Vec<Ready>,
    /// Where the orders of reloads come in.
    pub(crate) desk: Desk,
    pub(crate) failover: bool,
    /// Its place among candidates.
    pub(crate) priority: i32,
    pub(crate) candidate: bool,
    /// Called around every run.
    pub(crate) hooks: Hooks,
    pub(crate) drain_timeout: Duration,
    /// Where it learns what people ask for.
    pub(crate) intents: Intents,
    /// How often its keeper looks at its leases, where it is not as often as in a real process.
    pub(crate) look_every: Option<Duration>,
    /// Told when the process is ended because its work would outlive its lease.
    pub(crate) aborted: Box<dyn Fn() + Send + Sync>,
}

/// A process that was started.
pub(crate) struct Process {
    pub(crate) tasks: ProcessTasks,
    pub(crate) ctx: Context,
    /// True once its replica has wound down.
    pub(crate) over: watch::Receiver<bool>,
}

impl Process {
    /// Starts it. It does nothing before the caller awaits: whoever observes its events misses none.
    ///
    /// # Errors
    /// When the keeper cannot be started.
    pub(crate) fn start(plan: Plan) -> std::io::Result<Self> {
        let tasks = ProcessTasks::default();
        let (clock, spawn, events) = (plan.time.clock(), tasks.spawn(), Events::default());
        let (doomed, aborted) = (tasks.clone(), plan.aborted);
        let locks = Locks::over(plan.nodes)
            .timing(plan.timing)
            .clock(clock.clone())
            .chance(plan.chance.clone())
            .tag(plan.id.replace(' ', "-"))
            .events(events.clone())
            .keeper_here(spawn.clone())
            .look_every(plan.look_every)
            .on_unstoppable(move |_| {
                aborted();
                doomed.crash();
            });
        let locks = match plan.guard {
            Some(fleet) => locks.expiry(fleet.expiry).guarded(fleet),
            None => locks.expiry(plan.expiry),
        };
        let locks = locks.start()?;
        let author = Author {
            id: plan.id.clone(),
            ring: plan.name.clone(),
            name: plan.name,
        };
        let ctx = Context {
            history: History::new(locks.clone(), clock.clone(), spawn.clone(), author),
            locks,
            clock,
            chance: plan.chance,
            spawn: spawn.clone(),
            events,
            board: Board::default(),
            gate: gate(plan.failover),
            hooks: plan.hooks,
            place: Place::new(&plan.id, plan.priority, plan.candidate, plan.failover),
            intents: plan.intents,
            recall: Recall::default(),
            replica: plan.id,
            drain_timeout: plan.drain_timeout,
        };
        let replica = Replica {
            ctx: ctx.clone(),
            jobs: plan.jobs,
            failover: plan.failover,
            checks: Vec::new(),
        };
        let (wound_down, over) = watch::channel(false);
        spawn.spawn(async move {
            replica.run_with(plan.desk).await;
            wound_down.send_replace(true);
        });
        Ok(Self { tasks, ctx, over })
    }
}
