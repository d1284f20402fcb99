//! A real PostgreSQL server for tests: a cluster in a temporary folder, on a socket of its own, killed in the end. Shared with
//! the suites of the stock jobs.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "every suite uses its own part")]

use std::{
    fs, io,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, OnceLock},
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, geteuid, kill_process, waitid};
use tempfile::TempDir;

/// What to install where no server is found.
pub(crate) const REMEDY: &str = "no PostgreSQL found: apt-get install postgresql, or set WATCHKEEPER_POSTGRES_BIN to its folder bin";

/// The owner of the cluster and of everything in it.
pub(crate) const USER: &str = "watchkeeper";

/// A running server. Killed and reaped on drop.
pub(crate) struct PostgresServer {
    child: Child,
    settings: Vec<String>,
    /// Last: the directory goes when the process has gone.
    dir: TempDir,
}

/// One server for all cases, started by the first that needs it, with these settings.
#[derive(Clone, Default)]
pub(crate) struct Shared {
    server: Arc<OnceLock<PostgresServer>>,
    settings: &'static [&'static str],
}

impl Shared {
    pub(crate) fn with(settings: &'static [&'static str]) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    pub(crate) fn get(&self) -> &PostgresServer {
        let start = || PostgresServer::start_with(self.settings, |_| {});
        self.server.get_or_init(start)
    }
}

