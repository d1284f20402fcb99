//! Commands of workers that are killed or frozen: never two at once, and nothing of the old one when the next one leads.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use watchkeeper::clock::Clock;

use crate::{
    fleet::{Fleet, TTL},
    heavy,
    log::Line,
    store::Store,
    wait::{AT_ONCE, SOON, pause, soon, starved, takeover_limit, undisturbed, until},
};

/// A service that forks twice, leaves its session and ignores SIGTERM. Both of its processes write their token again
/// and again.
const STUBBORN: &str = r#"
[jobs.service]
kind = "exec"
schedule = "continuous"
grace = "1s"
[jobs.service.params]
command = ["sh", "$FOLDER/service.sh", "$FOLDER/tokens"]
env = { SCENE = "$FOLDER" }
"#;

const SCRIPT: &str = r#"
trap '' TERM HUP INT
write() { while :; do echo $WATCHKEEPER_TOKEN >> "$1"; sleep 0.05; done; }
(setsid sh -c '
    trap "" TERM HUP INT
    exec </dev/null >/dev/null 2>&1
    (while :; do echo $WATCHKEEPER_TOKEN >> "$1"; sleep 0.05; done) &
    exit
' sh "$1" &)
write "$1"
"#;

/// Trials of one fleet, and fleets that run beside each other: fifty trials.
const TRIALS: usize = 10;
const FLEETS: usize = 5;

/// G1, fifty times: killed and frozen in turn, at changing phases of the lease.
pub(crate) fn fifty_workers_die_or_freeze_and_no_two_commands_run_at_once(store: Store) {
    let _turn = heavy::turn();
    let stores: Vec<Store> = (1..FLEETS).map(|_| store.another()).collect();
    let fleets = std::iter::once(store).chain(stores).enumerate();
    let trials: Vec<_> = fleets
        .map(|(n, store)| thread::spawn(move || trials(n, store)))
        .collect();
    for trial in trials {
        trial.join().expect("a trial has failed");
    }
}

fn trials(fleet_no: usize, store: Store) {
    let mut fleet = Fleet::new(store, STUBBORN);
    fs::write(fleet.file("service.sh"), SCRIPT).expect("a file in our own folder");
    for _ in 0..2 {
        fleet.join();
    }
    let tokens = fleet.file("tokens");
    let scene = fleet.file("").display().to_string();
    let scene = format!("SCENE={}", scene.trim_end_matches('/'));
    let mut led = fleet.leader("service");
    let (mut gaps, mut late) = (Vec::new(), Duration::ZERO);
    for trial in 0..TRIALS {
        soon("both parts of the command", || {
            alive(&scene, led.token) >= 2
        });
        pause(Duration::from_millis(67) * (trial % 10) as u32);
        let mark = fleet.log.mark();
        let frozen = trial % 2 == fleet_no % 2;
        let at = if frozen {
            fleet.freeze(led.worker)
        } else {
            fleet.kill(led.worker)
        };
        let next = fleet.next_leader(mark, "service");
        let left = alive(&scene, led.token);
        if left > 0 {
            let (seen, clock) = (shown(&scene, led.token), Clock::system());
            let began = clock.now();
            let ended = until(|| alive(&scene, led.token) == 0);
            let (late, gone) = (next.at.since(at), clock.now());
            let took = gone.since(began);
            // What ends them is a process like others: where it waits for a processor they outlive the lease, and the log says so.
            assert!(
                ended && took <= starved(at, gone),
                "{left} processes of the last command {late:?} after the worker was stopped, frozen: {frozen}; gone: {ended}, {took:?} later; {seen:?}"
            );
        }
        gaps.push(next.at.since(at));
        late = late.max(undisturbed(at, next.at));
        if frozen {
            let mark = fleet.log.mark();
            fleet.thaw(led.worker);
            let stands_by = |l: &Line| l.worker == led.worker && l.is("standing by", "service");
            fleet.log.wait(mark, SOON, "end of the old term", stands_by);
        } else {
            fleet.join();
        }
        led = next;
    }
    let written = fs::read_to_string(&tokens).expect("the commands have written");
    let written: Vec<u64> = written
        .lines()
        .map(|l| l.parse().expect("a token"))
        .collect();
    // In the order of their arrival in the file: whoever overlaps shows as a smaller one after a larger one.
    assert!(
        written.is_sorted(),
        "two commands have run at once: {written:?}"
    );
    fleet.measured("the next command's leader after", &gaps);
    assert!(late <= takeover_limit(TTL), "{gaps:?}");
    for worker in fleet.workers() {
        fleet.terminate(worker);
        fleet.wait_until_gone(worker);
    }
    assert_eq!(
        alive(&scene, led.token),
        0,
        "after the last worker has ended"
    );
}

/// A command without a lock of its own still ends with the replica's lease, which alone lets the spare replica begin.
pub(crate) fn a_spare_replica_starts_no_command_beside_the_active_ones(store: Store) {
    const FAILOVER: &str = r#"
[worker]
mode = "failover"
[jobs.service]
kind = "exec"
schedule = "continuous"
coordination = "everywhere"
grace = "1s"
[jobs.service.params]
command = ["sh", "$FOLDER/service.sh", "$FOLDER/tokens"]
env = { SCENE = "$FOLDER" }
"#;
    let mut fleet = Fleet::new(store, FAILOVER);
    fs::write(fleet.file("service.sh"), SCRIPT).expect("a file in our own folder");
    for _ in 0..2 {
        fleet.join();
    }
    for frozen in [true, false] {
        let active = fleet.leader("replica");
        let of_active = format!("WATCHKEEPER_REPLICA={}", fleet.replica(active.worker));
        soon("both parts of the command", || {
            processes(&[&of_active]) >= 2
        });
        let mark = fleet.log.mark();
        if frozen {
            fleet.freeze(active.worker);
        } else {
            fleet.kill(active.worker);
        }
        fleet.next_leader(mark, "replica");
        assert_eq!(processes(&[&of_active]), 0, "frozen: {frozen}");
        if frozen {
            fleet.thaw(active.worker);
        }
    }
}

/// A drained worker tells its command to end, waits for it, and only then hands over.
pub(crate) fn a_drained_worker_ends_its_command_first(store: Store) {
    const GENTLE: &str = r#"
[jobs.service]
kind = "exec"
schedule = "continuous"
[jobs.service.params]
command = ["sh", "-c", "trap 'sleep 0.3; echo ended >> $0; exit 0' TERM; echo began >> $0; while :; do sleep 0.01; done", "$FOLDER/said"]
"#;
    let mut fleet = Fleet::of(2, store, GENTLE);
    let said = fleet.file("said");
    let lines = || fs::read_to_string(&said).unwrap_or_default();
    let mut led = fleet.leader("service");
    for round in 1..4 {
        soon("its command", || lines().lines().count() == 2 * round - 1);
        let mark = fleet.log.mark();
        fleet.terminate(led.worker);
        let next = fleet.next_leader(mark, "service");
        assert!(lines().ends_with("ended\n") || lines().lines().count() == 2 * round + 1);
        let ended = fleet.log.wait(mark, SOON, "end of the run", |l| {
            l.worker == led.worker && l.is("run ended", "service")
        });
        let gap = next.at.since(ended.at);
        fleet.measured("handed over after its command's end", &gap);
        assert!(undisturbed(ended.at, next.at) < AT_ONCE, "{gap:?}");
        assert!(
            fleet.wait_until_gone(led.worker),
            "a drained worker ends well"
        );
        fleet.join();
        led = next;
    }
    let said = lines();
    let said: Vec<_> = said.lines().collect();
    for pair in said.chunks(2) {
        assert!(pair == ["began", "ended"] || pair == ["began"], "{said:?}");
    }
}

/// What a command left to read, and how it ended, stands in the history; so does a start that has failed.
pub(crate) fn what_a_command_wrote_is_in_the_history(store: Store) {
    const JOBS: &str = r#"
[jobs.talks]
kind = "exec"
schedule = "@every 1s"
retry = 1
params = { command = ["sh", "-c", "echo out; echo err >&2; env; exit 3"], env = { GIFT = "a b" } }
"#;
    let mut fleet = Fleet::of(1, store, JOBS);
    let worker = fleet.workers()[0];
    let ended = fleet
        .log
        .wait(0, SOON, "end of a run", |l| l.is("run ended", "talks"));
    assert!(
        ended.text("detail").starts_with("exit status 3: "),
        "{ended:?}"
    );
    fleet.terminate(worker);
    assert!(fleet.wait_until_gone(worker));
    let history = fleet.command(&["history", "talks", "--json"]);
    let history: serde_json::Value = serde_json::from_str(&history).expect("JSON");
    let run = &history[0];
    assert_eq!(run["outcome"], "failed", "{run}");
    let output = run["output"].as_str().expect("an output");
    assert!(output.starts_with("out\nerr\n"), "{output}");
    for line in [
        "GIFT=a b",
        "WATCHKEEPER_JOB=talks",
        "WATCHKEEPER_ATTEMPT=1",
        "WATCHKEEPER_KEY=job/talks",
    ] {
        assert!(output.lines().any(|l| l == line), "{line} in {output}");
    }
    let has = |name: &str| output.lines().any(|l| l.starts_with(name));
    assert!(has("WATCHKEEPER_TICK=2") && has("WATCHKEEPER_TOKEN=") && has("WATCHKEEPER_RUN_ID="));
}

/// While a command runs, what it wrote last is seen; once it has ended, all of it.
pub(crate) fn the_last_line_of_a_running_command_is_its_progress(store: Store) {
    const JOBS: &str = r#"
[jobs.counts]
kind = "exec"
schedule = "manual"
[jobs.counts.params]
command = ["sh", "-c", "n=0; until [ -e $0 ]; do n=$((n+1)); echo at $n; sleep 0.1; done; echo the end", "$FOLDER/over"]
"#;
    let fleet = Fleet::of(1, store, JOBS);
    fleet.leader("counts");
    fleet.command(&["trigger", "counts"]);
    let run = || {
        let history = fleet.command(&["history", "counts", "--json"]);
        let history: serde_json::Value = serde_json::from_str(&history).expect("JSON");
        history[0].clone()
    };
    let at = || {
        let run = run();
        let said = run["progress"]["message"].as_str()?;
        said.strip_prefix("at ")?.parse::<u64>().ok()
    };
    let mut first = None;
    soon("line of a running command", || {
        first = at();
        first.is_some()
    });
    soon("later line", || at() > first);
    fs::write(fleet.file("over"), "").expect("a file in our own folder");
    soon("end of the run", || run()["outcome"] == "done");
    let run = run();
    assert_eq!(run["progress"]["message"], serde_json::Value::Null, "{run}");
    let output = run["output"].as_str().expect("an output");
    assert!(
        output.starts_with("at 1\nat 2\n") && output.ends_with("the end\n"),
        "{output}"
    );
}

/// What the system says of those that are still there.
fn shown(scene: &str, token: u64) -> Vec<String> {
    let of = [scene, &format!("WATCHKEEPER_TOKEN={token}")];
    let stat = |folder: &Path| fs::read_to_string(folder.join("stat")).unwrap_or_default();
    found(&of).iter().map(|folder| stat(folder)).collect()
}

/// Living processes of the command with this token.
fn alive(scene: &str, token: u64) -> usize {
    processes(&[scene, &format!("WATCHKEEPER_TOKEN={token}")])
}

/// Living processes with these variables.
fn processes(variables: &[&str]) -> usize {
    found(variables).len()
}

fn found(variables: &[&str]) -> Vec<PathBuf> {
    let entries = fs::read_dir(Path::new("/proc")).expect("Linux");
    let is_one = |folder: &Path| {
        let environment = fs::read(folder.join("environ")).unwrap_or_default();
        let has = |what: &&str| {
            environment
                .split(|byte| *byte == 0)
                .any(|one| one == what.as_bytes())
        };
        variables.iter().all(has)
    };
    let folders = entries.flatten().map(|entry| entry.path());
    folders
        .filter(|folder| is_one(folder) && !is_killed(folder))
        .collect()
}

/// Whether SIGKILL awaits it: it executes nothing more, and needs a processor once more to go, which a busy machine may give it
/// late.
fn is_killed(folder: &Path) -> bool {
    let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
    let pending = status.lines().filter_map(|line| {
        let (name, mask) = line.split_once(':')?;
        let pending = matches!(name, "SigPnd" | "ShdPnd");
        u64::from_str_radix(mask.trim(), 16)
            .ok()
            .filter(|_| pending)
    });
    // One that is gone meanwhile has no status.
    status.is_empty() || pending.fold(0, |all, mask| all | mask) & (1 << 8) != 0
}
