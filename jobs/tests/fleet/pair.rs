//! The failover pair of the book (`docs/guides/failover-pair.md`): its commands, taken from the page, in one shell that reads them as
//! they stand there. Costs about 15 seconds for each store, nearly all of them waiting.
//!
//! Stand-ins in the shell's `PATH` do what would change the machine: `cargo install` has installed the command that belongs to these
//! tests, `apt-get install` finds all of it installed, and `psql` asks a server of the case's own by its socket; `tests/run` carries out
//! what they stand for. `redis-server` and `redis-cli` are those of the machine, with all options of the page, at other ports, as
//! those of the page may be taken. So the addresses in the page's file are these, and pages listen at any free port. All else is the
//! page's, also what its text has its reader type afterwards.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt, fs::symlink, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use libtest_mimic::Trial;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;
use watchkeeper::clock::Clock;

#[cfg(feature = "postgres")]
use crate::postgres::{self, PostgresServer, USER};
use crate::{
    server,
    wait::{SOON, soon, starved, takeover_limit},
};

const PAGE: &str = "docs/guides/failover-pair.md";
const REDIS: &str = "### On three Redis masters";
#[cfg(feature = "postgres")]
const POSTGRES: &str = "### On PostgreSQL";

/// Where that is carried out for which something stands in here: the command, and how it reads in `tests/run`.
const ELSEWHERE: [(&str, &str); 3] = [
    (
        "cargo install --locked --path jobs",
        "cargo install --quiet --locked --path jobs",
    ),
    (
        "sudo apt-get install redis-server",
        "install_packages redis-server",
    ),
    (
        "sudo apt-get install postgresql",
        "install_packages postgresql",
    ),
];

/// The ports of the page.
const PORTS: [&str; 3] = ["7001", "7002", "7003"];

/// Fewer than ten.
const MOST: usize = 9;
/// What stands in the page's files.
const TTL: Duration = Duration::from_secs(5);
const BEAT: Duration = Duration::from_secs(2);

/// The cases, where the servers are.
pub(crate) fn trials() -> Vec<Trial> {
    let redis = "masters::pair::the_commands_of_the_book_make_a_pair";
    vec![
        server::trial(redis, on_redis),
        #[cfg(feature = "postgres")]
        postgres::trial_of_its_own(
            "postgres::pair::the_commands_of_the_book_make_a_pair",
            on_postgres,
        ),
    ]
}

fn on_redis() {
    let mut guide = Guide::read(REDIS);
    let ports = free_ports();
    for (theirs, ours) in PORTS.iter().zip(ports) {
        let address = |port: &str| format!("redis://127.0.0.1:{port}");
        guide.replace(&address(theirs), &address(&ours.to_string()));
    }
    let mut shell = Shell::new(&guide.file);
    let server = server::binary().expect(server::REMEDY);
    let client = on_path(&["redis-cli", "valkey-cli"]).expect("apt-get install redis-tools");
    let at = PORTS.iter().zip(ports);
    let at: Vec<String> = at
        .map(|(theirs, ours)| format!("{theirs}) port={ours} ;;"))
        .collect();
    let at = format!("case \"$2\" in {} *) exit 1 ;; esac; shift 2", at.join(" "));
    // By which it is ended where the case fails.
    let own = format!("--pidfile '{}'/$port.pid", shell.folder.path().display());
    let (server, client) = (server.display(), client.display());
    let start =
        format!("[ \"$1\" = --port ] || exit 1\n{at}\nexec '{server}' --port $port {own} \"$@\"");
    shell.stand_in("redis-server", &start);
    let ask = format!("[ \"$1\" = -p ] || exit 1\n{at}\nexec '{client}' -p $port \"$@\"");
    shell.stand_in("redis-cli", &ask);
    shell.stand_in("sudo", "[ \"$*\" = 'apt-get install redis-server' ]");
    shell.daemons = ports.map(|port| format!("{port}.pid")).into();
    let answers = |port: u16| TcpStream::connect(("127.0.0.1", port)).is_ok();
    let mut shell = guide.makes_a_pair(shell, |_| {
        soon("all masters", || ports.into_iter().all(answers));
    });
    // What the text says then.
    assert_eq!(guide.afterwards, ["kill %2", "redis-cli -p 7001 shutdown"]);
    for line in &guide.afterwards {
        shell.run(line);
    }
    soon("the end of the other one", || {
        shell.has("b.log", "\"worker ended\"")
    });
    soon("the end of a master", || !answers(ports[0]));
    assert!(answers(ports[1]) && answers(ports[2]));
}

