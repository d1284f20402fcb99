//! The embedded file where mounts and namespaces come between those who use it. Each case runs as a process of its own in
//! namespaces of its own, beside this one, which has opened the file before.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use watchkeeper_lock::{
    clock::Clock,
    node::{
        Answer, Call, Kind, Node, NodeError, Op, Take, Token,
        sqlite::{OpenError, SqliteNode},
    },
};

/// How a process of a case is told which it is, and where its files are.
const CASE: &str = "WATCHKEEPER_TEST_CASE";
const FOLDER: &str = "WATCHKEEPER_TEST_FOLDER";

const TTL: Duration = Duration::from_secs(20);

/// Why no namespaces can be made here.
pub(crate) fn missing(kind: &str) -> Option<String> {
    let mut made = Command::new("unshare");
    made.arg(kind).arg("true");
    made.stdout(Stdio::null()).stderr(Stdio::null());
    let may = made.status().is_ok_and(|status| status.success());
    (!may).then(|| format!("`unshare {kind}` is not permitted here: run as root"))
}

/// Whether this process is one of a case; it has done its work then.
pub(crate) fn is_inner() -> bool {
    let (Ok(case), Some(folder)) = (std::env::var(CASE), std::env::var_os(FOLDER)) else {
        return false;
    };
    let folder = PathBuf::from(folder);
    match case.as_str() {
        "mounted" => inner_mounted(&folder),
        "read_only" => inner_read_only(&folder),
        "full" => inner_full(&folder),
        "processes" => inner_processes(&folder),
        "clock" => inner_clock(&folder),
        other => panic!("no such case: {other}"),
    }
    true
}

fn aside(case: &str, namespaces: &[&str], folder: &Path) {
    let mut command = Command::new("unshare");
    command
        .args(namespaces)
        .arg(std::env::current_exe().unwrap());
    command.env(CASE, case).env(FOLDER, folder);
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{case}: {said}");
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn open(path: &Path) -> Result<SqliteNode, OpenError> {
    SqliteNode::open(path, Clock::system())
}

fn call(node: &SqliteNode, op: Op) -> Result<Answer, NodeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let call = Call {
        not_after: None,
        ops: vec![op],
    };
    let reply = runtime.unwrap().block_on(node.call(call));
    reply.map(|mut reply| reply.answers.remove(0))
}

fn acquire(key: &str, owner: &str) -> Op {
    Op::Acquire {
        key: key.to_owned(),
        owner: owner.to_owned(),
        kind: Kind::Lock,
        ttl: TTL,
        floor: Token(0),
        take: Take::Server,
        clamp: TTL,
        ticket: None,
        waits: Duration::ZERO,
    }
}

fn extend(key: &str, owner: &str) -> Op {
    Op::Extend {
        key: key.to_owned(),
        owner: owner.to_owned(),
        kind: Kind::Lock,
        seq: 1,
        ttl: TTL,
        token: Token(1),
        take: Take::Server,
    }
}

/// A store in which `ours` holds `k`.
fn held(path: &Path) -> SqliteNode {
    let node = open(path).unwrap();
    let granted = call(&node, acquire("k", "ours"));
    assert!(matches!(granted, Ok(Answer::Granted { .. })), "{granted:?}");
    node
}

fn is_kept(node: &SqliteNode) {
    let kept = call(node, extend("k", "ours"));
    assert!(matches!(kept, Ok(Answer::Kept { .. })), "{kept:?}");
}

pub(crate) fn a_file_that_is_mounted_alone_is_refused_and_its_folder_is_shared() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("real")).unwrap();
    let node = held(&folder.path().join("real/store.db"));
    aside("mounted", &["--mount"], folder.path());
    is_kept(&node);
}

