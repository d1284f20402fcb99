//! The first hour: the programs of the guides "Write your first job" and "Settings in code", copied word for word into a new crate, built and run.
//!
//! Costs the build of the library in another workspace, once per change of it (about half a minute; a minute and a half the
//! first time, when some dependencies are wanted with other features), five small links, and twelve seconds of running. The
//! crate lies in the folder for temporary files of the tests' own build, which also keeps what was built; nothing is downloaded.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{blocks, read, root};

/// A name for each program, words that it must have in it, and its arguments.
const PROGRAMS: [(&str, &str, &[&str]); 5] = [
    ("first", ".job(\"hello\", Hello,", &[]),
    ("closure", ".job_fn(", &[]),
    ("commands", "cli::main(worker)", &["run"]),
    ("commands-async", "cli::main_async(worker).await", &["run"]),
    ("code", "Worker::builder()", &[]),
];

/// What a process has written to one of its outputs.
type Lines = mpsc::Receiver<(Instant, String)>;

struct Program {
    child: Child,
    began: Instant,
    out: Lines,
    err: Lines,
    _folder: tempfile::TempDir,
}

impl Program {
    fn start(name: &str, args: &[&str], configuration: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        if !configuration.is_empty() {
            fs::write(folder.path().join("watchkeeper.toml"), configuration).unwrap();
        }
        let mut command = Command::new(built(name));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("WATCHKEEPER_") {
                command.env_remove(name);
            }
        }
        let began = now();
        let mut child = command
            .args(args)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let out = lines(child.stdout.take().unwrap());
        let err = lines(child.stderr.take().unwrap());
        Self {
            child,
            began,
            out,
            err,
            _folder: folder,
        }
    }

    /// How long the first line that has `words` in it took, or what came instead within `limit`.
    fn says(&self, on: &Lines, words: &str, limit: Duration) -> Result<Duration, Vec<String>> {
        let mut others = Vec::new();
        loop {
            let left = limit.saturating_sub(now().duration_since(self.began));
            match on.recv_timeout(left) {
                Ok((at, line)) if line.contains(words) => return Ok(at.duration_since(self.began)),
                Ok((_, line)) => others.push(line),
                Err(_) => return Err(others),
            }
        }
    }

    fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let ended = self.child.wait().unwrap();
        let rest: Vec<String> = self.err.iter().map(|(_, line)| line).collect();
        assert!(ended.success(), "{ended}: {rest:#?}");
    }
}

/// Killed where a test fails.
impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_first_programs_of_the_guides_speak_at_once_and_run_within_a_minute() {
    let texts = programs();
    build(&texts);
    let started = PROGRAMS.map(|(name, _, args)| (name, args, Program::start(name, args, "")));
    for (name, args, program) in started {
        let minute = Duration::from_secs(60);
        let first = program
            .says(&program.err, "starting", minute)
            .unwrap_or_else(|said| panic!("{name}: {said:#?}"));
        speaks_within_a_second(name, args, first);
        for words in [
            "using the embedded store",
            "worker started",
            "\"job\":\"hello\"",
        ] {
            // What code names needs no note.
            if name == "code" && words.starts_with("using") {
                continue;
            }
            if let Err(said) = program.says(&program.err, words, minute) {
                panic!("{name} did not say {words:?}: {said:#?}");
            }
        }
        if let Err(said) = program.says(&program.out, "hello at ", minute) {
            panic!("{name} has not run: {said:#?}");
        }
        program.end();
    }
    faults_are_printed_for_people();
    other_commands_work_in_a_runtime_too();
}

/// On a machine that is busy with other things a start may take its time; not each of three, though.
fn speaks_within_a_second(name: &str, args: &[&str], first: Duration) {
    let second = Duration::from_secs(1);
    let mut took = vec![first];
    while took.iter().all(|took| *took > second) {
        assert!(took.len() < 3, "{name}: the first line came after {took:?}");
        let again = Program::start(name, args, "");
        took.push(again.says(&again.err, "starting", second * 60).unwrap());
        again.end();
    }
}

/// What `main` returns is what `check` shows.
fn faults_are_printed_for_people() {
    let mut program = Program::start("first", &[], "[locks]\nttl = \"40s\"\n");
    assert_eq!(program.child.wait().unwrap().code(), Some(1));
    let said: Vec<String> = program.err.iter().map(|(_, line)| line).collect();
    assert_eq!(
        said,
        [
            "Error: 1 error; nothing was started",
            "watchkeeper.toml:2:7: locks.ttl: 40s is longer than max_ttl (30s); lower ttl or raise max_ttl"
        ]
    );
}

/// They make small runtimes of their own, which must not stand within another one.
fn other_commands_work_in_a_runtime_too() {
    let settings = "locks.backend = \"embedded\"\n[worker]\nthreads = 3\n";
    let mut jobs = Program::start("commands-async", &["jobs"], settings);
    assert!(jobs.child.wait().unwrap().success());
    assert!(jobs.out.iter().any(|(_, line)| line.starts_with("hello")));
    let mut status = Program::start("commands-async", &["status"], settings);
    assert_eq!(status.child.wait().unwrap().code(), Some(1));
    assert!(
        status
            .err
            .iter()
            .any(|(_, line)| line.contains("there is no store"))
    );
    let run = Program::start("commands-async", &["run"], settings);
    for words in ["worker.threads has no effect", "worker started"] {
        if let Err(said) = run.says(&run.err, words, Duration::from_secs(60)) {
            panic!("{said:#?}");
        }
    }
    run.end();
}

