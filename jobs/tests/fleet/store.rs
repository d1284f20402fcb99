//! Where a fleet keeps its locks: a file, or three Redis masters of its own.

use std::path::Path;

use crate::server::RedisServer;

/// The store of one fleet.
pub(crate) enum Store {
    /// A SQLite file in the fleet's folder.
    Embedded,
    /// Three masters.
    Masters([RedisServer; 3]),
}

// === impl Store ===

impl Store {
    pub(crate) fn embedded() -> Self {
        Self::Embedded
    }

    /// Three healthy masters.
    pub(crate) fn masters() -> Self {
        Self::Masters([(); 3].map(|()| RedisServer::start()))
    }

    /// Three masters, one of them frozen from the start and for good.
    pub(crate) fn masters_one_frozen() -> Self {
        let masters = Self::masters();
        masters.freeze(1);
        masters
    }

    /// Freezes one master.
    pub(crate) fn freeze(&self, node: usize) {
        if let Self::Masters(servers) = self {
            servers[node].freeze();
        }
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self, node: usize) {
        if let Self::Masters(servers) = self {
            servers[node].thaw();
        }
    }

    /// What stands in the configuration below `[locks]`.
    pub(crate) fn settings(&self, folder: &Path) -> String {
        match self {
            Self::Embedded => {
                let path = folder.join("store.db");
                format!("backend = \"embedded\"\nembedded.path = {path:?}\n")
            }
            Self::Masters(servers) => {
                let urls = servers.each_ref().map(RedisServer::url);
                format!("backend = \"redis\"\nredis.nodes = {urls:?}\n")
            }
        }
    }

    /// How soon the next leader must lead after a hand-over, in the median.
    pub(crate) fn hand_over_limit(&self) -> std::time::Duration {
        std::time::Duration::from_millis(match self {
            Self::Embedded => 300,
            Self::Masters(_) => 100,
        })
    }
}
