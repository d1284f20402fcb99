//! Where the locks of a scene live: a file, or three Redis masters of its own.

use std::{path::Path, sync::OnceLock};

use crate::server::RedisServer;

/// The store of one scene.
pub(crate) enum Store {
    /// A SQLite file in the scene's folder.
    Embedded(OnceLock<String>),
    /// Three masters.
    Masters(Box<[RedisServer; 3]>),
}

// === impl Store ===

impl Store {
    pub(crate) fn embedded() -> Self {
        Self::Embedded(OnceLock::new())
    }

    pub(crate) fn masters() -> Self {
        Self::Masters(Box::new([(); 3].map(|()| RedisServer::start())))
    }

    /// The options that name it.
    pub(crate) fn options(&self, folder: &Path) -> Vec<String> {
        match self {
            Self::Embedded(path) => {
                let path = path.get_or_init(|| folder.join("store.db").display().to_string());
                vec!["--embedded".to_owned(), path.clone()]
            }
            Self::Masters(servers) => {
                let urls = servers.each_ref().map(RedisServer::url);
                vec!["--nodes".to_owned(), urls.join(",")]
            }
        }
    }

    /// What stands in a configuration below `[locks]`.
    pub(crate) fn settings(&self, folder: &Path) -> String {
        match self {
            Self::Embedded(_) => {
                let path = folder.join("store.db");
                format!("backend = \"embedded\"\nembedded.path = {path:?}\n")
            }
            Self::Masters(servers) => {
                let urls = servers.each_ref().map(RedisServer::url);
                format!("backend = \"redis\"\nrestart_guard = \"off\"\nredis.nodes = {urls:?}\n")
            }
        }
    }

    /// The masters, in cases that are only for them.
    pub(crate) fn servers(&self) -> &[RedisServer; 3] {
        match self {
            Self::Masters(servers) => servers,
            Self::Embedded(_) => panic!("this case is for masters"),
        }
    }

    /// Whether whoever waits for a lock watches its holder, because the store's clocks may jump.
    pub(crate) fn is_observed(&self) -> bool {
        matches!(self, Self::Masters(_))
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Embedded(_) => "embedded",
            Self::Masters(_) => "masters",
        }
    }
}
