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

/// What documents tell of some jobs is looked at so often at most for those who are shown these alone, and a tenth of the time at most:
/// replicas tell of what ran every two seconds.
const DOCUMENTS: Duration = Duration::from_secs(2);

/// In the place of a job's name, what replicas tell of themselves.
const WHO: &[&str] = &[""];

/// What all clients of one replica's page share, beside what was read of documents.
#[derive(Debug, Default)]
pub(crate) struct SharedView {
    records: tokio::sync::Mutex<Option<Last>>,
    known: Mutex<Known>,
    /// What came of it: what has moved is merged again.
    merged: tokio::sync::Mutex<Merged>,
    /// The replicas that led any job when the whole fleet was looked at last.
    leaders: Mutex<Option<BTreeSet<String>>>,
}

/// What was read of replicas.
#[derive(Debug, Default)]
struct Known {
    replicas: Option<Arc<Replicas>>,
    /// When another look at what they tell of these jobs is due, of those that were looked at by themselves of late, and of [`WHO`].
    due: BTreeMap<String, Moment>,
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
            match replicas.look(locks, Wanted::Jobs).await {
                Ok(_) => _ = self.tell(replicas.clone()),
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
        let (told, moved) = {
            let mut replicas = replicas.lock().await;
            let is_whole = all_known || replicas.look(locks, Wanted::Jobs).await.is_ok();
            let moved = replicas.take_moved();
            let told = self.tell(replicas.clone());
            if !is_whole {
                // A part of it was read, and would not be looked at again.
                *replicas = Replicas::noting_jobs();
            }
            (told, moved)
        };
        let others = Words {
            names: told.names().collect(),
            moved,
            told: &|job| told.told_of(job),
        };
        let heads = told.heads(locks.wall());
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
        replicas: &tokio::sync::Mutex<Replicas>,
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
        let told = self.told(locks, replicas, &names).await;
        let heads = told.heads(locks.wall());
        let led = names.iter().copied();
        let led = led.filter(|job| mine.contains(job) || told.is_locked(job));
        let led: Vec<String> = led.map(str::to_owned).collect();
        let beside = FleetDocuments::beside(locks, &heads, pauses).await?;
        let records = records(locks, &led, &beside.memory_loss()).await?;
        let known = |tag: &str| heads.iter().chain([&me]).any(|p| p.tag == tag);
        let told = match records.values().filter_map(Reading::tag).all(known) {
            true => told,
            false => self.look(locks, &told, &names).await,
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
    async fn told(
        &self,
        locks: &Locks,
        replicas: &tokio::sync::Mutex<Replicas>,
        names: &BTreeSet<&str>,
    ) -> Arc<Replicas> {
        let (known, due) = {
            let known = self.known();
            let due = names.iter().chain(WHO).map(|name| known.due.get(*name));
            (known.replicas.clone(), due.min().flatten().copied())
        };
        match known {
            Some(told) if due.is_some_and(|due| locks.clock().now() < due) => told,
            Some(told) => self.look(locks, &told, names).await,
            None => {
                let mut replicas = replicas.lock().await;
                let began = locks.clock().now();
                drop(replicas.look(locks, Wanted::Jobs).await);
                self.looked_at(names, began, locks.clock().now());
                self.tell(replicas.clone())
            }
        }
    }

    /// Looks at what replicas tell of these jobs. What is known stands while no node answers: who leads is not known then.
    async fn look(&self, locks: &Locks, known: &Replicas, names: &BTreeSet<&str>) -> Arc<Replicas> {
        let mut replicas = known.clone();
        let began = locks.clock().now();
        drop(replicas.look(locks, Wanted::Some(names)).await);
        self.looked_at(names, began, locks.clock().now());
        self.tell(replicas)
    }

    fn looked_at(&self, names: &BTreeSet<&str>, began: Moment, now: Moment) {
        let due = began + DOCUMENTS.max(now.since(began) * 10);
        let mut known = self.known();
        known.due.retain(|_, due| now < *due);
        let names = names.iter().chain(WHO);
        known
            .due
            .extend(names.map(|name| ((*name).to_owned(), due)));
    }

    /// Keeps what was read for those who look while others read. What others have read meanwhile is not lost.
    fn tell(&self, mut replicas: Replicas) -> Arc<Replicas> {
        let mut known = self.known();
        if let Some(known) = &known.replicas {
            replicas.take_later(known);
        }
        let told = Arc::new(replicas);
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
