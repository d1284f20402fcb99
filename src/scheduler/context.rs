//! What every engine of a replica shares.

use std::{future::Future, ops::Deref, sync::Arc, time::Duration};

use tokio::sync::Semaphore;

use super::{
    HealthRounds, History, Intents, LocalStatus, Peers, Recall, Resting, StartOrder,
    beat::beat,
    health::{self, Asks, ToldUnfit},
};
use crate::{
    chance::Chance,
    clock::{Clock, Moment},
    election::Hesitation,
    event::{Event, Events},
    job::{Health, Hooks},
    ledger::ids::sortable_id,
    lock::Locks,
    notice::Notices,
    run::Gate,
    spawn::Spawn,
    trace::Tracer,
};

/// Terms that write back, read and first decide at a time: as many as one call to a node carries. Ten thousand that began together
/// would wait for each other longer than for a node.
pub(crate) const MOST_BEGINNINGS: usize = 250;

/// Handles and facts of one replica, and the gate in front of one of its jobs, or of all. Cheap to clone: a thousand engines
/// share one copy.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) gate: Gate,
    shared: Arc<Shared>,
}

/// What all of them share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) locks: Locks,
    pub(crate) clock: Clock,
    pub(crate) chance: Chance,
    pub(crate) spawn: Spawn,
    pub(crate) events: Events,
    pub(crate) local_status: LocalStatus,
    pub(crate) history: History,
    /// Who hears of jobs that break.
    pub(crate) notices: Notices,
    pub(crate) intents: Intents,
    pub(crate) recall: Recall,
    /// Called around every run.
    pub(crate) hooks: Hooks,
    /// Told of runs and their attempts.
    pub(crate) tracer: Tracer,
    pub(crate) peers: Peers,
    pub(crate) start_order: StartOrder,
    pub(crate) resting: Resting,
    /// Places for terms that begin: see [`MOST_BEGINNINGS`].
    pub(crate) beginnings: Semaphore,
    pub(crate) health: HealthRounds,
    pub(crate) told_unfit: ToldUnfit,
    /// Unique: host, process id, nonce.
    pub(crate) replica: String,
    /// How long runs may go on when the worker drains.
    pub(crate) drain_timeout: Duration,
}

// === impl Context ===

impl Context {
    pub(crate) fn new(gate: Gate, shared: Shared) -> Self {
        let shared = Arc::new(shared);
        Self { gate, shared }
    }

    /// The same behind the gate of one job.
    pub(crate) fn behind(&self, gate: Gate) -> Self {
        let shared = self.shared.clone();
        Self { gate, shared }
    }

    /// When something is to be done that is done again after `longest` at most.
    pub(crate) fn beat(&self, longest: Duration) -> Moment {
        beat(&self.replica, self.clock.now(), longest)
    }

    pub(crate) fn health_every(&self) -> Duration {
        (self.locks.timing().ttl / 3).max(Duration::from_millis(100))
    }

    /// Asks led jobs whether this replica is fit for them, until the task is dropped.
    pub(crate) async fn ask_for_health(self) {
        let asks = Asks {
            clock: self.clock.clone(),
            spawn: self.spawn.clone(),
            events: self.events.clone(),
            told_unfit: self.told_unfit.clone(),
            every: self.health_every(),
        };
        self.health.clone().follow(asks).await;
    }

    /// Wakes jobs at rest, until the task is dropped.
    pub(crate) async fn wake_what_rests(self) {
        let (locks, intents) = (self.locks.clone(), self.intents.clone());
        let definitions = self.peers.definitions.clone();
        self.resting
            .clone()
            .follow(locks, intents, definitions)
            .await;
    }

    /// Why a job says that this replica is not fit for it, as [`health::why_unfit`] says.
    pub(crate) async fn why_unfit<F>(
        &self,
        health: impl FnOnce() -> F + Send,
        within: Duration,
    ) -> Option<String>
    where
        F: Future<Output = Health> + Send,
    {
        health::why_unfit(&self.clock, health, within).await
    }

    /// Why this replica is not fit for anything, or for this job alone.
    pub(crate) async fn why_unfit_here<F>(
        &self,
        health: impl FnOnce() -> F + Send,
    ) -> Option<String>
    where
        F: Future<Output = Health> + Send,
    {
        match self.locks.fitness().unfit() {
            Some((why, _)) => Some(why),
            None => self.why_unfit(health, self.locks.timing().ttl / 2).await,
        }
    }

    /// How long this replica waits before each bid for `job`, so that others who lead less may go first. Not at all in
    /// failover mode, where the replica lock decides.
    pub(crate) fn hesitation(&self, job: &str, ttl: Option<Duration>) -> Hesitation {
        let (shared, job) = (self.shared.clone(), job.to_owned());
        let ttl = ttl.unwrap_or(self.locks.timing().ttl);
        Hesitation::new(move || shared.peers.bid_after(&job, &shared.local_status, ttl))
    }

    /// Tells whether a job, or the replica, is fit.
    pub(crate) fn fitness(&self, job: &str, unfit: Option<String>) {
        self.told_unfit.told(job, unfit.is_some());
        let job = job.to_owned();
        self.events.tell(Event::Fitness { job, unfit });
    }

    /// A sortable run id.
    pub(crate) fn run_id(&self) -> String {
        sortable_id(self.locks.wall(), &self.chance)
    }
}

impl Deref for Context {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}
