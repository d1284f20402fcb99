//! Servers for the demonstration: programs of this machine, started in folders that go with them.
//!
//! Each is watched over by a process of ours, which ends it when the demonstration ends, however that comes.

mod failover;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{
    net::UnixStream,
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
};
use watchkeeper::{clock::Clock, terminal};
#[cfg(feature = "postgres")]
use {rustix::process::geteuid, std::os::unix::fs::chown};

use super::fleet::dies_with;

/// Watches over a server: for the demonstration alone.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServeArgs {
    /// The process with which the server ends
    #[arg(long)]
    parent: u32,
    /// The user that runs it, by number
    #[arg(long, requires = "group")]
    user: Option<u32>,
    /// The user's group
    #[arg(long)]
    group: Option<u32>,
    program: PathBuf,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// The servers, and the folders that they work in.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    watchers: Vec<Child>,
    folders: Vec<TempDir>,
    /// The address of the database, when it was started.
    #[cfg(feature = "postgres")]
    database: Option<String>,
}

/// How long a server may take until it answers.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long one may take to end by itself.
const LAST: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);
/// How long it may take to say whether it serves.
const ANSWER: Duration = Duration::from_secs(1);
/// More says no server of its health.
#[cfg(feature = "etcd")]
const MOST_SAID: u64 = 4096;
/// The owner of the database.
#[cfg(feature = "postgres")]
const OWNER: &str = "watchkeeper";

/// Either of them is one.
const REDIS: [&str; 2] = ["redis-server", "valkey-server"];

const NO_REDIS: &str =
    "no redis-server and no valkey-server found in PATH; Debian: apt-get install redis-server";
#[cfg(feature = "etcd")]
const NO_ETCD: &str = "no etcd found in PATH; Debian: apt-get install etcd-server";
#[cfg(feature = "postgres")]
const NO_POSTGRES: &str = "no PostgreSQL found; Debian: apt-get install postgresql, or set WATCHKEEPER_POSTGRES_BIN to its folder bin";

// === impl Servers ===

impl Servers {
    /// Starts so many independent Redis masters, and says their addresses.
    pub(crate) async fn redis(&mut self, masters: usize) -> anyhow::Result<Vec<String>> {
        let program = in_path(&REDIS).context(NO_REDIS)?;
        let folder = folder("redis")?;
        let mut urls = Vec::new();
        for n in 1..=masters {
            let socket = folder.path().join(format!("{n}.sock"));
            let log = folder.path().join(format!("{n}.log"));
            let mut args: Vec<String> = ["--port", "0", "--appendonly", "no", "--save", ""]
                .map(str::to_owned)
                .to_vec();
            args.extend(["--unixsocket".to_owned(), shown(&socket)]);
            args.extend(["--dir".to_owned(), shown(folder.path())]);
            self.start(&program, &args, None, folder.path(), &log)?;
            let answers = async || UnixStream::connect(&socket).await.is_ok();
            self.wait(answers, &log).await?;
            urls.push(format!("unix://{}", socket.display()));
        }
        self.folders.push(folder);
        Ok(urls)
    }

