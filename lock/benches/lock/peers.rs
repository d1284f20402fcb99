//! Other clients of Redlock in the same run: the programs of `tests/interop`, driven line by line, one process each as long as
//! its servers live. They keep their connections, as ours do.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use crate::{
    Plan,
    raw::TTL_MS,
    server::RedisServer,
    table::{Row, Table},
};

/// With more nodes the others are not tried.
const MOST_NODES: usize = 3;

/// Whose client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Rslock,
    NodeRedlock,
}

/// A running client of somebody else's. Killed and reaped on drop.
pub(crate) struct Program {
    pub(crate) peer: Peer,
    child: Child,
    output: BufReader<ChildStdout>,
}

/// What a client did, as it tells itself.
pub(crate) struct Cycled {
    pub(crate) cycles: usize,
    pub(crate) failed: usize,
    pub(crate) time: Duration,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

/// The same of clients that want one lock.
pub(crate) struct Contended {
    pub(crate) time: Duration,
    pub(crate) p50: Duration,
    pub(crate) longest: Duration,
}

// === impl Peer ===

impl Peer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rslock => "rslock 0.10",
            Self::NodeRedlock => "node-redlock 5",
        }
    }

    /// How it is started, or why it cannot be.
    fn command(self, plan: &Plan) -> Result<Command, &'static str> {
        match self {
            Self::Rslock => {
                let program = cache().join("rslock/release/watchkeeper-interop");
                if !program.is_file() {
                    return Err("no rslock: run tests/interop/install peers");
                }
                let mut command = Command::new(program);
                command.arg(format!("--workers={}", plan.workers));
                Ok(command)
            }
            Self::NodeRedlock => {
                let runs = Command::new("node").arg("--version").output();
                if !runs.is_ok_and(|said| said.status.success()) {
                    return Err(
                        "no node: install Node.js and npm, run tests/interop/install peers",
                    );
                }
                let modules = cache().join("node_modules");
                if !modules.join("redlock").is_dir() || !modules.join("ioredis").is_dir() {
                    return Err("no redlock for node: run tests/interop/install peers");
                }
                let here = Path::new(env!("CARGO_MANIFEST_DIR"));
                let mut command = Command::new("node");
                command.arg(here.join("../tests/interop/redlock.js"));
                command.env("NODE_PATH", modules);
                Ok(command)
            }
        }
    }

    /// One of each, on up to three servers; of one that is not installed a row tells why.
    pub(crate) fn start_all(
        plan: &Plan,
        servers: &[RedisServer],
        table: &mut Table,
    ) -> Vec<Program> {
        let nodes = servers.len();
        if nodes > MOST_NODES {
            return Vec::new();
        }
        let mut started = Vec::new();
        for peer in [Self::Rslock, Self::NodeRedlock] {
            match peer.start(plan, servers) {
                Ok(program) => started.push(program),
                Err(why) => {
                    table.add(Row::new(peer.name(), nodes).ours(format!("ignored: {why}")));
                }
            }
        }
        started
    }

    fn start(self, plan: &Plan, servers: &[RedisServer]) -> Result<Program, &'static str> {
        let mut child = self
            .command(plan)?
            .args(servers.iter().map(RedisServer::socket))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Ok(Program {
            peer: self,
            child,
            output,
        })
    }
}

/// Where `tests/interop/install` puts what it installs: beside what cargo builds.
fn cache() -> PathBuf {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    tmp.parent().unwrap_or(tmp).join("interop")
}

// === impl Program ===

impl Program {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Keeps it busy with so many cycles at a time, each on a key of its own.
    pub(crate) fn cycle(&mut self, at_a_time: usize, busy: Duration) -> Cycled {
        let key = format!("peer/{:?}/cycle", self.peer);
        let busy = busy.as_millis();
        let said = self.order(&format!("cycle {key} {TTL_MS} {at_a_time} {busy}"));
        let [cycles, failed, time, p50, p99] = said[..] else {
            panic!("{}: {said:?}", self.peer.name());
        };
        Cycled {
            cycles: usize::try_from(cycles).unwrap(),
            failed: usize::try_from(failed).unwrap(),
            time: Duration::from_micros(time),
            p50: Duration::from_micros(p50),
            p99: Duration::from_micros(p99),
        }
    }

    /// So many clients in it take turns at one lock.
    pub(crate) fn contend(&mut self, clients: usize, turns: usize, hold: Duration) -> Contended {
        let key = format!("peer/{:?}/wanted", self.peer);
        let hold = hold.as_millis();
        let said = self.order(&format!("contend {key} {TTL_MS} {clients} {turns} {hold}"));
        let [_, time, p50, _, longest] = said[..] else {
            panic!("{}: {said:?}", self.peer.name());
        };
        Contended {
            time: Duration::from_micros(time),
            p50: Duration::from_micros(p50),
            longest: Duration::from_micros(longest),
        }
    }

    /// The numbers of its answer. Blocks: nothing of ours has anything to do meanwhile.
    fn order(&mut self, order: &str) -> Vec<u64> {
        writeln!(self.child.stdin.as_mut().unwrap(), "{order}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let mut words = line.split_whitespace();
        words
            .next()
            .unwrap_or_else(|| panic!("{} ended at: {order}", self.peer.name()));
        words.map(|word| word.parse().unwrap()).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
