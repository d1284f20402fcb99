//! Independent masters without persistence, and what happens to them: freeze, forget, flush, a clock that steps, a
//! failover, a copy, another's address. The address of a node outlives its server, as a name or a floating address does.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::unix::{fs::symlink, net::UnixStream},
    path::PathBuf,
    time::Duration,
};

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

/// A replica of a node, which may take its place.
pub(crate) struct Follower {
    server: RedisServer,
    /// Where its clock stands among those of all servers.
    clock: usize,
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
            .map(|address| {
                let url = format!("unix://{}", address.display());
                settings(&url, node_timeout, raw_keys)
            })
            .collect()
    }

    pub(crate) fn freeze(&self, n: usize) {
        self.servers[n].freeze();
    }

    pub(crate) fn thaw(&self, n: usize) {
        self.servers[n].thaw();
    }

    /// It is gone: nothing listens at its address.
    pub(crate) fn kill(&mut self, n: usize) {
        self.servers[n].kill();
    }

    /// A power cut: another process, without memory, at the same address.
    pub(crate) fn forget(&mut self, n: usize) {
        self.servers[n].kill();
        _ = fs::remove_file(self.copy(n));
        self.servers[n].restart();
    }

    /// Writes a copy of its memory beside it; whether it could.
    pub(crate) fn save(&self, n: usize) -> bool {
        // A server that is being tortured may hang up.
        self.servers[n].raw_or_nothing(&["SAVE"]).as_deref() == Some("+OK\r\n")
    }

    /// Another process at the same address, which has what the copy has.
    pub(crate) fn restore(&mut self, n: usize) {
        self.servers[n].restart();
        _ = fs::remove_file(self.copy(n));
    }

    fn copy(&self, n: usize) -> PathBuf {
        self.servers[n].folder().join("dump.rdb")
    }

    /// Asks for all that it keeps, as a replica does, and goes away while it is told.
    pub(crate) fn back_up(&self, n: usize) {
        let mut stream = UnixStream::connect(self.servers[n].socket()).expect("it listens");
        let limit = Some(Duration::from_millis(100));
        stream.set_read_timeout(limit).expect("a socket of ours");
        stream.write_all(b"SYNC\r\n").expect("it listens");
        let mut some = [0; 64];
        _ = stream.read(&mut some);
        _ = stream.read(&mut some);
    }

    /// A new replica, which is not waited for.
    pub(crate) fn follower(&mut self, n: usize) -> Follower {
        let port = free_port().to_string();
        self.tell(n, &["CONFIG", "SET", "port", &port]);
        let clock = self.clocks.len();
        let env = self.new_clock(&format!("clock{clock}"));
        let server = RedisServer::start_under(&["--repl-diskless-sync-delay", "0"], env);
        server.raw(&["REPLICAOF", "127.0.0.1", &port]);
        Follower { server, clock }
    }

    /// A failover by hand: the node dies, and its replica takes its place with what has reached it.
    pub(crate) fn replace(&mut self, n: usize, follower: Follower) {
        self.servers[n].kill();
        follower.server.raw(&["REPLICAOF", "NO", "ONE"]);
        self.servers[n] = follower.server;
        if follower.clock < self.clocks.len() {
            self.clocks.swap(n, follower.clock);
        }
        self.point(n);
    }

    /// Its address leads to another node, for all clients: their connections end.
    pub(crate) fn lead_to(&self, n: usize, other: usize) {
        let address = self.address(n);
        _ = fs::remove_file(&address);
        symlink(self.servers[other].socket(), address).expect("a link in our own folder");
        self.tell(n, &["CLIENT", "KILL", "TYPE", "normal"]);
    }

    /// Every address leads to its own node again. All connections of all nodes end: some lead elsewhere.
    pub(crate) fn lead_back(&self, n: usize) {
        self.point(n);
        for server in &self.servers {
            server.raw_or_nothing(&["CLIENT", "KILL", "TYPE", "normal"]);
        }
    }

    /// A command whose answer does not matter.
    pub(crate) fn tell(&self, n: usize, words: &[&str]) {
        self.servers[n].raw_or_nothing(words);
    }

    /// What it answers.
    pub(crate) fn asked(&self, n: usize, words: &[&str]) -> String {
        let told = self.servers[n].raw_or_nothing(words);
        told.unwrap_or_else(|| "no answer".to_owned())
    }

    /// An operator empties it: same process, same connections, no memory.
    pub(crate) fn flush(&self, n: usize) {
        // A `CLIENT KILL` that waited in a frozen server ends this connection, too.
        until("an empty memory", || {
            self.servers[n].raw_or_nothing(&["FLUSHALL"]).as_deref() == Some("+OK\r\n")
        });
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

/// How a client of ours reaches a node.
pub(crate) fn settings(url: &str, node_timeout: Duration, raw_keys: bool) -> RedisNodeSettings {
    RedisNodeSettings {
        url: url.into(),
        username: None,
        password: None,
        tls: TlsFiles::default(),
        node_timeout,
        namespace: "app".to_owned(),
        raw_keys,
        guard: GuardSettings::default(),
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
