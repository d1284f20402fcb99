//! Whether the programs for which `deploy/` is written understand it: Prometheus its rules, which fire when they should, systemd
//! the unit, Kubernetes the overlays. Costs about ten seconds.
//!
//! `cargo test -p watchkeeper-jobs --test deploy [FILTER]`. A case whose program is not installed is ignored and says why;
//! `WATCHKEEPER_REQUIRE=promtool,systemd-analyze,kubectl` makes that a failure. What `deploy/` names is looked at by
//! `tests/shipped/deploy.rs`, which needs none of them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use libtest_mimic::{Arguments, Trial};

/// A program, which is its own word in `WATCHKEEPER_REQUIRE`, and what is said where it is missing.
type Need = (&'static str, &'static str);

const PROMTOOL: Need = ("promtool", "no promtool: apt-get install prometheus");
const ANALYZE: Need = (
    "systemd-analyze",
    "no systemd-analyze: apt-get install systemd",
);
const KUBECTL: Need = ("kubectl", "no kubectl: see kubernetes.io");

/// Names each case by its folder, so that a filter finds it.
macro_rules! cases {
    ($($folder:ident needs $need:ident: { $($case:ident),+ $(,)? }),+ $(,)?) => {
        vec![$($(trial(
            concat!(stringify!($folder), "::", stringify!($case)),
            $need,
            $case,
        )),+),+]
    };
}

fn main() -> ExitCode {
    let cases = cases![
        prometheus needs PROMTOOL: {
            the_configuration_is_understood,
            the_rules_are_understood,
            each_rule_fires_when_it_should,
            a_rule_that_does_not_fire_is_seen,
        },
        systemd needs ANALYZE: {
            the_unit_is_understood,
            a_fault_in_the_unit_is_seen,
        },
        kubernetes needs KUBECTL: {
            the_overlays_are_understood,
        },
    ];
    libtest_mimic::run(&Arguments::from_args(), cases).exit_code()
}

// === Prometheus

fn the_configuration_is_understood() {
    promtool(&["check", "config", "deploy/prometheus/prometheus.yml"]);
}

fn the_rules_are_understood() {
    promtool(&["check", "rules", "deploy/prometheus/alerts.yml"]);
}

fn each_rule_fires_when_it_should() {
    promtool(&["test", "rules", "deploy/prometheus/alerts.test.yml"]);
}

fn a_rule_that_does_not_fire_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |name: &str, change: fn(String) -> String| {
        let text = fs::read_to_string(root().join("deploy/prometheus").join(name)).unwrap();
        fs::write(folder.path().join(name), change(text)).unwrap();
    };
    copy("alerts.test.yml", |text| text);
    copy("alerts.yml", |text| {
        text.replace("leader) == 0", "leader) == 7")
    });
    let tests = folder.path().join("alerts.test.yml");
    let (ended_well, said) = run(Command::new("promtool").args(["test", "rules"]).arg(tests));
    assert!(!ended_well, "{said}");
    assert!(said.contains("WatchkeeperNoLeader"), "{said}");
}

fn promtool(args: &[&str]) {
    let (ended_well, said) = run(Command::new("promtool").args(args));
    assert!(ended_well, "{said}");
}

// === systemd

fn the_unit_is_understood() {
    assert_eq!(faults_of_the_unit(|unit| unit), "");
}

fn a_fault_in_the_unit_is_seen() {
    let faults = faults_of_the_unit(|unit| unit.replace("WatchdogSec=", "WatchdogSecs="));
    assert!(faults.contains("WatchdogSecs"), "{faults}");
}

/// What systemd says of the unit, with the command where it was built. What it says of other units, which ours names, is not our
/// business.
fn faults_of_the_unit(change: impl Fn(String) -> String) -> String {
    let folder = tempfile::tempdir().unwrap();
    let unit = fs::read_to_string(root().join("deploy/watchkeeper@.service")).unwrap();
    let unit = unit.replace(
        "/usr/local/bin/watchkeeper",
        env!("CARGO_BIN_EXE_watchkeeper"),
    );
    let path = folder.path().join("watchkeeper@.service");
    fs::write(&path, change(unit)).unwrap();
    let (_, said) = run(Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&path));
    let ours = said.lines().filter(|line| line.contains("watchkeeper@"));
    ours.collect::<Vec<_>>().join("\n")
}

// === Kubernetes

fn the_overlays_are_understood() {
    for (overlay, port) in [("redis", 6379), ("postgres", 5432)] {
        let path = format!("deploy/kubernetes/overlays/{overlay}");
        let args = ["kustomize", path.as_str()];
        let (ended_well, said) = run(Command::new("kubectl").args(args));
        assert!(ended_well, "{overlay}: {said}");
        for wanted in [
            // What the base has, with the variables of the overlay beside its own.
            "kind: PodDisruptionBudget".to_owned(),
            "name: WATCHKEEPER_ADMIN__TOKEN_FILE".to_owned(),
            "name: WATCHKEEPER_LOCKS__BACKEND".to_owned(),
            format!("value: {overlay}"),
            // The way to the store, and the configuration under a name of its own.
            format!("port: {port}"),
            "[jobs.heartbeat]".to_owned(),
            "name: watchkeeper-".to_owned(),
        ] {
            assert!(said.contains(&wanted), "{overlay}: no {wanted}\n{said}");
        }
    }
}

// === running

/// Whether it ended well, and what it said.
fn run(command: &mut Command) -> (bool, String) {
    let output = command.current_dir(root()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.success(), said)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// A panic is a failure of the case.
fn trial(name: &str, (program, remedy): Need, case: fn()) -> Trial {
    let path = env::var_os("PATH").unwrap_or_default();
    if env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
        return Trial::test(name, move || {
            case();
            Ok(())
        });
    }
    let required = env::var("WATCHKEEPER_REQUIRE")
        .is_ok_and(|list| list.split(',').any(|word| word.trim() == program));
    if required {
        let why = format!("{remedy} (WATCHKEEPER_REQUIRE names {program})");
        return Trial::test(name, move || Err(why.into()));
    }
    // Also with `--ignored`, which runs it all the same, it must never count as passed.
    Trial::test(format!("{name} [{remedy}]"), move || Err(remedy.into())).with_ignored_flag(true)
}
