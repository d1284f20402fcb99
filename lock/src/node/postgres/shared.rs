//! What all connections of a node have in common.

use std::{
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use super::{address::PgAddress, rows::Sql};
use crate::{
    clock::Clock,
    node::{GuardSettings, RestartGuard, Servers},
    spawn::Spawn,
};

/// Where a database is, and how it is used.
#[derive(Clone, Debug)]
#[doc(hidden)] // made from the settings
pub struct PostgresNodeSettings {
    /// How it is reached.
    pub address: PgAddress,
    /// How releases are heard of; the same unless it is given.
    pub listen: Option<PgAddress>,
    /// The schema with our tables.
    pub schema: String,
    /// How long a call waits for its answer.
    pub node_timeout: Duration,
    /// Fleets with different namespaces do not meet.
    pub namespace: String,
    /// Which lives of the server may vote; the default guards nothing, and compares what [`crate::Locks`] says of its times.
    pub guard: GuardSettings,
}

/// What all connections of a node have in common.
pub(super) struct Shared {
    pub(super) name: String,
    pub(super) settings: PostgresNodeSettings,
    pub(super) sql: Sql,
    pub(super) agreed: OnceLock<String>,
    pub(super) clock: Clock,
    pub(super) spawn: Spawn,
    /// How much of which life's log was seen on its disk.
    pub(super) seen: Mutex<Option<(String, u64)>>,
    /// Why its memory is out of reach for good.
    pub(super) gone: OnceLock<String>,
    pub(super) joined: OnceLock<(Servers, usize)>,
}

// === impl Shared ===

impl Shared {
    /// What is compared, and whether what may be forgotten is waited for; `None` where nothing is compared.
    pub(super) fn compared(&self) -> Option<(&str, bool)> {
        let GuardSettings { mode, config } = &self.settings.guard;
        let config = self.agreed.get().unwrap_or(config);
        let guarded = *mode != RestartGuard::Off;
        (guarded || !config.is_empty()).then_some((config, guarded))
    }

    /// How much of which life's log was seen on its disk: what is asked from now on shows no less.
    pub(super) fn seen_so_far(&self) -> Option<(String, u64)> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }

    pub(super) fn has_seen(&self, life: &str, flushed: u64) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.as_mut().filter(|(of, _)| of == life) {
            Some((_, most)) => *most = flushed.max(*most),
            None => *seen = Some((life.to_owned(), flushed)),
        }
    }

    /// Where releases are told and heard.
    pub(super) fn channel(&self) -> String {
        let PostgresNodeSettings {
            schema, namespace, ..
        } = &self.settings;
        let both = format!("{schema}\0{namespace}");
        format!("watchkeeper_{:016x}", crate::hash::fnv1a(both.bytes()))
    }
}
