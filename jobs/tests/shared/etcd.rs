//! etcd for cases that keep their locks in it: a server for each of them, or three members of one cluster.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{etcd_members::EtcdCluster, etcd_server::EtcdServer};

/// The locks of one scene.
pub(crate) struct Etcd {
    urls: Vec<String>,
    /// Whether the restart guard is on.
    guarded: bool,
    servers: Mutex<Servers>,
}

enum Servers {
    One(EtcdServer),
    Three(EtcdCluster),
}

#[allow(dead_code, reason = "each suite uses its own part")]
impl Etcd {
    /// A single member.
    pub(crate) fn new() -> Self {
        let server = EtcdServer::start();
        Self {
            urls: vec![server.url()],
            guarded: false,
            servers: Mutex::new(Servers::One(server)),
        }
    }

    /// A single member, for a fleet with its restart guard on.
    pub(crate) fn guarded() -> Self {
        Self {
            guarded: true,
            ..Self::new()
        }
    }

    /// Three members.
    pub(crate) fn cluster() -> Self {
        let cluster = EtcdCluster::start();
        Self {
            urls: cluster.urls(),
            guarded: false,
            servers: Mutex::new(Servers::Three(cluster)),
        }
    }

    /// One more of the same sort.
    pub(crate) fn another(&self) -> Self {
        let another = match &*self.servers() {
            Servers::One(_) => Self::new(),
            Servers::Three(_) => Self::cluster(),
        };
        Self {
            guarded: self.guarded,
            ..another
        }
    }

    /// The addresses of all members.
    pub(crate) fn urls(&self) -> &[String] {
        &self.urls
    }

    /// What stands in the configuration below `[locks]`.
    ///
    /// The guard waits for a memory that was lost, or is new. These members lose none: they are killed with all that they have
    /// written, and nothing is restored from a backup. So most cases do without it, lest what they measure is the founding of a
    /// fleet; those of [`Etcd::guarded`] show that the guard waits for nothing but that.
    pub(crate) fn settings(&self) -> String {
        let guard = match self.guarded {
            true => "max_ttl = \"2s\"",
            false => "restart_guard = \"off\"",
        };
        format!(
            "backend = \"etcd\"\n{guard}\netcd.endpoints = {:?}\netcd.node_timeout = \"100ms\"\n",
            self.urls
        )
    }

    /// Ends the server in the middle of whatever it does, and starts it again. Of three the leadership moves to another one, and
    /// that one is killed.
    pub(crate) fn crash(&self) {
        match &mut *self.servers() {
            Servers::One(server) => {
                server.kill();
                server.start_again();
            }
            Servers::Three(cluster) => {
                let leader = cluster.move_leader();
                cluster.kill(leader);
                cluster.start_again(leader);
            }
        }
    }

    /// Does this to the members, in cases that are only for three of them.
    pub(crate) fn with_members<T>(&self, act: impl FnOnce(&mut EtcdCluster) -> T) -> T {
        match &mut *self.servers() {
            Servers::Three(cluster) => act(cluster),
            Servers::One(_) => panic!("this case is for three members"),
        }
    }

    /// Takes the majority away: the server freezes, or two of three do.
    pub(crate) fn block(&self) {
        match &*self.servers() {
            Servers::One(server) => server.freeze(),
            Servers::Three(cluster) => (0..2).for_each(|member| cluster.freeze(member)),
        }
    }

    /// Gives it back: the server goes on, or one of the two.
    pub(crate) fn unblock(&self) {
        match &*self.servers() {
            Servers::One(server) => server.thaw(),
            Servers::Three(cluster) => cluster.thaw(0),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match &*self.servers() {
            Servers::One(_) if self.guarded => "etcd, guarded",
            Servers::One(_) => "etcd",
            Servers::Three(_) => "etcd, three members",
        }
    }

    fn servers(&self) -> MutexGuard<'_, Servers> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
