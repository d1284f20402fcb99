//! Real etcd servers for tests: in temporary folders and on addresses of their own, killed in the end. Shared with the suites of
//! the stock jobs.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "every suite uses its own part")]

use std::{
    fs,
    io::{self, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// What to install where no server is found.
pub(crate) const REMEDY: &str = "no etcd: apt-get install etcd-server etcd-client";

/// The user whom [`EtcdServer::lock_up`] lets in, and the password.
pub(crate) const WORKER: (&str, &str) = ("worker", "hunter2");

/// Where clients ask, where members meet, and where a test asks whether one is well: there always without TLS and password.
const CLIENTS: u16 = 12379;
const PEERS: u16 = 12380;
const HEALTH: u16 = 12381;

/// The cluster's id is made of this and of the members' addresses.
const TOKEN: &str = "first";
/// A cluster that was made anew at the same addresses.
const ANOTHER_TOKEN: &str = "second";

/// A running member. Killed and reaped on drop.
pub(crate) struct EtcdServer {
    launch: Box<Launch>,
    child: Child,
    /// Last: the directory goes when the process has gone.
    dir: TempDir,
}

/// How it is started, each time.
struct Launch {
    host: Host,
    name: String,
    /// All members of its cluster, as it wants them.
    members: String,
    token: &'static str,
    extra: Vec<String>,
    /// What its own client needs.
    control: Vec<String>,
}

/// An address for one server. All of 127.0.0.0/8 leads to this machine, and connections begin at 127.0.0.1: no other program has
/// a port of it meanwhile, so that a server that was killed can have it again.
#[derive(Clone, Debug)]
pub(crate) struct Host(String);

/// One server for all cases, started by the first that needs it.
#[derive(Clone, Default)]
pub(crate) struct Shared {
    server: Arc<OnceLock<EtcdServer>>,
}

impl Shared {
    pub(crate) fn get(&self) -> &EtcdServer {
        self.server.get_or_init(EtcdServer::start)
    }
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// Whether `WATCHKEEPER_REQUIRE` (a list such as `redis,etcd`) turns the server's absence into a failure.
fn required() -> bool {
    std::env::var("WATCHKEEPER_REQUIRE")
        .is_ok_and(|list| list.split(',').any(|word| word.trim() == "etcd"))
}

/// One server-backed case for libtest-mimic: a panic is its failure; where the server is missing it is ignored, with
/// the reason beside its name.
pub(crate) fn trial(
    name: &str,
    server: &Shared,
    case: impl FnOnce(&EtcdServer) + Send + 'static,
) -> libtest_mimic::Trial {
    let server = server.clone();
    trial_of_its_own(name, move || case(server.get()))
}

/// The same for a case that starts its servers itself.
pub(crate) fn trial_of_its_own(
    name: &str,
    case: impl FnOnce() + Send + 'static,
) -> libtest_mimic::Trial {
    if program("etcd").is_some() && program("etcdctl").is_some() {
        return libtest_mimic::Trial::test(name, move || {
            case();
            Ok(())
        });
    }
    if required() {
        return libtest_mimic::Trial::test(name, || {
            Err(format!("{REMEDY} (WATCHKEEPER_REQUIRE names etcd)").into())
        });
    }
    // Also with `--ignored`, which runs it all the same, it must never count as passed.
    libtest_mimic::Trial::test(format!("{name} [{REMEDY}]"), || Err(REMEDY.into()))
        .with_ignored_flag(true)
}

// === impl Host ===

impl Host {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let [_, _, high, low] = std::process::id().to_be_bytes();
        // Never 127.0.0.1, and never one that is no server's.
        let number = NEXT.fetch_add(1, Ordering::Relaxed) % 250 + 2;
        Self(format!("127.{high}.{low}.{number}"))
    }

    /// Its name in an address.
    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// Where clients ask the server that is here, or is to be.
    pub(crate) fn address(&self) -> String {
        self.at(CLIENTS)
    }

    /// Where other members meet it.
    pub(crate) fn peers(&self) -> String {
        format!("http://{}", self.at(PEERS))
    }

    fn at(&self, port: u16) -> String {
        format!("{}:{port}", self.0)
    }
}

// === impl EtcdServer ===

impl EtcdServer {
    /// An empty cluster of one member.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with more options: `&["--quota-backend-bytes", "4194304"]`.
    pub(crate) fn start_with(extra: &[&str]) -> Self {
        Self::start_at(&Host::new(), extra)
    }

    /// The same at this address, for which a certificate may have been made.
    pub(crate) fn start_at(host: &Host, extra: &[&str]) -> Self {
        let (name, members) = ("one", format!("one={}", host.peers()));
        let mut server = Self::launch(host, name, &members, extra);
        server.wait_until_it_is_healthy();
        server
    }

    /// A member of this name in a cluster of these members. It is healthy when most of them are there.
    pub(crate) fn launch(host: &Host, name: &str, members: &str, extra: &[&str]) -> Self {
        let launch = Box::new(Launch {
            host: host.clone(),
            name: name.to_owned(),
            members: members.to_owned(),
            token: TOKEN,
            extra: extra.iter().map(|&option| option.to_owned()).collect(),
            control: Vec::new(),
        });
        let dir = TempDir::with_prefix("wk-etcd-").expect("a temporary directory");
        Self {
            child: launch.spawn(dir.path()),
            launch,
            dir,
        }
    }

    /// Where it is.
    pub(crate) fn host(&self) -> &Host {
        &self.launch.host
    }

    /// Its address for clients.
    pub(crate) fn url(&self) -> String {
        self.launch.clients()
    }

    /// Stops the process in the middle of whatever it does; connections stay open.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a frozen process go on.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Ends the process in the middle of whatever it does. What it has written stays.
    pub(crate) fn kill(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }

    /// Starts it again, with all that it had.
    pub(crate) fn start_again(&mut self) {
        self.child = self.launch.spawn(self.dir.path());
        self.wait_until_it_is_healthy();
    }

    /// Puts a copy of all that it has beside it, and says where.
    pub(crate) fn snapshot(&self) -> PathBuf {
        let file = self.dir.path().join("snapshot");
        _ = fs::remove_file(&file);
        self.etcdctl(&["snapshot", "save", &file.display().to_string()]);
        file
    }

    /// Puts that copy in the place of all that it has, while it does not run. The cluster is the same by its id.
    pub(crate) fn bring_back(&mut self, snapshot: &Path) {
        self.bring_back_as(snapshot, TOKEN);
    }

    /// The same as a cluster with another id.
    pub(crate) fn bring_back_as_another(&mut self, snapshot: &Path) {
        self.bring_back_as(snapshot, ANOTHER_TOKEN);
    }

    fn bring_back_as(&mut self, snapshot: &Path, token: &'static str) {
        self.launch.token = token;
        fs::remove_dir_all(self.dir.path().join("data")).expect("our own directory");
        // Newer versions have a program of its own for it.
        let tool = program("etcdutl").map_or("etcdctl", |_| "etcdutl");
        let made = command(tool, self.dir.path())
            .args(["snapshot", "restore"])
            .arg(snapshot)
            .args(["--data-dir", "data", "--name", &self.launch.name])
            .args(["--initial-cluster", &self.launch.members])
            .args(["--initial-cluster-token", token])
            .args(["--initial-advertise-peer-urls", &self.launch.host.peers()])
            .output()
            .expect("it starts");
        assert!(
            made.status.success(),
            "{tool} snapshot restore ended with {}: {}",
            made.status,
            String::from_utf8_lossy(&made.stderr)
        );
    }

    /// From now on whoever asks has to log in: [`WORKER`], who may read and write what begins with `prefix`.
    pub(crate) fn lock_up(&mut self, prefix: &str) {
        let (name, password) = WORKER;
        let worker = format!("{name}:{password}");
        let orders: [&[&str]; 8] = [
            &["user", "add", "root:root"],
            &["role", "add", "root"],
            &["user", "grant-role", "root", "root"],
            &["user", "add", &worker],
            &["role", "add", name],
            &[
                "role",
                "grant-permission",
                name,
                "readwrite",
                prefix,
                "--prefix",
            ],
            &["user", "grant-role", name, name],
            &["auth", "enable"],
        ];
        for words in orders {
            self.etcdctl(words);
        }
        self.launch.control = vec!["--user".to_owned(), "root:root".to_owned()];
    }

    /// Fills it with what is none of ours, until it takes nothing more.
    pub(crate) fn fill(&self) {
        let much = "x".repeat(500_000);
        for n in 0..100 {
            if let Err(why) = self.control(&["put", &format!("filler/{n}")], &much) {
                assert!(why.contains("space exceeded"), "{why}");
                return;
            }
        }
        panic!("it takes more and more: start it with --quota-backend-bytes");
    }

    /// Takes that away again, as a person would.
    pub(crate) fn make_room(&self) {
        self.etcdctl(&["del", "filler/", "--prefix"]);
        let status = self.status().expect("it answers");
        let revision = status["header"]["revision"].as_str().expect("a revision");
        self.etcdctl(&["compact", revision]);
        self.etcdctl(&["defrag"]);
        self.etcdctl(&["alarm", "disarm"]);
    }

    /// Deletes the keys that begin so, and writes them again as they were.
    pub(crate) fn make_again(&self, prefix: &str) {
        let found = self.etcdctl(&["get", prefix, "--prefix", "-w", "json"]);
        let found: Value = serde_json::from_str(&found).expect("JSON");
        self.etcdctl(&["del", prefix, "--prefix"]);
        for kv in found["kvs"].as_array().expect("keys") {
            let value = kv["value"].as_str().unwrap_or_default();
            let put = json!({ "key": kv["key"], "value": value }).to_string();
            let done = self.post("/v3/kv/put", &put, Duration::from_secs(30));
            let done = done.expect("it answers");
            assert!(done.contains("revision"), "{done}");
        }
    }

    /// The keys that begin so, as its own client shows them: with their values and revisions.
    pub(crate) fn keys(&self, prefix: &str) -> Vec<Value> {
        let found = self.etcdctl(&["get", prefix, "--prefix", "-w", "json"]);
        let found: Value = serde_json::from_str(&found).expect("JSON");
        found["kvs"].as_array().cloned().unwrap_or_default()
    }

    /// Writes a value as something else would.
    pub(crate) fn put(&self, key: &str, value: &str) {
        // What is long is read from a pipe, and nothing cannot be.
        let done = match value {
            "" => self.control(&["put", key, ""], ""),
            _ => self.control(&["put", key], value),
        };
        done.unwrap_or_else(|why| panic!("etcdctl put {key}: {why}"));
    }

    /// Asks it through its own client, and returns what that prints.
    pub(crate) fn etcdctl(&self, words: &[&str]) -> String {
        self.control(words, "")
            .unwrap_or_else(|why| panic!("etcdctl {words:?}: {why}"))
    }

    /// The same, which may be refused: what it says then.
    pub(crate) fn control(&self, words: &[&str], input: &str) -> Result<String, String> {
        let mut child = command("etcdctl", self.dir.path())
            .args(words)
            .args(["--endpoints", &self.url(), "--command-timeout", "30s"])
            .args(&self.launch.control)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect(REMEDY);
        // One that reads nothing may have gone.
        if let Some(mut pipe) = child.stdin.take() {
            _ = pipe.write_all(input.as_bytes());
        }
        let done = child.wait_with_output().expect("our own child");
        match done.status.success() {
            true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
        }
    }

    /// What it says of itself; nothing while it stands still or is not there.
    fn status(&self) -> Option<Value> {
        let soon = Duration::from_millis(500);
        let said = self.post("/v3/maintenance/status", "{}", soon);
        serde_json::from_str(&said.ok()?).ok()
    }

    fn post(&self, path: &str, body: &str, within: Duration) -> io::Result<String> {
        let address = self.launch.host.address();
        ask(&address, &format!("POST {path}"), body, within)
    }

    /// Its number in the cluster.
    pub(crate) fn id(&self) -> Option<u64> {
        self.status()?["header"]["member_id"].as_str()?.parse().ok()
    }

    /// Whether it believes that it leads.
    pub(crate) fn is_leader(&self) -> bool {
        let Some(status) = self.status() else {
            return false;
        };
        // Without a leader it names none.
        status["leader"].is_string() && status["leader"] == status["header"]["member_id"]
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("our own child can be signalled");
    }

    /// Healthy is a member that knows a leader and is answered by a majority.
    pub(crate) fn wait_until_it_is_healthy(&mut self) {
        for _ in 0..3000 {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                panic!("etcd ended with {status}: {}", self.log());
            }
            let within = Duration::from_secs(2);
            let said = ask(&self.launch.host.at(HEALTH), "GET /health", "", within);
            if said.is_ok_and(|said| said.contains("\"health\":\"true\"")) {
                return;
            }
            pause(Duration::from_millis(10));
        }
        panic!("etcd was not healthy within 30 s: {}", self.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of {} ---\n{}", self.url(), self.log());
        }
        self.kill();
    }
}

impl Launch {
    fn clients(&self) -> String {
        let is_secure = self.extra.iter().any(|option| option == "--cert-file");
        let scheme = if is_secure { "https" } else { "http" };
        format!("{scheme}://{}", self.host.at(CLIENTS))
    }

    fn spawn(&self, dir: &Path) -> Child {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(dir.join("log"))
            .expect("a log file");
        let (clients, peers) = (self.clients(), self.host.peers());
        let health = format!("http://{}", self.host.at(HEALTH));
        command("etcd", dir)
            .args(["--name", &self.name, "--data-dir", "data"])
            .args(["--listen-client-urls", &clients])
            .args(["--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers])
            .args(["--initial-advertise-peer-urls", &peers])
            .args(["--listen-metrics-urls", &health])
            .args(["--initial-cluster", &self.members])
            .args(["--initial-cluster-token", self.token])
            // Another leader is found in less than a second.
            .args(["--heartbeat-interval", "50", "--election-timeout", "300"])
            // Members are killed, and the machine is not: they lose nothing by it, and nothing waits for a busy disk.
            .arg("--unsafe-no-fsync")
            .args(["--logger", "zap", "--log-outputs", "stderr"])
            .args(["--log-level", "error"])
            .args(&self.extra)
            .stdout(log.try_clone().expect("a log file"))
            .stderr(log)
            .spawn()
            .expect("etcd starts")
    }
}

/// One of etcd's programs in this folder, with nothing of our environment that means something to it.
fn command(name: &str, dir: &Path) -> Command {
    let mut command = Command::new(program(name).expect(REMEDY));
    command.current_dir(dir).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ETCD") {
            command.env_remove(name);
        }
    }
    command.env("ETCDCTL_API", "3");
    // Where it is not quite at home it wants to be told that this is known.
    command.env("ETCD_UNSUPPORTED_ARCH", "arm64");
    command
}

/// One request past every client library, and the body of its answer.
fn ask(address: &str, what: &str, body: &str, within: Duration) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(within))?;
    let length = body.len();
    let request = format!(
        "{what} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body);
    Ok(body.unwrap_or_default().to_owned())
}

#[allow(
    clippy::disallowed_methods,
    reason = "a child process gives no event when it is ready"
)]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
