//! What a person sees of a fleet at work: pictures, lines and colours, and commands that go on until they are told to end. Each
//! case has a worker of its own on the embedded store. About fifteen seconds, most of them between beats and looks.

use std::{
    fs,
    fs::File,
    io::{BufRead, BufReader, Read},
    os::fd::OwnedFd,
    path::Path,
    process::{Child, Command, Stdio},
};

use rustix::{
    fs::{Mode, OFlags},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use serde_json::Value;

use super::{BEAT, Ran, folder_with, history_of, run, watchkeeper};

/// Jobs that are started by hand.
const BY_HAND: &str = r#"
[jobs.fails]
kind = "exec"
schedule = "manual"
params = { command = ["sh", "-c", "echo on the way; exit 3"], fatal_on = [3] }
[jobs.slow]
kind = "exec"
schedule = "manual"
params = { command = ["sleep", "600"] }
[jobs.talks]
kind = "exec"
schedule = "manual"
params = { command = ["sh", "-c", "echo first; until [ -e go ]; do sleep 0.1; done; echo second"] }
"#;

/// A process that is killed where a test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Checks that it has ended well, and has said nothing of trouble.
    #[track_caller]
    fn ended_well(self) {
        let (code, err) = self.ended();
        assert_eq!(code, Some(0), "{err}");
        assert!(!err.contains("no answer"), "{err}");
    }

    /// Its exit code, and what it has written to standard error, once it has ended.
    fn ended(mut self) -> (Option<i32>, String) {
        let mut err = String::new();
        if let Some(mut pipe) = self.0.stderr.take() {
            pipe.read_to_string(&mut err).unwrap();
        }
        (self.0.wait().unwrap().code(), err)
    }
}

/// A worker that has begun: it can be asked.
fn worker(folder: &Path) -> Running {
    let mut command = watchkeeper(folder);
    command.arg("run");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let worker = Running(command.spawn().unwrap());
    // Each question is a process of its own: no hurry between them.
    let led = |ran: Ran| ran.code == Some(0) && ran.out.contains("alpha");
    let asked = (0..2000).find(|_| led(run(folder, &["status"])));
    assert!(asked.is_some(), "the worker never began");
    worker
}

fn spawned(command: &mut Command) -> (Running, impl Iterator<Item = String>) {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    (Running(child), out.lines().map_while(Result::ok))
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn a_watched_status_is_a_line_of_json_for_each_change_until_a_signal_ends_it() {
    let folder = folder_with(BEAT);
    let _worker = worker(folder.path());
    let mut command = watchkeeper(folder.path());
    command.args(["status", "--watch=0.1", "--json"]);
    let (watching, mut lines) = spawned(&mut command);
    let mut documents: Vec<Value> = Vec::new();
    // A beat each second: it does not fall silent.
    while documents.len() < 4 {
        let line = lines.next().expect("it goes on");
        let document = json(&line);
        assert!(document["replicas"].is_array(), "{line}");
        if let Some(last) = documents.last() {
            assert_ne!(*last, document, "the same twice");
        }
        documents.push(document);
    }
    assert_eq!(documents[3]["replicas"][0]["name"], "alpha");
    watching.signal(Signal::INT);
    watching.ended_well();
}

/// A terminal of 40 columns and 8 rows.
fn terminal() -> (File, Stdio) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).expect("a terminal");
    grantpt(&master).expect("a terminal of ours");
    unlockpt(&master).expect("a terminal of ours");
    let size = Winsize {
        ws_row: 8,
        ws_col: 40,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&master, size).expect("a size");
    let name = ptsname(&master, Vec::new()).expect("its name");
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let side: OwnedFd = rustix::fs::open(&name, flags, Mode::empty()).expect("its side");
    (File::from(master), Stdio::from(side))
}