    /// Starts a PostgreSQL server with an empty database, unless there is one, and says its address. What keeps locks waits for its
    /// disk.
    #[cfg(feature = "postgres")]
    pub(crate) async fn postgres(&mut self, waits_for_its_disk: bool) -> anyhow::Result<String> {
        if let Some(url) = &self.database {
            return Ok(url.clone());
        }
        let programs = postgres_programs().context(NO_POSTGRES)?;
        let folder = folder("postgres")?;
        let path = folder.path();
        // PostgreSQL does not run as root.
        let user = match geteuid().is_root() {
            true => Some(servant().context(
                "PostgreSQL does not run as root, and there is no user postgres or nobody",
            )?),
            false => None,
        };
        if let Some((user, group)) = user {
            chown(path, Some(user), Some(group))?;
        }
        let mut initdb = Command::new(programs.join("initdb"));
        initdb
            .current_dir(path)
            .args(["--pgdata", "data", "--username", OWNER, "--auth", "trust"])
            .args(["--encoding", "UTF8", "--locale", "C", "--no-sync"])
            .stdin(Stdio::null());
        if let Some((user, group)) = user {
            initdb.uid(user).gid(group);
        }
        let made = initdb.output().await?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr);
            bail!("initdb ended with {}: {}", made.status, said.trim());
        }
        let log = path.join("log");
        let quick = [
            "fsync=off",
            "synchronous_commit=off",
            "full_page_writes=off",
        ];
        let settings = match waits_for_its_disk {
            true => &quick[..0],
            false => &quick[..],
        };
        let settings = settings.iter().chain(&["listen_addresses="]);
        let mut args: Vec<String> = ["-D", "data", "-k"].map(str::to_owned).to_vec();
        args.push(shown(path));
        for setting in settings {
            args.extend(["-c".to_owned(), (*setting).to_owned()]);
        }
        self.start(&programs.join("postgres"), &args, user, path, &log)?;
        let file = path.join("data/postmaster.pid");
        let answers = async || {
            let told = fs::read_to_string(&file).unwrap_or_default();
            told.lines()
                .last()
                .is_some_and(|line| line.trim() == "ready")
        };
        self.wait(answers, &log).await?;
        let socket = shown(path).replace('/', "%2F");
        self.folders.push(folder);
        let url = format!("postgres://{OWNER}@{socket}/postgres");
        self.database = Some(url.clone());
        Ok(url)
    }

    /// Starts an etcd of one member, and says its address.
    #[cfg(feature = "etcd")]
    pub(crate) async fn etcd(&mut self) -> anyhow::Result<String> {
        let program = in_path(&["etcd"]).context(NO_ETCD)?;
        let folder = folder("etcd")?;
        let log = folder.path().join("log");
        let ports = free_ports::<2>()?;
        let [client, peer] = ports.map(|port| format!("http://127.0.0.1:{port}"));
        let args = [
            ("--name", "demo".to_owned()),
            ("--data-dir", shown(&folder.path().join("data"))),
            ("--listen-client-urls", client.clone()),
            ("--advertise-client-urls", client.clone()),
            ("--listen-peer-urls", peer.clone()),
            ("--initial-advertise-peer-urls", peer.clone()),
            ("--initial-cluster", format!("demo={peer}")),
            ("--log-level", "error".to_owned()),
            ("--logger", "zap".to_owned()),
            ("--auto-compaction-retention", "5m".to_owned()),
        ];
        let args = args.map(|(name, value)| [name.to_owned(), value]);
        self.start(&program, args.as_flattened(), None, folder.path(), &log)?;
        let clock = Clock::system();
        let answers = async || {
            let asked = clock.timeout(ANSWER, is_healthy(ports[0])).await;
            asked.is_ok_and(|healthy| healthy.unwrap_or(false))
        };
        self.wait(answers, &log).await?;
        self.folders.push(folder);
        Ok(client)
    }

    fn start(
        &mut self,
        program: &Path,
        args: &[String],
        user: Option<(u32, u32)>,
        folder: &Path,
        log: &Path,
    ) -> io::Result<()> {
        let log = fs::File::create(log)?;
        let mut watcher = Command::new(std::env::current_exe()?);
        watcher.arg("serve-for-demo");
        watcher.args(["--parent", &std::process::id().to_string()]);
        if let Some((user, group)) = user {
            watcher.args(["--user", &user.to_string(), "--group", &group.to_string()]);
        }
        watcher
            .arg(program)
            .args(args)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C is ours to handle.
            .process_group(0);
        self.watchers.push(watcher.spawn()?);
        Ok(())
    }

    /// Ends them, and removes their folders.
    pub(crate) async fn end(&mut self) {
        self.tell_end();
        let clock = Clock::system();
        for watcher in &mut self.watchers {
            _ = clock.timeout(LAST * 2, watcher.wait()).await;
        }
        self.folders.clear();
    }

    fn tell_end(&self) {
        for watcher in &self.watchers {
            // None once it has ended, so that no other process is meant.
            let pid = watcher.id().and_then(|pid| i32::try_from(pid).ok());
            if let Some(pid) = pid.and_then(Pid::from_raw) {
                _ = kill_process(pid, Signal::TERM);
            }
        }
    }

    async fn wait(&mut self, answers: impl AsyncFn() -> bool, log: &Path) -> anyhow::Result<()> {
        let clock = Clock::system();
        let until = clock.now() + PATIENCE;
        while !answers().await {
            let watcher = self.watchers.last_mut();
            let ended = watcher.map(Child::try_wait).transpose()?.flatten();
            if ended.is_some() || clock.now() >= until {
                let said = fs::read_to_string(log).unwrap_or_default();
                bail!("the server does not start: {}", said.trim());
            }
            clock.sleep(POLL).await;
        }
        Ok(())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.tell_end();
    }
}

