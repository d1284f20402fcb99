//! Where the locks of a scene live: a file, three Redis masters, a Redis whose master others replace, etcd servers of its own, or a
//! PostgreSQL database.

use std::{iter, path::Path, sync::OnceLock};

#[cfg(feature = "postgres")]
use crate::database::Database;
#[cfg(feature = "etcd")]
use crate::etcd::Etcd;
use crate::{
    redis_failover::{MAX_TTL, RedisFailover},
    server::RedisServer,
};

/// The store of one scene.
pub(crate) enum Store {
    /// A SQLite file in the scene's folder.
    Embedded(OnceLock<String>),
    /// Three masters.
    Masters(Box<[RedisServer; 3]>),
    /// A server in whose place another one is put, by Sentinel or in a Cluster.
    Failover(RedisFailover),
    /// A schema of a PostgreSQL database.
    #[cfg(feature = "postgres")]
    Postgres(Database),
    /// An etcd cluster of one member, or of three.
    #[cfg(feature = "etcd")]
    Etcd(Etcd),
}

// === impl Store ===

impl Store {
    pub(crate) fn embedded() -> Self {
        Self::Embedded(OnceLock::new())
    }

    pub(crate) fn masters() -> Self {
        Self::Masters(Box::new([(); 3].map(|()| RedisServer::start())))
    }

    pub(crate) fn sentinel() -> Self {
        Self::Failover(RedisFailover::sentinel())
    }

    pub(crate) fn cluster() -> Self {
        Self::Failover(RedisFailover::cluster())
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn postgres() -> Self {
        Self::Postgres(Database::new())
    }

    /// A server of its own, to which anything may happen.
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres_own() -> Self {
        Self::Postgres(Database::own())
    }

    #[cfg(feature = "etcd")]
    pub(crate) fn etcd() -> Self {
        Self::Etcd(Etcd::new())
    }

    #[cfg(feature = "etcd")]
    pub(crate) fn etcd_cluster() -> Self {
        Self::Etcd(Etcd::cluster())
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
            Self::Failover(failover) => vec!["--nodes".to_owned(), failover.url().to_owned()],
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => vec!["--postgres".to_owned(), database.url()],
            #[cfg(feature = "etcd")]
            Self::Etcd(etcd) => {
                let options = etcd.urls().iter();
                options
                    .flat_map(|url| ["--etcd".to_owned(), url.clone()])
                    .collect()
            }
        }
    }

    /// What the options do not say.
    pub(crate) fn env(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Failover(_) => {
                let max_ttl = format!("{}s", MAX_TTL.as_secs());
                vec![
                    // Nothing else is accepted, and it is watched for the longest lease and six seconds.
                    ("WATCHKEEPER_LOCKS__RESTART_GUARD", "call".to_owned()),
                    ("WATCHKEEPER_LOCKS__TTL", max_ttl.clone()),
                    ("WATCHKEEPER_LOCKS__MAX_TTL", max_ttl),
                    ("WATCHKEEPER_LOCKS__REDIS__NODE_TIMEOUT", "100ms".to_owned()),
                ]
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => vec![
                (
                    "WATCHKEEPER_LOCKS__POSTGRES__SCHEMA",
                    database.schema().to_owned(),
                ),
                (
                    "WATCHKEEPER_LOCKS__POSTGRES__NODE_TIMEOUT",
                    "100ms".to_owned(),
                ),
            ],
            #[cfg(feature = "etcd")]
            Self::Etcd(_) => vec![("WATCHKEEPER_LOCKS__ETCD__NODE_TIMEOUT", "100ms".to_owned())],
            _ => Vec::new(),
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
            Self::Failover(failover) => failover.settings(),
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.settings(),
            #[cfg(feature = "etcd")]
            Self::Etcd(etcd) => etcd.settings(),
        }
    }

    /// The masters, in cases that are only for them.
    pub(crate) fn servers(&self) -> &[RedisServer; 3] {
        match self {
            Self::Masters(servers) => servers,
            _ => panic!("this case is for masters"),
        }
    }

    /// The servers that are replaced, in cases that are only for them.
    pub(crate) fn failover(&self) -> &RedisFailover {
        match self {
            Self::Failover(failover) => failover,
            _ => panic!("this case is for servers that are replaced"),
        }
    }

    /// Takes the majority away: two masters stand still, or the server does.
    pub(crate) fn block(&self) {
        match self {
            Self::Masters(servers) => servers[..2].iter().for_each(RedisServer::freeze),
            Self::Failover(failover) => failover.block(),
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.block(),
            #[cfg(feature = "etcd")]
            Self::Etcd(etcd) => etcd.block(),
            Self::Embedded(_) => panic!("a file does not stand still"),
        }
    }

    /// Gives it back: one of the masters goes on, or the server does.
    pub(crate) fn unblock(&self) {
        match self {
            Self::Masters(servers) => servers[0].thaw(),
            Self::Failover(failover) => failover.unblock(),
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.unblock(),
            #[cfg(feature = "etcd")]
            Self::Etcd(etcd) => etcd.unblock(),
            Self::Embedded(_) => panic!("a file does not stand still"),
        }
    }

    /// What is said of it meanwhile: how many nodes answer, and which do not.
    pub(crate) fn blocked(&self) -> Vec<String> {
        match self {
            Self::Masters(servers) => {
                let silent = servers[..2].iter().map(RedisServer::socket);
                let silent = silent.map(|socket| socket.display().to_string());
                let all = iter::once("1 of 3 nodes answer, 2 needed; ".to_owned());
                all.chain(silent).collect()
            }
            other => vec![format!("0 of 1 nodes answer, 1 needed; {}: ", other.name())],
        }
    }

    /// The only server ends in the middle of whatever it does, and starts again, in cases that are only for those.
    #[cfg(any(feature = "postgres", feature = "etcd"))]
    pub(crate) fn crash(&self) {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.crash(),
            #[cfg(feature = "etcd")]
            Self::Etcd(etcd) => etcd.crash(),
            _ => panic!("this case is for a server that remembers"),
        }
    }

    /// Whether whoever waits for a lock watches its holder, because the store's clocks may jump.
    pub(crate) fn is_observed(&self) -> bool {
        !matches!(self, Self::Embedded(_))
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Embedded(_) => "embedded",
            Self::Masters(_) => "masters",
            Self::Failover(failover) => failover.name(),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => "postgres",
            #[cfg(feature = "etcd")]
            Self::Etcd(etcd) => etcd.name(),
        }
    }
}
