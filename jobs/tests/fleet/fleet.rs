//! Real workers on a store of their own, with faults as verbs.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use watchkeeper::clock::{Clock, Moment};
use watchkeeper_jobs::demo_table::create_demo_table;

use crate::{
    beats::{Beat, Beats},
    command::{Ran, watchkeeper},
    log::{GONE, Line, Log, Mark},
    store::Store,
    wait::{AT_ONCE, SOON, pause, signal_child, starved, takeover_limit},
};

/// How long a worker may take that does not start.
const AT_START: Duration = Duration::from_secs(10);

/// The ttl of all fleets here.
pub(crate) const TTL: Duration = Duration::from_secs(2);

/// What a command says, and how it ends; one that takes longer is killed.
fn ran_within(command: &mut Command, limit: Duration) -> Ran {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the command starts");
    let pid = Pid::from_child(&child);
    let (ended, end) = mpsc::channel::<()>();
    let watch = thread::Builder::new().spawn(move || {
        if end.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
            _ = kill_process(pid, Signal::KILL);
        }
    });
    let done = child.wait_with_output().expect("the command ends");
    drop(ended);
    watch.expect("a thread").join().expect("its end");
    done.into()
}

/// A heartbeat that writes what it does to the fleet's file, once a second unless `more` says when, with work that takes so
/// long unless it is empty. `more` are further lines.
pub(crate) fn beat(job: &str, work: &str, more: &str) -> String {
    let when = match more.contains("schedule = ") {
        true => "",
        false => "schedule = \"@every 1s\"\n",
    };
    let work = match work {
        "" => String::new(),
        work => format!(", work = \"{work}\""),
    };
    format!(
        "[jobs.{job}]\nkind = \"heartbeat\"\n{when}{more}\nparams = {{ file = \"$BEATS\"{work} }}\n"
    )
}

/// One job, so that one replica leads.
pub(crate) fn pulse() -> String {
    beat("pulse", "", "")
}

/// Every way of coordination, in failover mode.
fn failover() -> String {
    let pulse = pulse();
    let other = beat("other", "", "");
    let each = beat("each", "", "coordination = \"everywhere\"");
    format!(
        r#"
[worker]
mode = "failover"
{pulse}{other}{each}
[jobs.mail]
kind = "notifications"
schedule = "continuous"
coordination = "batch"
params = {{ source = "sqlite://$FOLDER/app.db", table = "notifications", sink = "file://$FOLDER/sent", batch_size = 2, rate = 10.0 }}
"#
    )
}

/// Some workers, their store, and what they left. Workers die with it.
pub(crate) struct Fleet {
    pub(crate) store: Store,
    pub(crate) log: Log,
    folder: TempDir,
    workers: BTreeMap<usize, Child>,
    count: usize,
}

/// Somebody began to lead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Led {
    pub(crate) worker: usize,
    pub(crate) token: u64,
    pub(crate) at: Moment,
    /// The same on the wall clock, which heartbeats show.
    pub(crate) said: Timestamp,
}

// === impl Led ===

impl From<&Line> for Led {
    fn from(line: &Line) -> Self {
        Self {
            worker: line.worker,
            token: line.number("token"),
            at: line.at,
            said: line
                .text("timestamp")
                .parse()
                .expect("every line has its time"),
        }
    }
}

impl Led {
    /// How long after a heartbeat's line. The workers' lines arrive by several ways, so that theirs may seem to come
    /// in another order than they were said.
    pub(crate) fn after(&self, beat: &Beat) -> Duration {
        let gap = self.said.duration_since(beat.at);
        Duration::try_from(gap).expect("the next one leads when the last run is over, not before")
    }
}

// === impl Fleet ===

impl Fleet {
    /// A fleet without workers. `$FOLDER` and `$BEATS` in the configuration stand for its folder and its file of
    /// heartbeats.
    pub(crate) fn new(store: Store, config: &str) -> Self {
        let folder = TempDir::with_prefix("wk-fleet-").expect("a temporary folder");
        let fleet = Self {
            store,
            log: Log::default(),
            folder,
            workers: BTreeMap::new(),
            count: 0,
        };
        fleet.configure(config);
        fleet
    }

