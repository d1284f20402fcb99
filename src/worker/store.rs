//! From settings to nodes.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::Clock,
    error::{Error, Result},
    lock::{LockSettings, Timing, settings::Backend},
    node::{Node, memory::MemoryNode},
    spawn::Spawn,
};

/// Opens the nodes of the configured backend. Redis masters need not be up: they are reached when they are needed.
///
/// # Errors
/// [`Error::Store`] for a file that cannot be opened or an address that makes no sense.
pub fn nodes(settings: &LockSettings, namespace: &str, clock: &Clock) -> Result<Vec<Arc<dyn Node>>> {
    match settings.backend {
        Backend::Memory => Ok(vec![Arc::new(MemoryNode::new("memory", clock.clone()))]),
        Backend::Embedded => embedded(settings, namespace, clock),
        Backend::Redis => redis(settings, namespace, clock, &Spawn::system()),
    }
}

/// The times of the lock core.
#[must_use]
pub fn timing(settings: &LockSettings, grace: Duration) -> Timing {
    let node_timeout = match settings.backend {
        Backend::Redis => settings.redis.node_timeout,
        // One file on one machine: an answer may wait for a disk, but not for a network.
        Backend::Embedded | Backend::Memory => {
            (settings.ttl / 6).clamp(Duration::from_millis(50), Duration::from_secs(1))
        }
    };
    Timing {
        ttl: settings.ttl,
        max_ttl: settings.max_ttl,
        min_validity: settings.min_validity,
        drift: settings.drift,
        node_timeout,
        skew: settings.skew,
        retention: settings.retention,
        grace,
    }
}
