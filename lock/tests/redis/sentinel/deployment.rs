//! A master with its replicas, and three sentinels.

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{
    failover::{
        Endpoint, Naive, Network, OK, PROMPT, Party, Server, another_than, in_time, named_by_most,
        tell, values,
    },
    server::{REMEDY, binary},
};

/// The master's name.
pub(crate) const MASTER: &str = "m";

const SENTINELS: u8 = 3;

/// Programs that stay with most of the sentinels when the network is cut, and those that are cut off.
pub(super) const NEAR: Party = Party::programs(1);
pub(super) const FAR: Party = Party::programs(2);

/// The sentinel that is cut off, with the master and [`FAR`], and one that is not.
const LONELY: u8 = 0;
const AMONG_MOST: u8 = 1;

/// A sentinel. Killed and reaped on drop.
pub(crate) struct Sentinel {
    child: Child,
    port: String,
    /// By which all others know it.
    known: String,
    password: Option<&'static str>,
    /// Last: the directory goes when the process has gone.
    dir: TempDir,
}

/// Which passwords are wanted.
#[derive(Clone, Copy, Default)]
pub(crate) struct Passwords {
    pub(super) servers: Option<&'static str>,
    pub(super) sentinels: Option<&'static str>,
}

/// A master with its replicas, and three sentinels.
pub(crate) struct Deployment {
    pub(super) servers: Vec<Server>,
    pub(super) sentinels: Vec<Sentinel>,
}

// === impl Sentinel ===

impl Sentinel {
    fn start(endpoint: Endpoint, master: &Server, passwords: Passwords) -> Self {
        let dir = TempDir::with_prefix("wk-sentinel-").unwrap();
        let mut settings = vec![
            // Two addresses of one sentinel.
            "bind 127.0.0.1 127.0.0.2".to_owned(),
            format!("port {}", endpoint.port),
            format!("dir {}", dir.path().display()),
            format!("sentinel monitor {MASTER} 127.0.0.1 {} 2", master.known),
            format!("sentinel down-after-milliseconds {MASTER} 1000"),
            format!("sentinel failover-timeout {MASTER} 3000"),
            format!("sentinel parallel-syncs {MASTER} 1"),
        ];
        if endpoint.known != endpoint.port {
            settings.push("sentinel announce-ip 127.0.0.1".to_owned());
            settings.push(format!("sentinel announce-port {}", endpoint.known));
        }
        let special = endpoint.settings.iter();
        settings.extend(special.map(|(name, value)| format!("{name} {value}")));
        if let Some(password) = passwords.servers {
            settings.push(format!("sentinel auth-pass {MASTER} {password}"));
        }
        if let Some(password) = passwords.sentinels {
            settings.push(format!("requirepass {password}"));
        }
        let file = dir.path().join("sentinel.conf");
        fs::write(&file, settings.join("\n") + "\n").unwrap();
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let child = Command::new(binary().expect(REMEDY))
            .arg(&file)
            .arg("--sentinel")
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self {
            child,
            port: endpoint.port,
            known: endpoint.known,
            password: passwords.sentinels,
            dir,
        }
    }

    /// The raw answer; none where it stands still.
    pub(super) fn ask(&self, words: &[&str]) -> Option<String> {
        tell(&self.port, self.password, words, PROMPT).ok()
    }

    /// The port of the master that it names.
    fn named(&self) -> Option<String> {
        let told = self.ask(&["SENTINEL", "MASTER", MASTER])?;
        values(&told, "port").first().map(|&port| port.to_owned())
    }

    /// Whether it knows all that it needs to put another one in the place of this master.
    fn is_ready(&self, master: &Server, replicas: usize) -> bool {
        let ask = |what| self.ask(&["SENTINEL", what, MASTER]);
        let (Some(of_master), Some(of_replicas)) = (ask("MASTER"), ask("REPLICAS")) else {
            return false;
        };
        let is = |field: &str, wanted: &str| values(&of_master, field) == [wanted];
        let flags = values(&of_replicas, "flags").into_iter();
        let states = flags.zip(values(&of_replicas, "master-link-status"));
        let good = states.filter(|state| *state == ("slave", "ok"));
        is("flags", "master")
            && is("port", master.known.as_str())
            && is("num-other-sentinels", "2")
            && good.count() == replicas
    }

    pub(super) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub(super) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .expect("a pid");
        kill_process(pid, signal).expect("our own child can be signalled");
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            eprintln!("--- log of the sentinel at {} ---\n{log}", self.port);
        }
    }
}

// === impl Deployment ===

impl Deployment {
    /// A master and one replica.
    pub(super) async fn start() -> Self {
        Self::of(2, Passwords::default()).await
    }

    /// So many servers, the first of which is the master.
    pub(super) async fn of(servers: usize, passwords: Passwords) -> Self {
        Self::at(Endpoint::plain, servers, passwords).await
    }

