//! What all sessions of a node have in common.

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use secrecy::SecretString;
use tracing::debug;

use super::{EtcdTlsFiles, client::Client, rows::Keys, session, wire::Done};
use crate::{
    chance::Chance,
    clock::Clock,
    node::{
        GuardSettings, NodeError, NodeMs, Servers,
        remote::{Compared, Furthest},
    },
    spawn::Spawn,
};

/// Where a cluster is, and how it is used.
#[derive(Clone)]
#[doc(hidden)] // made from the settings
pub struct EtcdNodeSettings {
    /// Its members: `http://HOST:PORT`, or `https://` with TLS. One of them is asked; the next one, where it does not serve.
    pub endpoints: Vec<String>,
    /// The user that logs in; without it and a password nobody does.
    pub username: Option<String>,
    /// Its password.
    pub password: Option<SecretString>,
    /// What `https://` endpoints are verified with.
    pub tls: EtcdTlsFiles,
    /// How long a request waits for its answer.
    pub node_timeout: Duration,
    /// Fleets with different namespaces do not meet.
    pub namespace: String,
    /// Which lives of the cluster may vote; the default guards nothing, and compares what [`crate::Locks`] says of its times.
    pub guard: GuardSettings,
}

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

// === impl EtcdNodeSettings ===

impl fmt::Debug for EtcdNodeSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An endpoint may hold what it should not.
        f.debug_struct("EtcdNodeSettings")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

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
        let life = session::life(done);
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

    /// Deletes what is gone, beside all calls.
    pub(super) fn clean_soon(self: &Arc<Self>, now: NodeMs) {
        if self.cleans.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = Arc::clone(self);
        self.spawn.spawn(async move {
            if let Err(why) = session::clean(&shared, now).await {
                debug!(node = %shared.name, %why, "what is gone could not be deleted");
            }
            shared.cleans.store(false, Ordering::Release);
        });
    }
}
