//! A server that keeps data, at a port of its own, and how it is asked past every client library.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use super::PATIENT;
use crate::server::RedisServer;

/// A server that may stand still or be gone is asked for so long.
pub(crate) const PROMPT: Duration = Duration::from_secs(1);

pub(crate) const OK: &str = "+OK\r\n";

/// Where a cluster's servers talk to each other, above the port of their clients.
const BUS: u16 = 10_000;

/// Ports for servers, and the lowest of them: below those that the system gives to connections, as those of their bus are.
const PORTS: u32 = 7_000;
const LOWEST: u32 = 13_000;

/// Where a server or a sentinel is.
pub(crate) struct Endpoint {
    /// Where it listens, and where a case asks it.
    pub(crate) port: String,
    /// By which all others know it: another one where it is that of TLS, or of a proxy.
    pub(crate) known: String,
    /// What it is told for that: names and values, as in its file.
    pub(crate) settings: Vec<(&'static str, String)>,
}

/// A server that keeps data, at a port of its own.
pub(crate) struct Server {
    process: RedisServer,
    port: String,
    /// By which all others know it.
    pub(crate) known: String,
    password: Option<&'static str>,
}

// === impl Endpoint ===

impl Endpoint {
    /// One where nothing is special.
    pub(crate) fn plain() -> Self {
        let port = quiet_port();
        Self {
            known: port.clone(),
            port,
            settings: Vec::new(),
        }
    }
}

// === impl Server ===

impl Server {
    pub(crate) fn start(
        endpoint: Endpoint,
        password: Option<&'static str>,
        extra: &[&str],
    ) -> Self {
        let Endpoint {
            port,
            known,
            settings,
        } = endpoint;
        let process = {
            // Versions that copy without a file wait five seconds for more replicas otherwise.
            let mut options = vec!["--port", port.as_str(), "--repl-diskless-sync-delay", "0"];
            options.extend(extra);
            if let Some(password) = password {
                options.extend(["--requirepass", password, "--masterauth", password]);
            }
            if known != port {
                options.extend(["--replica-announce-ip", "127.0.0.1"]);
                options.extend(["--replica-announce-port", known.as_str()]);
            }
            let names: Vec<String> = settings
                .iter()
                .map(|(name, _)| format!("--{name}"))
                .collect();
            for (name, (_, value)) in names.iter().zip(&settings) {
                options.extend([name.as_str(), value.as_str()]);
            }
            RedisServer::start_with(&options)
        };
        Self {
            process,
            port,
            known,
            password,
        }
    }

    /// One command, and the raw answer.
    pub(crate) fn tell(&self, words: &[&str]) -> String {
        tell(&self.port, self.password, words, PATIENT).expect("the server answers")
    }

    /// As [`Server::tell`], of a server that may stand still or be gone.
    pub(crate) fn told(&self, words: &[&str]) -> Option<String> {
        tell(&self.port, self.password, words, PROMPT).ok()
    }

    /// One field of what it tells of itself; empty where it does not answer.
    pub(crate) fn info(&self, field: &str) -> String {
        let all = self.told(&["INFO"]).unwrap_or_default();
        let found = all
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        found.unwrap_or_default().to_owned()
    }

    pub(crate) fn run_id(&self) -> String {
        self.info("run_id")
    }

    /// How many scripts it was called with: each call of ours is one.
    pub(crate) fn scripts(&self) -> u64 {
        let told = self.tell(&["INFO", "commandstats"]);
        let calls = told.lines().filter_map(|line| {
            let (_, calls) = line.strip_prefix("cmdstat_eval")?.split_once("calls=")?;
            calls.split(',').next()?.parse::<u64>().ok()
        });
        calls.sum()
    }

    /// Makes it a replica of another one.
    pub(crate) fn follow(&self, master: &Self) {
        self.told(&["REPLICAOF", "127.0.0.1", &master.known]);
    }

    pub(crate) fn follows(&self, master: &Self) -> bool {
        self.info("master_port") == master.known && self.info("master_link_status") == "up"
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

/// One command past every client library, and the raw answer.
pub(crate) fn tell(
    port: &str,
    password: Option<&str>,
    words: &[&str],
    within: Duration,
) -> io::Result<String> {
    let port: u16 = port.parse().expect("a port");
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, within)?;
    stream.set_read_timeout(Some(within))?;
    let mut request = String::new();
    if let Some(password) = password {
        write_words(&mut request, &["AUTH", password]);
    }
    write_words(&mut request, words);
    stream.write_all(request.as_bytes())?;
    // Nothing more to come from us: the server answers, then closes.
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    Ok(match answer.strip_prefix(OK) {
        Some(after_login) if password.is_some() => after_login.to_owned(),
        _ => answer,
    })
}

pub(super) fn write_words(request: &mut String, words: &[&str]) {
    request.push_str(&format!("*{}\r\n", words.len()));
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
}

/// What stands behind this name in an answer of names and values, each time.
pub(crate) fn values<'a>(told: &'a str, name: &str) -> Vec<&'a str> {
    let lines: Vec<&str> = told.lines().collect();
    let found = lines.windows(3).filter(|three| three[0] == name);
    found.map(|three| three[2]).collect()
}

/// A port that stays free until a server is started there, and so does the one for the talk of a cluster: each is given out once,
/// and no connection begins at it.
pub(crate) fn quiet_port() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok();
    // Another process begins elsewhere.
    let begin = std::process::id() % PORTS;
    for _ in 0..PORTS {
        let n = (begin + NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS;
        let port = u16::try_from(LOWEST + n).unwrap();
        if is_free(port) && is_free(port + BUS) {
            return port.to_string();
        }
    }
    panic!("no two ports are free")
}