/// The build that the guide names for programs with another crate that links SQLite, beside such a crate.
#[test]
fn the_build_without_the_embedded_store_stands_beside_another_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let at = |file: &str| folder.path().join(file);
    fs::create_dir_all(at("other/src")).unwrap();
    fs::create_dir_all(at("src")).unwrap();
    for file in ["other/src/lib.rs", "other/build.rs", "src/main.rs"] {
        fs::write(at(file), "fn main() {}\n").unwrap();
    }
    fs::write(
        at("other/Cargo.toml"),
        "[package]\nname = \"other-sqlite\"\nversion = \"1.0.0\"\nedition = \"2024\"\nlinks = \"sqlite3\"\n",
    )
    .unwrap();
    let without = &blocks(&read(OTHER_SQLITE), "toml Cargo.toml")[0];
    let resolves = |dependencies: &str| {
        let dependencies = format!("{dependencies}other-sqlite = {{ path = \"other\" }}\n");
        fs::write(at("Cargo.toml"), manifest(&dependencies)).unwrap();
        fs::copy(root().join("Cargo.lock"), at("Cargo.lock")).unwrap();
        let tree = cargo(folder.path())
            .args(["tree", "--offline", "--edges", "normal"])
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        match tree.status.success() {
            true => Ok(text(tree.stdout)),
            false => Err(text(tree.stderr)),
        }
    };
    let refused = resolves(&dependencies()).unwrap_err();
    assert!(refused.contains("`sqlite3`"), "{refused}");
    let tree = resolves(without).unwrap();
    assert!(
        tree.contains("watchkeeper v") && !tree.contains("libsqlite3-sys"),
        "{tree}"
    );
    for name in ["clap v", "axum v", "tracing-subscriber v", "redis v"] {
        assert!(tree.contains(name), "{name}: {tree}");
    }
}

// === the crate

const FIRST_JOB: &str = "docs/guides/first-job.md";
const IN_CODE: &str = "docs/guides/settings-in-code.md";
const OTHER_SQLITE: &str = "docs/guides/other-sqlite-crates.md";

/// The programs of the guides; the README shows the first of them.
fn programs() -> Vec<String> {
    let guides = [FIRST_JOB, IN_CODE].map(read).join("\n");
    let texts = blocks(&guides, "rust,no_run");
    assert_eq!(texts.len(), PROGRAMS.len(), "{texts:#?}");
    for ((name, words, _), text) in PROGRAMS.iter().zip(&texts) {
        assert!(text.contains(words), "{name} is not {words:?}: {text}");
    }
    let readme = read("README.md");
    assert_eq!(blocks(&readme, "rust,no_run"), texts[..1]);
    assert_eq!(blocks(&readme, "toml Cargo.toml"), [dependencies()]);
    texts
}

fn dependencies() -> String {
    blocks(&read(FIRST_JOB), "toml Cargo.toml").remove(0)
}

/// Builds the programs in a crate that is no member of our workspace, with the versions and profiles of ours.
fn build(programs: &[String]) {
    let home = home();
    let bins = home.join("src/bin");
    fs::create_dir_all(&bins).unwrap();
    write(&home.join("Cargo.toml"), &manifest(&dependencies()));
    fs::copy(root().join("Cargo.lock"), home.join("Cargo.lock")).unwrap();
    for ((name, ..), text) in PROGRAMS.iter().zip(programs) {
        write(&bins.join(format!("{name}.rs")), text);
    }
    let build = cargo(&home)
        .args(["build", "--offline", "--bins"])
        .output()
        .unwrap();
    assert!(
        build.status.success(),
        "{}",
        String::from_utf8_lossy(&build.stderr)
    );
    let warned = String::from_utf8_lossy(&build.stderr).contains("warning: unused");
    assert!(!warned, "{}", String::from_utf8_lossy(&build.stderr));
}

/// A manifest with these dependencies, of which ours is that of this checkout.
fn manifest(dependencies: &str) -> String {
    let here = root().canonicalize().unwrap().display().to_string();
    assert!(
        dependencies.contains("\"../watchkeeper\""),
        "{dependencies}"
    );
    let dependencies = dependencies.replace("../watchkeeper", &here);
    let ours = read("Cargo.toml");
    // What is built alike is built once.
    let (_, profiles) = ours.split_once("[profile.dev]").unwrap();
    // But ours: it is for the simulation that it is built with more care.
    let profiles = profiles.replace("[profile.dev.package.watchkeeper]\nopt-level = 1\n", "");
    format!(
        "[package]\nname = \"hello\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n{dependencies}\n\
         [workspace]\n\n[profile.dev]{profiles}"
    )
}

/// Unless it is written already: what has not changed is not built again.
fn write(file: &Path, text: &str) {
    if fs::read_to_string(file).ok().as_deref() != Some(text) {
        fs::write(file, text).unwrap();
    }
}

fn cargo(folder: &Path) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // What names the package of this test would be a change to crates that look at it, and have them built anew for each run.
    for (name, _) in std::env::vars_os() {
        let shown = name.to_string_lossy();
        let of_a_package = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
        if of_a_package.iter().any(|start| shown.starts_with(start)) {
            command.env_remove(&name);
        }
    }
    command
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", target())
        .stdin(Stdio::null());
    command
}

/// Always the same place: the programs are not built anew for each run of the tests.
fn home() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("hello")
}

/// Where the tests themselves are built.
fn target() -> PathBuf {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    tmp.parent().unwrap().to_owned()
}

fn built(name: &str) -> PathBuf {
    target().join("debug").join(name)
}

// === processes

fn lines(pipe: impl std::io::Read + Send + 'static) -> Lines {
    let (to, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if to.send((now(), line)).is_err() {
                return;
            }
        }
    });
    lines
}

#[allow(
    clippy::disallowed_methods,
    reason = "processes live on the machine's clock"
)]
fn now() -> Instant {
    Instant::now()
}
