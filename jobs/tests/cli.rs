//! The `watchkeeper` command as a user meets it: real processes, exit codes, what is printed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::{path::Path, process::Stdio};

use serde_json::Value;

use command::{Ran, watchkeeper};

#[path = "shared/command.rs"]
mod command;
#[path = "cli/hostile.rs"]
mod hostile;
#[path = "cli/refusals.rs"]
mod refusals;
#[path = "cli/screen.rs"]
mod screen;
#[path = "cli/words.rs"]
mod words;

fn run(folder: &Path, args: &[&str]) -> Ran {
    watchkeeper(folder).args(args).output().unwrap().into()
}

fn folder_with(toml: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("watchkeeper.toml"), toml).unwrap();
    folder
}

const MANY_FAULTS: &str = r#"[worker]
nam = "one"

[locks]
ttl = "40s"
backend = "redis"

[locks.redis]
nodes = ["redis://a:1", "redis://a:1", "redis://c:1", "redis://d:1"]
generation = "four"

[jobs.Nightly]
kind = "heartbeat"
schedule = "@daily"

[jobs.mail]
kind = "notification"
schedule = "*/5 99 * * *"

[jobs.report]
kind = "heartbeat"
schedule = "0 0 8 * * 1"

[jobs.rome]
kind = "heartbeat"
schedule = "@daily"
zone = "Europe/Rom"

[jobs.send]
kind = "notifications"
schedule = "continuous"
coordination = "batch"
params = { source = "sqlite://app.db", table = "notifications", snk = "http://127.0.0.1:9" }
"#;

/// What each of the faults above is shown with: its place and key, and words of the message or remedy.
const SHOWN: [(&str, &str); 10] = [
    (
        "watchkeeper.toml:2:1: worker.nam: ",
        "did you mean \"name\"?",
    ),
    (
        "watchkeeper.toml:5:7: locks.ttl: ",
        "lower ttl or raise max_ttl",
    ),
    ("watchkeeper.toml:9:", "redis://a:1"),
    ("watchkeeper.toml:10:14: locks.redis.generation: ", "number"),
    ("watchkeeper.toml:12:7: jobs.Nightly: ", "write nightly"),
    (
        "watchkeeper.toml:17:8: jobs.mail.kind: ",
        "did you mean \"notifications\"?",
    ),
    (
        "watchkeeper.toml:18:12: jobs.mail.schedule: ",
        "hour \"99\"",
    ),
    ("watchkeeper.toml:22:12: jobs.report.schedule: ", "quartz"),
    ("watchkeeper.toml:27:8: jobs.rome.zone: ", "Europe/Rome"),
    ("watchkeeper.toml:33:", "snk"),
];

fn assert_all_shown(text: &str) {
    for (place, words) in SHOWN {
        let shown = text
            .lines()
            .any(|line| line.starts_with(place) && line.contains(words));
        assert!(shown, "{place}…{words} is not in:\n{text}");
    }
}

#[test]
fn check_shows_every_problem_at_once_with_place_key_and_remedy() {
    let folder = folder_with(MANY_FAULTS);
    let ran = run(folder.path(), &["check"]);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert_all_shown(&ran.out);
}