    /// Writes another configuration, with the same settings besides; answers with the whole file.
    pub(crate) fn configure(&self, config: &str) -> String {
        let settings = self.store.settings(self.folder.path());
        let beats = self.folder.path().join("beats");
        let config = config
            .replace("$BEATS", &beats.display().to_string())
            .replace("$FOLDER", &self.folder.path().display().to_string());
        let ttl = TTL.as_secs();
        let common = format!(
            "[admin]\nlisten = \"127.0.0.1:0\"\n[telemetry]\nformat = \"json\"\nlog = \"info,watchkeeper::telemetry::event_log=debug\"\n[locks]\nttl = \"{ttl}s\"\n{settings}"
        );
        let file = format!("{common}{config}");
        std::fs::write(self.file("fleet.toml"), &file).expect("a file in our own folder");
        file
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Workers that are started from now on have their locks there; answers with where they were before.
    pub(crate) fn move_to(&mut self, store: Store, config: &str) -> Store {
        let left = std::mem::replace(&mut self.store, store);
        self.configure(config);
        left
    }

    /// The same, and what was decided goes along; says what the command told of it.
    pub(crate) fn move_along(&mut self, store: Store, config: &str) -> (Store, Value) {
        let (old, new) = (self.file("old.toml"), self.file("fleet.toml"));
        std::fs::rename(&new, &old).expect("files in our own folder");
        let left = self.move_to(store, config);
        let mut command = watchkeeper(self.folder.path());
        command.arg("move").arg("--json").arg("--config").arg(old);
        command.arg("--to").arg(new);
        (left, ran_within(&mut command, SOON).ok().json())
    }

    /// Asks a worker to read it.
    pub(crate) fn reload(&self, worker: usize) {
        self.signal(worker, Signal::HUP);
    }

    /// A fleet of `n` workers, each of them ready.
    pub(crate) fn of(n: usize, store: Store, config: &str) -> Self {
        let mut fleet = Self::new(store, config);
        for _ in 0..n {
            fleet.start();
        }
        for worker in 0..n {
            fleet.wait_until_ready(worker);
        }
        fleet
    }

    /// A fleet without workers that is to do every kind of work, with 400 rows to send.
    pub(crate) fn failover(store: Store) -> Self {
        let fleet = Self::new(store, &failover());
        create_demo_table(&fleet.file("app.db"), 400).expect("a table");
        fleet
    }

    /// Waits for all kinds of work on this one, since `mark`.
    pub(crate) fn wait_for_all_kinds_of_work(&self, mark: Mark, worker: usize) {
        for (says, job) in [
            ("heartbeat", "pulse"),
            ("heartbeat", "other"),
            ("heartbeat", "each"),
            ("batch claimed", "mail"),
        ] {
            self.log
                .wait(mark, SOON, says, |l| l.is(says, job) && l.worker == worker);
        }
    }

    /// Starts another worker, and says its number.
    pub(crate) fn start(&mut self) -> usize {
        self.start_with(&[])
    }

    /// The same with these variables in its environment.
    pub(crate) fn start_with(&mut self, env: &[(String, String)]) -> usize {
        self.start_program(env!("CARGO_BIN_EXE_watchkeeper").as_ref(), env)
    }

    /// The same under this name, with these variables in its environment.
    pub(crate) fn start_as(&mut self, name: &str, variables: &[(&str, &str)]) -> usize {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let env: Vec<_> = variables.iter().map(own).collect();
        self.start_worker(env!("CARGO_BIN_EXE_watchkeeper").as_ref(), name, &env)
    }

    /// A worker that is another program.
    pub(crate) fn start_program(
        &mut self,
        program: &std::path::Path,
        env: &[(String, String)],
    ) -> usize {
        self.start_worker(program, &format!("w{}", self.count), env)
    }

    /// Starts another worker, and waits until it is ready.
    pub(crate) fn join(&mut self) -> usize {
        let worker = self.start();
        self.wait_until_ready(worker);
        worker
    }

    fn start_worker(
        &mut self,
        program: &std::path::Path,
        name: &str,
        env: &[(String, String)],
    ) -> usize {
        let worker = self.count;
        self.count += 1;
        let mut child = Command::new(program)
            .arg("run")
            .arg("--config")
            .arg(self.folder.path().join("fleet.toml"))
            .args(["--name", name])
            .current_dir(self.folder.path())
            // Where a token lies that has no file to lie beside.
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .envs(env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the worker starts");
        let pipe = child.stderr.take().expect("it was piped");
        self.log.follow(worker, pipe);
        self.workers.insert(worker, child);
        worker
    }

    pub(crate) fn wait_until_ready(&self, worker: usize) -> Line {
        let started = |l: &Line| l.worker == worker && l.says() == "worker started";
        self.log.wait(0, SOON, "start of a worker", started)
    }

    /// The workers whose processes have not been ended by the test.
    pub(crate) fn workers(&self) -> Vec<usize> {
        self.workers.keys().copied().collect()
    }

    /// Tells this fleet from others.
    fn name(&self) -> String {
        let name = self.folder.path().file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    pub(crate) fn pid(&self, worker: usize) -> u32 {
        self.workers[&worker].id()
    }

    /// The name that a worker signs its heartbeats with.
    pub(crate) fn replica(&self, worker: usize) -> String {
        self.wait_until_ready(worker).text("replica").to_owned()
    }

    // --- faults ---

    /// Kills it as the kernel does; says when.
    pub(crate) fn kill(&mut self, worker: usize) -> Moment {
        let at = self.signal(worker, Signal::KILL);
        if let Some(mut child) = self.workers.remove(&worker) {
            _ = child.wait();
        }
        at
    }

    /// Asks it to end its work and go; says when.
    pub(crate) fn terminate(&self, worker: usize) -> Moment {
        self.signal(worker, Signal::TERM)
    }

    /// Stops it in the middle of whatever it does; says when.
    ///
    /// Not inside a transaction of the embedded store: the file would stay locked, which is a case of its own.
    pub(crate) fn freeze(&self, worker: usize) -> Moment {
        loop {
            let at = self.signal(worker, Signal::STOP);
            if !self.store.is_blocked() {
                return at;
            }
            self.thaw(worker);
            pause(Duration::from_millis(30));
        }
    }

    /// Lets it go on; says when.
    pub(crate) fn thaw(&self, worker: usize) -> Moment {
        self.signal(worker, Signal::CONT)
    }

    fn signal(&self, worker: usize, signal: Signal) -> Moment {
        let at = Clock::system().now();
        signal_child(&self.workers[&worker], signal);
        at
    }

    /// Waits for the end of a worker that was told to go; says whether it ended well.
    pub(crate) fn wait_until_gone(&mut self, worker: usize) -> bool {
        let gone = |l: &Line| l.worker == worker && l.says() == GONE;
        self.log.wait(0, SOON, "end of a worker", gone);
        let mut child = self.workers.remove(&worker).expect("one of ours");
        child.wait().expect("our own child").success()
    }

    // --- what can be seen ---

    /// Says what was measured, for whoever reads along.
    pub(crate) fn measured(&self, what: &str, value: &impl std::fmt::Debug) {
        println!("[{}] {what}: {value:.1?}", self.store.name());
    }

    pub(crate) fn beats(&self) -> Beats {
        Beats::at(&self.folder.path().join("beats"))
    }

    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub(crate) fn file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// The first change of leadership of `job` since `mark`.
    pub(crate) fn next_leader(&self, mark: Mark, job: &str) -> Led {
        Led::from(
            &self
                .log
                .wait(mark, SOON, "leader", |l| l.is("leading", job)),
        )
    }

    /// Kills a leader of `job`. Whatever the phase of its renewals, the next one leads in the time that is promised.
    pub(crate) fn kill_leader(&mut self, led: Led, job: &str) -> Led {
        let mark = self.log.mark();
        let killed = self.kill(led.worker);
        let next = self.next_leader(mark, job);
        self.took_over(killed, &next);
        next
    }

    /// Checks that this one led soon enough after the end of the one before.
    pub(crate) fn took_over(&self, ended: Moment, next: &Led) {
        self.took_over_within(TTL, ended, next);
    }

    /// The same for a lease of this length.
    pub(crate) fn took_over_within(&self, ttl: Duration, ended: Moment, next: &Led) {
        let gap = next.at.since(ended);
        self.measured("taken over after", &gap);
        let starved = starved(ended, next.at);
        assert!(
            gap <= takeover_limit(ttl) + starved,
            "taken over after {gap:?}, starved {starved:?}"
        );
    }

    /// Checks how long nobody led, when leaders were told to go, and did not wait for a processor.
    pub(crate) fn handed_over(&self, gaps: &[Duration]) {
        self.measured("handed over after", &gaps);
        assert!(median(gaps.to_vec()) < AT_ONCE, "{gaps:?}");
    }

    /// The last change of leadership of `job`; waits for the first.
    pub(crate) fn leader(&self, job: &str) -> Led {
        let mut led = self.next_leader(0, job);
        for line in self.log.since(0) {
            if line.is("leading", job) {
                led = Led::from(&line);
            }
        }
        led
    }

    /// What `watchkeeper ARGUMENTS` says about this fleet.
    pub(crate) fn command(&self, arguments: &[&str]) -> String {
        self.ran(arguments).ok().out
    }

    /// What `watchkeeper ARGUMENTS` says in refusing.
    pub(crate) fn refusal(&self, arguments: &[&str]) -> String {
        self.ran(arguments).with(1).err
    }

    /// What `watchkeeper status --json` says.
    pub(crate) fn status(&self) -> Value {
        self.ran(&["status", "--json"]).ok().json()
    }

    /// What a worker says that does not start. One that has no answer of its store meanwhile waits for it, as on a machine that is
    /// busy: it is ended, and another one is tried.
    pub(crate) fn refusal_to_start(&self) -> String {
        let mut tried = (0..5).map(|_| ran_within(&mut self.asking(&["run"]), AT_START));
        let refused = tried.find(|ran| ran.code.is_some());
        refused.expect("a worker that ends by itself").with(1).err
    }

    fn ran(&self, arguments: &[&str]) -> Ran {
        ran_within(&mut self.asking(arguments), SOON)
    }

    fn asking(&self, arguments: &[&str]) -> Command {
        let mut command = watchkeeper(self.folder.path());
        command.args(arguments).arg("--config");
        command.arg(self.file("fleet.toml"));
        command
    }

    /// The status with which a worker answers `GET path`.
    pub(crate) fn status_of(&self, worker: usize, path: &str) -> u16 {
        self.asks(worker, "GET", path)
    }

    /// The status with which a worker answers somebody who has its token.
    pub(crate) fn asks(&self, worker: usize, method: &str, path: &str) -> u16 {
        let address = self.page(worker);
        let said = format!("Authorization: Bearer {}\r\n", self.token());
        self.says(&address, method, path, &said).0
    }

    /// The address of a worker's status page.
    pub(crate) fn page(&self, worker: usize) -> String {
        let listens = |l: &Line| l.worker == worker && l.says() == "status page listens";
        let line = self
            .log
            .wait(0, SOON, "address of the status page", listens);
        line.text("address").to_owned()
    }

    /// The token of the status pages, as their user finds it.
    pub(crate) fn token(&self) -> String {
        self.command(&["token"]).trim().to_owned()
    }

    /// What is answered to a request with these headers: the status, and all of it.
    pub(crate) fn says(
        &self,
        address: &str,
        method: &str,
        path: &str,
        headers: &str,
    ) -> (u16, String) {
        let mut stream = TcpStream::connect(address).expect("the page listens");
        stream.set_read_timeout(Some(SOON)).expect("a time limit");
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n{headers}\r\n"
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        _ = stream.read_to_string(&mut answer);
        let status = answer.split_whitespace().nth(1).unwrap_or_default();
        (status.parse().expect("an HTTP answer"), answer)
    }

    /// The status with which a worker answers an order that may be given again: while its store cannot be asked it says so,
    /// and when, which on a busy machine is no answer yet.
    pub(crate) fn orders(&self, worker: usize, path: &str) -> u16 {
        let clock = Clock::system();
        let until = clock.now() + SOON;
        loop {
            match self.asks(worker, "POST", path) {
                503 if clock.now() < until => pause(Duration::from_millis(500)),
                status => return status,
            }
        }
    }

    /// Resident memory in MB.
    pub(crate) fn memory(&self, worker: usize) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid(worker)));
        let status = status.expect("the worker lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
        kib.expect("a number of KiB") * 1024 / 1_000_000
    }

    /// Time that a worker has spent on processors.
    pub(crate) fn cpu(&self, worker: usize) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid(worker)))
            .expect("a living process");
        // The name in brackets may hold anything; utime and stime are the 12th and 13th fields after it.
        let (_, rest) = stat.rsplit_once(") ").expect("a name in brackets");
        let field = |n: usize| rest.split(' ').nth(n).and_then(|f| f.parse::<u64>().ok());
        let ticks = field(11).zip(field(12)).map(|(user, system)| user + system);
        Duration::from_millis(ticks.expect("two numbers") * 10)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for child in self.workers.values_mut() {
            _ = child.kill();
            _ = child.wait();
        }
        if std::thread::panicking() {
            // All of it to a file: a failure is often explained long before it is seen.
            let path = std::env::temp_dir().join(format!("{}.log", self.name()));
            _ = std::fs::write(&path, self.log.tail(usize::MAX));
            let (path, tail) = (path.display(), self.log.tail(40));
            eprintln!("--- last lines of the workers; all of them are in {path} ---\n{tail}");
        }
    }
}

/// The middle one of some durations.
pub(crate) fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all[all.len() / 2]
}
