//! Real Redis processes for tests: started on a socket of their own, frozen, killed and started again by verbs.
//!
//! Self-contained, so that other suites can include it with `#[path]`.
#![allow(dead_code, reason = "every suite uses its own part")]
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    cell::RefCell,
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;

/// What to install where no server is found.
pub(crate) const REMEDY: &str =
    "no redis-server found: apt-get install redis-server, or set WATCHKEEPER_REDIS_SERVER";

/// A running server. Killed and reaped on drop.
pub(crate) struct RedisServer {
    launch: Box<Launch>,
    child: Child,
    /// Last: the directory goes when the process has gone.
    dir: TempDir,
}

/// How it is started, each time.
struct Launch {
    binary: PathBuf,
    extra: Vec<String>,
    env: Vec<(String, String)>,
}

thread_local! {
    /// The program of this case, where it is not the usual one.
    static PROGRAM: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// The server's program: `WATCHKEEPER_REDIS_SERVER`, else redis-server or valkey-server in PATH.
pub(crate) fn binary() -> Option<PathBuf> {
    if let Some(of_the_case) = PROGRAM.with_borrow(Clone::clone) {
        return Some(of_the_case);
    }
    if let Some(named) = std::env::var_os("WATCHKEEPER_REDIS_SERVER").filter(|v| !v.is_empty()) {
        let named = PathBuf::from(named);
        return named.is_file().then_some(named);
    }
    let path = std::env::var_os("PATH")?;
    let dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    ["redis-server", "valkey-server"].iter().find_map(|name| {
        dirs.iter()
            .map(|dir| dir.join(name))
            .find(|file| file.is_file())
    })
}

/// What to do where there is no Valkey.
const NO_VALKEY: &str = "no valkey-server found: apt-get install valkey-server, or set WATCHKEEPER_SERVERS to its folder";

/// Programs of further servers than [`binary`]: redis-server and valkey-server in PATH, and whatever can be executed in the
/// folders `WATCHKEEPER_SERVERS`. Links to one program are one.
pub(crate) fn others() -> Vec<PathBuf> {
    let folders = |variable| {
        let value = std::env::var_os(variable).unwrap_or_default();
        let folders: Vec<_> = std::env::split_paths(&value).collect();
        folders
            .into_iter()
            .filter(|dir| !dir.as_os_str().is_empty())
    };
    let in_path = folders("PATH")
        .flat_map(|dir| ["redis-server", "valkey-server"].map(|name| dir.join(name)));
    let given = folders("WATCHKEEPER_SERVERS").flat_map(|dir| {
        let entries = fs::read_dir(&dir).unwrap_or_else(|why| panic!("WATCHKEEPER_SERVERS: {why}"));
        let files: BTreeSet<_> = entries.flatten().map(|entry| entry.path()).collect();
        files
    });
    let runs = |file: &PathBuf| {
        let found = fs::metadata(file);
        found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let real = |file: &PathBuf| fs::canonicalize(file).ok();
    let mut known: BTreeSet<_> = binary().as_ref().and_then(real).into_iter().collect();
    let mut found: Vec<_> = in_path.chain(given).filter(runs).collect();
    found.retain(|file| real(file).is_some_and(|real| known.insert(real)));
    found
}

/// A case against the server with this program, if it is another one than the usual; the file's name stands before that of
/// the case.
pub(crate) fn trial_on(program: &Path, name: &str, case: fn()) -> libtest_mimic::Trial {
    /// Cases follow each other on one thread, also after one has panicked.
    struct Usual;
    impl Drop for Usual {
        fn drop(&mut self) {
            PROGRAM.set(None);
        }
    }
    let kind = program.file_name().unwrap_or_default().to_string_lossy();
    let (name, program) = (format!("{kind}::{name}"), program.to_owned());
    libtest_mimic::Trial::test(name, move || {
        PROGRAM.set(Some(program));
        let _usual = Usual;
        case();
        Ok(())
    })
}

/// What stands for all cases on Valkey where none is among these and the usual server: ignored with the reason, or a failure
/// where `WATCHKEEPER_REQUIRE` names valkey.
pub(crate) fn no_valkey(others: &[PathBuf]) -> Option<libtest_mimic::Trial> {
    if others.iter().chain(&binary()).any(|one| is_valkey(one)) {
        return None;
    }
    if requires("valkey") {
        let why = format!("{NO_VALKEY} (WATCHKEEPER_REQUIRE names valkey)");
        return Some(libtest_mimic::Trial::test("valkey", || Err(why.into())));
    }
    let name = format!("valkey [{NO_VALKEY}]");
    let ignored = libtest_mimic::Trial::test(name, || Err(NO_VALKEY.into()));
    Some(ignored.with_ignored_flag(true))
}

/// Whether this is a program of Valkey, by its name.
pub(crate) fn is_valkey(program: &Path) -> bool {
    let name = program.file_name().unwrap_or_default();
    name.to_string_lossy().contains("valkey")
}

/// Whether the server's program is built with TLS: others do not know the option.
pub(crate) fn knows_tls() -> bool {
    knows(&["--port", "0", "--tls-port", "none"])
}

/// Whether the server's program can be told where to begin its connections, as since Redis 7.
pub(crate) fn knows_sources() -> bool {
    knows(&["--bind-source-addr", "127.0.0.1", "--port", "none"])
}

fn knows(options: &[&str]) -> bool {
    let Some(binary) = binary() else { return false };
    // Refused either way, with a port that is none: what counts is what it complains of.
    let said = Command::new(binary)
        .args(options)
        .stdin(Stdio::null())
        .output()
        .expect("redis-server starts");
    let said = [said.stdout, said.stderr].concat();
    !String::from_utf8_lossy(&said).contains("Bad directive")
}

/// Whether `WATCHKEEPER_REQUIRE` (a list such as `redis,browser`) turns the server's absence into a failure.
pub(crate) fn required() -> bool {
    requires("redis")
}

fn requires(what: &str) -> bool {
    std::env::var("WATCHKEEPER_REQUIRE")
        .is_ok_and(|list| list.split(',').any(|word| word.trim() == what))
}

/// One server-backed case for libtest-mimic: a panic is its failure; where the server is missing it is ignored, with
/// the reason beside its name.
pub(crate) fn trial(name: &str, case: impl FnOnce() + Send + 'static) -> libtest_mimic::Trial {
    if binary().is_some() {
        return libtest_mimic::Trial::test(name, move || {
            case();
            Ok(())
        });
    }
    if required() {
        return libtest_mimic::Trial::test(name, || {
            Err(format!("{REMEDY} (WATCHKEEPER_REQUIRE names redis)").into())
        });
    }
    // Also with `--ignored`, which runs it all the same, it must never count as passed.
    libtest_mimic::Trial::test(format!("{name} [{REMEDY}]"), || Err(REMEDY.into()))
        .with_ignored_flag(true)
}

/// The same for a server that must know something: ignored, for this reason, where it does not.
pub(crate) fn trial_where(
    able: bool,
    reason: &'static str,
    name: &str,
    case: fn(),
) -> libtest_mimic::Trial {
    if able || binary().is_none() {
        return trial(name, case);
    }
    libtest_mimic::Trial::test(format!("{name} [{reason}]"), move || Err(reason.into()))
        .with_ignored_flag(true)
}

// === impl RedisServer ===

impl RedisServer {
    /// An empty server without persistence.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// As [`RedisServer::start`], with more options: `&["--requirepass", "x"]`.
    pub(crate) fn start_with(extra: &[&str]) -> Self {
        Self::start_under(extra, Vec::new())
    }

    /// As [`RedisServer::start_with`], with environment variables, also for those that follow by a restart.
    pub(crate) fn start_under(extra: &[&str], env: Vec<(String, String)>) -> Self {
        let launch = Box::new(Launch {
            binary: binary().expect(REMEDY),
            extra: extra.iter().map(|&option| option.to_owned()).collect(),
            env,
        });
        let dir = TempDir::with_prefix("wk-redis-").expect("a temporary directory");
        let mut server = Self {
            child: launch.spawn(dir.path()),
            launch,
            dir,
        };
        server.wait_until_it_answers();
        server
    }

    /// The server's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("n.sock")
    }

    /// Where it runs and writes.
    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Its address for clients.
    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops the process in the middle of whatever it does; connections stay open.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a frozen process go on.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the process as a power cut does; its memory is lost.
    pub(crate) fn kill(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }

    /// Kills it if need be and starts another one, empty, at the same address.
    pub(crate) fn restart(&mut self) {
        self.kill();
        _ = fs::remove_file(self.socket());
        self.child = self.launch.spawn(self.dir.path());
        self.wait_until_it_answers();
    }

    /// Sends one command past every client library, and returns the raw answer.
    pub(crate) fn raw(&self, words: &[&str]) -> String {
        raw(&self.socket(), words, Duration::from_secs(30)).expect("the server answers")
    }

    /// As [`RedisServer::raw`], of a server that may stand still.
    pub(crate) fn raw_or_nothing(&self, words: &[&str]) -> Option<String> {
        raw(&self.socket(), words, Duration::from_secs(2)).ok()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .expect("a pid");
        kill_process(pid, signal).expect("our own child can be signalled");
        if signal == Signal::STOP {
            // On a busy machine it goes on until it has had a processor.
            let still = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(pid), still).expect("our own child can be waited for");
        }
    }

    /// Ready means that *our* child answers, not a stranger at the same address.
    fn wait_until_it_answers(&mut self) {
        let own = format!("process_id:{}\r\n", self.child.id());
        for _ in 0..500 {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                panic!("redis-server ended with {status}: {}", self.log());
            }
            match raw(&self.socket(), &["INFO", "server"], Duration::from_secs(2)) {
                Ok(info) if info.contains(&own) => return,
                // A password: only our child knows a socket in our private directory.
                Ok(refusal) if refusal.starts_with("-NOAUTH") => return,
                _ => pause(Duration::from_millis(10)),
            }
        }
        panic!("redis-server did not answer within 5 s: {}", self.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of {} ---\n{}", self.socket().display(), self.log());
        }
        self.kill();
    }
}

impl Launch {
    fn spawn(&self, dir: &Path) -> Child {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(dir.join("log"))
            .expect("a log file");
        Command::new(&self.binary)
            .current_dir(dir)
            .args([
                "--port",
                "0",
                "--unixsocket",
                "n.sock",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .args(&self.extra)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log file"))
            .stderr(log)
            .spawn()
            .expect("redis-server starts")
    }
}

/// One command in the inline-free protocol, one answer; enough for what tests ask.
fn raw(socket: &Path, words: &[&str], within: Duration) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(within))?;
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(request.as_bytes())?;
    // Nothing more to come from us: the server answers, then closes.
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[allow(
    clippy::disallowed_methods,
    reason = "a child process gives no event when it is ready"
)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
