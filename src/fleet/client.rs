//! Asks a fleet, for the commands, the status page and programs of users alike.
//!
//! # Invariants
//! - An intent is written on a majority of the nodes, or said to have failed.   (a_wish_needs_a_majority)
//! - What is written is never said to have failed, whatever happens to the store after it.
//!   (what_is_written_is_never_said_to_have_failed)
//! - A store that is busy, or out of reach, for a moment costs no answer.    (a_wish_waits_for_a_store_that_is_busy)
//! # When things fail
//! What was written and not heard stays asked for: replicas that start later find it.

#[cfg(feature = "cli")]
pub(crate) mod attempts;
#[cfg(feature = "admin")]
pub(crate) mod audit;
pub(crate) mod error;
#[cfg(feature = "cli")]
pub(crate) mod examine;
#[cfg(feature = "admin")]
pub(crate) mod facts;
pub(crate) mod handover;
pub(crate) mod locks;
#[cfg(feature = "admin")]
pub(crate) mod page;
pub(crate) mod pausing;
#[cfg(any(test, feature = "admin", feature = "cli"))]
pub(crate) mod pausing_all;
#[cfg(any(feature = "cli", feature = "admin"))]
pub(crate) mod recent;
pub(crate) mod refusals;
pub(crate) mod runs;
#[cfg(test)]
mod tests;
pub(crate) mod triggers;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::Arc,
    time::Duration,
};

use super::{
    intent::{self, Intent},
    presence::replicas::{Replicas, Wanted},
    status::{FleetStatus, Presence},
    view,
};
use crate::{
    chance::Chance,
    clock::Moment,
    job::{
        Spec,
        shard::{self, is_of, shard_of},
    },
    lock::{LockError, Locks},
    node::Doc,
};
use error::FleetError;
use refusals::{refuse_disabled, refuse_unknown, refuse_unled};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// How long trouble of the store is waited out, each time it is asked: a file that others write to, a master that comes back.
const PASSING: Duration = Duration::from_millis(1_500);

/// A client of one fleet. Cheap to clone.
///
/// # Cancellation
/// Every method may be dropped at any point. What it had begun to write may be asked for then, as after a
/// [`FleetError::Doubtful`]; nothing is taken back. Waiting for the replicas that it concerns is for the caller alone.
#[derive(Clone, Debug)]
pub struct Fleet {
    locks: Locks,
    chance: Chance,
    /// What was read of replicas, for all clones: what is asked again and again is read as it moves.
    replicas: Arc<tokio::sync::Mutex<Replicas>>,
    /// What readers of a page share beside it.
    #[cfg(feature = "admin")]
    shared: Arc<view::shared::SharedView>,
    by: String,
    /// What the configuration says of jobs.
    jobs: Arc<BTreeMap<String, Arc<Spec>>>,
    /// Nothing is tried again, and nothing written, after this.
    last: Moment,
    /// No replica is waited for after this.
    enough: Moment,
}

// === impl Fleet ===

impl Fleet {
    /// Over the lock service of this process. `by` is shown with everything that this client asks for.
    #[doc(hidden)] // for the command
    #[must_use]
    pub fn over(locks: &Locks, by: impl Into<String>) -> Self {
        Self {
            locks: locks.clone(),
            chance: locks.chance().clone(),
            replicas: Arc::default(),
            #[cfg(feature = "admin")]
            shared: Arc::default(),
            by: by.into(),
            jobs: Arc::default(),
            last: Moment::NEVER,
            enough: Moment::NEVER,
        }
    }

    /// The same client in the name of another person or program.
    #[must_use]
    pub fn asking_as(self, by: impl Into<String>) -> Self {
        Self {
            by: by.into(),
            ..self
        }
    }

    /// With what the configuration says of jobs: one that no replica runs now is known by it, and one that is disabled is not
    /// triggered in vain.
    #[must_use]
    pub(crate) fn configured<S: Into<Arc<Spec>>>(
        self,
        jobs: impl IntoIterator<Item = (String, S)>,
    ) -> Self {
        let jobs = jobs.into_iter().map(|(name, spec)| (name, spec.into()));
        Self {
            jobs: Arc::new(jobs.collect()),
            ..self
        }
    }

