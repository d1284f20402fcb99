//! A view for a page that many look at: they share one reading of the records.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::{PAGE, Told, records};
use crate::{
    clock::Moment,
    fleet::{
        Fleet,
        intent::Pause,
        presence::{
            has_lock,
            roster::{Roster, Wanted},
        },
        status::{
            FleetStatus, LastSeen, Presence,
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

/// What all clients of one replica's page share.
pub(crate) struct SharedView {
    records: tokio::sync::Mutex<Option<Last>>,
    /// What was read of documents, also for commands that come by the page.
    roster: Arc<tokio::sync::Mutex<Roster>>,
    /// What came of it: what has moved is merged again.
    merged: tokio::sync::Mutex<Merged>,
}

impl Default for SharedView {
    fn default() -> Self {
        Self {
            records: tokio::sync::Mutex::default(),
            roster: Arc::new(tokio::sync::Mutex::new(Roster::noting_jobs())),
            merged: tokio::sync::Mutex::default(),
        }
    }
}

struct Last {
    records: BTreeMap<String, Reading>,
    /// When another reading is due.
    until: Moment,
}

impl SharedView {
    /// A client that reads what moves of what this view has read.
    pub(crate) fn client(&self, locks: &Locks, by: String) -> Fleet {
        Fleet::over(locks, by).reading(self.roster.clone())
    }

    /// The fleet as the store tells it, and this replica as it is now: at least that.
    pub(crate) async fn fleet(
        &self,
        locks: &Locks,
        me: Presence,
        pauses: Vec<Pause>,
        remembered: BTreeMap<String, LastSeen>,
    ) -> Result<FleetStatus, LockError> {
        let mut merged = self.merged.lock().await;
        let (heads, led) = {
            let mut roster = self.roster.lock().await;
            if roster.look(locks, Wanted::Jobs).await.is_err() {
                // This replica can be told when nothing else can.
                *roster = Roster::noting_jobs();
            }
            (roster.heads(locks.wall()), led(&roster, &me))
        };
        let beside = Told::beside(locks, &heads, pauses).await?;
        let blank = beside.blank();
        let records = if led.len() <= FEW {
            records(locks, &led, &blank).await?
        } else {
            self.seldom(locks, &led, &blank).await?
        };
        let mut roster = self.roster.lock().await;
        let known = |tag: &str| heads.iter().chain([&me]).any(|p| p.tag == tag);
        if !records.values().filter_map(Reading::tag).all(known) {
            let _ = roster.look(locks, Wanted::Jobs).await;
        }
        let moved = roster.take_moved();
        let others = Words {
            names: roster.names().collect(),
            moved,
            told: &|job| roster.told_of(job),
        };
        let heads = roster.heads(locks.wall());
        Ok(beside.merge(
            locks,
            &heads,
            &others,
            &mut merged,
            &me,
            records,
            remembered,
        ))
    }

    async fn seldom(
        &self,
        locks: &Locks,
        led: &[String],
        blank: &[bool],
    ) -> Result<BTreeMap<String, Reading>, LockError> {
        let clock = locks.clock();
        // Held while it is read: a question that comes meanwhile waits for the same reading.
        let mut last = self.records.lock().await;
        let began = clock.now();
        if let Some(last) = last.as_ref().filter(|last| began < last.until) {
            return Ok(last.records.clone());
        }
        let records = records(locks, led, blank).await?;
        let took = clock.now().since(began);
        *last = Some(Last {
            records: records.clone(),
            until: began + SELDOM.max(took * 10),
        });
        Ok(records)
    }
}

/// The jobs that one replica leads.
fn led(roster: &Roster, me: &Presence) -> Vec<String> {
    let mine = me.jobs.iter().filter(|job| has_lock(&job.coordination));
    let mine = mine.map(|job| job.name.as_str());
    let told = roster.names().filter(|job| roster.is_locked(job));
    let names: BTreeSet<&str> = told.chain(mine).collect();
    names.into_iter().map(str::to_owned).collect()
}