#[test]
fn on_a_terminal_a_picture_of_its_size_is_drawn_in_its_place_and_the_cursor_comes_back() {
    let folder = folder_with(BEAT);
    let _worker = worker(folder.path());
    let (mut screen, side) = terminal();
    let mut command = watchkeeper(folder.path());
    command.args(["status", "--watch=0.1"]).env("TERM", "xterm");
    command.env("NO_COLOR", "1");
    command.stdout(side).stderr(Stdio::piped());
    let watching = Running(command.spawn().unwrap());
    // It keeps our side of the terminal open.
    drop(command);
    let (mut all, mut told, mut bytes) = (Vec::new(), false, [0; 4096]);
    // An error is the end of a terminal.
    while let Ok(n @ 1..) = screen.read(&mut bytes) {
        all.extend_from_slice(&bytes[..n]);
        let pictures = String::from_utf8_lossy(&all).matches("\u{1b}[H").count();
        if pictures >= 4 && !told {
            watching.signal(Signal::INT);
            told = true;
        }
    }
    watching.ended_well();
    let shown = String::from_utf8(all).expect("text");
    let drawn = shown.strip_prefix("\u{1b}[?25l").expect("no cursor");
    let drawn = drawn.strip_suffix("\u{1b}[?25h\r\n").expect("a cursor");
    assert!(!drawn.contains("\u{1b}[2J"), "it was cleared: {drawn:?}");
    for picture in drawn.split("\u{1b}[H").skip(1) {
        let picture = picture.replace("\u{1b}[K", "").replace("\u{1b}[J", "");
        assert!(!picture.contains('\u{1b}'), "{picture:?}");
        let lines: Vec<&str> = picture.split("\r\n").collect();
        assert!(lines.len() <= 8, "{picture}");
        let widest = lines.iter().map(|line| line.chars().count()).max();
        assert!(widest < Some(40), "{picture}");
    }
}

#[test]
fn colours_are_for_terminals_unless_they_are_asked_for() {
    let folder = folder_with(BEAT);
    let _worker = worker(folder.path());
    let shown = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = watchkeeper(folder.path());
        for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
            command.env_remove(name);
        }
        command.args(args).envs(variables.iter().copied());
        let ran: Ran = command.output().unwrap().into();
        ran.ok().out
    };
    const NONE: &[(&str, &str)] = &[];
    const FORCED: (&str, &str) = ("CLICOLOR_FORCE", "1");
    for (args, variables, coloured) in [
        (&["status"][..], NONE, false),
        (&["status", "--color", "always"], NONE, true),
        (&["--color", "always", "status"], NONE, true),
        (&["status"], &[FORCED], true),
        (&["status"], &[FORCED, ("NO_COLOR", "1")], false),
        (&["status", "--color", "never"], &[FORCED], false),
        (&["status", "--json", "--color", "always"], NONE, false),
    ] {
        let text = shown(args, variables);
        let found = text.contains("\u{1b}[");
        assert_eq!(found, coloured, "{args:?} {variables:?}: {text:?}");
    }
    let coloured = shown(&["status", "--color=always"], NONE);
    assert!(coloured.starts_with("\u{1b}[1mREPLICA\u{1b}[0m"));
}

#[test]
fn a_followed_trigger_tells_its_attempt_and_exits_as_it_ended() {
    let folder = folder_with(&format!("{BEAT}{BY_HAND}"));
    let _worker = worker(folder.path());
    let follow = |args: &[&str]| {
        let all = [&["trigger"][..], args, &["--follow", "--timeout", "60s"]];
        run(folder.path(), &all.concat())
    };
    let done = follow(&["rest"]).ok();
    for words in ["is asked for", "rest, attempt 1: done after ", ": done\n"] {
        assert!(done.out.contains(words), "no {words:?} in {}", done.out);
    }
    let failed = follow(&["fails"]).with(1);
    for words in ["fails, attempt 1: failed after ", "\n    on the way\n"] {
        assert!(failed.out.contains(words), "no {words:?} in {}", failed.out);
    }
    assert!(failed.err.contains("exit status 3"), "{}", failed.err);
    let failed = follow(&["fails", "--json"]).with(1);
    let answer = failed.json();
    assert_eq!(answer["outcome"], "failed");
    assert_eq!(answer["attempts"][0]["output"], "on the way\n");
    assert!(failed.err.contains("fails, attempt 1: "), "{}", failed.err);

    // What a command prints is shown while it runs: this one waits for a file.
    let mut command = watchkeeper(folder.path());
    command.args(["trigger", "talks", "--follow"]);
    let (following, mut lines) = spawned(&mut command);
    assert!(lines.any(|line| line == "    first"), "it never spoke");
    fs::write(folder.path().join("go"), "").unwrap();
    let rest: Vec<String> = lines.collect();
    following.ended_well();
    let second = rest.iter().position(|line| line == "    second");
    let done = rest
        .iter()
        .position(|line| line.contains("attempt 1: done after "));
    assert!(second.is_some() && second < done, "{rest:?}");
    assert!(!rest.contains(&"    first".to_owned()), "once: {rest:?}");

    let mut command = watchkeeper(folder.path());
    command.args(["trigger", "slow", "--follow"]);
    let (following, mut lines) = spawned(&mut command);
    let runs = lines.find(|line| line.contains("slow, attempt 1: running on alpha"));
    assert!(runs.is_some(), "it never began");
    following.signal(Signal::INT);
    let (code, err) = following.ended();
    assert_eq!(code, Some(1));
    assert!(err.contains("its run goes on"), "{err}");

    // Its place is taken.
    let late = ["trigger", "slow", "--follow", "--timeout", "2s"];
    let late = run(folder.path(), &late).with(1);
    assert!(
        late.err
            .contains("has not ended within 2s; it stays asked for"),
        "{}",
        late.err
    );
    let both = ["trigger", "slow", "--follow", "--wait"];
    run(folder.path(), &both).with(2);
}