/// The folder of the server's programs: `WATCHKEEPER_POSTGRES_BIN`, else PATH, else the newest that Debian has.
pub(crate) fn programs() -> Option<PathBuf> {
    let whole = |dir: &PathBuf| ["initdb", "postgres"].iter().all(|p| dir.join(p).is_file());
    if let Some(named) = std::env::var_os("WATCHKEEPER_POSTGRES_BIN").filter(|v| !v.is_empty()) {
        return Some(PathBuf::from(named)).filter(whole);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut debian: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    debian.sort();
    std::env::split_paths(&path)
        .chain(debian.into_iter().rev().map(|(_, dir)| dir))
        .find(whole)
}

/// Whether `WATCHKEEPER_REQUIRE` (a list such as `redis,postgres`) turns the server's absence into a failure.
fn required() -> bool {
    std::env::var("WATCHKEEPER_REQUIRE")
        .is_ok_and(|list| list.split(',').any(|word| word.trim() == "postgres"))
}

/// One server-backed case for libtest-mimic: a panic is its failure; where the server is missing it is ignored, with
/// the reason beside its name.
pub(crate) fn trial(
    name: &str,
    server: &Shared,
    case: impl FnOnce(&PostgresServer) + Send + 'static,
) -> libtest_mimic::Trial {
    let server = server.clone();
    trial_of_its_own(name, move || case(server.get()))
}

/// The same for a case that starts its servers itself.
pub(crate) fn trial_of_its_own(
    name: &str,
    case: impl FnOnce() + Send + 'static,
) -> libtest_mimic::Trial {
    if programs().is_some() {
        return libtest_mimic::Trial::test(name, move || {
            case();
            Ok(())
        });
    }
    if required() {
        return libtest_mimic::Trial::test(name, || {
            Err(format!("{REMEDY} (WATCHKEEPER_REQUIRE names postgres)").into())
        });
    }
    // Also with `--ignored`, which runs it all the same, it must never count as passed.
    libtest_mimic::Trial::test(format!("{name} [{REMEDY}]"), || Err(REMEDY.into()))
        .with_ignored_flag(true)
}

// === impl PostgresServer ===

impl PostgresServer {
    /// An empty cluster, which forgets everything in a power cut: nothing waits for the disk.
    pub(crate) fn start() -> Self {
        Self::start_with(&[], |_| {})
    }

    /// The same with further settings, after `prepare` has put files into its folder.
    pub(crate) fn start_with(settings: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        Self::make(settings, prepare, launch)
    }

    /// The same with a small disk beside it, where a database can be put: see [`PostgresServer::small_disk`]. It takes the right to mount.
    pub(crate) fn start_on_a_small_disk(settings: &[&str]) -> Self {
        let prepare = |folder: &Path| {
            let disk = folder.join(SMALL_DISK);
            fs::create_dir(disk).expect("our own directory");
        };
        Self::make(settings, prepare, launch_with_a_small_disk)
    }

    /// Fills that disk until nothing more fits.
    pub(crate) fn fill(&self) {
        let filled = fs::write(self.filler(), vec![0; 64 << 20]);
        let why = filled.expect_err("a small disk");
        assert_eq!(why.kind(), io::ErrorKind::StorageFull, "{why}");
    }

    /// Takes that away again.
    pub(crate) fn make_room(&self) {
        fs::remove_file(self.filler()).expect("it was filled");
    }

    /// The server sees the disk, and others only through it.
    fn filler(&self) -> PathBuf {
        let disk = self.dir.path().join(SMALL_DISK).join("filler");
        PathBuf::from(format!("/proc/{}/root{}", self.child.id(), disk.display()))
    }

    /// The folder on it for tables.
    pub(crate) fn small_disk(&self) -> PathBuf {
        self.dir.path().join(SMALL_DISK).join("space")
    }

    fn make(
        settings: &[&str],
        prepare: impl FnOnce(&Path),
        start: fn(&TempDir, &[String]) -> Child,
    ) -> Self {
        let programs = programs().expect(REMEDY);
        let dir = TempDir::with_prefix("wk-postgres-").expect("a temporary directory");
        if let Some((user, group)) = servant() {
            chown(dir.path(), Some(user), Some(group)).expect("our own directory");
        }
        let made = command(&programs.join("initdb"), dir.path())
            .args(["--pgdata", "data", "--username", USER])
            .args(["--auth", "trust", "--encoding", "UTF8", "--locale", "C"])
            .arg("--no-sync")
            .output()
            .expect("initdb starts");
        assert!(
            made.status.success(),
            "initdb ended with {}: {}",
            made.status,
            String::from_utf8_lossy(&made.stderr)
        );
        prepare(dir.path());
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let child = start(&dir, &settings);
        let mut server = Self {
            child,
            settings,
            dir,
        };
        server.wait_until_it_is_ready();
        server
    }

    /// Ends the server as a crash does, with all its connections.
    pub(crate) fn stop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process"), Signal::QUIT).expect("our own child");
        self.child.wait().expect("our own child");
    }

    /// Kills the server as the kernel does where memory runs out. Its processes may commit what they are about to before they see that
    /// it has gone; the server does not start again before they have gone, too.
    pub(crate) fn kill(&mut self) {
        // One that stands still starts no further process, which would be missed below.
        self.signal(Signal::STOP);
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&self.child)), stopped).expect("our own child");
        let children = self.children().expect("Linux with its list of children");
        self.child.kill().expect("our own child");
        self.child.wait().expect("our own child");
        let works = |pid: &str| {
            // One that has ended, and was not waited for yet, has no program any more.
            fs::read_link(format!("/proc/{pid}/exe")).is_ok()
        };
        for _ in 0..1500 {
            if !children.split_whitespace().any(works) {
                return;
            }
            pause(Duration::from_millis(10));
        }
        panic!("processes of the server that was killed go on after 15 s");
    }

    /// Stops the server and all its processes in the middle of whatever they do; connections stay open.
    pub(crate) fn freeze(&self) {
        // First the one that would make more of them.
        self.signal(Signal::STOP);
        self.signal_children(Signal::STOP);
    }

    /// Lets them go on.
    pub(crate) fn thaw(&self) {
        self.signal_children(Signal::CONT);
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("our own child");
    }

    /// One that ends meanwhile is no matter.
    fn signal_children(&self, signal: Signal) {
        let children = self.children().unwrap_or_default();
        let numbers = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        for pid in numbers.filter_map(Pid::from_raw) {
            _ = kill_process(pid, signal);
        }
    }

    /// The numbers of its processes.
    fn children(&self) -> io::Result<String> {
        let id = self.child.id();
        fs::read_to_string(format!("/proc/{id}/task/{id}/children"))
    }

    /// Starts it again, with all that it had.
    pub(crate) fn start_again(&mut self) {
        // What it says of the life before must not be read as of this one.
        _ = fs::remove_file(self.dir.path().join("data/postmaster.pid"));
        self.child = launch(&self.dir, &self.settings);
        self.wait_until_it_is_ready();
    }

    /// Puts a file into its folder that it can read, and nobody else.
    pub(crate) fn put(dir: &Path, name: &str, text: &str) {
        let path = dir.join(name);
        fs::write(&path, text).expect("our own directory");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("our own file");
        if let Some((user, group)) = servant() {
            chown(&path, Some(user), Some(group)).expect("our own file");
        }
    }

    /// Its folder.
    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// The address of a database, by the socket.
    pub(crate) fn url(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@{}/{database}", self.host())
    }

    /// The host in an address.
    pub(crate) fn host(&self) -> String {
        self.dir.path().display().to_string().replace('/', "%2F")
    }

    /// Another server that follows this one, asynchronously. This one is started again for it.
    pub(crate) fn standby(&mut self) -> Self {
        let dir = TempDir::with_prefix("wk-postgres-").expect("a temporary directory");
        let owner = servant();
        let give = |path: &Path| {
            if let Some((user, group)) = owner {
                chown(path, Some(user), Some(group)).expect("our own directory");
            }
        };
        give(dir.path());
        self.stop();
        self.copy("data", &dir.path().join("data"));
        self.start_again();
        // What the one before has left must not be read as of this one.
        _ = fs::remove_file(dir.path().join("data/postmaster.pid"));
        Self::put(dir.path(), "data/standby.signal", "");
        let primary = format!(
            "primary_conninfo = 'host={} user={USER}'\n",
            self.dir.path().display()
        );
        Self::put(dir.path(), "data/postgresql.auto.conf", &primary);
        let child = launch(&dir, &self.settings);
        let mut standby = Self {
            child,
            settings: self.settings.clone(),
            dir,
        };
        standby.wait_until_it_is_ready();
        standby
    }

    /// Puts a copy of all that it has beside it, while it is stopped.
    pub(crate) fn keep_a_copy(&self) {
        self.copy("data", Path::new("copy"));
    }

    /// Puts that copy in the place of all that it has, while it is stopped.
    pub(crate) fn bring_the_copy_back(&self) {
        fs::remove_dir_all(self.dir.path().join("data")).expect("our own directory");
        self.copy("copy", Path::new("data"));
    }

    fn copy(&self, from: &str, to: &Path) {
        let copied = Command::new("cp")
            .current_dir(self.dir.path())
            .args(["-a", from])
            .arg(to)
            .status();
        assert!(copied.expect("cp starts").success());
    }

    /// The server's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join(".s.PGSQL.5432")
    }

    /// The last line of the server's own file says how far it is.
    fn wait_until_it_is_ready(&mut self) {
        let file = self.dir.path().join("data/postmaster.pid");
        for _ in 0..1500 {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                panic!("postgres ended with {status}: {}", self.log());
            }
            let told = fs::read_to_string(&file).unwrap_or_default();
            let up = |line: &str| matches!(line.trim(), "ready" | "standby");
            if told.lines().last().is_some_and(up) {
                return;
            }
            pause(Duration::from_millis(10));
        }
        panic!("postgres was not ready within 15 s: {}", self.log());
    }

    /// What it has written into its log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // One that was waited for has a number no more: another process may have it by now.
        if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        // One that stands still hears of nothing.
        self.signal_children(Signal::CONT);
        _ = kill_process(Pid::from_child(&self.child), Signal::CONT);
        // SIGQUIT and not SIGKILL: the server takes its processes and its shared memory with it.
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let told = pid.is_some_and(|pid| kill_process(pid, Signal::QUIT).is_ok());
        for _ in 0..500 {
            if !told || self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                break;
            }
            pause(Duration::from_millis(10));
        }
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Where the small disk is, in the server's folder.
const SMALL_DISK: &str = "small";

