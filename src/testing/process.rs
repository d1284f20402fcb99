//! One replica as a process of a simulation: clocks and connections of its own, and all its tasks together.

use std::time::Duration;

use tokio::sync::watch;

use super::{cluster::Cluster, process_tasks::ProcessTasks};
use crate::{
    chance::Chance,
    event::{Event, Events},
    node::memory::{Cut, Link, MemoryNode},
    scheduler::{Context, Intents},
    sim_clock::SimTime,
    spawn::Spawn,
    worker::{
        assemble::Parts,
        presence::{Identity, Pace},
        ready::Ready,
        supervisor::Changes,
    },
};

/// What a process is started with.
pub(crate) struct Plan {
    /// Unique among all processes there ever were.
    pub(crate) id: String,
    /// What people call it; it keeps it when it is started again.
    pub(crate) name: String,
    /// The clocks of its machine.
    pub(crate) time: SimTime,
    pub(crate) chance: Chance,
    pub(crate) jobs: Vec<Ready>,
    /// Where the changes of reloads come in.
    pub(crate) changes: Changes,
    pub(crate) failover: bool,
    /// Its place among candidates.
    pub(crate) priority: i32,
    pub(crate) candidate: bool,
    pub(crate) drain_timeout: Duration,
    /// Where it learns what people ask for.
    pub(crate) intents: Intents,
    /// How often it tells the others of itself; not at all without a pace.
    pub(crate) pace: Option<Pace>,
    /// How often its keeper looks at its leases, where it is not as often as in a real process.
    pub(crate) look_every: Option<Duration>,
    /// Hears every event, also those from just before the process died.
    pub(crate) told: Box<dyn Fn(Event) + Send>,
    /// Told when the process is ended because its work would outlive its lease.
    pub(crate) aborted: Box<dyn Fn() + Send + Sync>,
}

/// A process that was started.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) tasks: ProcessTasks,
    pub(crate) ctx: Context,
    pub(crate) me: Identity,
    links: Vec<Link>,
    /// True once its replica has wound down.
    over: watch::Receiver<bool>,
}

impl Process {
    /// Starts it. It does nothing before the caller awaits.
    ///
    /// # Errors
    /// When the keeper cannot be started.
    pub(crate) fn start(cluster: &Cluster, plan: Plan) -> std::io::Result<Self> {
        let tasks = ProcessTasks::default();
        let (spawn, events) = (tasks.spawn(), Events::default());
        let (doomed, aborted) = (tasks.clone(), plan.aborted);
        let connections = cluster.connections();
        let links = connections.iter().map(MemoryNode::link).collect();
        let locks = cluster
            .locks(connections, plan.time.clock(), plan.chance, spawn.clone())
            .tag(plan.id.replace(' ', "-"))
            .events(events.clone())
            .look_every(plan.look_every)
            .on_unstoppable(move |_| {
                aborted();
                doomed.crash();
            })
            .start()?;
        let replica = Parts {
            me: Identity {
                id: plan.id,
                name: plan.name.clone(),
                host: plan.name.clone(),
                pid: 1,
                started: locks.wall(),
                admin: None,
            },
            ring: plan.name,
            locks,
            spawn: spawn.clone(),
            failover: plan.failover,
            priority: plan.priority,
            candidate: plan.candidate,
            hooks: cluster.hooks.clone(),
            intents: plan.intents,
            drain_timeout: plan.drain_timeout,
            jobs: plan.jobs,
            checks: Vec::new(),
        }
        .assemble();
        let (ctx, me) = (replica.ctx.clone(), replica.me.clone());
        let (told, changes, pace) = (plan.told, plan.changes, plan.pace);
        let mut heard = events.observe();
        // Not among its tasks: what was told before the process died is news all the same.
        Spawn::system().spawn(async move {
            while let Ok(event) = heard.recv().await {
                told(event);
            }
        });
        let (wound_down, over) = watch::channel(false);
        spawn.spawn(async move {
            let _ = replica.live(changes, pace).await;
            wound_down.send_replace(true);
        });
        Ok(Self {
            tasks,
            ctx,
            me,
            links,
            over,
        })
    }

    /// Waits until its replica has wound down. For ever, when the process dies before.
    pub(crate) async fn ended(&self) {
        if self.over.clone().wait_for(|over| *over).await.is_err() {
            std::future::pending().await
        }
    }

    /// Cuts its connections to all nodes, or mends them.
    pub(super) fn cut(&self, cut: bool) {
        for link in &self.links {
            match cut {
                true => link.cut(Cut::Hang),
                false => link.mend(),
            }
        }
    }
}
