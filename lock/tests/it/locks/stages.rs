//! Where the nodes of a scene come from, and what can be done to them.

use std::{sync::Arc, time::Duration};

use watchkeeper_lock::{
    node::{Node, memory::MemoryNode},
    sim_clock::SimTime,
};

use super::{Scene, Time};

/// The nodes of one scene.
pub(crate) trait Stage: Send + Sync {
    /// How many.
    fn count(&self) -> usize;

    /// A new connection to one of them.
    fn connect(&self, node: usize) -> Arc<dyn Node>;

    /// What can go wrong with them, where this can be played.
    fn faults(&self) -> Option<&dyn Faults> {
        None
    }
}

/// What can go wrong with nodes, as verbs.
pub(crate) trait Faults {
    /// Writes a key as a foreign client would.
    fn plant(&self, node: usize, key: &str, value: &str, ttl: Option<Duration>);
    /// The key of a lock ends by itself, before its time.
    fn vanish(&self, node: usize, key: &str);
    /// The key of a lock will live for an hour more than it should.
    fn outlive(&self, node: usize, key: &str);
    /// The node stops working.
    fn freeze(&self, node: usize);
    /// It goes on.
    fn thaw(&self, node: usize);
    /// It is killed, and starts again with all it knew.
    fn restart(&self, node: usize);
}

/// Memory in paused time.
struct Memory {
    nodes: Vec<MemoryNode>,
}

/// One SQLite file.
#[cfg(feature = "sqlite")]
struct Sqlite {
    folder: tempfile::TempDir,
}

/// So many nodes in memory.
pub(crate) fn memory(count: usize) -> Scene {
    let clock = SimTime::new().clock();
    let make = |n: usize| MemoryNode::new(format!("memory-{n}"), clock.clone());
    let nodes = (0..count).map(make).collect();
    let time = Time {
        clock: clock.clone(),
        ttl: Duration::from_millis(500),
        node_timeout: Duration::from_millis(20),
        slack: Duration::from_millis(150),
        here: true,
    };
    Scene::new(Box::new(Memory { nodes }), time)
}

/// A SQLite file; every client opens it anew, as another process would.
#[cfg(feature = "sqlite")]
pub(crate) fn sqlite() -> Scene {
    let folder = tempfile::tempdir().unwrap();
    Scene::new(Box::new(Sqlite { folder }), Time::real())
}

// === impl Memory ===

impl Stage for Memory {
    fn count(&self) -> usize {
        self.nodes.len()
    }

    fn connect(&self, node: usize) -> Arc<dyn Node> {
        Arc::new(self.nodes[node].clone())
    }

    fn faults(&self) -> Option<&dyn Faults> {
        Some(self)
    }
}

impl Faults for Memory {
    fn plant(&self, node: usize, key: &str, value: &str, ttl: Option<Duration>) {
        self.nodes[node].faults().plant(key, value, ttl);
    }

    /// With the keys of all other locks: the node's clock jumps.
    fn vanish(&self, node: usize, _key: &str) {
        self.nodes[node].faults().clock_offset(3_600_000);
    }

    fn outlive(&self, node: usize, _key: &str) {
        self.nodes[node].faults().clock_offset(-3_600_000);
    }

    fn freeze(&self, node: usize) {
        self.nodes[node].faults().freeze();
    }

    fn thaw(&self, node: usize) {
        self.nodes[node].faults().thaw();
    }

    fn restart(&self, node: usize) {
        self.nodes[node].faults().restart_keeping_data();
    }
}

// === impl Sqlite ===

#[cfg(feature = "sqlite")]
impl Stage for Sqlite {
    fn count(&self) -> usize {
        1
    }

    fn connect(&self, _node: usize) -> Arc<dyn Node> {
        use watchkeeper_lock::node::sqlite::SqliteNode;
        let path = self.folder.path().join("locks.db");
        Arc::new(SqliteNode::open(&path, watchkeeper_lock::clock::Clock::system()).unwrap())
    }
}
