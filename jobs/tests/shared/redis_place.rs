//! Redis servers at addresses of their own, for servers that name each other by them: a master and its replicas, nodes of a cluster.
#![allow(dead_code, reason = "every suite uses its own part")]

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use watchkeeper::clock::Clock;

use crate::{server::RedisServer, wait::pause};

/// Where clients ask, and no server of another suite, which may be at every address. Nodes of a cluster meet 10,000 above it.
pub(crate) const PORT: u16 = 12389;

/// The answer to an order.
pub(crate) const OK: &str = "+OK\r\n";

/// Waiting longer than this is a failure: sentinels rest for half a minute after a stall of the machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// From one look to the next: each asks several servers.
const POLL: Duration = Duration::from_millis(50);

/// A server that keeps data. Killed and reaped on drop.
pub(crate) struct Server {
    process: RedisServer,
    pub(crate) host: String,
}

/// An address for one server. All of 127.0.0.0/8 leads to this machine, and connections begin at 127.0.0.1: no other program has
/// a port of it meanwhile, so that a server that was killed can have it again.
pub(crate) fn host() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    // Never 127.0.0.1, and never one that is no server's.
    let number = NEXT.fetch_add(1, Ordering::Relaxed) % 250 + 2;
    format!("127.{high}.{low}.{number}")
}

/// The order that makes the user of the book, with these rights.
pub(crate) fn user_with(rights: &[String]) -> Vec<&str> {
    let words = ["ACL", "SETUSER", "watchkeeper"].into_iter();
    words.chain(rights.iter().map(String::as_str)).collect()
}

/// Waits until `done`, by polling: neither servers nor sentinels give another event.
#[track_caller]
pub(crate) fn in_time(what: &str, mut done: impl FnMut() -> bool) {
    let clock = Clock::system();
    let end = clock.now() + PATIENCE;
    while !done() {
        assert!(clock.now() < end, "waited in vain for {what}");
        pause(POLL);
    }
}

// === impl Server ===

impl Server {
    /// `announces` is the option by which it tells others its address.
    pub(crate) fn start(announces: &str, extra: &[&str]) -> Self {
        let (host, port) = (host(), PORT.to_string());
        let process = {
            let mut options = vec!["--bind", &host, "--port", &port, announces, &host];
            options.extend(["--protected-mode", "no"]);
            // Versions that copy without a file wait five seconds for more replicas otherwise.
            options.extend(["--repl-diskless-sync-delay", "0"]);
            options.extend(extra);
            RedisServer::start_with(&options)
        };
        Self { process, host }
    }

    /// One command, and the raw answer.
    pub(crate) fn tell(&self, words: &[&str]) -> String {
        self.process.raw(words)
    }

    /// As [`Server::tell`], of a server that may stand still or be gone.
    pub(crate) fn told(&self, words: &[&str]) -> Option<String> {
        self.process.raw_or_nothing(words)
    }

    /// One field of what it tells of itself; empty where it does not answer.
    pub(crate) fn info(&self, field: &str) -> String {
        let all = self.told(&["INFO", "replication"]).unwrap_or_default();
        let found = all
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        found.unwrap_or_default().to_owned()
    }

    /// Makes it a replica of another one.
    pub(crate) fn follow(&self, master: &Self) {
        self.told(&["REPLICAOF", &master.host, &PORT.to_string()]);
    }

    /// Whether it is one, and has all that the other one has.
    pub(crate) fn follows(&self, master: &Self) -> bool {
        self.info("master_host") == master.host && self.is_linked()
    }

    /// Whether a replica has all that its master has.
    pub(crate) fn is_linked(&self) -> bool {
        self.info("master_link_status") == "up"
    }

    pub(crate) fn freeze(&self) {
        self.process.freeze();
    }

    pub(crate) fn thaw(&self) {
        self.process.thaw();
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// At the same address, with an empty memory.
    pub(crate) fn restart(&mut self) {
        self.process.restart();
    }
}
