//! A Redis master with a replica, and the three sentinels that put the one in the place of the other.
#![allow(dead_code, reason = "every suite uses its own part")]

use std::{
    fs,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use watchkeeper::clock::{Clock, Moment};

use crate::{
    redis_place::{self, OK, Server, host, in_time, user_with},
    server::{REMEDY, binary},
};

/// Where a sentinel is asked.
const PORT: u16 = 12390;

/// The master's name.
const MASTER: &str = "m";

/// A sentinel is asked for so long: it may stand still.
const PROMPT: Duration = Duration::from_secs(1);

/// Two servers, the first of which is the master in the beginning, and three sentinels.
pub(crate) struct Sentinels {
    servers: Vec<Server>,
    sentinels: Vec<Sentinel>,
}

/// One sentinel. Killed and reaped on drop.
struct Sentinel {
    child: Child,
    host: String,
    /// Last: the directory goes when the process has gone.
    dir: TempDir,
}

// === impl Sentinels ===

impl Sentinels {
    pub(crate) fn start() -> Self {
        let servers: Vec<Server> = (0..2)
            .map(|_| Server::start("--replica-announce-ip", &[]))
            .collect();
        // Before there is a sentinel: it looks at replicas again ten seconds later.
        servers[1].follow(&servers[0]);
        in_time("the replica", || servers[1].follows(&servers[0]));
        let sentinels = (0..3).map(|_| Sentinel::start(&servers[0])).collect();
        let sentinels = Self { servers, sentinels };
        sentinels.wait_until_ready();
        sentinels
    }

    /// The address for workers.
    pub(crate) fn url(&self) -> String {
        let all = self.sentinels.iter();
        let all: Vec<String> = all.map(|one| format!("{}:{PORT}", one.host)).collect();
        format!("sentinel://{}/{MASTER}", all.join(","))
    }

    /// See [`crate::redis_failover::RedisFailover::with_users`].
    pub(crate) fn with_users(&self, of_servers: &[String], of_sentinels: &[String]) -> String {
        for server in &self.servers {
            assert_eq!(server.tell(&user_with(of_servers)), OK);
        }
        let first = ["on", ">pw"].map(str::to_owned);
        let rights = [&first, of_sentinels].concat();
        for sentinel in &self.sentinels {
            assert_eq!(sentinel.ask(&user_with(&rights)).as_deref(), Some(OK));
        }
        let url = self.url();
        format!("{url}?sentinel_user=watchkeeper&sentinel_password=pw")
    }

    /// Kills the master, and says when most sentinels named another one. It comes back, empty, as a replica of that.
    pub(crate) fn replace_master(&mut self) -> Moment {
        let before = self.wait_until_ready();
        self.servers[before].kill();
        let mut after = before;
        in_time("another master", || {
            after = self.master().unwrap_or(before);
            after != before
        });
        let named = Clock::system().now();
        self.servers[before].restart();
        self.servers[before].follow(&self.servers[after]);
        named
    }

    /// All of them stand still. The sentinels first: they find no server silent.
    pub(crate) fn freeze(&self) {
        self.sentinels.iter().for_each(Sentinel::freeze);
        self.servers.iter().for_each(Server::freeze);
    }

    /// All go on. The sentinels last: they find no server silent.
    pub(crate) fn thaw(&self) {
        self.servers.iter().for_each(Server::thaw);
        self.sentinels.iter().for_each(Sentinel::thaw);
    }

    /// The server that most sentinels name.
    fn master(&self) -> Option<usize> {
        let named = self.sentinels.iter().filter_map(Sentinel::named);
        let named: Vec<String> = named.collect();
        let most = |server: &Server| {
            let votes = named.iter().filter(|host| **host == server.host);
            votes.count() > self.sentinels.len() / 2
        };
        self.servers.iter().position(most)
    }

    /// Waits until every sentinel could put the other server in the place of the master, and says which that is.
    fn wait_until_ready(&self) -> usize {
        let mut found = None;
        in_time("the sentinels", || {
            found = self.master();
            found.is_some_and(|master| {
                let (master, mut all) = (&self.servers[master], self.sentinels.iter());
                all.all(|sentinel| sentinel.is_ready(master))
            })
        });
        found.expect("it was found")
    }
}

// === impl Sentinel ===

impl Sentinel {
    fn start(master: &Server) -> Self {
        let dir = TempDir::with_prefix("wk-sentinel-").expect("a temporary directory");
        let host = host();
        let settings = [
            format!("bind {host}"),
            format!("port {PORT}"),
            "protected-mode no".to_owned(),
            format!("dir {}", dir.path().display()),
            format!("sentinel announce-ip {host}"),
            format!(
                "sentinel monitor {MASTER} {} {} 2",
                master.host,
                redis_place::PORT
            ),
            // Longer than a busy machine keeps a server waiting.
            format!("sentinel down-after-milliseconds {MASTER} 2000"),
            format!("sentinel failover-timeout {MASTER} 5000"),
            format!("sentinel parallel-syncs {MASTER} 1"),
        ];
        let file = dir.path().join("sentinel.conf");
        fs::write(&file, settings.join("\n") + "\n").expect("a file in our own directory");
        let log = fs::File::create(dir.path().join("log")).expect("a log file");
        let child = Command::new(binary().expect(REMEDY))
            .arg(&file)
            .arg("--sentinel")
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log file"))
            .stderr(log)
            .spawn()
            .expect("the sentinel starts");
        Self { child, host, dir }
    }

    /// The host of the master that it names.
    fn named(&self) -> Option<String> {
        let told = self.ask(&["SENTINEL", "MASTER", MASTER])?;
        values(&told, "ip").first().map(|&host| host.to_owned())
    }

    /// Whether it knows all that it needs to put another one in the place of this master.
    fn is_ready(&self, master: &Server) -> bool {
        let ask = |what| self.ask(&["SENTINEL", what, MASTER]);
        let (Some(of_master), Some(of_replicas)) = (ask("MASTER"), ask("REPLICAS")) else {
            return false;
        };
        let is = |field: &str, wanted: &str| values(&of_master, field) == [wanted];
        let replicas = values(&of_replicas, "flags").into_iter();
        let mut replicas = replicas.zip(values(&of_replicas, "master-link-status"));
        is("flags", "master")
            && is("ip", master.host.as_str())
            && is("num-other-sentinels", "2")
            && replicas.any(|replica| replica == ("slave", "ok"))
    }

    fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("our own child");
    }

    /// One command, and the raw answer; none where it stands still.
    fn ask(&self, words: &[&str]) -> Option<String> {
        let address = format!("{}:{PORT}", self.host);
        let address: SocketAddr = address.parse().expect("an address");
        exchange(address, words).ok()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            eprintln!("--- log of the sentinel at {} ---\n{log}", self.host);
        }
    }
}

fn exchange(address: SocketAddr, words: &[&str]) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PROMPT)?;
    stream.set_read_timeout(Some(PROMPT))?;
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(request.as_bytes())?;
    // Nothing more to come from us: the sentinel answers, then closes.
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// What stands behind this name in an answer of names and values, each time.
fn values<'a>(told: &'a str, name: &str) -> Vec<&'a str> {
    let lines: Vec<&str> = told.lines().collect();
    let found = lines.windows(3).filter(|three| three[0] == name);
    found.map(|three| three[2]).collect()
}
