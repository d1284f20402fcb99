//! A master that sentinels name: what its failover does to locks, with real servers and real sentinels.
//!
//! A client asks a server only while most of all sentinels have named it a moment ago, and a server that took over is watched for
//! as long as leases of the one before may last. So there is one holder at a time, whatever the servers believe of themselves.
//!
//! Servers, clients and the programs that contend are shared with `cluster`.

use std::{
    fs,
    future::Future,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use watchkeeper_lock::{
    Locks,
    chance::Chance,
    clock::{Clock, Moment},
    lease::Lease,
    lock::{LockError, admission::admit_at_once},
    node::{
        Answer, Call, Op,
        redis::{RedisNode, RedisNodeSettings, TlsFiles},
    },
    open,
    settings::LockSettings,
    spawn::Spawn,
};

use crate::{
    bench::{acquire, granted, node, read, run, send},
    guard::free_port,
    server::{REMEDY, RedisServer, binary},
};

/// How long those who name a master are believed.
const TRUST: Duration = Duration::from_secs(5);

/// How long a lease lasts, and the longest one.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// The same where many of them follow each other.
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// A call may take so long where a case looks at a node itself.
const BRISK: Duration = Duration::from_millis(500);

/// A server that a case waits for anyway is asked for so long, and any other for so long.
const PROMPT: Duration = Duration::from_secs(1);
const PATIENT: Duration = Duration::from_secs(10);

/// Waiting longer than this is a failure: sentinels rest for half a minute after a stall of the machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// The next holder has the lock so soon after its server was killed: noticed, replaced and watched.
const TAKEOVER: Duration = Duration::from_secs(40);

/// The lock that is wanted.
pub(crate) const NAME: &str = "k";

/// The master's name.
const MASTER: &str = "m";

const OK: &str = "+OK\r\n";

// === servers ===

/// A server that keeps data, at a port of its own.
pub(crate) struct Server {
    process: RedisServer,
    pub(crate) port: String,
    password: Option<&'static str>,
}

// === impl Server ===

impl Server {
    pub(crate) fn start(port: String, password: Option<&'static str>, extra: &[&str]) -> Self {
        let process = {
            // Versions that copy without a file wait five seconds for more replicas otherwise.
            let mut options = vec!["--port", port.as_str(), "--repl-diskless-sync-delay", "0"];
            options.extend(extra);
            if let Some(password) = password {
                options.extend(["--requirepass", password, "--masterauth", password]);
            }
            RedisServer::start_with(&options)
        };
        Self {
            process,
            port,
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
    fn scripts(&self) -> u64 {
        let told = self.tell(&["INFO", "commandstats"]);
        let calls = told.lines().filter_map(|line| {
            let (_, calls) = line.strip_prefix("cmdstat_eval")?.split_once("calls=")?;
            calls.split(',').next()?.parse::<u64>().ok()
        });
        calls.sum()
    }

    /// Makes it a replica of another one.
    fn follow(&self, master: &Self) {
        self.told(&["REPLICAOF", "127.0.0.1", &master.port]);
    }

    fn follows(&self, master: &Self) -> bool {
        self.info("master_port") == master.port && self.info("master_link_status") == "up"
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
fn tell(
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

fn write_words(request: &mut String, words: &[&str]) {
    request.push_str(&format!("*{}\r\n", words.len()));
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
}

/// What stands behind this name in an answer of names and values, each time.
fn values<'a>(told: &'a str, name: &str) -> Vec<&'a str> {
    let lines: Vec<&str> = told.lines().collect();
    let found = lines.windows(3).filter(|three| three[0] == name);
    found.map(|three| three[2]).collect()
}

/// Waits until `done`, by polling; neither servers nor sentinels give another event.
pub(crate) async fn in_time(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let clock = Clock::system();
    let end = clock.now() + PATIENCE;
    while !done().await {
        assert!(clock.now() < end, "waited in vain for {what}");
        clock.sleep(Duration::from_millis(20)).await;
    }
}

// === clients ===

/// Settings of a program that goes to this address, with leases of so long.
pub(crate) fn through(url: &str, lease: Duration) -> LockSettings {
    let mut settings = LockSettings::redis([url.to_owned()])
        .ttl(lease)
        .max_ttl(lease);
    settings.redis.node_timeout = lease / 20;
    settings
}

pub(crate) fn locks(settings: &LockSettings) -> Locks {
    Locks::open(settings, "app").unwrap().start().unwrap()
}

/// A client of the fleet that [`through`] makes, to be asked itself.
pub(crate) fn client(url: &str) -> RedisNode {
    node(&RedisNodeSettings {
        url: url.to_owned().into(),
        username: None,
        password: None,
        tls: TlsFiles::default(),
        node_timeout: BRISK,
        namespace: "app".to_owned(),
        raw_keys: false,
        guard: through(url, LEASE).guard(),
    })
}

/// Founds the fleet of these settings, whose server has never kept a lock: it votes at once.
pub(crate) async fn found(settings: &LockSettings) {
    let mut patient = settings.clone();
    patient.redis.node_timeout = PATIENT;
    let nodes = open::nodes(&patient, "app", &Clock::system()).unwrap();
    in_time("the master", async || {
        let asked = Call {
            not_after: None,
            ops: Vec::new(),
        };
        nodes[0].call(asked).await.is_ok()
    })
    .await;
    let fleet = settings.fleet().unwrap();
    let admitted = admit_at_once(&nodes, &fleet, &Chance::system()).await;
    admitted.expect("a fresh server");
}

/// The lock, as soon as it can be had.
pub(crate) async fn taken(locks: &Locks) -> Lease {
    locks.lock(NAME).wait(PATIENCE).acquire().await.unwrap()
}

/// The lock is held by another program, and so this one is told.
pub(crate) async fn is_refused(locks: &Locks) {
    in_time("a refusal", async || {
        match locks.lock(NAME).acquire().await {
            Ok(lease) => panic!("two hold it: {lease:?}"),
            Err(LockError::Held { .. }) => true,
            Err(_) => false,
        }
    })
    .await;
}

/// The lease that follows `before`, whose holder is not told: asked for all the time, and granted when the other is over.
pub(crate) async fn next_after(before: &Lease, locks: &Locks) -> Lease {
    let clock = Clock::system();
    let began = clock.now();
    // Of a lease that is over no deadline is told.
    let mut deadline = before.valid_until();
    let next = loop {
        deadline = deadline.max(before.valid_until());
        match locks.lock(NAME).acquire().await {
            Ok(next) => break next,
            Err(why) => {
                let waited = clock.now().since(began);
                assert!(waited < TAKEOVER, "not within {waited:?}: {why}");
            }
        }
        clock.sleep(Duration::from_millis(10)).await;
    };
    assert!(!before.is_held(), "two hold it");
    let early = deadline.since(next.since());
    assert!(early.is_zero(), "granted {early:?} too early");
    let (last, token) = (before.token(), next.token());
    assert!(last < token, "tokens rise: {last} {token}");
    let took = next.since().since(began);
    println!("[failover] the next holder had it after {took:.1?}");
    next
}

/// The first answer, however often it takes a connection to another server.
pub(crate) async fn answer(node: &RedisNode, op: Op) -> Answer {
    let mut first = None;
    in_time("an answer", async || {
        let answered = send(node, vec![op.clone()]).await;
        first = answered.ok().map(|mut reply| reply.answers.remove(0));
        first.is_some()
    })
    .await;
    first.unwrap()
}

/// Waits until calls fail with these words; the whole sentence.
pub(crate) async fn trouble(node: &RedisNode, words: &str) -> String {
    let clock = Clock::system();
    let end = clock.now() + PATIENCE;
    loop {
        let answered = send(node, vec![read(NAME)]).await;
        match answered {
            Err(why) if why.to_string().contains(words) => return why.to_string(),
            other => assert!(clock.now() < end, "not \"{words}\": {other:?}"),
        }
        clock.sleep(Duration::from_millis(10)).await;
    }
}

// === programs that contend ===

/// Programs that want one lock all the time, and look all the time whether they hold it.
pub(crate) struct Contest {
    seen: Arc<Seen>,
    programs: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    held: Mutex<Vec<Held>>,
    turns: AtomicU64,
    is_over: AtomicBool,
}

/// A lease as its holder saw it: it was held at both moments, and all the time between them.
pub(crate) struct Held {
    program: usize,
    token: u64,
    from: Moment,
    to: Moment,
}

const PROGRAMS: usize = 4;

/// How often a holder looks.
const LOOK: Duration = Duration::from_millis(2);

/// Runs a case beside which tasks go on while it waits for servers.
pub(crate) fn beside<T>(case: impl Future<Output = T>) -> T {
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = threads.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(case)
}

// === impl Contest ===

impl Contest {
    /// On the runtime of the caller. Also with settings that a configuration is refused for.
    pub(crate) fn start(settings: &LockSettings) -> Self {
        let (seen, clock) = (Arc::new(Seen::default()), Clock::system());
        let programs = (0..PROGRAMS).map(|program| {
            let nodes = open::nodes(settings, "app", &clock).unwrap();
            let locks = open::over(nodes, settings, &clock).start().unwrap();
            let seen = seen.clone();
            Spawn::system().spawn(async move {
                while !seen.is_over.load(Ordering::SeqCst) {
                    seen.take_a_turn(program, &locks).await;
                }
            })
        });
        let programs = programs.collect();
        Self { seen, programs }
    }

    /// Waits until each of them could have had a turn.
    pub(crate) async fn go_on(&self, when: &str) {
        let count = || self.seen.turns.load(Ordering::SeqCst);
        let enough = count() + PROGRAMS as u64;
        in_time(&format!("turns {when}"), async || count() >= enough).await;
    }

    /// Every lease that was held.
    pub(crate) async fn end(self) -> Vec<Held> {
        self.seen.is_over.store(true, Ordering::SeqCst);
        for program in self.programs {
            program.await.unwrap();
        }
        std::mem::take(&mut *self.seen.held.lock().unwrap())
    }
}

impl Seen {
    async fn take_a_turn(&self, program: usize, locks: &Locks) {
        let (clock, chance) = (Clock::system(), Chance::system());
        let Ok(lease) = locks.lock(NAME).wait(SHORT).acquire().await else {
            clock.sleep(LOOK).await;
            return;
        };
        let from = clock.now();
        // Longer than a lease at times, so that it has to be kept.
        let leaves = from + chance.up_to(lease.ttl() * 2);
        let mut held = None;
        loop {
            // The time first: what is held afterwards was held then.
            let to = clock.now();
            if !lease.is_held() {
                break;
            }
            held = Some(Held {
                program,
                token: lease.token().0,
                from,
                to,
            });
            if to >= leaves {
                break;
            }
            clock.sleep(LOOK).await;
        }
        if let Some(held) = held {
            self.held.lock().unwrap().push(held);
            self.turns.fetch_add(1, Ordering::SeqCst);
        }
        lease.release().await;
    }
}

/// How often two programs held the lock at the same moment.
pub(crate) fn overlaps(held: &[Held]) -> usize {
    let pairs = held
        .iter()
        .enumerate()
        .flat_map(|(n, one)| held[n + 1..].iter().map(move |other| (one, other)));
    let at_once = pairs.filter(|(one, other)| {
        one.program != other.program && one.from <= other.to && other.from <= one.to
    });
    at_once.count()
}

/// A later holder has a larger token.
pub(crate) fn tokens_rise(held: &mut [Held]) {
    held.sort_by_key(|held| held.from);
    for two in held.windows(2) {
        let (last, token) = (two[0].token, two[1].token);
        assert!(last < token, "tokens rise: {last} {token}");
    }
}

// === sentinels ===

/// A sentinel. Killed and reaped on drop.
struct Sentinel {
    child: Child,
    port: String,
    password: Option<&'static str>,
    /// Last: the directory goes when the process has gone.
    dir: TempDir,
}

/// Which passwords are wanted.
#[derive(Clone, Copy, Default)]
struct Passwords {
    servers: Option<&'static str>,
    sentinels: Option<&'static str>,
}

/// A master with its replicas, and three sentinels.
struct Deployment {
    servers: Vec<Server>,
    sentinels: Vec<Sentinel>,
}

// === impl Sentinel ===

impl Sentinel {
    fn start(master: &Server, passwords: Passwords) -> Self {
        let dir = TempDir::with_prefix("wk-sentinel-").unwrap();
        let port = free_port();
        let mut settings = vec![
            // Two addresses of one sentinel.
            "bind 127.0.0.1 127.0.0.2".to_owned(),
            format!("port {port}"),
            format!("dir {}", dir.path().display()),
            format!("sentinel monitor {MASTER} 127.0.0.1 {} 2", master.port),
            format!("sentinel down-after-milliseconds {MASTER} 1000"),
            format!("sentinel failover-timeout {MASTER} 3000"),
            format!("sentinel parallel-syncs {MASTER} 1"),
        ];
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
            port,
            password: passwords.sentinels,
            dir,
        }
    }

    /// The raw answer; none where it stands still.
    fn ask(&self, words: &[&str]) -> Option<String> {
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
            && is("port", master.port.as_str())
            && is("num-other-sentinels", "2")
            && good.count() == replicas
    }

    fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    fn thaw(&self) {
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
    async fn start() -> Self {
        Self::of(2, Passwords::default()).await
    }

    /// So many servers, the first of which is the master.
    async fn of(servers: usize, passwords: Passwords) -> Self {
        let server = |_| Server::start(free_port(), passwords.servers, &[]);
        let servers: Vec<Server> = (0..servers).map(server).collect();
        // Before there is a sentinel: it looks at replicas again ten seconds later.
        for replica in &servers[1..] {
            replica.follow(&servers[0]);
        }
        in_time("the replicas", async || {
            servers[1..].iter().all(|one| one.follows(&servers[0]))
        })
        .await;
        let sentinels = (0..3).map(|_| Sentinel::start(&servers[0], passwords));
        let deployment = Self {
            sentinels: sentinels.collect(),
            servers,
        };
        deployment.is_ready().await;
        deployment
    }

    /// The addresses of all sentinels.
    fn addresses(&self) -> Vec<String> {
        let sentinels = self.sentinels.iter();
        sentinels
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port))
            .collect()
    }

    fn url(&self) -> String {
        listing(&self.addresses())
    }

    /// The server that most sentinels name.
    fn master(&self) -> Option<usize> {
        let named: Vec<String> = self.sentinels.iter().filter_map(Sentinel::named).collect();
        let most = |server: &Server| {
            let votes = named.iter().filter(|port| **port == server.port);
            votes.count() > self.sentinels.len() / 2
        };
        self.servers.iter().position(most)
    }

    /// Waits until most sentinels name another server.
    async fn another_than(&self, before: usize) -> usize {
        let mut found = None;
        in_time("another master", async || {
            found = self.master().filter(|now| *now != before);
            found.is_some()
        })
        .await;
        found.unwrap()
    }

    /// Waits until every sentinel could put another server in the place of the master.
    async fn is_ready(&self) {
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
    async fn all_follow(&self) {
        in_time("the replicas", async || {
            let Some(master) = self.master() else {
                return false;
            };
            let master = &self.servers[master];
            let mut others = self.servers.iter().filter(|one| one.port != master.port);
            others.all(|other| {
                other.follow(master);
                other.follows(master)
            })
        })
        .await;
    }

    /// As an operator does: the server that was in charge lives on, and does not know it at first. Which one is now.
    async fn fail_over(&self) -> usize {
        let before = self.master().expect("most sentinels name one");
        in_time("the order", async || {
            let told = self.sentinels[0].ask(&["SENTINEL", "FAILOVER", MASTER]);
            told.is_some_and(|told| told == OK)
        })
        .await;
        self.another_than(before).await
    }
}

fn listing(sentinels: &[String]) -> String {
    format!("sentinel://{}/{MASTER}", sentinels.join(","))
}

// === a master is named ===

pub(crate) fn a_master_is_found_and_its_lock_kept() {
    run(async {
        let deployment = Deployment::start().await;
        let settings = through(&deployment.url(), LEASE);
        found(&settings).await;
        let (one, other) = (locks(&settings), locks(&settings));
        let lease = taken(&one).await;
        is_refused(&other).await;
        let before = connections(&deployment);
        // Longer than what was heard of the master is believed.
        let ends = Clock::system().timeout(TRUST * 2, lease.lost()).await;
        assert!(ends.is_err(), "{ends:?}");
        // They are asked every second, over connections that stay, also those whose answer is not waited for.
        let made: Vec<u64> = connections(&deployment)
            .iter()
            .zip(&before)
            .map(|(now, before)| now - before)
            .collect();
        assert!(made.iter().all(|made| *made <= 5), "{made:?}");
        is_refused(&other).await;
        let first = lease.token();
        assert_eq!(lease.release().await.nodes, 1);
        assert!(first < taken(&other).await.token());
    });
}

/// How many connections each sentinel was asked for so far.
fn connections(deployment: &Deployment) -> Vec<u64> {
    let count = |sentinel: &Sentinel| {
        let told = sentinel.ask(&["INFO", "stats"]).unwrap_or_default();
        let mut lines = told.lines();
        let found = lines.find_map(|line| line.strip_prefix("total_connections_received:"));
        found.and_then(|count| count.parse().ok()).expect("a count")
    };
    deployment.sentinels.iter().map(count).collect()
}

pub(crate) fn one_listed_sentinel_of_three_is_no_majority() {
    run(async {
        let deployment = Deployment::of(1, Passwords::default()).await;
        let one = client(&listing(&deployment.addresses()[..1]));
        trouble(&one, "1 of 3").await;
        assert_eq!(deployment.servers[0].scripts(), 0);
        let two = client(&listing(&deployment.addresses()[..2]));
        answer(&two, read(NAME)).await;
    });
}

pub(crate) fn a_sentinel_that_is_listed_twice_counts_once() {
    run(async {
        let deployment = Deployment::of(1, Passwords::default()).await;
        let first = deployment.addresses().swap_remove(0);
        let again = first.replace("127.0.0.1", "127.0.0.2");
        trouble(&client(&listing(&[first, again])), "1 of 3").await;
        assert_eq!(deployment.servers[0].scripts(), 0);
    });
}

/// As after a start with an empty file, or `SENTINEL RESET`: until it hears of the others it counts itself alone.
pub(crate) fn a_sentinel_that_has_forgotten_the_others_is_no_majority() {
    run(async {
        let deployment = Deployment::of(1, Passwords::default()).await;
        let [first, others @ ..] = &deployment.sentinels[..] else {
            panic!("no sentinel")
        };
        others.iter().for_each(Sentinel::freeze);
        // What they have said last is heard within a moment.
        in_time("it to know no other", async || {
            first.ask(&["SENTINEL", "RESET", MASTER]);
            let told = first.ask(&["SENTINEL", "MASTER", MASTER]);
            told.is_some_and(|told| values(&told, "num-other-sentinels") == ["0"])
        })
        .await;
        trouble(&client(&deployment.url()), "1 of 3").await;
        assert_eq!(deployment.servers[0].scripts(), 0);
    });
}

pub(crate) fn an_unknown_master_name_is_named() {
    run(async {
        let deployment = Deployment::of(1, Passwords::default()).await;
        let url = deployment.url().replace(&format!("/{MASTER}"), "/nowhere");
        trouble(&client(&url), "No such").await;
    });
}

pub(crate) fn a_sentinel_that_wants_a_password_is_named() {
    run(async {
        let passwords = Passwords {
            sentinels: Some("right-word"),
            ..Passwords::default()
        };
        let deployment = Deployment::of(1, passwords).await;
        let url = deployment.url();
        let wrong = format!("{url}?sentinel_password=wrong-word");
        for url in [&url, &wrong] {
            let said = trouble(&client(url), "sentinel_password").await;
            assert!(!said.contains("-word"), "{said}");
            let mut addresses = deployment.addresses().into_iter();
            assert!(addresses.any(|one| said.contains(&one)), "{said}");
        }
        let right = format!("{url}?sentinel_password=right-word");
        found(&through(&right, LEASE)).await;
        granted(&answer(&client(&right), acquire(NAME, "a")).await);
    });
}

pub(crate) fn a_master_that_wants_a_password_gets_it() {
    run(async {
        let passwords = Passwords {
            servers: Some("right-word"),
            ..Passwords::default()
        };
        let deployment = Deployment::of(2, passwords).await;
        let url = deployment.url();
        let with = |password: &str| url.replace("sentinel://", &format!("sentinel://:{password}@"));
        for (url, words) in [
            (url.clone(), "NOAUTH"),
            (with("wrong-word"), "user and password"),
        ] {
            let said = trouble(&client(&url), words).await;
            assert!(!said.contains("-word"), "{said}");
        }
        let right = with("right-word");
        let settings = through(&right, LEASE);
        found(&settings).await;
        granted(&answer(&client(&right), acquire("other", "a")).await);
        // The one that takes over wants the same.
        let locks = locks(&settings);
        taken(&locks).await.release().await;
        let next = deployment.fail_over().await;
        taken(&locks).await.release().await;
        let node = client(&right);
        answer(&node, read(NAME)).await;
        assert_eq!(node.run_id(), Some(deployment.servers[next].run_id()));
    });
}

/// It would go on with an old master, and take what a new one has got for its own.
pub(crate) fn a_program_with_the_address_of_the_master_is_refused_by_name() {
    run(async {
        let deployment = Deployment::of(1, Passwords::default()).await;
        let settings = through(&deployment.url(), LEASE);
        found(&settings).await;
        let direct = format!("redis://127.0.0.1:{}", deployment.servers[0].port);
        let direct = locks(&through(&direct, LEASE));
        in_time("the reason", async || {
            let refused = direct.lock(NAME).acquire().await;
            let why = refused.expect_err("it is of another fleet").to_string();
            why.contains("Sentinel or Cluster in redis.nodes is true there and false here")
        })
        .await;
        taken(&locks(&settings)).await.release().await;
    });
}

/// Programs that list the same sentinels differently bring the same master back to its vote.
pub(crate) fn however_its_sentinels_are_listed_a_fleet_is_one() {
    run(async {
        let deployment = Deployment::start().await;
        found(&through(&deployment.url(), LEASE)).await;
        let mut backwards = deployment.addresses();
        backwards.reverse();
        let other = locks(&through(&listing(&backwards), LEASE));
        taken(&other).await.release().await;
        deployment.fail_over().await;
        taken(&other).await.release().await;
    });
}

// === another one takes over ===

pub(crate) fn a_killed_master_is_replaced_and_nothing_is_granted_before_its_leases_are_over() {
    run(async {
        let mut deployment = Deployment::start().await;
        let settings = through(&deployment.url(), LEASE);
        found(&settings).await;
        let (one, other) = (locks(&settings), locks(&settings));
        let lease = taken(&one).await;
        is_refused(&other).await;
        deployment.servers[0].kill();
        let next = next_after(&lease, &other).await;
        assert_eq!(deployment.master(), Some(1));
        assert_eq!(next.release().await.nodes, 1);
    });
}

pub(crate) fn a_frozen_master_that_comes_back_late_grants_nothing() {
    run(async {
        let clock = Clock::system();
        let deployment = Deployment::start().await;
        let url = deployment.url();
        let settings = through(&url, LEASE);
        found(&settings).await;
        let connected = client(&url);
        let before = granted(&answer(&connected, acquire("before", "a")).await);
        let old = &deployment.servers[0];
        old.freeze();
        let next = deployment.another_than(0).await;
        // As long as the old one may still be asked.
        clock.sleep(TRUST).await;
        old.thaw();
        in_time("the old master", async || old.info("role") == "master").await;
        let scripts = old.scripts();
        for node in [connected, client(&url)] {
            let vote = answer(&node, acquire("after", "b")).await;
            assert_eq!(vote, Answer::Unadmitted);
            assert_eq!(node.run_id(), Some(deployment.servers[next].run_id()));
        }
        assert_eq!(old.scripts(), scripts, "it was asked");
        // When nothing of the old one can be held any more, the lock is to be had from the new one.
        let lease = taken(&locks(&settings)).await;
        assert!(before < lease.token().0);
        assert_eq!(old.scripts(), scripts, "it was asked");
    });
}

/// Sentinels promote a server that never heard that another one was in charge: it lives the same life, with the memory of then.
pub(crate) fn a_master_that_is_put_back_in_charge_has_lost_what_was_granted_meanwhile() {
    run(async {
        let mut deployment = Deployment::start().await;
        let url = deployment.url();
        let settings = through(&url, LEASE);
        found(&settings).await;
        let (one, other) = (locks(&settings), locks(&settings));
        taken(&one).await.release().await;
        deployment.servers[0].freeze();
        assert_eq!(deployment.another_than(0).await, 1);
        let lease = taken(&one).await;
        deployment.servers[0].thaw();
        // Before its sentinels make it a replica, which takes them eight seconds.
        deployment.servers[1].kill();
        assert_eq!(deployment.another_than(1).await, 0);
        let vote = answer(&client(&url), acquire("other", "a")).await;
        assert_eq!(vote, Answer::Unadmitted);
        next_after(&lease, &other).await.release().await;
    });
}

pub(crate) fn a_planned_failover_moves_the_clients() {
    run(async {
        let deployment = Deployment::start().await;
        let url = deployment.url();
        let settings = through(&url, LEASE);
        found(&settings).await;
        let (one, other) = (locks(&settings), locks(&settings));
        let node = client(&url);
        answer(&node, read(NAME)).await;
        let lease = taken(&one).await;
        is_refused(&other).await;
        // The old one believes in itself for some seconds.
        let next = deployment.fail_over().await;
        next_after(&lease, &other).await.release().await;
        answer(&node, read(NAME)).await;
        assert_eq!(node.run_id(), Some(deployment.servers[next].run_id()));
        assert_eq!(taken(&one).await.release().await.nodes, 1);
    });
}

pub(crate) fn without_a_majority_of_sentinels_no_vote_is_asked_for_and_it_comes_back() {
    run(async {
        let clock = Clock::system();
        let deployment = Deployment::start().await;
        let url = deployment.url();
        found(&through(&url, LEASE)).await;
        let (node, master) = (client(&url), &deployment.servers[0]);
        granted(&answer(&node, acquire(NAME, "a")).await);
        let began = clock.now();
        let silent = &deployment.sentinels[1..];
        silent.iter().for_each(Sentinel::freeze);
        in_time("the end of the trust", async || {
            send(&node, vec![read(NAME)]).await.is_err()
        })
        .await;
        let waited = clock.now().since(began);
        assert!(waited < TRUST + Duration::from_secs(2), "{waited:?}");
        trouble(&node, "1 of 3").await;
        let scripts = master.scripts();
        for _ in 0..50 {
            let refused = send(&node, vec![acquire("other", "b")]).await;
            assert!(refused.is_err(), "{refused:?}");
            clock.sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(master.scripts(), scripts, "it was asked");
        silent[0].thaw();
        let Answer::View(seen) = answer(&node, read(NAME)).await else {
            panic!("not a view")
        };
        // Nothing was lost meanwhile, and nothing has to be watched.
        assert_eq!(seen.owner.as_deref(), Some("a"));
        granted(&answer(&node, acquire("other", "b")).await);
        silent[1].thaw();
    });
}

// === the storm ===

/// So many failovers, of servers that are killed, stand still or are told to, while programs contend for a lock: how often two of
/// them held it at once.
fn storm(failovers: usize) -> usize {
    beside(async {
        let mut deployment = Deployment::of(3, Passwords::default()).await;
        let settings = through(&deployment.url(), SHORT);
        found(&settings).await;
        let contest = Contest::start(&settings);
        contest.go_on("before it begins").await;
        for n in 0..failovers {
            deployment.is_ready().await;
            let before = deployment.master().expect("most sentinels name one");
            match n % 3 {
                0 => {
                    deployment.servers[before].kill();
                    deployment.another_than(before).await;
                    deployment.servers[before].restart();
                }
                1 => {
                    deployment.servers[before].freeze();
                    deployment.another_than(before).await;
                    deployment.servers[before].thaw();
                }
                _ => {
                    deployment.fail_over().await;
                }
            }
            // Until then it believes that it is a master. At times the next one comes while the new one is still watched.
            if n % 4 < 3 {
                contest.go_on(&format!("after failover {n}")).await;
            }
            deployment.all_follow().await;
        }
        contest.go_on("when it is over").await;
        let mut held = contest.end().await;
        let overlaps = overlaps(&held);
        println!(
            "[sentinel] {failovers} failovers: {} leases, {overlaps} overlaps",
            held.len()
        );
        if overlaps == 0 {
            tokens_rise(&mut held);
        }
        overlaps
    })
}

/// Takes about six minutes.
pub(crate) fn twenty_failovers_and_no_two_holders() {
    assert_eq!(storm(20), 0);
}
