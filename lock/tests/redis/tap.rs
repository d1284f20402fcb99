//! What a server was asked, call by call, as the server itself tells it by `MONITOR`.
//!
//! Self-contained, so that other suites can include it with `#[path]`.
#![allow(dead_code, reason = "every suite uses its own part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{Arc, Mutex},
    thread::JoinHandle,
};

use super::server::RedisServer;

/// EVALSHA, digest, 1, key, and what comes before the number of fields.
const HEAD: usize = 9;
/// Of each lease in a group of extensions: owner, round, token, what was seen; where that is alike, it is said once.
const OF_A_LEASE: usize = 4;
const OF_A_LEASE_ALIKE: usize = 2;
/// Where the short scripts, which have one lock each, have an incarnation, which is so long.
const INC: (usize, usize) = (5, 16);
/// Words of the one that acquires.
const OF_AN_ACQUIRE: usize = 14;

/// Listens to one server from [`Tap::on`] to [`Tap::heard`].
pub(crate) struct Tap {
    stream: UnixStream,
    heard: Arc<Mutex<Heard>>,
    listening: JoinHandle<()>,
}

/// What was asked meanwhile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    /// Calls of scripts, by their first operation.
    pub(crate) calls: BTreeMap<String, u64>,
    /// Leases in calls that extend.
    pub(crate) extended: u64,
    /// Writes of ledgers, several of which may share a call.
    pub(crate) writes: u64,
    /// Records that were looked at, many of which share a call.
    pub(crate) looked: u64,
    /// The bytes of all calls as they were told.
    pub(crate) bytes: u64,
}

// === impl Tap ===

impl Tap {
    pub(crate) fn on(server: &RedisServer) -> Self {
        let mut stream = UnixStream::connect(server.socket()).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert_eq!(line, "+OK\r\n", "the server tells what it is asked");
        let heard = Arc::new(Mutex::new(Heard::default()));
        let hearing = heard.clone();
        let listening = std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                hearing.lock().unwrap().take(&line);
            }
        });
        Self {
            stream,
            heard,
            listening,
        }
    }

    /// What was asked so far.
    pub(crate) fn so_far(&self) -> Heard {
        self.heard.lock().unwrap().clone()
    }

    /// Ends the listening.
    pub(crate) fn heard(self) -> Heard {
        self.stream.shutdown(Shutdown::Both).unwrap();
        self.listening.join().unwrap();
        self.heard.lock().unwrap().clone()
    }
}

// === impl Heard ===

impl Heard {
    /// Calls that extend leases.
    pub(crate) fn extensions(&self) -> u64 {
        self.of("extend") + self.of("extends")
    }

    /// Calls that begin with this operation.
    pub(crate) fn of(&self, operation: &str) -> u64 {
        self.calls.get(operation).copied().unwrap_or(0)
    }

    /// All calls.
    pub(crate) fn all(&self) -> u64 {
        self.calls.values().sum()
    }

    fn take(&mut self, line: &str) {
        // `+1700000000.000001 [0 unix:n.sock] "EVALSHA" "…" …`; what scripts do themselves is marked as `lua`.
        let Some((from, call)) = line.split_once("] \"") else {
            return;
        };
        if from.ends_with(" lua") {
            return;
        }
        let words: Vec<&str> = call.trim_end_matches('"').split("\" \"").collect();
        if !words[0].to_ascii_uppercase().starts_with("EVAL") {
            return;
        }
        let short = words.get(INC.0).is_some_and(|inc| inc.len() == INC.1);
        let fields = words.get(HEAD).and_then(|count| count.parse().ok());
        let begin = HEAD + 1 + fields.unwrap_or(0_usize);
        let mut rest = words.get(begin..).filter(|_| !short).unwrap_or_default();
        let first = match (short, words.len()) {
            (true, OF_AN_ACQUIRE) => "acquire",
            (true, _) => "release",
            (false, _) => rest.first().copied().unwrap_or("nothing"),
        };
        *self.calls.entry(first.to_owned()).or_default() += 1;
        self.bytes += line.len() as u64;
        // A word of its own: that of an operation, for nothing else is called so.
        self.writes += rest.iter().filter(|word| **word == "write").count() as u64;
        self.looked += rest.iter().filter(|word| **word == "read").count() as u64;
        // Extensions share a call with extensions only; those of one ttl are a group.
        while let Some((count, more, each)) = match rest {
            ["extend", _ttl, count, more @ ..] => Some((count, more, OF_A_LEASE)),
            ["extends", _ttl, _seen, count, more @ ..] => Some((count, more, OF_A_LEASE_ALIKE)),
            _ => None,
        } {
            let count: usize = count.parse().unwrap();
            self.extended += count as u64;
            rest = more.get(count * each..).unwrap_or_default();
        }
    }
}