#[test]
fn check_of_a_good_file_says_what_would_run_and_warnings_do_not_fail() {
    let folder = folder_with(
        r#"[locks]
backend = "redis"
[locks.redis]
nodes = ["redis://a:1", "redis://b:1"]
[jobs.beat]
kind = "heartbeat"
schedule = "@every 5s"
"#,
    );
    let ran = run(folder.path(), &["check"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("warning: "), "{}", ran.out);
    assert!(
        ran.out
            .contains("\nok: watchkeeper.toml; store: 2 Redis masters"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("beat"), "{}", ran.out);
}

#[test]
fn check_tells_machines_the_same() {
    let folder = folder_with(MANY_FAULTS);
    let ran = run(folder.path(), &["check", "--json"]);
    assert_eq!(ran.code, Some(2));
    let problems: Value = serde_json::from_str(&ran.out).unwrap();
    let first = &problems[0];
    assert_eq!(first["key"], "worker.nam");
    assert_eq!(first["source"], "watchkeeper.toml:2:1");
    assert_eq!(first["severity"], "error");
}

const JOBS: &str = r#"[jobs.report]
kind = "heartbeat"
schedule = ["30 2 * * Mon-Fri", "30 2 * * Sun"]
zone = "Europe/Berlin"
until = "2027-03-28"
"#;

#[test]
fn jobs_next_says_what_clock_changes_do_in_words_and_in_json() {
    let folder = folder_with(JOBS);
    let next = ["jobs", "next", "report", "--after", "2027-03-26T00:00:00Z"];
    let ran = run(folder.path(), &next);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(ran.out.lines().count(), 3, "{}", ran.out);
    for words in [
        "Fri 2027-03-26 02:30:00 +01:00",
        "2027-03-26T01:30:00Z",
        "02:30 does not exist on 2027-03-28: fires at 03:00",
    ] {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
    let ran = run(
        folder.path(),
        &[&next[..], &["--count", "1", "--json"]].concat(),
    );
    let ticks: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(ticks.as_array().map(Vec::len), Some(1));
    assert_eq!(ticks[0]["tick"], "2027-03-26T01:30:00Z");
    assert_eq!(ticks[0]["note"], Value::Null);
    let ran = run(folder.path(), &["jobs", "next", "repot"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("known jobs: report"), "{}", ran.err);
    let ran = run(folder.path(), &["jobs", "--json"]);
    let jobs: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(jobs[0]["name"], "report");
    assert_eq!(jobs[0]["schedule"], "30 2 * * Mon-Fri; 30 2 * * Sun");
    assert_eq!(jobs[0]["zone"], "Europe/Berlin");
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 1, "no store was made");
}

#[test]
fn check_and_jobs_hint_at_many_jobs_in_one_minute() {
    let job = |n| format!("[jobs.job-{n:02}]\nkind = \"heartbeat\"\nschedule = \"@daily\"\n");
    let folder = folder_with(&(0..14).map(job).collect::<String>());
    for command in ["check", "jobs"] {
        let ran = run(folder.path(), &[command]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert!(
            ran.out.contains("hint: 14 jobs at 00:00 UTC"),
            "{}",
            ran.out
        );
    }
    let ran = run(folder.path(), &["check", "--json"]);
    let found: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(found[0]["severity"], "hint");
}

#[test]
fn run_starts_nothing_when_the_configuration_has_errors() {
    let folder = folder_with(&format!(
        "{MANY_FAULTS}\n[locks.embedded]\npath = \"store/s.db\"\n"
    ));
    let ran = run(folder.path(), &["run"]);
    assert_eq!(ran.code, Some(2));
    assert_all_shown(&ran.err);
    assert!(ran.err.ends_with("nothing was started\n"), "{}", ran.err);
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 1, "something was made beside the configuration");
}

#[test]
fn a_password_of_digits_from_the_environment_works_and_is_never_shown() {
    let folder = folder_with(
        r#"[locks]
backend = "redis"
[locks.redis]
nodes = ["redis://worker:98765432@a:1"]
"#,
    );
    for args in [
        &["check"][..],
        &["config"],
        &["config", "--origin"],
        &["status"],
    ] {
        let ran: Ran = watchkeeper(folder.path())
            .args(args)
            .env("WATCHKEEPER_LOCKS__REDIS__PASSWORD", "12345678")
            .output()
            .unwrap()
            .into();
        let all = format!("{}{}", ran.out, ran.err);
        assert_ne!(ran.code, Some(2), "{all}");
        let secret = ["12345678", "98765432"]
            .into_iter()
            .find(|s| all.contains(s));
        assert_eq!(secret, None, "{args:?} shows it:\n{all}");
    }
}

#[test]
fn config_says_where_each_value_comes_from() {
    let folder = folder_with("[locks]\nttl = \"6s\"\n");
    let ran: Ran = watchkeeper(folder.path())
        .args(["config", "--origin", "--listen", "off"])
        .env("WATCHKEEPER_WORKER__NAMESPACE", "shop")
        .output()
        .unwrap()
        .into();
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let origin = |key: &str| {
        let line = ran
            .out
            .lines()
            .find(|l| l.starts_with(&format!("{key} = ")));
        let (_, origin) = line.unwrap().rsplit_once("# ").unwrap();
        origin.to_owned()
    };
    assert_eq!(origin("ttl"), "watchkeeper.toml:2:7");
    assert_eq!(origin("namespace"), "WATCHKEEPER_WORKER__NAMESPACE");
    assert_eq!(origin("listen"), "--listen");
    assert_eq!(origin("max_ttl"), "default");
}

#[test]
fn what_config_prints_can_be_loaded_again() {
    let folder = folder_with(
        "[jobs.beat]\nkind = \"heartbeat\"\nschedule = \"@every 5s\"\nparams = { work = \"1s\" }\n",
    );
    let first = run(folder.path(), &["config"]);
    std::fs::write(folder.path().join("again.toml"), &first.out).unwrap();
    let second = run(folder.path(), &["config", "--config", "again.toml"]);
    assert_eq!(second.code, Some(0), "{}{}", first.out, second.err);
    assert_eq!(first.out, second.out);
}

#[test]
fn without_a_command_the_help_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(folder.path(), &[]);
    assert_eq!(ran.code, Some(2));
    for command in [
        "run", "demo", "check", "config", "status", "history", "locks", "doctor",
    ] {
        assert!(ran.err.contains(&format!("\n  {command} ")), "{}", ran.err);
    }
}

#[test]
fn a_parameter_that_does_not_fit_this_machine_keeps_nobody_from_asking() {
    let folder = folder_with(
        "[jobs.a]\nkind = \"exec\"\nschedule = \"@daily\"\nparams = { command = [\"./nope\"], cwd = \"./none\" }\n",
    );
    for args in [&["check"][..], &["jobs"]] {
        let ran = run(folder.path(), args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}{}", ran.out, ran.err);
        let told = format!("{}{}", ran.out, ran.err);
        assert!(told.contains("there is no program ./none/nope"), "{told}");
    }
    for args in [
        &["status"][..],
        &["pause", "a"],
        &["resume", "a"],
        &["drain", "w"],
        &["locks"],
        &["triggers"],
        &["history", "a"],
        &["token"],
    ] {
        let ran = run(folder.path(), args);
        assert_eq!(ran.code, Some(1), "{args:?}: {}{}", ran.out, ran.err);
        assert!(!ran.err.contains("nope"), "{args:?}: {}", ran.err);
    }
}

/// Each machine would have a store of its own, and lead.
#[test]
fn nodes_that_nothing_says_to_use_are_refused_by_every_command() {
    let folder = folder_with(
        "[locks.redis]\nnodes = [\"redis://a\"]\n[jobs.a]\nkind = \"heartbeat\"\nschedule = \"@daily\"\n",
    );
    for args in [
        &["check"][..],
        &["run"],
        &["status"],
        &["pause", "a"],
        &["config"],
    ] {
        let ran = run(folder.path(), args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}{}", ran.out, ran.err);
        let told = format!("{}{}", ran.out, ran.err);
        assert!(told.contains("set locks.backend = \"redis\""), "{told}");
    }
}

#[test]
fn status_and_locks_of_a_store_that_is_not_there_make_none_and_fail() {
    let folder = tempfile::tempdir().unwrap();
    let asked = [
        &["status"][..],
        &["status", "--json"],
        &["locks"],
        &["locks", "--json"],
        &["locks", "--leaked", "--json"],
        &["pause", "report"],
    ];
    for args in asked {
        let ran = run(folder.path(), args);
        assert_eq!(ran.code, Some(1), "{args:?}: {}", ran.err);
        let store = folder
            .path()
            .canonicalize()
            .unwrap()
            .join(".watchkeeper/store.db");
        let by_default = format!(
            "note: no configuration found (looked at ./watchkeeper.toml, ./config/default.toml, \
             /etc/watchkeeper/watchkeeper.toml); using the embedded store {}",
            store.display()
        );
        assert!(ran.err.contains(&by_default), "{args:?}: {}", ran.err);
        assert!(
            ran.err
                .contains(&format!("there is no store {}", store.display())),
            "{}",
            ran.err
        );
        if args.contains(&"--json") {
            let shown: Value = serde_json::from_str(&ran.out).unwrap();
            assert!(
                shown["replicas"] == Value::Array(Vec::new()) || shown == Value::Array(Vec::new())
            );
        } else {
            assert_eq!(ran.out, "");
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_store_that_the_configuration_does_not_name_is_said_and_one_that_it_names_is_not() {
    let folder = folder_with("[worker]\nnamespace = \"a\"\n");
    let ran = run(folder.path(), &["status"]);
    assert!(
        ran.err
            .contains("note: watchkeeper.toml names no store; using the embedded store /"),
        "{}",
        ran.err
    );
    let folder = folder_with("locks.backend = \"embedded\"\n");
    for args in [&["status"][..], &["jobs"], &["locks"]] {
        let ran = run(folder.path(), args);
        assert!(!ran.err.contains("note:"), "{args:?}: {}", ran.err);
    }
}

#[test]
fn jobs_says_that_there_is_no_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(folder.path(), &["jobs"]);
    assert_eq!(ran.code, Some(0));
    assert!(
        ran.err
            .contains("note: no configuration found (looked at ./watchkeeper.toml,"),
        "{}",
        ran.err
    );
}

#[test]
fn run_without_any_job_or_configuration_is_refused_with_the_ways_out() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(folder.path(), &["run", "--listen", "off"]);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    for words in [
        "there is no job, and no configuration found (looked at ./watchkeeper.toml,",
        "--config",
        "nothing was started",
    ] {
        assert!(ran.err.contains(words), "{}", ran.err);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Three workers that have something to say; each is told to end as soon as it has said it.
#[test]
fn run_without_a_job_says_so_unless_the_replica_is_an_observer() {
    let store = "locks.backend = \"embedded\"\nadmin.listen = \"off\"\n";
    let said = |text: &str| -> Vec<String> {
        use std::io::{BufRead, BufReader};
        let folder = folder_with(text);
        let mut worker = watchkeeper(folder.path())
            .arg("run")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = Vec::new();
        for line in BufReader::new(worker.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            let started = line.contains("worker started");
            lines.push(line);
            if started {
                let pid = rustix::process::Pid::from_child(&worker);
                rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            }
        }
        assert!(worker.wait().unwrap().success(), "{lines:?}");
        lines
    };
    let warned = |lines: &[String]| lines.iter().any(|line| line.contains("there is no job"));
    assert!(warned(&said(store)));
    assert!(!warned(&said(&format!(
        "{store}[worker]\ncandidate = false\n"
    ))));
    let lines = said(&format!(
        "{store}[jobs.beat]\nkind = \"heartbeat\"\nschedule = \"@daily\"\n"
    ));
    let first: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(first["message"], "starting");
    assert_eq!(first["version"], env!("CARGO_PKG_VERSION"));
    let store = first["store"].as_str().unwrap_or_default();
    assert!(
        store.starts_with("embedded, /") && store.ends_with("/.watchkeeper/store.db"),
        "{store}"
    );
    assert_eq!(first["configuration"], "watchkeeper.toml");
    assert!(!warned(&lines));
    let job: Value = lines
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|line| line["message"] == "job")
        .unwrap();
    assert_eq!(job["job"], "beat");
    assert!(
        job["next"].as_str().unwrap().ends_with("00:00:00 +00:00"),
        "{job}"
    );
}

const BEAT: &str = r#"[worker]
name = "alpha"
[locks]
ttl = "2s"
[admin]
listen = "off"
[jobs.beat]
kind = "heartbeat"
schedule = "@every 1s"
[jobs.rest]
kind = "heartbeat"
schedule = "@daily"
"#;

fn history_of(folder: &Path, job: &str) -> Vec<Value> {
    let ran = run(folder, &["history", job, "--json"]);
    // Before the worker has made it there is no store.
    let no_store = ran.code == Some(1) && ran.err.contains("there is no store");
    assert!(ran.code == Some(0) || no_store, "{}", ran.err);
    serde_json::from_str(&ran.out).unwrap()
}

/// A worker on the embedded store, until three of its runs have ended: about four seconds.
#[test]
fn history_shows_the_runs_of_a_worker_that_has_gone() {
    use rustix::process::{Pid, Signal, kill_process};
    let folder = folder_with(BEAT);
    let mut worker = watchkeeper(folder.path())
        .arg("run")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let ended = |runs: &[Value]| runs.iter().filter(|run| run["ended"].is_string()).count();
    // Each question is a process of its own: no hurry between them.
    let asked = (0..2000).find(|_| ended(&history_of(folder.path(), "beat")) >= 3);
    kill_process(Pid::from_child(&worker), Signal::TERM).unwrap();
    assert!(worker.wait().unwrap().success());
    assert!(asked.is_some(), "three runs of a second each never ended");

    let runs = history_of(folder.path(), "beat");
    for (n, run) in runs.iter().enumerate() {
        assert_eq!((&run["job"], &run["attempt"]), (&"beat".into(), &1.into()));
        assert_eq!(run["replica_name"], "alpha");
        assert_eq!(
            run["outcome"], "done",
            "drained, so nothing is left open: {run}"
        );
        assert!(run["token"].as_u64().unwrap() > 0 && run["took_ms"].is_u64());
        let times = ["tick", "started", "ended"].map(|key| run[key].as_str().unwrap());
        assert!(times.iter().all(|time| time.ends_with('Z')), "{times:?}");
        assert!(times[1] <= times[2], "{times:?}");
        assert!(n == 0 || runs[n - 1]["tick"].as_str() < run["tick"].as_str());
    }
    let shown = run(folder.path(), &["history", "beat", "--limit", "2"]);
    let lines: Vec<&str> = shown.out.lines().collect();
    assert_eq!(lines.len(), 3, "{}", shown.out);
    assert!(lines[0].starts_with("STARTED") && lines[2].contains("alpha"));
    assert!(lines[2].contains(runs[runs.len() - 1]["tick"].as_str().unwrap()));

    assert_eq!(history_of(folder.path(), "rest"), Vec::<Value>::new());
    let misspelt = run(folder.path(), &["history", "baet"]);
    assert_eq!(misspelt.code, Some(1));
    assert!(
        misspelt.err.contains("\"baet\"; known jobs: beat, rest"),
        "{}",
        misspelt.err
    );
}

#[test]
fn a_demo_without_its_servers_names_what_to_install() {
    let folder = tempfile::tempdir().unwrap();
    let mut stores = vec![
        ("redis", "redis-server"),
        ("sentinel", "redis-server"),
        ("cluster", "redis-server"),
    ];
    if cfg!(feature = "etcd") {
        stores.push(("etcd", "etcd-server"));
    }
    for (store, package) in stores {
        let ran: Ran = watchkeeper(folder.path())
            .args(["demo", "--store", store])
            .env("TMPDIR", folder.path())
            .env("PATH", folder.path())
            .output()
            .unwrap()
            .into();
        let ran = ran.with(1);
        let remedy = format!("apt-get install {package}");
        assert!(ran.err.contains(&remedy), "{store}: {}", ran.err);
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 0, "{store}: the demo left something behind");
    }
}

/// Three replicas, one of them killed, on the embedded store. About six seconds, most of them the pace of the sending
/// and one lease.
#[test]
fn the_demo_loses_nothing_and_repeats_only_what_was_in_doubt() {
    let folder = tempfile::tempdir().unwrap();
    let ran: Ran = watchkeeper(folder.path())
        .args(["demo", "--notifications", "200", "--json"])
        .env("TMPDIR", folder.path())
        .output()
        .unwrap()
        .into();
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    let summary: Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
    assert_eq!(summary["notifications"], 200);
    assert_eq!(summary["accepted"], 200);
    assert_eq!(
        (&summary["lost"], &summary["accepted_twice"]),
        (&0.into(), &0.into())
    );
    assert!(
        summary["takeover_ms"].as_u64().unwrap() <= 3_000,
        "{summary}"
    );
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "the demo left something behind");
}
