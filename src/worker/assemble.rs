//! Assembles one replica, for the process of a worker and for the simulated ones of the testing kit alike.
//!
//! # Invariants
//! - What differs between a real replica and a simulated one is said in its [`Setup`] and by the locks and tasks it is given, and
//!   nowhere else.

use std::time::Duration;

use super::{health::HealthCheck, presence::Identity, ready::Ready, replica::Replica};
use crate::{
    event::Events,
    job::Hooks,
    lock::Locks,
    notice::{Notices, Posts},
    run::Gate,
    scheduler::{
        Author, Context, HealthRounds, History, Intents, LocalStatus, MOST_BEGINNINGS, Peers,
        Recall, Resting, Shared, StartOrder, ToldUnfit,
    },
    spawn::Spawn,
    trace::Tracer,
};

/// What a replica is, and what it is to run.
pub(crate) struct Setup {
    pub(crate) me: Identity,
    /// Whose runs of jobs that run everywhere stand together: the same over restarts.
    pub(crate) ring: String,
    pub(crate) failover: bool,
    /// Among candidates; larger is preferred.
    pub(crate) priority: i32,
    /// Whether it ever leads.
    pub(crate) candidate: bool,
    /// Called around every run.
    pub(crate) hooks: Hooks,
    /// Told of runs and their attempts.
    pub(crate) tracer: Tracer,
    /// Whom it tells of jobs that break.
    pub(crate) posts: Posts,
    /// Where it learns what people ask for.
    pub(crate) intents: Intents,
    /// How long runs may go on when it drains.
    pub(crate) drain_timeout: Duration,
    /// For how long each of its signs of life is good, and those of all others.
    pub(crate) lifetime: Duration,
    pub(crate) jobs: Vec<Ready>,
    /// Of its own health.
    pub(crate) checks: Vec<(String, HealthCheck)>,
}

impl Setup {
    /// A replica with these locks, which bring the clocks and the chance of its process, with its events and with these tasks.
    pub(crate) fn assemble(self, locks: Locks, events: Events, spawn: Spawn) -> Replica {
        let clock = locks.clock().clone();
        let author = Author {
            id: self.me.id.clone(),
            name: self.me.name.clone(),
            ring: self.ring,
        };
        let gate = match self.failover {
            true => Gate::failover(),
            false => Gate::open(),
        };
        let shared = Shared {
            history: History::new(locks.clone(), clock.clone(), spawn.clone(), author),
            chance: locks.chance().clone(),
            notices: Notices::new(self.posts, &self.me.name, clock.clone(), events.clone()),
            events,
            local_status: LocalStatus::default(),
            intents: self.intents,
            recall: Recall::default(),
            hooks: self.hooks,
            tracer: self.tracer,
            peers: Peers::new(&self.me.id, self.priority, self.candidate, self.failover)
                .told_for(self.lifetime),
            start_order: StartOrder::default(),
            resting: Resting::default(),
            beginnings: tokio::sync::Semaphore::new(MOST_BEGINNINGS),
            health: HealthRounds::default(),
            told_unfit: ToldUnfit::default(),
            replica: self.me.id.clone(),
            drain_timeout: self.drain_timeout,
            locks,
            clock,
            spawn,
        };
        Replica {
            ctx: Context::new(gate, shared),
            me: self.me,
            jobs: self.jobs,
            checks: self.checks,
        }
    }
}
