//! Workers and guards that are killed or frozen. The lock says when a command must be gone: whoever gets it next must
//! find nothing.

use std::{process::Child, time::Duration};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use watchkeeper::clock::Moment;
use watchkeeper_jobs::guard::{Cause, Status};

use crate::{
    scene::{Scene, now, run},
    wait::{SOON, soon},
    worker,
};

const LIFE: Duration = Duration::from_millis(1500);

/// A worker process whose command runs.
struct Worker {
    scene: Scene,
    child: Child,
}

impl Worker {
    fn start() -> Self {
        let scene = Scene::new();
        let child = worker::running(&scene, &scene.stubborn(), LIFE);
        scene.wait_until_stubborn();
        Self { scene, child }
    }

    fn signal(&self, signal: Signal) -> Moment {
        let at = now();
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        at
    }

    /// Takes the lock as soon as it can be had, and counts what is left of the command then.
    fn successor_finds(&self) -> (usize, Moment) {
        run(async {
            let locks = self.scene.locks(LIFE);
            let lease = locks.lock("k").wait(SOON).acquire().await.unwrap();
            let found = (self.scene.left(), now());
            lease.release().await;
            found
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

pub(crate) fn a_killed_workers_command_is_gone_in_time() {
    let mut worker = Worker::start();
    let killed = worker.signal(Signal::KILL);
    worker.child.wait().unwrap();
    let (left, had) = worker.successor_finds();
    assert_eq!(
        left,
        0,
        "had the lock {:?} after the kill",
        had.since(killed)
    );
    assert!(had.since(killed) <= LIFE + Duration::from_millis(500));
}

pub(crate) fn a_frozen_workers_command_is_gone_in_time() {
    let worker = Worker::start();
    let frozen = worker.signal(Signal::STOP);
    let (left, had) = worker.successor_finds();
    assert_eq!(
        left,
        0,
        "had the lock {:?} after the freeze",
        had.since(frozen)
    );
    assert!(had.since(frozen) <= LIFE + Duration::from_millis(500));
}

pub(crate) fn a_killed_guard_takes_its_command_along() {
    let scene = Scene::new();
    run(async {
        let command = scene.stubborn().start(Vec::new()).await.unwrap();
        scene.wait_until_stubborn();
        kill_process(guard_of(command.pid()), Signal::KILL).unwrap();
        let end = command.ended().await;
        assert_eq!(
            (end.status, end.cause),
            (Status::Signal(9), Cause::GuardLost)
        );
        assert_eq!(scene.left(), 0);
    });
}

pub(crate) fn a_guard_that_fails_ends_what_it_guards_first() {
    let scene = Scene::new();
    run(async {
        let command = scene.stubborn().start(Vec::new()).await.unwrap();
        scene.wait_until_stubborn();
        let guard = guard_of(command.pid());
        // Waiting for more descriptors than it may have is an error. It cannot look for processes either.
        let usual = files(guard, 2);
        kill_process(guard, Signal::USR1).unwrap();
        let stat = format!("/proc/{}/stat", command.pid());
        soon("the end of the command itself", || {
            !std::fs::exists(&stat).unwrap()
        });
        assert!(scene.left() > 0, "what it has started is not seen");
        files(guard, usual);
        assert_eq!(command.ended().await.cause, Cause::GuardLost);
        assert_eq!(scene.left(), 0);
    });
}

pub(crate) fn a_guard_that_fails_after_the_end_tells_how_its_command_ended() {
    let scene = Scene::new();
    let script = r#"trap 'exit 6' USR1; sleep 1000 & echo $! > "$1"; wait"#;
    run(async {
        let command = scene.shell(script).start(Vec::new()).await.unwrap();
        let told = || std::fs::read_to_string(scene.path().join("ready")).unwrap_or_default();
        soon("what is left behind", || told().ends_with('\n'));
        let left = Pid::from_raw(told().trim().parse().unwrap()).unwrap();
        let guard = guard_of(command.pid());
        soon("a guard that waits", || {
            let stat = std::fs::read_to_string(format!("/proc/{guard}/stat")).unwrap();
            stat.contains(") S ")
        });
        // It hears of the end of the command, and then cannot wait for that of the other.
        files(guard, 2);
        let ends = Pid::from_raw(command.pid().cast_signed()).unwrap();
        kill_process(ends, Signal::USR1).unwrap();
        soon("the end of the command itself", || {
            !std::fs::exists(format!("/proc/{ends}")).unwrap()
        });
        kill_process(left, Signal::KILL).unwrap();
        let end = command.ended().await;
        assert_eq!((end.status, end.cause), (Status::Code(6), Cause::Itself));
        assert_eq!(scene.left(), 0);
    });
}

pub(crate) fn a_guard_that_sees_no_processes_kills_its_command_in_time() {
    let scene = Scene::new();
    run(async {
        let command = scene.stubborn().start(Vec::new()).await.unwrap();
        scene.wait_until_stubborn();
        let guard = guard_of(command.pid());
        // Enough to wait for all of its descriptors, and one more cannot be opened.
        let usual = files(guard, 4);
        command.kill();
        let stat = format!("/proc/{}/stat", command.pid());
        soon("the end of the command itself", || {
            !std::fs::exists(&stat).unwrap()
        });
        files(guard, usual);
        let end = command.ended().await;
        assert_eq!((end.status, end.cause), (Status::Signal(9), Cause::Asked));
        assert_eq!(scene.left(), 0);
    });
}

pub(crate) fn a_lease_is_held_while_what_is_left_cannot_be_looked_for() {
    let mut worker = Worker::start();
    let process = Pid::from_child(&worker.child);
    let guard = child_called(process, "wk-guard");
    let usual = files(process, 3);
    kill_process(guard, Signal::KILL).unwrap();
    run(async {
        let locks = worker.scene.locks(LIFE);
        let early = locks.lock("k").wait(LIFE / 2).acquire().await;
        assert!(early.is_err(), "{} processes are left", worker.scene.left());
    });
    files(process, usual);
    assert_eq!(worker.successor_finds().0, 0);
    worker.child.wait().unwrap();
}

/// Lets a process open so many files, and says how many it could before.
fn files(process: Pid, current: u64) -> u64 {
    let limit = Rlimit {
        current: Some(current),
        ..getrlimit(Resource::Nofile)
    };
    let before = prlimit(Some(process), Resource::Nofile, limit).unwrap();
    before.current.unwrap()
}

fn child_called(parent: Pid, name: &str) -> Pid {
    let of = |entry: std::fs::DirEntry| {
        let status = std::fs::read(entry.path().join("status")).ok()?;
        let status = String::from_utf8_lossy(&status);
        let has = |line: String| status.lines().any(|one| one == line);
        let is = has(format!("Name:\t{name}")) && has(format!("PPid:\t{parent}"));
        let number = entry.file_name().to_str()?.parse().ok()?;
        is.then(|| Pid::from_raw(number)).flatten()
    };
    let mut processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.find_map(of).unwrap()
}

pub(crate) fn a_killed_guard_leaves_nothing_that_has_wiped_its_environment() {
    let scene = Scene::new();
    let script = r#"env -i sh -c 'echo $$ > "$1"; exec sleep 100' sh "$1" & wait"#;
    run(async {
        let command = scene.shell(script).start(Vec::new()).await.unwrap();
        let number = || std::fs::read_to_string(scene.path().join("ready")).unwrap_or_default();
        soon("the wiped process", || number().ends_with('\n'));
        kill_process(guard_of(command.pid()), Signal::KILL).unwrap();
        assert_eq!(command.ended().await.cause, Cause::GuardLost);
        // Dead, though perhaps not yet taken note of by whoever has adopted it.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", number().trim()));
        assert!(stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z ")));
    });
}

pub(crate) fn a_frozen_guard_is_given_up_in_time() {
    let scene = Scene::new();
    run(async {
        let locks = scene.locks(LIFE);
        let lease = locks.lock("k").acquire().await.unwrap();
        let view = lease.view().clone();
        let command = scene.stubborn().start(vec![view]).await.unwrap();
        scene.wait_until_stubborn();
        kill_process(guard_of(command.pid()), Signal::STOP).unwrap();
        command.kill();
        let end = command.ended().await;
        assert_eq!(end.cause, Cause::GuardLost);
        assert_eq!(scene.left(), 0);
        assert!(lease.is_held(), "it was extended meanwhile");
        lease.release().await;
    });
}

pub(crate) fn a_command_outlives_its_first_lease_while_it_is_extended() {
    let scene = Scene::new();
    run(async {
        let locks = scene.locks(Duration::from_millis(600));
        let lease = locks.lock("k").acquire().await.unwrap();
        let script = "sleep 1.5; exit 7";
        let view = lease.view().clone();
        let command = scene.shell(script).start(vec![view]).await.unwrap();
        let end = command.ended().await;
        assert_eq!((end.status, end.cause), (Status::Code(7), Cause::Itself));
        lease.release().await;
    });
    soon("the end", || scene.left() == 0);
}

/// The process that has started this one.
fn guard_of(pid: u32) -> Pid {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("PPid:"))
        .unwrap();
    Pid::from_raw(line.split_whitespace().nth(1).unwrap().parse().unwrap()).unwrap()
}
