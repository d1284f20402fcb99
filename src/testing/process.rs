//! One replica as a process of a simulation: clocks and connections of its own, and all its tasks together.

use std::time::Duration;

use super::{cluster::Cluster, process_tasks::ProcessTasks};
use crate::{
    chance::Chance,
    event::{Event, Events},
    job::Hooks,
    latest,
    node::memory::{Cut, Link, MemoryNode},
    notice::Posts,
    scheduler::{Context, Intents},
    sim_clock::SimTime,
    spawn::Spawn,
    trace::Tracer,
    worker::{
        assemble::Setup,
        presence::{Identity, Pace},
        ready::Ready,
        supervisor::Changes,
    },
};

/// What a process is started with.
pub(crate) struct Plan {
    pub(crate) setup: Setup,
    /// The clocks of its machine.
    pub(crate) time: SimTime,
    pub(crate) chance: Chance,
    /// Where the changes of reloads come in.
    pub(crate) changes: Changes,
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
    over: latest::Receiver<bool>,
}

impl Setup {
    /// A replica like others: `id` is unique among all processes there ever were, and people call it by its name, which it keeps
    /// when it is started again.
    pub(crate) fn of(id: &str, name: &str, time: &SimTime, jobs: Vec<Ready>) -> Self {
        let name = name.to_owned();
        Self {
            ring: name.clone(),
            me: Identity {
                id: id.to_owned(),
                host: name.clone(),
                name,
                pid: 1,
                started: time.clock().wall(),
                admin: None,
            },
            failover: false,
            priority: 0,
            candidate: true,
            hooks: Hooks::default(),
            tracer: Tracer::default(),
            posts: Posts::default(),
            intents: Intents::default(),
            drain_timeout: Duration::from_secs(5),
            lifetime: Pace::default().lifetime,
            jobs,
            checks: Vec::new(),
        }
    }
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
            .tag(plan.setup.me.id.replace(' ', "-"))
            .events(events.of_locks())
            .look_every(plan.look_every)
            .on_unstoppable(move |_| {
                aborted();
                doomed.crash();
            })
            .start()?;
        let setup = Setup {
            hooks: cluster.hooks.clone(),
            posts: cluster.posts.clone(),
            tracer: cluster.tracer.clone(),
            lifetime: plan.pace.unwrap_or_default().lifetime,
            ..plan.setup
        };
        let mut heard = events.observe();
        let replica = setup.assemble(locks, events, spawn.clone());
        let (ctx, me) = (replica.ctx.clone(), replica.me.clone());
        let (told, changes, pace) = (plan.told, plan.changes, plan.pace);
        // Not among its tasks: what was told before the process died is news all the same.
        Spawn::system().spawn(async move {
            while let Ok(event) = heard.recv().await {
                told(event);
            }
        });
        let wound_down = latest::Sender::new(false);
        let over = wound_down.subscribe();
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

    /// Cuts its connections to all nodes but the first one, so that it can take no lock, and can be heard.
    #[cfg(test)]
    pub(crate) fn cut_to_a_minority(&self) {
        self.links
            .iter()
            .skip(1)
            .for_each(|link| link.cut(Cut::Hang));
    }

    /// Cuts its connections to all nodes, or mends them.
    pub(crate) fn cut(&self, cut: bool) {
        for link in &self.links {
            match cut {
                true => link.cut(Cut::Hang),
                false => link.mend(),
            }
        }
    }
}
