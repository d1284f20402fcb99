//! Empty nodes that need no server, for the suite of every store.

use std::sync::Arc;

#[cfg(feature = "sqlite")]
use watchkeeper_lock::node::sqlite::SqliteNode;
use watchkeeper_lock::{
    clock::Clock,
    conformance::Lab,
    node::{Node, memory::MemoryNode},
};

/// A node in memory.
pub(crate) async fn memory() -> Lab {
    let node = MemoryNode::new("memory", Clock::system());
    Lab::new((), move || {
        let client: Arc<dyn Node> = Arc::new(node.clone());
        Box::pin(async move { client })
    })
}

/// A SQLite file; every client opens it anew, as another process would.
#[cfg(feature = "sqlite")]
pub(crate) async fn sqlite() -> Lab {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    Lab::new(folder, move || {
        let client: Arc<dyn Node> = Arc::new(SqliteNode::open(&path, Clock::system()).unwrap());
        Box::pin(async move { client })
    })
}