    /// For an answer that must come in time: nothing is tried again after `last`, and nothing written; no replica is waited
    /// for after `enough`.
    #[cfg(any(test, feature = "admin"))]
    pub(crate) fn no_later_than(self, last: Moment, enough: Moment) -> Self {
        Self {
            last,
            enough,
            ..self
        }
    }

    /// The fleet's time.
    #[cfg(feature = "cli")]
    pub(crate) fn now(&self) -> jiff::Timestamp {
        self.locks.wall()
    }

    /// Waits until a majority of the nodes answers, for `limit` at most: a process that has just started is still connecting.
    pub(crate) async fn reached(&self, limit: Duration) {
        let clock = self.locks.clock();
        let until = clock.now() + limit;
        while clock.now() < until {
            // A name tells as much of that as all that is asked of the fleet.
            let read = self.locks.read_doc(intent::DIRECTORY).await;
            let answered = read.map_or(0, |read| read.answered);
            match self.enough(answered).await {
                Err(FleetError::TooFewNodes { .. }) => clock.sleep(LOOK / 2).await,
                _ => return,
            }
        }
    }

    /// What the fleet looks like: its replicas, its jobs and who leads them, its lock nodes. All shards of a job are one
    /// [`JobStatus`](super::status::JobStatus), which has each of them in it.
    ///
    /// # Errors
    /// [`FleetError`] while too few nodes answer.
    pub async fn status(&self) -> Result<FleetStatus, FleetError> {
        Ok(self.each().await?.gathered())
    }

    /// The same with a row for each shard, as replicas know them.
    pub(crate) async fn each(&self) -> Result<FleetStatus, FleetError> {
        self.patiently(|| self.fleet_now()).await
    }

    /// The fleet as its documents tell of it: no leaders.
    pub(crate) async fn documents(&self) -> Result<FleetStatus, FleetError> {
        self.patiently(|| self.told_now()).await
    }

    /// Refuses a job that neither a replica nor the configuration knows.
    async fn known(&self, job: &str) -> Result<FleetStatus, FleetError> {
        let fleet = self.documents().await?;
        self.refuse_unknown(job, &fleet)?;
        Ok(fleet)
    }

    /// One that runs nowhere may be configured all the same.
    fn refuse_unknown(&self, job: &str, fleet: &FleetStatus) -> Result<(), FleetError> {
        match self.spec(job) {
            Some(_) => Ok(()),
            None => refuse_unknown(job, fleet, self.jobs.keys()),
        }
    }

    /// Refuses such a job, and one that has no leader by its nature or runs nowhere.
    async fn led(&self, job: &str) -> Result<FleetStatus, FleetError> {
        let fleet = self.known(job).await?;
        let spec = self.spec(job);
        let running = fleet.jobs.iter().find(|known| is_of(&known.name, job));
        let running = running.map(|job| job.coordination.clone());
        let coordination = running.or_else(|| Some(spec?.coordination.to_string()));
        refuse_unled(job, &coordination.unwrap_or_default())?;
        refuse_disabled(job, &fleet, spec)?;
        Ok(fleet)
    }

    /// What the configuration says of a job, or of a shard of it.
    fn spec(&self, job: &str) -> Option<&Spec> {
        shard::spec_of(&self.jobs, job)
    }

    /// The shards of a job, as replicas or the configuration have them; none for a job without.
    fn shards_of(&self, job: &str, fleet: &FleetStatus) -> Vec<String> {
        let running = fleet.jobs.iter().filter_map(|known| shard_of(&known.name));
        let running = running
            .filter(|(of, _)| *of == job)
            .map(|(_, number)| number);
        let mut numbers: BTreeSet<usize> = running.collect();
        if numbers.is_empty() && fleet.job(job).is_none() {
            let configured = self.spec(job).and_then(|spec| spec.shards);
            numbers.extend(0..configured.unwrap_or(0));
        }
        numbers.into_iter().map(|n| shard::shard(job, n)).collect()
    }

