//! A view for a page that many look at: they share one reading of the records.
//!
//! # Invariants
//! - Some jobs are looked at by themselves: of a fleet of ten thousand no more locks than theirs are asked for, and documents seldom.
//!   (a_page_of_many_jobs_looks_at_the_locks_of_its_rows)
//! - Nor do they wait while the documents of the whole fleet are read.   (some_jobs_do_not_wait_for_a_reading_of_all)

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{FleetDocuments, PAGE, records};
use crate::{
    clock::Moment,
    fleet::{
        intent::Pause,
        presence::{
            has_lock,
            replicas::{Replicas, Wanted},
        },
        status::{
            FleetStatus, LastSeen, Presence, Role,
            leaders::Reading,
            merge::{Merged, Words},
        },
    },
    lock::{LockError, Locks},
};

/// Up to so many jobs are read anew for each request: one call per node.
const FEW: usize = PAGE;

/// The records of more are read so often at most, and at most a tenth of the time.
const SELDOM: Duration = Duration::from_secs(1);

/// What documents tell of some jobs is looked at so often at most for those who are shown these alone, and a tenth of the time at most
/// for each such choice, one after the other: replicas tell of what ran every two seconds.
const DOCUMENTS: Duration = Duration::from_secs(2);

/// In the place of a job's name, what replicas tell of themselves.
const WHO: &[&str] = &[""];

/// What all clients of one replica's page share, beside what was read of documents.
#[derive(Debug, Default)]
pub(crate) struct SharedView {
    records: tokio::sync::Mutex<Option<Last>>,
    known: Mutex<Known>,
    /// Held by the reader who looks at some jobs.
    looking: tokio::sync::Mutex<()>,
    /// What came of it: what has moved is merged again.
    merged: tokio::sync::Mutex<Merged>,
    /// The replicas that led any job when the whole fleet was looked at last.
    leaders: Mutex<Option<BTreeSet<String>>>,
}

/// What was read of replicas.
#[derive(Debug)]
struct Known {
    replicas: Option<Arc<Replicas>>,
    /// When the latest look at them began.
    began: Moment,
    /// When another look at what they tell of these jobs is due, of those that were looked at by themselves of late, and of [`WHO`].
    due: BTreeMap<String, Moment>,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            replicas: None,
            began: Moment::ZERO,
            due: BTreeMap::new(),
        }
    }
}

#[derive(Debug)]
struct Last {
    records: BTreeMap<String, Reading>,
    /// When another reading is due.
    until: Moment,
}

impl SharedView {
    /// The fleet as the store tells it, and this replica as it is now: at least that. `replicas` notes which jobs move.
    pub(crate) async fn fleet(
        &self,
        locks: &Locks,
        replicas: &tokio::sync::Mutex<Replicas>,
        me: Presence,
        pauses: Vec<Pause>,
        remembered: BTreeMap<String, LastSeen>,
    ) -> Result<FleetStatus, LockError> {
        let mut merged = self.merged.lock().await;
        let (heads, led) = {
            let mut replicas = replicas.lock().await;
            let began = locks.clock().now();
            match replicas.look(locks, Wanted::Jobs).await {
                Ok(_) => _ = self.tell(replicas.clone(), began),
                // This replica can be told when nothing else can.
                Err(_) => *replicas = Replicas::noting_jobs(),
            }
            (replicas.heads(locks.wall()), led(&replicas, &me))
        };
        let beside = FleetDocuments::beside(locks, &heads, pauses).await?;
        let memory_loss = beside.memory_loss();
        let records = if led.len() <= FEW {
            records(locks, &led, &memory_loss).await?
        } else {
            self.seldom(locks, &led, &memory_loss).await?
        };
        let known = |tag: &str| heads.iter().chain([&me]).any(|p| p.tag == tag);
        let all_known = records.values().filter_map(Reading::tag).all(known);
        // As this reader has read it: what others have read of a job is not noted as moved.
        let (own, moved) = {
            let mut replicas = replicas.lock().await;
            let mut is_whole = true;
            if !all_known {
                let began = locks.clock().now();
                is_whole = replicas.look(locks, Wanted::Jobs).await.is_ok();
                if is_whole {
                    self.tell(replicas.clone(), began);
                }
            }
            let moved = replicas.take_moved();
            let own = replicas.clone();
            if !is_whole {
                // A part of it was read, and would not be looked at again.
                *replicas = Replicas::noting_jobs();
            }
            (own, moved)
        };
        let others = Words {
            names: own.names().collect(),
            moved,
            told: &|job| own.told_of(job),
        };
        let heads = own.heads(locks.wall());
        let fleet = beside.merge(
            locks,
            &heads,
            &others,
            &mut merged,
            &me,
            records,
            remembered,
        );
        let leaders = fleet.replicas.iter();
        let leaders = leaders.filter(|replica| replica.role == Role::Leader);
        *self.leaders() = Some(leaders.map(|replica| replica.id.clone()).collect());
        Ok(fleet)
    }

