//! A view for a page that many look at: they share one reading of the records.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{PAGE, Told, records};
use crate::{
    clock::Moment,
    fleet::{
        intent::Pause,
        presence::{
            has_lock,
            roster::{Index, Roster, Wanted},
        },
        status::{FleetStatus, LastSeen, Presence, leaders::Reading, merge::Merged},
    },
    lock::{LockError, Locks},
};

/// Up to so many jobs are read anew for everybody who asks: one call per node.
const FEW: usize = PAGE;

/// The records of more are read so often at most, and at most a tenth of the time.
const SELDOM: Duration = Duration::from_secs(1);

/// What all who look at one replica's page share.
#[derive(Default)]
pub(crate) struct SharedView {
    records: tokio::sync::Mutex<Option<Last>>,
    seen: tokio::sync::Mutex<Shown>,
}

/// What was read of documents, and what came of it: what has moved is read and merged again.
struct Shown {
    roster: Roster,
    merged: Merged,
}

impl Default for Shown {
    fn default() -> Self {
        Self {
            roster: Roster::indexed(),
            merged: Merged::default(),
        }
    }
}

struct Last {
    records: BTreeMap<String, Reading>,
    /// When another reading is due.
    until: Moment,
}

impl SharedView {
    /// The fleet as the store tells it, and this replica as it is now: at least that.
    pub(crate) async fn fleet(
        &self,
        locks: &Locks,
        me: Presence,
        pauses: Vec<Pause>,
        remembered: BTreeMap<String, LastSeen>,
    ) -> Result<FleetStatus, LockError> {
        let mut seen = self.seen.lock().await;
        let Shown { roster, merged } = &mut *seen;
        if roster.look(locks, Wanted::Jobs).await.is_err() {
            // This replica can be told when nothing else can.
            *roster = Roster::indexed();
        }
        let mut heads = roster.heads(locks.wall());
        let beside = Told::beside(locks, &heads, pauses).await?;
        let (led, blank) = (led(roster.index(), &me), beside.blank());
        let records = if led.len() <= FEW {
            records(locks, &led, &blank).await?
        } else {
            self.seldom(locks, &led, &blank).await?
        };
        let known = |tag: &str| heads.iter().chain([&me]).any(|p| p.tag == tag);
        if !records.values().filter_map(Reading::tag).all(known)
            && roster.look(locks, Wanted::Jobs).await.is_ok()
        {
            heads = roster.heads(locks.wall());
        }
        Ok(beside.merge(
            locks,
            &heads,
            roster.index(),
            merged,
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
fn led(index: &Index, me: &Presence) -> Vec<String> {
    let mine = me.jobs.iter().filter(|job| has_lock(&job.coordination));
    let told = index.jobs.iter().filter(|(_, told)| {
        let mut told = told.values();
        told.any(|job| has_lock(&job.coordination))
    });
    let names = told.map(|(name, _)| name).chain(mine.map(|job| &job.name));
    let names: BTreeSet<&String> = names.collect();
    names.into_iter().cloned().collect()
}
