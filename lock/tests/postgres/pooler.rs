//! A real PgBouncer before a server, which gives each transaction another connection. Shared with the suites of the stock jobs.
#![allow(dead_code, reason = "every suite uses its own part")]

use std::{
    fs,
    os::unix::fs::chown,
    path::PathBuf,
    process::{Child, Stdio},
    time::Duration,
};

use tempfile::TempDir;

use crate::postgres::{PostgresServer, USER, command, pause, servant, trial_of_its_own};

const REMEDY: &str = "no PgBouncer found: apt-get install pgbouncer";

/// A running pooler. Killed and reaped on drop.
pub(crate) struct Pooler {
    child: Child,
    /// Last: the directory goes when the process has gone.
    dir: TempDir,
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = [PathBuf::from("/usr/sbin")];
    std::env::split_paths(&path)
        .chain(sbin)
        .map(|dir| dir.join("pgbouncer"))
        .find(|program| program.is_file())
}

/// One case behind a pooler: ignored with the reason where there is none, or a failure where `WATCHKEEPER_REQUIRE` names it.
pub(crate) fn trial(name: &str, case: impl FnOnce() + Send + 'static) -> libtest_mimic::Trial {
    if program().is_some() {
        return trial_of_its_own(name, case);
    }
    let required = std::env::var("WATCHKEEPER_REQUIRE")
        .is_ok_and(|list| list.split(',').any(|word| word.trim() == "pgbouncer"));
    if required {
        return libtest_mimic::Trial::test(name, || Err(REMEDY.into()));
    }
    libtest_mimic::Trial::test(format!("{name} [{REMEDY}]"), || Err(REMEDY.into()))
        .with_ignored_flag(true)
}

// === impl Pooler ===

impl Pooler {
    /// Before this server, in transaction mode.
    pub(crate) fn start(server: &PostgresServer) -> Self {
        let program = program().expect(REMEDY);
        let dir = TempDir::with_prefix("wk-pooler-").expect("a temporary directory");
        let (own, theirs) = (dir.path().display(), server.folder().display());
        let settings = format!(
            "[databases]\n* = host={theirs} user={USER}\n\
             [pgbouncer]\nlisten_addr =\nlisten_port = 5432\nunix_socket_dir = {own}\nauth_type = any\n\
             pool_mode = transaction\nmax_client_conn = 2000\ndefault_pool_size = 40\n\
             logfile = {own}/log\npidfile = {own}/pid\n"
        );
        let file = dir.path().join("pgbouncer.ini");
        fs::write(&file, settings).expect("our own directory");
        if let Some((user, group)) = servant() {
            for path in [dir.path(), &file] {
                chown(path, Some(user), Some(group)).expect("our own file");
            }
        }
        let child = command(&program, dir.path())
            .arg("--quiet")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("pgbouncer starts");
        let pooler = Self { child, dir };
        for _ in 0..500 {
            let socket = pooler.dir.path().join(".s.PGSQL.5432");
            if std::os::unix::net::UnixStream::connect(socket).is_ok() {
                return pooler;
            }
            pause(Duration::from_millis(10));
        }
        let log = fs::read_to_string(pooler.dir.path().join("log"));
        panic!("pgbouncer does not answer: {}", log.unwrap_or_default());
    }

    pub(crate) fn url(&self, database: &str) -> String {
        let socket = self.dir.path().display().to_string().replace('/', "%2F");
        format!("postgres://{USER}@{socket}/{database}")
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