    /// Asks again while trouble of the store passes, for a moment at most.
    async fn patiently<T, E, F>(&self, ask: impl Fn() -> F) -> Result<T, FleetError>
    where
        F: Future<Output = Result<T, E>>,
        FleetError: From<E>,
    {
        let until = (self.locks.clock().now() + PASSING).min(self.last);
        loop {
            match ask().await.map_err(FleetError::from) {
                Err(error) if error.passes() && self.again(until).await => {}
                found => return found,
            }
        }
    }

    /// Whether there is time for another look.
    async fn again(&self, until: Moment) -> bool {
        let clock = self.locks.clock();
        clock.sleep(LOOK).await;
        clock.now() < until
    }

    /// Until when the call waits for the replicas that something concerns.
    fn patience(&self, limit: Duration) -> Moment {
        (self.locks.clock().now() + limit).min(self.enough)
    }

    /// The newest revision, of a majority of nodes.
    async fn read(&self, name: &str) -> Result<Option<Doc>, FleetError> {
        self.patiently(|| async {
            let read = self.locks.read_doc(name).await?;
            self.enough(read.answered).await?;
            Ok::<_, FleetError>(read.docs.into_iter().next().map(|(doc, _)| doc))
        })
        .await
    }

    /// Names and revisions of what is asked of the fleet, of a majority of nodes.
    async fn names(&self) -> Result<Vec<Doc>, FleetError> {
        self.patiently(|| self.names_now()).await
    }

    async fn names_now(&self) -> Result<Vec<Doc>, FleetError> {
        let read = self.locks.doc_names(intent::DIRECTORY).await?;
        self.enough(read.answered).await?;
        Ok(read.docs.into_iter().map(|(doc, _)| doc).collect())
    }

    async fn presences(&self) -> Result<Vec<Presence>, FleetError> {
        self.patiently(|| self.presences_now()).await
    }

    async fn presences_now(&self) -> Result<Vec<Presence>, FleetError> {
        let mut replicas = self.replicas.lock().await;
        replicas.look(&self.locks, Wanted::Jobs).await?;
        Ok(replicas.presences(self.locks.wall()))
    }

    async fn fleet_now(&self) -> Result<FleetStatus, LockError> {
        view::fleet(&self.locks, &mut *self.replicas.lock().await).await
    }

    async fn fleet_of(&self, job: &str) -> Result<FleetStatus, LockError> {
        view::fleet_of(&self.locks, &mut *self.replicas.lock().await, job).await
    }

    #[cfg(feature = "admin")]
    async fn alone(&self, job: &str) -> Result<FleetStatus, LockError> {
        view::alone(&self.locks, &mut *self.replicas.lock().await, job).await
    }

    async fn told_now(&self) -> Result<FleetStatus, LockError> {
        view::told(&self.locks, &mut *self.replicas.lock().await).await
    }

    /// Writes what takes the place of the document that was read.
    async fn write_after(&self, read: Option<Doc>, intent: &Intent) -> Result<(), FleetError> {
        let chance = u16::try_from(self.chance.below(1 << 16)).unwrap_or(0);
        let rev = intent::next_revision(read.map(|doc| doc.rev), chance);
        self.write(rev, intent).await
    }

    /// What stands on a few nodes after an attempt is the same when it is written again.
    async fn write(&self, rev: u64, intent: &Intent) -> Result<(), FleetError> {
        if self.locks.clock().now() >= self.last {
            return Err(FleetError::Late);
        }
        self.patiently(|| async {
            let Doc { name, rev, body } = intent.to_doc(rev);
            let left = intent.remaining(self.locks.wall()).unwrap_or_default();
            let answered = self.locks.spread_doc(&name, rev, left, body).await?;
            self.enough(answered).await
        })
        .await
    }

    async fn enough(&self, answered: usize) -> Result<(), FleetError> {
        let nodes = self.locks.nodes().await?.len();
        match answered > nodes / 2 {
            true => Ok(()),
            false => Err(FleetError::TooFewNodes { answered, nodes }),
        }
    }
}
