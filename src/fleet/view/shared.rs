//! A view for a page that many look at: they share one reading of the records.
//!
//! # Invariants
//! - Some jobs are looked at by themselves: of a fleet of ten thousand no more locks than theirs are asked for, and documents seldom.
//!   (a_page_of_many_jobs_looks_at_the_locks_of_its_rows)

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
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

/// Documents are looked at so often at most for those who are shown some jobs alone, and a tenth of the time at most: replicas tell of
/// what ran every two seconds.
const DOCUMENTS: Duration = Duration::from_secs(2);

/// What all clients of one replica's page share, beside what was read of documents.
#[derive(Debug, Default)]
pub(crate) struct SharedView {
    records: tokio::sync::Mutex<Option<Last>>,
    /// What came of it: what has moved is merged again.
    merged: tokio::sync::Mutex<Merged>,
    /// When documents are due again for some jobs alone.
    documents_due: tokio::sync::Mutex<Option<Moment>>,
    /// The replicas that led any job when the whole fleet was looked at last.
    leaders: Mutex<Option<BTreeSet<String>>>,
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
            if replicas.look(locks, Wanted::Jobs).await.is_err() {
                // This replica can be told when nothing else can.
                *replicas = Replicas::noting_jobs();
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
        let mut replicas = replicas.lock().await;
        let mut is_whole = true;
        let known = |tag: &str| heads.iter().chain([&me]).any(|p| p.tag == tag);
        if !records.values().filter_map(Reading::tag).all(known) {
            is_whole = replicas.look(locks, Wanted::Jobs).await.is_ok();
        }
        let moved = replicas.take_moved();
        let others = Words {
            names: replicas.names().collect(),
            moved,
            told: &|job| replicas.told_of(job),
        };
        let heads = replicas.heads(locks.wall());
        let fleet = beside.merge(
            locks,
            &heads,
            &others,
            &mut merged,
            &me,
            records,
            remembered,
        );
        if !is_whole {
            // A part of it was read, and would not be looked at again.
            *replicas = Replicas::noting_jobs();
        }
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
        let clock = locks.clock();
        let asked = names;
        let mut names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        names.extend(me.jobs.iter().map(|job| job.name.as_str()));
        let mine = me.jobs.iter().filter(|job| has_lock(&job.coordination));
        let mine: BTreeSet<&str> = mine.map(|job| job.name.as_str()).collect();
        let (heads, led) = {
            let mut replicas = replicas.lock().await;
            let mut due = self.documents_due.lock().await;
            let began = clock.now();
            if due.is_none_or(|due| due <= began) {
                // What is known stands while no node answers: who leads is not known then.
                drop(replicas.look(locks, Wanted::Jobs).await);
                let took = clock.now().since(began);
                *due = Some(began + DOCUMENTS.max(took * 10));
            }
            let led = names.iter().copied();
            let led = led.filter(|job| mine.contains(job) || replicas.is_locked(job));
            let led: Vec<String> = led.map(str::to_owned).collect();
            (replicas.heads(locks.wall()), led)
        };
        let beside = FleetDocuments::beside(locks, &heads, pauses).await?;
        let records = records(locks, &led, &beside.memory_loss()).await?;
        let mut replicas = replicas.lock().await;
        let known = |tag: &str| heads.iter().chain([&me]).any(|p| p.tag == tag);
        if !records.values().filter_map(Reading::tag).all(known) {
            drop(replicas.look(locks, Wanted::Jobs).await);
        }
        let others = Words {
            names,
            moved: BTreeSet::new(),
            told: &|job| replicas.told_of(job),
        };
        let heads = replicas.heads(locks.wall());
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