#[test]
fn the_runs_of_all_jobs_are_shown_newest_first_and_those_of_one_as_they_come() {
    let folder = folder_with(&format!("{BEAT}{BY_HAND}"));
    let _worker = worker(folder.path());
    run(folder.path(), &["trigger", "fails", "--follow"]).with(1);
    let beats = (0..2000).find(|_| !history_of(folder.path(), "beat").is_empty());
    assert!(beats.is_some(), "it never beat");
    let shown = |args: &[&str]| {
        let all = [&["history", "--json"][..], args].concat();
        run(folder.path(), &all).ok().json()
    };
    let runs = shown(&["--limit", "50"]);
    let runs = runs.as_array().unwrap();
    for job in ["beat", "fails"] {
        assert!(runs.iter().any(|run| run["job"] == job), "no {job}");
    }
    let began = runs.iter().filter_map(|run| run["started"].as_str());
    let began: Vec<&str> = began.collect();
    // They are all in UTC: up to the second they compare as they stand.
    let seconds = began.iter().map(|at| &at[..19]);
    assert!(seconds.is_sorted_by(|a, b| a >= b), "{began:?}");
    let jobs = |args: &[&str]| -> Vec<String> {
        let name = |run: &Value| run["job"].as_str().unwrap().to_owned();
        shown(args).as_array().unwrap().iter().map(name).collect()
    };
    assert_eq!(jobs(&["--outcome", "failed"]), ["fails"]);
    assert_eq!(jobs(&["--job", "f?ils"]), ["fails"]);
    assert_eq!(jobs(&["--replica", "beta"]), Vec::<String>::new());
    assert_eq!(jobs(&["--until", "1h"]), Vec::<String>::new());
    assert_eq!(jobs(&["fails", "--since", "1h"]), ["fails"]);
    let table = run(folder.path(), &["history", "--output"]).ok();
    assert!(table.out.starts_with("JOB "), "{}", table.out);
    assert!(table.out.contains("\n    on the way\n"), "{}", table.out);
    let none = run(folder.path(), &["history", "--job", "x*"]).with(1);
    assert!(none.err.contains("\"x*\""), "{}", none.err);
    for wrong in [
        &["history", "--outcome", "fialed"][..],
        &["history", "--follow"],
        &["history", "fails", "--job", "f*"],
        &["history", "--since", "yesterday"],
    ] {
        run(folder.path(), wrong).with(2);
    }

    let mut command = watchkeeper(folder.path());
    command.args(["history", "beat", "--follow", "--json", "--limit", "1"]);
    let (following, mut lines) = spawned(&mut command);
    let mut seqs = Vec::new();
    while seqs.len() < 3 {
        let run = json(&lines.next().expect("it goes on"));
        assert_eq!(run["job"], "beat");
        if run["outcome"] != "running" {
            seqs.push(run["seq"].as_u64().unwrap());
        }
    }
    assert!(seqs.is_sorted_by(|a, b| a < b), "each once: {seqs:?}");
    following.signal(Signal::TERM);
    following.ended_well();
}
