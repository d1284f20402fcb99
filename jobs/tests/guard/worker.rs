//! This program as a worker: takes the lock of a scene, runs a command under it, and says how much memory that took.

use std::{
    env,
    path::PathBuf,
    process::{Child, ExitCode, Stdio},
    time::Duration,
};

use watchkeeper_jobs::guard::{Command, Output};

use crate::scene::{Scene, locks, run};

/// Names the store; set for workers only.
const STORE: &str = "GUARD_TEST_STORE";
/// The lease's ttl in milliseconds.
const TTL: &str = "GUARD_TEST_TTL_MS";

/// A worker process that runs `command` under the scene's lock `k`.
pub(crate) fn running(scene: &Scene, command: &Command, ttl: Duration) -> Child {
    let worker = std::process::Command::new(env::current_exe().unwrap());
    start(worker, scene, command, ttl)
}

/// The same, started by somebody who wants it to ignore SIGHUP, as nohup(1) does.
pub(crate) fn without_hangups(scene: &Scene, command: &Command, ttl: Duration) -> Child {
    let mut worker = std::process::Command::new("sh");
    worker.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]);
    worker.arg(env::current_exe().unwrap());
    start(worker, scene, command, ttl)
}

fn start(
    mut worker: std::process::Command,
    scene: &Scene,
    command: &Command,
    ttl: Duration,
) -> Child {
    worker
        .arg(&command.program)
        .args(&command.args)
        .env(STORE, scene.path().join("store.db"))
        .env(TTL, ttl.as_millis().to_string())
        .env("WORD", scene.word())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Whether this process is a worker, and how it ended.
pub(crate) fn main_if_asked() -> Option<ExitCode> {
    let store = PathBuf::from(env::var_os(STORE)?);
    let ttl = Duration::from_millis(env::var(TTL).ok()?.parse().ok()?);
    let mut arguments = env::args_os().skip(1);
    let program = arguments.next()?;
    let mut command = Command::new(program, arguments);
    command.env = vec![("SCENE".into(), env::var_os("WORD")?)];
    command.output = Output::Capture(100);
    run(async {
        let lease = locks(&store, ttl).lock("k").acquire().await.unwrap();
        let command = command.start(vec![lease.view().clone()]).await.unwrap();
        command.ended().await;
    });
    println!("{}", peak_memory());
    Some(ExitCode::SUCCESS)
}

/// The largest resident set of this process so far, in KiB.
fn peak_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    line.unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}
