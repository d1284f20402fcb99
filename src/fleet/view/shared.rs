//! A view for a page that many look at: they share one reading of the records.

use std::{collections::BTreeMap, time::Duration};

use super::{PAGE, Told, records};
use crate::{
    clock::Moment,
    fleet::{
        intent::Pause,
        presence::roster::Roster,
        status::{FleetStatus, LastSeen, Presence, leaders::Reading},
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
    /// What was read of documents: each is read once, and what has moved again.
    roster: tokio::sync::Mutex<Roster>,
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
        let id = me.id.clone();
        let mut roster = self.roster.lock().await;
        let mut told = Told::read(locks, &mut roster, Some((me, pauses))).await?;
        drop(roster);
        let (led, blank) = (told.led(), told.blank());
        let records = if led.len() <= FEW {
            records(locks, &led, &blank).await?
        } else {
            self.seldom(locks, &led, &blank).await?
        };
        let mut roster = self.roster.lock().await;
        told.introduce(locks, &mut roster, &records).await;
        drop(roster);
        Ok(told.merge(locks, Some(&id), records, remembered))
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