/// As many as on the page, which were free a moment ago: below those that Linux gives to connections that go out, of which others make
/// some before the servers listen.
fn free_ports() -> [u16; 3] {
    let first = u16::try_from(std::process::id() % 10_000).expect("a small number");
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut free = (20_000 + first..32_000).filter(is_free);
    PORTS.map(|_| free.next().expect("a free port"))
}

/// The first of these programs that there is.
fn on_path(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    names.iter().find_map(|name| {
        let mut files = folders.iter().map(|folder| folder.join(name));
        files.find(|file| file.is_file())
    })
}

#[cfg(feature = "postgres")]
fn on_postgres() {
    let mut guide = Guide::read(POSTGRES);
    // A server that forgets in a power cut is refused.
    let server = PostgresServer::start_with(&["fsync=on"], |_| {});
    guide.replace(
        "postgres://worker:secret@127.0.0.1/app",
        &server.url("worker", "app"),
    );
    let shell = Shell::new(&guide.file);
    let beside = postgres::programs().expect(postgres::REMEDY).join("psql");
    let psql = match beside.is_file() {
        true => beside,
        false => PathBuf::from("psql"),
    };
    let ask = format!(
        "[ \"$*\" = 'apt-get install postgresql' ] && exit\n[ \"$1 $2 $3\" = '-u postgres psql' ] || exit\nshift 3\n\
         exec '{}' --no-psqlrc --host '{}' --username {USER} --dbname postgres \"$@\"",
        psql.display(),
        server.folder().display()
    );
    shell.stand_in("sudo", &ask);
    guide.makes_a_pair(shell, |_| {});
    assert_eq!(guide.afterwards, [""; 0]);
}

/// A section of the page: the file that it has its reader save, and the commands.
struct Guide {
    file: String,
    commands: Vec<String>,
    /// What the text behind them names, in its order.
    afterwards: Vec<String>,
}

/// A shell in a folder of its own, which reads commands as they come. All that it has started dies with it.
struct Shell {
    shell: Child,
    commands: ChildStdin,
    said: mpsc::Receiver<String>,
    /// Files with the ids of processes that have left it, in its folder. They are gone when their processes have ended.
    daemons: Vec<String>,
    folder: TempDir,
}

// === impl Guide ===

impl Guide {
    fn read(section: &str) -> Self {
        let page = fs::read_to_string(root().join(PAGE)).expect(PAGE);
        let (_, text) = page.split_once(section).expect(section);
        let text = text.split("\n##").next().unwrap_or_default();
        let block = |language: &str| {
            let (_, block) = text.split_once(&format!("```{language}\n")).expect(section);
            block.split("```").next().unwrap_or_default().to_owned()
        };
        let commands: Vec<String> = block("sh").lines().map(str::to_owned).collect();
        assert!(commands.len() <= MOST, "{commands:#?}");
        let runs = fs::read_to_string(root().join("tests/run")).expect("tests/run");
        for (command, there) in ELSEWHERE {
            assert!(runs.contains(there), "tests/run has no {there}: {command}");
        }
        let (_, behind) = text.rsplit_once("```").expect(section);
        let named = behind.split('`').skip(1).step_by(2);
        let typed =
            named.filter(|code| code.starts_with("kill ") || code.starts_with("redis-cli "));
        Self {
            file: block("toml"),
            commands,
            afterwards: typed.map(str::to_owned).collect(),
        }
    }

    /// What stands in the file is another one here.
    #[track_caller]
    fn replace(&mut self, there: &str, here: &str) {
        assert!(self.file.contains(there), "no {there} in {}", self.file);
        self.file = self.file.replace(there, here);
    }