    /// The replicas and the nodes, and of the jobs these alone, which `me` tells of. One of which no replica tells is left out.
    pub(crate) async fn some(
        &self,
        locks: &Locks,
        me: Presence,
        names: &BTreeSet<String>,
        pauses: Vec<Pause>,
        remembered: BTreeMap<String, LastSeen>,
    ) -> Result<FleetStatus, LockError> {
        let asked = names;
        let mut names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        names.extend(me.jobs.iter().map(|job| job.name.as_str()));
        let mine = me.jobs.iter().filter(|job| has_lock(&job.coordination));
        let mine: BTreeSet<&str> = mine.map(|job| job.name.as_str()).collect();
        let told = self.told(locks, &names).await;
        let heads = told.heads(locks.wall());
        let led = names.iter().copied();
        let led = led.filter(|job| mine.contains(job) || told.is_locked(job));
        let led: Vec<String> = led.map(str::to_owned).collect();
        let beside = FleetDocuments::beside(locks, &heads, pauses).await?;
        let records = records(locks, &led, &beside.memory_loss()).await?;
        let known = |tag: &str| heads.iter().chain([&me]).any(|p| p.tag == tag);
        let told = match records.values().filter_map(Reading::tag).all(known) {
            true => told,
            false => {
                let _looking = self.looking.lock().await;
                self.look(locks, &names).await
            }
        };
        let others = Words {
            names,
            moved: BTreeSet::new(),
            told: &|job| told.told_of(job),
        };
        let heads = told.heads(locks.wall());
        // Nothing is remembered of them: they are few, and others the next time.
        let mut merged = Merged::default();
        let mut fleet = beside.merge(
            locks,
            &heads,
            &others,
            &mut merged,
            &me,
            records,
            remembered,
        );
        // An engine that has died here is told of whether it was asked for or not: a shard is not its job.
        fleet.jobs.retain(|job| asked.contains(&job.name));
        // What else a replica leads is not looked at.
        let leaders = self.leaders();
        let led_before = |id: &str| leaders.as_ref().is_none_or(|leaders| leaders.contains(id));
        let says = |id: &str| {
            let mut all = heads.iter().chain([&me]);
            all.any(|p| p.id == id && p.role == Role::Leader)
        };
        for replica in &mut fleet.replicas {
            if says(&replica.id) && led_before(&replica.id) {
                replica.role = Role::Leader;
            }
        }
        Ok(fleet)
    }

    /// What replicas tell of these jobs, looked at where that is due. All others are as they were found last, for which nothing is
    /// waited.
    async fn told(&self, locks: &Locks, names: &BTreeSet<&str>) -> Arc<Replicas> {
        if let Some(told) = self.fresh(locks, names) {
            return told;
        }
        let _looking = self.looking.lock().await;
        match self.fresh(locks, names) {
            Some(told) => told,
            None => self.look(locks, names).await,
        }
    }

    /// What is known, where no look at these jobs is due.
    fn fresh(&self, locks: &Locks, names: &BTreeSet<&str>) -> Option<Arc<Replicas>> {
        let known = self.known();
        let due = names.iter().chain(WHO).map(|name| known.due.get(*name));
        let due = due.min().flatten().copied()?;
        let told = known.replicas.clone();
        told.filter(|_| locks.clock().now() < due)
    }

    /// Looks at what replicas tell of these jobs. What is known stands while no node answers: who leads is not known then.
    async fn look(&self, locks: &Locks, names: &BTreeSet<&str>) -> Arc<Replicas> {
        let known = self.known().replicas.clone();
        let mut replicas = known.map_or_else(Replicas::default, |known| (*known).clone());
        let began = locks.clock().now();
        let looked = replicas.look(locks, Wanted::Some(names)).await;
        let now = locks.clock().now();
        let due = match looked {
            Ok(_) => began + DOCUMENTS.max(now.since(began) * 10),
            Err(_) => now + DOCUMENTS,
        };
        let mut known = self.known();
        known.due.retain(|_, due| now < *due);
        let names = names.iter().chain(WHO);
        known
            .due
            .extend(names.map(|name| ((*name).to_owned(), due)));
        drop(known);
        match looked {
            Ok(_) => self.tell(replicas, began),
            Err(_) => Arc::new(replicas),
        }
    }

    /// Keeps what was read, by a look that began then, for those who look while others read. What another look has found is not lost:
    /// the later one says which replicas there are, and of each page what is newer counts.
    fn tell(&self, replicas: Replicas, began: Moment) -> Arc<Replicas> {
        let mut known = self.known();
        let told = match known.replicas.take() {
            None => replicas,
            Some(other) => {
                let (mut later, earlier) = match known.began > began {
                    true => ((*other).clone(), Arc::new(replicas)),
                    false => (replicas, other),
                };
                later.take_later(&earlier);
                later
            }
        };
        let told = Arc::new(told);
        known.began = known.began.max(began);
        known.replicas = Some(told.clone());
        told
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Each part is changed in one step.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leaders(&self) -> MutexGuard<'_, Option<BTreeSet<String>>> {
        // Changed in one step.
        self.leaders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn seldom(
        &self,
        locks: &Locks,
        led: &[String],
        memory_loss: &[bool],
    ) -> Result<BTreeMap<String, Reading>, LockError> {
        let clock = locks.clock();
        // Held while it is read: a question that comes meanwhile waits for the same reading.
        let mut last = self.records.lock().await;
        let began = clock.now();
        if let Some(last) = last.as_ref().filter(|last| began < last.until) {
            return Ok(last.records.clone());
        }
        let records = records(locks, led, memory_loss).await?;
        let took = clock.now().since(began);
        *last = Some(Last {
            records: records.clone(),
            until: began + SELDOM.max(took * 10),
        });
        Ok(records)
    }
}

/// The jobs that one replica leads.
fn led(replicas: &Replicas, me: &Presence) -> Vec<String> {
    let mine = me.jobs.iter().filter(|job| has_lock(&job.coordination));
    let mine = mine.map(|job| job.name.as_str());
    let told = replicas.names().filter(|job| replicas.is_locked(job));
    let names: BTreeSet<&str> = told.chain(mine).collect();
    names.into_iter().map(str::to_owned).collect()
}