    /// The same at endpoints of their own.
    pub(crate) async fn at(
        endpoint: impl Fn() -> Endpoint,
        servers: usize,
        passwords: Passwords,
    ) -> Self {
        let servers = (0..servers).map(|_| endpoint()).collect();
        let sentinels = (0..SENTINELS).map(|_| endpoint()).collect();
        Self::placed(servers, sentinels, passwords).await
    }

    /// So many servers in a network that can be cut in two.
    pub(super) async fn in_network(servers: u8) -> (Self, Network) {
        let network = Network::new();
        let (mut of_servers, mut of_sentinels) = (Vec::new(), Vec::new());
        for n in 0..servers {
            of_servers.push(network.endpoint(Party::server(n)).await);
        }
        for n in 0..SENTINELS {
            of_sentinels.push(network.endpoint(Party::sentinel(n)).await);
        }
        let deployment = Self::placed(of_servers, of_sentinels, Passwords::default()).await;
        (deployment, network)
    }

    async fn placed(
        servers: Vec<Endpoint>,
        sentinels: Vec<Endpoint>,
        passwords: Passwords,
    ) -> Self {
        let server = |endpoint| Server::start(endpoint, passwords.servers, &[]);
        let servers: Vec<Server> = servers.into_iter().map(server).collect();
        // Before there is a sentinel: it looks at replicas again ten seconds later.
        for replica in &servers[1..] {
            replica.follow(&servers[0]);
        }
        in_time("the replicas", async || {
            servers[1..].iter().all(|one| one.follows(&servers[0]))
        })
        .await;
        let sentinel = |endpoint| Sentinel::start(endpoint, &servers[0], passwords);
        let sentinels = sentinels.into_iter().map(sentinel).collect();
        let deployment = Self { servers, sentinels };
        deployment.is_ready().await;
        deployment
    }

    /// The addresses of all sentinels.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let sentinels = self.sentinels.iter();
        sentinels
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.known))
            .collect()
    }

    pub(super) fn url(&self) -> String {
        listing(&self.addresses())
    }

    /// The same for programs of this party, which say who they are wherever they sign in.
    pub(super) fn url_of(&self, party: Party) -> String {
        let (word, hosts) = (party.word(), self.addresses().join(","));
        format!(
            "sentinel://default:{word}@{hosts}/{MASTER}?sentinel_user=default&sentinel_password={word}"
        )
    }

    /// Two programs that each believe one sentinel: one on either side of a cut.
    pub(super) fn naive_pair(&self, ttl: Duration) -> [Naive; 2] {
        let sides = [(NEAR, AMONG_MOST), (FAR, LONELY)];
        sides.map(|(party, sentinel)| {
            let sentinel = self.sentinels[usize::from(sentinel)].known.as_str();
            Naive::new(party, sentinel, MASTER, ttl)
        })
    }

    /// The server that most sentinels name.
    pub(super) fn master(&self) -> Option<usize> {
        let named: Vec<String> = self.sentinels.iter().filter_map(Sentinel::named).collect();
        let servers = self.servers.iter().map(|server| server.known.as_str());
        named_by_most(&named, self.sentinels.len(), servers)
    }

    /// Waits until most sentinels name another server.
    pub(super) async fn another_than(&self, before: usize) -> usize {
        another_than(before, || self.master()).await
    }

    /// Waits until every sentinel could put another server in the place of the master.
    pub(super) async fn is_ready(&self) {
        in_time("the sentinels", async || {
            let Some(master) = self.master() else {
                return false;
            };
            let (master, replicas) = (&self.servers[master], self.servers.len() - 1);
            let mut sentinels = self.sentinels.iter();
            sentinels.all(|sentinel| sentinel.is_ready(master, replicas))
        })
        .await;
    }

    /// Makes all others replicas of the master, as its sentinels would do some seconds later.
    pub(super) async fn all_follow(&self) {
        in_time("the replicas", async || {
            let Some(master) = self.master() else {
                return false;
            };
            let master = &self.servers[master];
            let mut others = self.servers.iter().filter(|one| one.known != master.known);
            others.all(|other| {
                other.follow(master);
                other.follows(master)
            })
        })
        .await;
    }

    /// As an operator does: the server that was in charge lives on, and does not know it at first. Which one is now.
    pub(super) async fn fail_over(&self) -> usize {
        let before = self.master().expect("most sentinels name one");
        in_time("the order", async || {
            let told = self.sentinels[0].ask(&["SENTINEL", "FAILOVER", MASTER]);
            told.is_some_and(|told| told == OK)
        })
        .await;
        self.another_than(before).await
    }
}

/// What is cut off together with this master: one sentinel of three, and some of the programs.
pub(super) fn side_of(master: usize) -> [Party; 3] {
    let server = Party::server(u8::try_from(master).unwrap());
    [server, Party::sentinel(LONELY), FAR]
}

pub(super) fn listing(sentinels: &[String]) -> String {
    format!("sentinel://{}/{MASTER}", sentinels.join(","))
}