/// Mounts it where only this process and its children see it, so that it ends with them, and becomes the server.
fn launch_with_a_small_disk(dir: &TempDir, settings: &[String]) -> Child {
    let (owner, become_it) = match servant() {
        Some((user, group)) => (
            format!("-o {user} -g {group}"),
            format!("setpriv --reuid {user} --regid {group} --clear-groups --"),
        ),
        None => Default::default(),
    };
    let script = format!(
        "mount -t tmpfs -o size=16m none {SMALL_DISK} && install -d -m 700 {owner} {SMALL_DISK}/space && \
         exec {become_it} \"$0\" \"$@\""
    );
    let mut server = command_as_we_are(Path::new("unshare"), dir.path());
    server.args(["--mount", "sh", "-c", &script]);
    server.arg(program_of_the_server());
    run_server(server, dir, settings)
}

fn launch(dir: &TempDir, settings: &[String]) -> Child {
    let server = command(&program_of_the_server(), dir.path());
    run_server(server, dir, settings)
}

fn program_of_the_server() -> PathBuf {
    programs().expect(REMEDY).join("postgres")
}

fn run_server(mut server: Command, dir: &TempDir, settings: &[String]) -> Child {
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(dir.path().join("log"))
        .expect("a log file");
    server.args(["-D", "data", "-k"]).arg(dir.path());
    let ours = [
        "listen_addresses=",
        "fsync=off",
        "synchronous_commit=off",
        "full_page_writes=off",
        "autovacuum=off",
        "max_connections=100",
        "shared_buffers=16MB",
    ];
    for setting in ours.into_iter().chain(settings.iter().map(String::as_str)) {
        server.args(["-c", setting]);
    }
    server
        .stdout(log.try_clone().expect("a log file"))
        .stderr(log)
        .spawn()
        .expect("postgres starts")
}

/// A program of the server in its folder, with nothing of our environment that means something to it.
pub(crate) fn command(program: &Path, dir: &Path) -> Command {
    let mut command = command_as_we_are(program, dir);
    if let Some((user, group)) = servant() {
        command.uid(user).gid(group);
    }
    command
}

/// The same by the user who runs the tests.
fn command_as_we_are(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    command
}

/// PostgreSQL refuses to run as root. For root: the user and group that do it instead.
pub(crate) fn servant() -> Option<(u32, u32)> {
    if !geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("a list of users");
    let find = |name: &str| {
        let user = users
            .lines()
            .find(|line| line.split(':').next() == Some(name))?;
        let mut numbers = user.split(':').skip(2).map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    let found = find("postgres").or_else(|| find("nobody"));
    Some(found.expect("as root a user postgres or nobody is needed to run the server"))
}

#[allow(
    clippy::disallowed_methods,
    reason = "a child process gives no event when it is ready"
)]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
