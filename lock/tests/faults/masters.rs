//! Independent masters without persistence, and what happens to them: freeze, forget, flush, a clock that steps, a
//! failover. The address of a node outlives its server, as a name or a floating address does.

use std::{fs, net::TcpListener, os::unix::fs::symlink, path::PathBuf, time::Duration};

use tempfile::TempDir;
use watchkeeper_lock::node::{
    GuardSettings,
    redis::{RedisNodeSettings, TlsFiles},
};

use crate::{server::RedisServer, shim, shim::NodeClock};

pub(crate) struct Masters {
    servers: Vec<RedisServer>,
    clocks: Vec<NodeClock>,
    /// Last: servers write here.
    folder: TempDir,
}

// === impl Masters ===

impl Masters {
    /// So many empty masters. Their clocks can be stepped where there is a C compiler.
    pub(crate) fn start(count: usize) -> Self {
        Self::start_with(count, &[])
    }

    /// The same with more options.
    pub(crate) fn start_with(count: usize, extra: &[&str]) -> Self {
        let folder = TempDir::with_prefix("wk-masters-").expect("a temporary directory");
        let mut masters = Self {
            servers: Vec::new(),
            clocks: Vec::new(),
            folder,
        };
        for n in 0..count {
            let env = masters.new_clock(&format!("clock{n}"));
            let server = RedisServer::start_under(extra, env);
            masters.servers.push(server);
            masters.point(n);
        }
        masters
    }

    pub(crate) fn len(&self) -> usize {
        self.servers.len()
    }

    /// The server behind a node's address.
    pub(crate) fn server(&self, n: usize) -> &RedisServer {
        &self.servers[n]
    }

    /// The sockets of all nodes.
    pub(crate) fn addresses(&self) -> Vec<PathBuf> {
        (0..self.len()).map(|n| self.address(n)).collect()
    }

    /// How a client of ours reaches each node.
    pub(crate) fn settings(
        &self,
        node_timeout: Duration,
        raw_keys: bool,
    ) -> Vec<RedisNodeSettings> {
        let addresses = self.addresses().into_iter();
        addresses
            .map(|address| RedisNodeSettings {
                url: format!("unix://{}", address.display()).into(),
                username: None,
                password: None,
                tls: TlsFiles::default(),
                node_timeout,
                namespace: "app".to_owned(),
                raw_keys,
                guard: GuardSettings::default(),
            })
            .collect()
    }

    pub(crate) fn freeze(&self, n: usize) {
        self.servers[n].freeze();
    }

    pub(crate) fn thaw(&self, n: usize) {
        self.servers[n].thaw();
    }

    /// A power cut: another process, without memory, at the same address.
    pub(crate) fn forget(&mut self, n: usize) {
        self.servers[n].restart();
    }

    /// An operator empties it: same process, same connections, no memory.
    pub(crate) fn flush(&self, n: usize) {
        assert_eq!(self.servers[n].raw(&["FLUSHALL"]), "+OK\r\n");
    }

    /// Steps its wall clock to `seconds` after the true time while it runs.
    pub(crate) fn step(&self, n: usize, seconds: i64) {
        self.clocks[n].set(seconds);
    }

    /// A replica of this node that follows it.
    pub(crate) fn replica(&mut self, n: usize) -> RedisServer {
        let port = free_port();
        let opened = self.servers[n].raw(&["CONFIG", "SET", "port", &port.to_string()]);
        assert_eq!(opened, "+OK\r\n");
        let env = self.new_clock("clock-of-replica");
        let replica = RedisServer::start_under(&["--replicaof", &format!("127.0.0.1 {port}")], env);
        let follows = "master_link_status:up\r\n";
        until("the replica to follow", || {
            replica.raw(&["INFO", "replication"]).contains(follows)
        });
        replica
    }

    /// The replica follows no longer, but does not know why: what is written from now on does not reach it.
    pub(crate) fn cut(&self, replica: &RedisServer) {
        // There is no server there.
        assert_eq!(replica.raw(&["REPLICAOF", "127.0.0.1", "1"]), "+OK\r\n");
    }

    /// A failover: the master dies, and the replica takes its place and its address.
    pub(crate) fn promote(&mut self, n: usize, replica: RedisServer) {
        self.servers[n].kill();
        assert_eq!(replica.raw(&["REPLICAOF", "NO", "ONE"]), "+OK\r\n");
        self.servers[n] = replica;
        self.point(n);
    }

    fn address(&self, n: usize) -> PathBuf {
        self.folder.path().join(format!("node{n}.sock"))
    }

    fn point(&self, n: usize) {
        let address = self.address(n);
        _ = fs::remove_file(&address);
        symlink(self.servers[n].socket(), address).expect("a link in our own folder");
    }

    fn new_clock(&mut self, name: &str) -> Vec<(String, String)> {
        if shim::shim().is_err() {
            return Vec::new();
        }
        let clock = NodeClock::new(self.folder.path(), name);
        let env = clock.env();
        self.clocks.push(clock);
        env
    }
}

/// Waits until `done`, by polling: a server gives no event.
#[allow(clippy::disallowed_methods, reason = "a server gives no event")]
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{what}: not within 10 s");
}

fn free_port() -> u16 {
    let any = TcpListener::bind("127.0.0.1:0").expect("a free port");
    any.local_addr().expect("a bound port").port()
}
