//! What every engine of a replica shares.

use std::{future::Future, time::Duration};

use super::{History, Intents, LocalStatus, Peers, Recall, StartOrder, beat::beat};
use crate::{
    chance::Chance,
    clock::{Clock, Moment},
    election::Hesitation,
    event::{Event, Events},
    job::{Health, Hooks},
    ledger::ids::sortable_id,
    lock::Locks,
    panics::{bury, caught_later},
    run::Gate,
    spawn::Spawn,
};

/// Handles and facts of one replica. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) locks: Locks,
    pub(crate) clock: Clock,
    pub(crate) chance: Chance,
    pub(crate) spawn: Spawn,
    pub(crate) events: Events,
    pub(crate) local_status: LocalStatus,
    pub(crate) gate: Gate,
    pub(crate) history: History,
    pub(crate) intents: Intents,
    pub(crate) recall: Recall,
    /// Called around every run.
    pub(crate) hooks: Hooks,
    pub(crate) place: Peers,
    pub(crate) start_order: StartOrder,
    /// Unique: host, process id, nonce.
    pub(crate) replica: String,
    /// How long runs may go on when the worker drains.
    pub(crate) drain_timeout: Duration,
}

impl Context {
    /// When something is to be done that is done again after `longest` at most.
    pub(crate) fn beat(&self, longest: Duration) -> Moment {
        beat(&self.replica, self.clock.now(), longest)
    }

    pub(crate) fn health_every(&self) -> Duration {
        (self.locks.timing().ttl / 3).max(Duration::from_millis(100))
    }

    /// Why a job says that this replica is not fit for it; no answer in time and a panic are answers, too. An answer that
    /// could not come because this process was frozen is waited for once more.
    pub(crate) async fn why_unfit<F>(
        &self,
        health: impl FnOnce() -> F + Send,
        within: Duration,
    ) -> Option<String>
    where
        F: Future<Output = Health> + Send,
    {
        let mut asked = Box::pin(caught_later(health));
        let began = self.clock.now();
        let mut answer = self.clock.timeout(within, &mut asked).await;
        let took = self.clock.now().since(began);
        // A timer that is so late itself has not measured the job.
        if answer.is_err() && took > within + within / 4 {
            answer = self.clock.timeout(within, &mut asked).await;
        }
        // The engine goes on, whatever becomes of a check that is given up.
        bury(asked);
        match answer {
            Ok(Ok(Health::Fit)) => None,
            Ok(Ok(Health::Unfit(why))) => Some(why),
            Ok(Err(panic)) => Some(format!("the health check panicked: {panic}")),
            Err(_) => Some("the health check does not answer".to_owned()),
        }
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
        let (place, local_status, job) = (
            self.place.clone(),
            self.local_status.clone(),
            job.to_owned(),
        );
        let ttl = ttl.unwrap_or(self.locks.timing().ttl);
        Hesitation::new(move || place.bid_after(&job, &local_status, ttl))
    }

    /// Tells whether a job, or the replica, is fit.
    pub(crate) fn fitness(&self, job: &str, unfit: Option<String>) {
        let job = job.to_owned();
        self.events.tell(Event::Fitness { job, unfit });
    }

    /// A sortable run id.
    pub(crate) fn run_id(&self) -> String {
        sortable_id(self.locks.wall(), &self.chance)
    }
}
