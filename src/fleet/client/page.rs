//! The fleet for a page that many look at: however many ask, the store is read for one of them.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    super::{
        intent::Pause,
        presence::replicas::Replicas,
        status::{FleetStatus, LastSeen, Presence},
    },
    Fleet,
};
use crate::lock::{LockError, Locks};

impl Fleet {
    /// A client of which all clones share what they read, for all who look at the page of one replica.
    pub(crate) fn of_page(locks: &Locks, by: impl Into<String>) -> Self {
        Self {
            replicas: Arc::new(tokio::sync::Mutex::new(Replicas::noting_jobs())),
            ..Self::over(locks, by)
        }
    }

    /// The fleet as the store tells it, and the replica `me` as it is now, which knows of these pauses and remembers who led: at
    /// least that. Of a [client for a page](Self::of_page).
    pub(crate) async fn status_around(
        &self,
        me: Presence,
        pauses: Vec<Pause>,
        remembered: BTreeMap<String, LastSeen>,
    ) -> Result<FleetStatus, LockError> {
        let (locks, replicas) = (&self.locks, &self.replicas);
        let seen = self.shared.fleet(locks, replicas, me, pauses, remembered);
        Ok(seen.await?.gathered())
    }
}