fn inner_mounted(folder: &Path) {
    let (real, alone) = (folder.join("real"), folder.join("a b"));
    fs::create_dir(&alone).unwrap();
    let (file, there) = (real.join("store.db"), alone.join("store.db"));
    fs::write(&there, "").unwrap();
    run("mount", &["--bind", text(&file), text(&there)]);
    let refused = open(&there).unwrap_err();
    let said = refused.to_string();
    assert!(matches!(refused, OpenError::Mounted { .. }), "{said}");
    assert!(said.contains("mount its folder instead"), "{said}");
    // With its folder come the log and the locks of those who use it elsewhere.
    let whole = folder.join("whole");
    fs::create_dir(&whole).unwrap();
    run("mount", &["--bind", text(&real), text(&whole)]);
    let node = open(&whole.join("store.db")).unwrap();
    let answer = call(&node, acquire("k", "theirs"));
    assert!(matches!(answer, Ok(Answer::Refused(_))), "{answer:?}");
}

pub(crate) fn a_file_on_a_mount_that_is_read_only_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let node = held(&folder.path().join("store.db"));
    aside("read_only", &["--mount"], folder.path());
    is_kept(&node);
}

fn inner_read_only(folder: &Path) {
    run("mount", &["--bind", text(folder), text(folder)]);
    run("mount", &["-o", "remount,bind,ro", text(folder)]);
    let refused = open(&folder.join("store.db")).unwrap_err();
    assert!(matches!(refused, OpenError::NoAccess { .. }), "{refused:?}");
    let cause = std::error::Error::source(&refused).unwrap().to_string();
    assert!(cause.contains("Read-only"), "{cause}");
}

pub(crate) fn a_disk_that_is_full_grants_nothing_until_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    aside("full", &["--mount"], folder.path());
}

fn inner_full(folder: &Path) {
    run(
        "mount",
        &["-t", "tmpfs", "-o", "size=1m", "none", text(folder)],
    );
    let node = held(&folder.join("store.db"));
    let filler = folder.join("filler");
    // Until nothing more fits.
    let filled = fs::write(&filler, vec![0; 2 << 20]);
    assert!(filled.is_err(), "1 MB");
    let refused = (0..2_000).find_map(|n| call(&node, acquire(&format!("k{n}"), "ours")).err());
    // Found full by the commit, it is not known to have had no effect.
    let told = matches!(&refused, Some(NodeError::Unfit(why)) if why.contains("full"));
    assert!(
        told || matches!(refused, Some(NodeError::Timeout(_))),
        "{refused:?}"
    );
    fs::remove_file(&filler).unwrap();
    is_kept(&node);
    let granted = call(&node, acquire("j", "ours"));
    assert!(matches!(granted, Ok(Answer::Granted { .. })), "{granted:?}");
}

pub(crate) fn a_container_waits_for_the_processes_of_another_on_a_removed_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let node = held(&path);
    let namespaces = ["--mount", "--pid", "--fork", "--mount-proc"];
    // With the file both use it, each with processes that the other does not see.
    aside("processes", &namespaces, folder.path());
    is_kept(&node);
    fs::remove_file(&path).unwrap();
    aside("processes", &namespaces, folder.path());
    let answer = call(&node, extend("k", "ours"));
    assert!(matches!(answer, Err(NodeError::Gone(_))), "{answer:?}");
}

fn inner_processes(folder: &Path) {
    let path = folder.join("store.db");
    if path.exists() {
        let answer = call(&open(&path).unwrap(), acquire("k", "theirs"));
        assert!(matches!(answer, Ok(Answer::Refused(_))), "{answer:?}");
        return;
    }
    let refused = open(&path).unwrap_err();
    let said = refused.to_string();
    assert!(matches!(refused, OpenError::Replaced { .. }), "{said}");
    assert!(said.contains("other processes use"), "{said}");
}

pub(crate) fn a_container_with_a_clock_of_its_own_ends_no_lease() {
    let folder = tempfile::tempdir().unwrap();
    let node = held(&folder.path().join("store.db"));
    let namespaces = ["--mount", "--time", "--boottime", "3600"];
    aside("clock", &namespaces, folder.path());
    is_kept(&node);
}

fn inner_clock(folder: &Path) {
    let node = open(&folder.join("store.db")).unwrap();
    match call(&node, acquire("k", "theirs")) {
        // By its clock the lease has ended an hour ago.
        Err(NodeError::Unfit(why)) => assert!(why.contains("grants nothing"), "{why}"),
        other => panic!("{other:?}"),
    }
}
