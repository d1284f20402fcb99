//! What all connections of a node have in common.

use std::{
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::Duration,
};

use super::{address::PgAddress, rows::Sql};
use crate::{
    clock::Clock,
    node::{
        GuardSettings, Servers,
        remote::{Compared, Furthest},
    },
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
    pub(super) compared: Compared,
    pub(super) clock: Clock,
    pub(super) spawn: Spawn,
    /// How much of which life's log was seen on its disk.
    pub(super) furthest: Furthest,
    /// Whether nothing can be kept on the way to the server: see [`super::kept`].
    pub(super) pooled: Arc<AtomicBool>,
    pub(super) joined: OnceLock<(Servers, usize)>,
}

// === impl Shared ===

impl Shared {
    /// Where releases are told and heard.
    pub(super) fn channel(&self) -> String {
        let PostgresNodeSettings {
            schema, namespace, ..
        } = &self.settings;
        let both = format!("{schema}\0{namespace}");
        format!("watchkeeper_{:016x}", crate::hash::fnv1a(both.bytes()))
    }
}
