//! What all sessions of a node have in common.

use std::{
    sync::{Mutex, OnceLock, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use tracing::debug;

use super::{
    client::Client,
    error::Trouble,
    rows::Keys,
    settings::EtcdNodeSettings,
    wire::{Done, Txn},
};
use crate::{
    chance::Chance,
    clock::Clock,
    node::{
        NodeError, Servers,
        remote::{Compared, Furthest},
    },
    spawn::Spawn,
};

/// What all sessions of a node have in common.
pub(super) struct Shared {
    pub(super) name: String,
    pub(super) settings: EtcdNodeSettings,
    pub(super) client: Client,
    pub(super) keys: Keys,
    pub(super) compared: Compared,
    /// Up to which revision of which cluster was seen.
    pub(super) furthest: Furthest,
    pub(super) joined: OnceLock<(Servers, usize)>,
    /// The cluster that was met, and how often in a row another one has answered.
    pub(super) cluster: Mutex<(String, usize)>,
    pub(super) clock: Clock,
    pub(super) spawn: Spawn,
    pub(super) chance: Chance,
    /// This process deletes what is gone.
    pub(super) cleans: AtomicBool,
}

/// The first question may wait for a connection, for TLS, and for a login.
const LEAST_FIRST: Duration = Duration::from_secs(3);

// === impl Shared ===

impl Shared {
    /// How long an answer may take; the first one longer.
    pub(super) fn patience(&self) -> Duration {
        let met = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        match met.0.is_empty() {
            true => self.settings.node_timeout.max(LEAST_FIRST),
            false => self.settings.node_timeout,
        }
    }

    /// Which cluster has answered. It stays the same one, unless none of the members is of it any more.
    pub(super) fn met(&self, done: &Done) -> Result<String, NodeError> {
        if done.header.cluster_id == 0 || done.header.revision <= 0 {
            let why = "an answer without a cluster and a revision".to_owned();
            return Err(NodeError::Protocol(why));
        }
        let life = done.life();
        let mut met = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, strangers) = &mut *met;
        if !known.is_empty() && *known != life {
            *strangers += 1;
            if *strangers <= self.client.members() {
                drop(met);
                self.client.leave(self.client.member());
                let why = "its endpoints lead to different clusters, or it was made anew";
                return Err(NodeError::Unfit(why.to_owned()));
            }
        }
        *met = (life.clone(), 0);
        Ok(life)
    }

    /// Writes what a call has decided. Nothing of it stands where it is refused.
    pub(super) async fn commit(&self, txn: &Txn) -> Result<Done, Trouble> {
        let limit = self.settings.node_timeout;
        let done = self.client.post("/v3/kv/txn", txn, limit).await;
        done.map_err(|trouble| match trouble {
            // It was sent, and not answered.
            Trouble::Unknown(why) => {
                debug!(node = %self.name, %why, "a transaction without an answer");
                Trouble::Unknown(NodeError::Timeout(limit))
            }
            trouble => trouble,
        })
    }
}