/// Runs a server until it ends, or the demonstration does.
pub(crate) fn serve(args: &ServeArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let served = runtime.and_then(|runtime| runtime.block_on(serve_until(args)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::err(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

async fn serve_until(args: &ServeArgs) -> io::Result<()> {
    let mut told = signal(SignalKind::terminate())?;
    // Before the server: from here on its end is heard of.
    dies_with(args.parent, Signal::TERM)?;
    let mut server = Command::new(&args.program);
    server.args(&args.args).kill_on_drop(true);
    if let (Some(user), Some(group)) = (args.user, args.group) {
        server.uid(user).gid(group);
    }
    // What is meant for other servers and their clients; on some machines etcd starts with this one alone.
    for (name, _) in std::env::vars_os() {
        let begins = |with: &str| name.to_string_lossy().starts_with(with);
        if begins("PG") || begins("ETCD_") && name != "ETCD_UNSUPPORTED_ARCH" {
            server.env_remove(name);
        }
    }
    let mut server = server.spawn()?;
    tokio::select! {
        ended = server.wait() => return ended.map(drop),
        _ = told.recv() => {}
    }
    let pid = server.id().and_then(|pid| i32::try_from(pid).ok());
    if let Some(pid) = pid.and_then(Pid::from_raw) {
        // Both end at once, with all their processes.
        _ = kill_process(pid, Signal::INT);
    }
    let ended = Clock::system().timeout(LAST, server.wait()).await;
    ended.map_or(Ok(()), |ended| ended.map(drop))
}

fn folder(of: &str) -> io::Result<TempDir> {
    // Short: the path of a socket has 107 bytes at most.
    tempfile::Builder::new()
        .prefix(&format!("wk-demo-{of}-"))
        .tempdir()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn in_path(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let find = |name: &&str| {
        let mut found = std::env::split_paths(&path).map(|dir| dir.join(name));
        found.find(|program| program.is_file())
    };
    names.iter().find_map(find)
}

/// Ports that no server has just now.
#[cfg(feature = "etcd")]
fn free_ports<const N: usize>() -> io::Result<[u16; N]> {
    let mut ports = [0; N];
    // Held until all are known, so that they differ.
    let mut held = Vec::new();
    for port in &mut ports {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

/// Whether the etcd at this port says that it serves.
#[cfg(feature = "etcd")]
async fn is_healthy(port: u16) -> io::Result<bool> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let mut connection = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let ask = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    connection.write_all(ask).await?;
    let mut said = String::new();
    connection.take(MOST_SAID).read_to_string(&mut said).await?;
    Ok(said.starts_with("HTTP/1.1 200 ") && said.contains("\"true\""))
}

/// The folder of the programs: the one that is named, in PATH, or the newest that Debian has.
#[cfg(feature = "postgres")]
fn postgres_programs() -> Option<PathBuf> {
    let whole = |dir: &PathBuf| ["initdb", "postgres"].iter().all(|p| dir.join(p).is_file());
    if let Some(named) = std::env::var_os("WATCHKEEPER_POSTGRES_BIN").filter(|v| !v.is_empty()) {
        return Some(PathBuf::from(named)).filter(whole);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort();
    std::env::split_paths(&path)
        .chain(versions.into_iter().rev().map(|(_, dir)| dir))
        .find(whole)
}

/// The user and the group that run PostgreSQL where we are root.
#[cfg(feature = "postgres")]
fn servant() -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let find = |name: &str| {
        let line = users
            .lines()
            .find(|line| line.split(':').next() == Some(name))?;
        let mut ids = line.split(':').skip(2);
        Some((ids.next()?.parse().ok()?, ids.next()?.parse().ok()?))
    };
    find("postgres").or_else(|| find("nobody"))
}
