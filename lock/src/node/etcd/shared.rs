//! What all sessions of a node have in common.

use std::{
    collections::BTreeSet,
    ops::Deref,
    sync::{Arc, Mutex, OnceLock, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use tracing::{debug, warn};

use super::{
    client::Client,
    error::Trouble,
    keys::Keys,
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

/// What all sessions of a node have in common, each with a way of its own to the members.
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) common: Arc<Common>,
}

pub(super) struct Common {
    pub(super) name: String,
    pub(super) settings: EtcdNodeSettings,
    pub(super) keys: Keys,
    pub(super) compared: Compared,
    /// Up to which revision of which cluster was seen.
    pub(super) furthest: Furthest,
    pub(super) joined: OnceLock<(Servers, usize)>,
    /// The cluster that was met, and the endpoints that have shown another one since it last answered.
    pub(super) cluster: Mutex<(String, BTreeSet<usize>)>,
    pub(super) clock: Clock,
    pub(super) spawn: Spawn,
    pub(super) chance: Chance,
    /// This process deletes what is gone.
    pub(super) cleans: AtomicBool,
}

impl Deref for Shared {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
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

    /// Which cluster has answered. It stays the same one, unless each of the endpoints has shown another one by now.
    pub(super) fn met(&self, done: &Done) -> Result<String, NodeError> {
        if done.header.cluster_id == 0 || done.header.revision <= 0 {
            let why = "an answer without a cluster and a revision".to_owned();
            return Err(NodeError::Protocol(why));
        }
        let life = done.life();
        let mut met = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, strangers) = &mut *met;
        if !known.is_empty() && *known != life {
            strangers.insert(done.member);
            if strangers.len() < self.client.members() {
                drop(met);
                self.client.leave(done.member);
                let member = self.client.name_of(done.member);
                let why = format!(
                    "{member}: its endpoints lead to different clusters, or it was made anew: then start members of it at all \
                     endpoints, or take the others out of locks.etcd.endpoints and restart this program"
                );
                return Err(NodeError::Unfit(why));
            }
            warn!(
                node = %self.name, was = %*known, is = %life,
                "another cluster answers at every endpoint: it was restored from a backup with a token of its own, or made anew. What was \
                 granted after that backup is not known there"
            );
        }
        *met = (life.clone(), BTreeSet::new());
        Ok(life)
    }

    /// Another way to the same members.
    pub(super) fn another(&self) -> Self {
        Self {
            client: self.client.another(),
            common: Arc::clone(&self.common),
        }
    }

    /// Writes what a call has decided. Nothing of it stands where it is refused.
    pub(super) async fn commit(&self, txn: &Txn) -> Result<Done, Trouble> {
        let limit = self.settings.node_timeout;
        let done = self.client.post_txn(txn, limit).await;
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