    /// Each command ends well; the first worker leads, and when it is killed the other one does, and works. A person waits, where
    /// a person would, for what the page says. `started` waits until the servers are there. Answers with the shell, in which the other
    /// worker runs.
    fn makes_a_pair(&self, mut shell: Shell, started: impl Fn(&Shell)) -> Shell {
        shell.stand_in("cargo", "[ \"$*\" = 'install --locked --path jobs' ]");
        let (mut runs, mut looks, mut killed) = (0, 0, None);
        for line in &self.commands {
            let now = Clock::system().now();
            let mut said = shell.run(line);
            if line.starts_with("cargo install") {
                shell.install();
                started(&shell);
            } else if line.starts_with("watchkeeper run") {
                let (log, words) = match runs {
                    0 => ("a.log", "\"leading\",\"job\":\"heartbeat\""),
                    _ => ("b.log", "\"worker started\""),
                };
                soon(words, || shell.has(log, words));
                runs += 1;
            } else if line.starts_with("kill") {
                assert!(!shell.has("b.log", "\"leading\""), "the first one led");
                killed = Some(now);
            } else if line.starts_with("watchkeeper status") {
                let leader = match killed {
                    None => {
                        soon("heartbeat of the first one", || shell.has("a.log", BEATS));
                        "a"
                    }
                    Some(killed) => {
                        soon("heartbeat of the other one", || shell.has("b.log", BEATS));
                        let works = Clock::system().now();
                        let gap = works.since(killed);
                        println!("the other one works after {gap:.1?}");
                        let most = takeover_limit(TTL) + BEAT + starved(killed, works);
                        assert!(gap <= most, "{gap:?}");
                        "b"
                    }
                };
                // What a replica tells of itself is read a moment later.
                soon("the leader in the status", || {
                    let row = said.lines().find(|row| row.starts_with("heartbeat "));
                    let shown = row.and_then(|row| row.split_whitespace().nth(2));
                    let there = shown == Some(leader);
                    if !there {
                        said = shell.run(line);
                    }
                    there
                });
                looks += 1;
            }
        }
        assert_eq!((runs, looks, killed.is_some()), (2, 2, true));
        shell
    }
}

/// What a worker says when its job has run.
const BEATS: &str = "\"message\":\"heartbeat\"";

// === impl Shell ===

impl Shell {
    fn new(file: &str) -> Self {
        let folder = TempDir::with_prefix("wk-pair-").expect("a temporary folder");
        fs::write(folder.path().join("pair.toml"), file).expect("our own folder");
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).expect("our own folder");
        let path = std::env::var("PATH").unwrap_or_default();
        // A program that reads its input would read our commands otherwise.
        let read = "exec 3<&0 </dev/null; while IFS= read -r line <&3; do eval \"$line\"; echo \"ended: $?\"; done";
        let mut command = Command::new("bash");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("WATCHKEEPER_") {
                command.env_remove(name);
            }
        }
        let mut shell = command
            .args(["--norc", "-c", read])
            .current_dir(folder.path())
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("XDG_RUNTIME_DIR", folder.path())
            .env("TMPDIR", folder.path())
            .env("WATCHKEEPER_ADMIN__LISTEN", "127.0.0.1:0")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash starts");
        let out = shell.stdout.take().expect("it was piped");
        let (to, said) = mpsc::channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            lines.for_each(|line| _ = to.send(line));
        });
        Self {
            commands: shell.stdin.take().expect("it was piped"),
            shell,
            said,
            daemons: Vec::new(),
            folder,
        }
    }

    /// A program of this name, found before that of the machine.
    fn stand_in(&self, name: &str, text: &str) {
        let file = self.file("bin").join(name);
        fs::write(&file, format!("#!/bin/sh\n{text}\n")).expect("our own folder");
        let all = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&file, all).expect("our own file");
    }

    /// What `cargo install` would have built.
    fn install(&self) {
        let built = env!("CARGO_BIN_EXE_watchkeeper");
        symlink(built, self.file("bin/watchkeeper")).expect("our own folder");
    }

    /// Carries one command out, which must end well, and answers with what it said.
    #[track_caller]
    fn run(&mut self, line: &str) -> String {
        writeln!(self.commands, "{line}").expect("the shell reads");
        let mut all = String::new();
        loop {
            let said = self.said.recv_timeout(SOON).expect(line);
            if let Some(status) = said.strip_prefix("ended: ") {
                assert_eq!(status, "0", "{line}: {all}");
                return all;
            }
            all += &said;
            all.push('\n');
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Whether a file that a command writes has these words yet.
    fn has(&self, file: &str, words: &str) -> bool {
        fs::read_to_string(self.file(file)).is_ok_and(|text| text.contains(words))
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        _ = kill_process_group(Pid::from_child(&self.shell), Signal::KILL);
        _ = self.shell.wait();
        for file in &self.daemons {
            let id = fs::read_to_string(self.file(file)).unwrap_or_default();
            let id = id.trim().parse().ok().and_then(Pid::from_raw);
            if let Some(id) = id {
                _ = kill_process(id, Signal::KILL);
            }
        }
        if std::thread::panicking() {
            for log in ["a.log", "b.log"] {
                let text = fs::read_to_string(self.file(log)).unwrap_or_default();
                eprintln!("--- {log} ---\n{text}");
            }
        }
    }
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
