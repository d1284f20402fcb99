//! From settings to nodes.

use std::{sync::Arc, time::Duration};

#[cfg(feature = "sqlite")]
use crate::node::sqlite::SqliteNode;
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
pub fn nodes(
    settings: &LockSettings,
    namespace: &str,
    clock: &Clock,
) -> Result<Vec<Arc<dyn Node>>> {
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

#[cfg(feature = "sqlite")]
fn embedded(
    settings: &LockSettings,
    _namespace: &str,
    clock: &Clock,
) -> Result<Vec<Arc<dyn Node>>> {
    let path = &settings.embedded.path;
    let node = SqliteNode::open(path, clock.clone()).map_err(|error| {
        // The sentence says what; its cause says why.
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        Error::Store {
            store: path.display().to_string(),
            why: format!("{error}{}", cause.unwrap_or_default()),
        }
    })?;
    Ok(vec![Arc::new(node)])
}

#[cfg(not(feature = "sqlite"))]
fn embedded(_: &LockSettings, _: &str, _: &Clock) -> Result<Vec<Arc<dyn Node>>> {
    Err(missing("embedded", "sqlite"))
}

#[cfg(feature = "redis")]
fn redis(
    settings: &LockSettings,
    namespace: &str,
    clock: &Clock,
    spawn: &Spawn,
) -> Result<Vec<Arc<dyn Node>>> {
    let _ = (settings, namespace, clock, spawn);
    Err(missing("redis", "redis"))
}

#[cfg(not(feature = "redis"))]
fn redis(_: &LockSettings, _: &str, _: &Clock, _: &Spawn) -> Result<Vec<Arc<dyn Node>>> {
    Err(missing("redis", "redis"))
}

fn missing(store: &str, feature: &str) -> Error {
    let why = format!("it is not part of this build; build with the feature `{feature}`");
    Error::Store {
        store: store.to_owned(),
        why,
    }
}

/// Refuses a list of nodes in which two addresses lead to one server: it would count twice towards a majority.
///
/// # Errors
/// [`Error::Store`] naming both.
pub(crate) async fn refuse_twins(nodes: &[Arc<dyn Node>], clock: &Clock) -> Result<()> {
    let mut seen: Vec<(String, &str)> = Vec::new();
    for node in nodes {
        // A node that does not answer now is let in: its identity is looked at again when it connects.
        let asked = clock
            .timeout(Duration::from_millis(500), node.identity())
            .await;
        let Ok(Some(identity)) = asked else { continue };
        if let Some((_, twin)) = seen.iter().find(|(id, _)| *id == identity) {
            let why = format!("it is the same server as {twin}: a majority needs independent ones");
            return Err(Error::Store {
                store: node.name().to_owned(),
                why,
            });
        }
        seen.push((identity, node.name()));
    }
    Ok(())
}
