//! A Redis whose master others replace, for cases that keep their locks in it: behind Sentinel, or in a Cluster.
#![allow(dead_code, reason = "every suite uses its own part")]

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use watchkeeper::clock::Moment;

use crate::{redis_cluster::RedisCluster, redis_sentinel::Sentinels};

/// The longest lease, and so the shortest watch.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(2);

/// For so long a server is watched before it votes: one that has just been started as well as one that was promoted.
pub(crate) const WATCHED: Duration = MAX_TTL.saturating_add(Duration::from_secs(6));

/// The locks of one scene.
pub(crate) struct RedisFailover {
    url: String,
    servers: Mutex<Servers>,
}

enum Servers {
    Sentinel(Sentinels),
    Cluster(RedisCluster),
}

// === impl RedisFailover ===

impl RedisFailover {
    /// A master, a replica and three sentinels.
    pub(crate) fn sentinel() -> Self {
        let sentinels = Sentinels::start();
        Self {
            url: sentinels.url(),
            servers: Mutex::new(Servers::Sentinel(sentinels)),
        }
    }

    /// Three masters, and replicas of the one that keeps the locks.
    pub(crate) fn cluster() -> Self {
        let cluster = RedisCluster::start();
        Self {
            url: cluster.url(),
            servers: Mutex::new(Servers::Cluster(cluster)),
        }
    }

    /// One more of the same sort.
    pub(crate) fn another(&self) -> Self {
        match &*self.servers() {
            Servers::Sentinel(_) => Self::sentinel(),
            Servers::Cluster(_) => Self::cluster(),
        }
    }

    /// The address of the one node that it is.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Makes a user with these rights on all servers, and one for those that replace them, who is in this address: `watchkeeper` with
    /// the password `pw`.
    pub(crate) fn with_users(&self, of_servers: &[String], of_sentinels: &[String]) -> String {
        match &*self.servers() {
            Servers::Sentinel(sentinels) => sentinels.with_users(of_servers, of_sentinels),
            Servers::Cluster(cluster) => cluster.with_user(of_servers),
        }
    }

    /// What stands in the configuration below `[locks]`.
    pub(crate) fn settings(&self) -> String {
        let (max_ttl, urls) = (MAX_TTL.as_secs(), [&self.url]);
        format!(
            "backend = \"redis\"\nmax_ttl = \"{max_ttl}s\"\nredis.nodes = {urls:?}\nredis.node_timeout = \"100ms\"\n"
        )
    }

    /// Kills the master that keeps the locks, and says when another server was named in its place. It comes back as a replica.
    pub(crate) fn replace_master(&self) -> Moment {
        match &mut *self.servers() {
            Servers::Sentinel(sentinels) => sentinels.replace_master(),
            Servers::Cluster(cluster) => cluster.replace_master(),
        }
    }

    /// All servers stand still: none takes another's place.
    pub(crate) fn block(&self) {
        match &*self.servers() {
            Servers::Sentinel(sentinels) => sentinels.freeze(),
            Servers::Cluster(cluster) => cluster.freeze(),
        }
    }

    /// All go on.
    pub(crate) fn unblock(&self) {
        match &*self.servers() {
            Servers::Sentinel(sentinels) => sentinels.thaw(),
            Servers::Cluster(cluster) => cluster.thaw(),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match &*self.servers() {
            Servers::Sentinel(_) => "sentinel",
            Servers::Cluster(_) => "cluster",
        }
    }

    fn servers(&self) -> MutexGuard<'_, Servers> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
