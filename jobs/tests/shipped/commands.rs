//! The commands of the README, each carried out as it stands: in a folder with the configuration that they name. Servers that they
//! name are replaced by a file. Costs about two seconds.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{blocks, read, root};

/// What is carried out elsewhere: the line, where, and how it reads there. The build of a release is in the long run.
const ELSEWHERE: [(&str, &str, &str); 4] = [
    (
        "cargo run --release -- demo",
        "tests/run",
        "cargo run --locked --release -- demo",
    ),
    (
        "cargo run --release -- demo",
        "jobs/tests/cli.rs",
        "fn the_demo_loses_nothing_and_repeats_only_what_was_in_doubt",
    ),
    (
        "cargo install --locked --path jobs",
        "tests/run",
        "cargo install --quiet --locked --path jobs",
    ),
    ("tests/run", ".ci/run", "tests/run"),
];

/// What the README names and a test has not, and what is put in its place: the servers of a fleet, and a folder of the system.
const HERE: [(&str, &str); 2] = [
    (
        "--nodes redis://lock-a,redis://lock-b,redis://lock-c",
        "--embedded locks.db",
    ),
    ("/srv/app/backup.sh", "./backup.sh"),
];

/// Killed where a test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_commands_of_the_readme_run() {
    let folder = tempfile::tempdir().unwrap();
    let at = |file: &str| folder.path().join(file);
    fs::create_dir(at("config")).unwrap();
    fs::copy(root().join("config/local.toml"), at("config/local.toml")).unwrap();
    for name in ["backup.sh", "scheduler"] {
        let text = format!("#!/bin/sh\necho {name} has begun\nexec sleep 0.2\n");
        fs::write(at(name), text).unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut worker = None;
    let mut done = BTreeSet::new();
    for line in lines() {
        let elsewhere = ELSEWHERE.iter().filter(|(known, ..)| *known == line);
        let places: Vec<_> = elsewhere.map(|(_, place, how)| (place, how)).collect();
        for (place, how) in &places {
            assert!(read(place).contains(*how), "{place} has no {how}");
        }
        if !places.is_empty() {
            continue;
        }
        let line = HERE
            .iter()
            .fold(line, |line, (named, here)| line.replace(named, here));
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[0], "watchkeeper", "{line}");
        let mut command = command(folder.path(), &words[1..]);
        match words[1] {
            // They go on until they are told to end.
            "run" => {
                let running = says(command.stderr(Stdio::piped()), "worker started");
                worker = Some(running);
            }
            "elect" => {
                let mut running = says(command.stdout(Stdio::piped()), "scheduler has begun");
                end(&mut running);
            }
            _ => {
                let said = command.output().unwrap();
                assert!(said.status.success(), "{line}: {said:?}");
            }
        }
        done.insert(words[1].to_owned());
    }
    let status = end(&mut worker.unwrap());
    assert!(status.success(), "{status}");
    for name in [
        "check", "run", "status", "explain", "trigger", "doctor", "lock", "elect",
    ] {
        assert!(done.contains(name), "{name}: {done:?}");
    }
}

/// The README's commands in their order, without comments.
fn lines() -> Vec<String> {
    let blocks = blocks(&read("README.md"), "sh");
    let lines = blocks.iter().flat_map(|block| block.lines());
    lines
        .map(|line| line.split(" #").next().unwrap().trim().to_owned())
        .collect()
}

fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_watchkeeper"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WATCHKEEPER_") {
            command.env_remove(name);
        }
    }
    command.args(words).current_dir(folder).stdin(Stdio::null());
    command
}

/// Starts it, and waits until it says this.
fn says(command: &mut Command, words: &str) -> Running {
    let mut running = Running(command.spawn().unwrap());
    let pipe: Box<dyn std::io::Read + Send> = match running.0.stdout.take() {
        Some(out) => Box::new(out),
        None => Box::new(running.0.stderr.take().unwrap()),
    };
    let mut lines = BufReader::new(pipe).lines().map_while(Result::ok);
    let mut others = Vec::new();
    loop {
        match lines.next() {
            Some(line) if line.contains(words) => break,
            Some(line) => others.push(line),
            None => panic!("it has not said {words:?}: {others:#?}"),
        }
    }
    // What it writes afterwards has to go somewhere.
    std::thread::spawn(move || lines.for_each(drop));
    running
}

fn end(running: &mut Running) -> std::process::ExitStatus {
    kill_process(Pid::from_child(&running.0), Signal::TERM).unwrap();
    running.0.wait().unwrap()
}
