//! What becomes of leases when the file is not one file, or not the file that it was.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use rusqlite::Connection;
use rustix::process::DumpableBehavior;
use tempfile::TempDir;

use super::{ByHand, acquire, call, folder, store, view};
use crate::{
    clock::Clock,
    node::{
        Answer, Cursor, Kind, Node, NodeError, Op, Take, Token,
        sqlite::{
            OpenError, SqliteNode,
            place::Names,
            store::Store,
            users::{Entered, Users},
        },
    },
};

fn open(folder: &TempDir, time: &ByHand, boot: &str) -> Result<Store, OpenError> {
    let path = folder.path().join("locks.db");
    Store::open(&path, Clock::new(time.clone()), boot.to_owned())
}

fn refused(folder: &TempDir) -> OpenError {
    open(folder, &ByHand::default(), "boot").err().unwrap()
}

fn extend(key: &str, owner: &str, seq: u64) -> Op {
    Op::Extend {
        key: key.into(),
        owner: owner.into(),
        kind: Kind::Lock,
        seq,
        ttl: Duration::from_secs(10),
        token: Token(1),
        take: Take::Server,
    }
}

/// Why it is over for this process.
fn gone(store: &mut Store) -> String {
    match store.call(&call([extend("k", "a", 9)])) {
        Err(NodeError::Gone(why)) => why,
        other => panic!("{other:?}"),
    }
}

fn unfit(store: &mut Store) -> String {
    match store.call(&call([acquire("k", "b")])) {
        Err(NodeError::Unfit(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// What a person may do to the files of a store, each in the folder of its own.
type Deed = fn(&Path);

const DEEDS: [(&str, Deed); 6] = [
    ("removed or moved away", |folder| {
        fs::remove_file(folder.join("locks.db")).unwrap();
    }),
    ("removed or moved away", |folder| {
        fs::rename(folder.join("locks.db"), folder.join("old.db")).unwrap();
    }),
    ("another file was put in its place", |folder| {
        fs::copy(folder.join("locks.db"), folder.join("copy.db")).unwrap();
        fs::rename(folder.join("copy.db"), folder.join("locks.db")).unwrap();
    }),
    ("-wal was removed", |folder| {
        fs::remove_file(folder.join("locks.db-wal")).unwrap();
    }),
    ("-shm was removed", |folder| {
        fs::remove_file(folder.join("locks.db-shm")).unwrap();
    }),
    ("removed or moved away", |folder| {
        for name in ["locks.db", "locks.db-wal", "locks.db-shm"] {
            fs::remove_file(folder.join(name)).unwrap();
        }
    }),
];

#[test]
fn a_new_process_waits_for_those_of_a_removed_file() {
    // Each is tried for a while, lest a process that is just ending keeps a new one out.
    std::thread::scope(|scope| {
        for (what, deed) in DEEDS {
            scope.spawn(move || judge(what, deed));
        }
    });
}

fn judge(what: &str, deed: Deed) {
    let (folder, time) = (folder(), ByHand::default());
    let mut first = store(&folder, &time, "boot");
    let mut second = store(&folder, &time, "boot");
    first.call(&call([acquire("k", "a")])).unwrap();
    deed(folder.path());
    // Before either has noticed: what they hold is believed in.
    let early = refused(&folder);
    let said = early.to_string();
    assert!(matches!(early, OpenError::Replaced { .. }), "{said}");
    assert!(said.contains(what) && said.contains("locks.db"), "{said}");
    let why = gone(&mut first);
    assert!(why.contains(what) && why.contains("stop all"), "{why}");
    // Nothing is granted any more, nor read.
    let read = second.call(&call([Op::Read { key: "k".into() }]));
    assert!(matches!(read, Err(NodeError::Gone(_))), "{read:?}");
    drop(first);
    assert!(matches!(refused(&folder), OpenError::Replaced { .. }));
    drop(second);
    if what.contains("another file") {
        // What they leave is the log of the file that was there before.
        assert!(matches!(refused(&folder), OpenError::OtherLog { .. }));
        fs::remove_file(folder.path().join("locks.db-wal")).unwrap();
        fs::remove_file(folder.path().join("locks.db-shm")).unwrap();
    }
    let mut third = store(&folder, &time, "boot");
    assert!(third.call(&call([acquire("j", "c")])).is_ok());
}

#[test]
fn what_was_gone_once_is_gone_for_good() {
    let (folder, time) = (folder(), ByHand::default());
    let mut store = store(&folder, &time, "boot");
    let (path, aside) = (folder.path().join("locks.db"), folder.path().join("aside"));
    fs::rename(&path, &aside).unwrap();
    gone(&mut store);
    fs::rename(&aside, &path).unwrap();
    gone(&mut store);
    // Unless no call came meanwhile: then nothing has happened.
    drop(store);
    let mut store = super::store(&folder, &time, "boot");
    fs::rename(&path, &aside).unwrap();
    fs::rename(&aside, &path).unwrap();
    assert!(store.call(&call([acquire("k", "a")])).is_ok());
}

#[test]
fn a_folder_that_is_moved_away_takes_its_leases_with_it() {
    let deeds: [Deed; 3] = [
        |inner| fs::rename(inner, inner.with_file_name("moved")).unwrap(),
        |inner| fs::remove_dir_all(inner).unwrap(),
        |inner| {
            // Not the folder, and all that is in it.
            for entry in fs::read_dir(inner).unwrap() {
                fs::remove_file(entry.unwrap().path()).unwrap();
            }
        },
    ];
    std::thread::scope(|scope| {
        for deed in deeds {
            scope.spawn(move || {
                let (folder, time) = (folder(), ByHand::default());
                let inner = folder.path().join("inner");
                let path = inner.join("locks.db");
                let open = || Store::open(&path, Clock::new(time.clone()), "boot".into());
                let mut first = open().unwrap();
                first.call(&call([acquire("k", "a")])).unwrap();
                deed(&inner);
                let early = open().err().unwrap();
                let said = early.to_string();
                assert!(
                    said.contains("its folder, or the lock file in it"),
                    "{said}"
                );
                assert!(said.contains(&format!("process {}", std::process::id())));
                let why = gone(&mut first);
                assert!(why.contains("removed or moved away"), "{why}");
                drop(first);
                let mut second = open().unwrap();
                assert!(second.call(&call([acquire("k", "b")])).is_ok());
            });
        }
    });
}

/// Names, in a process of its own, the store that it is to hold open.
const HIDDEN: &str = "WATCHKEEPER_TEST_HIDDEN_STORE";
const IS_OPEN: &str = "the store is held open";

/// Runs only in the process of the test below.
#[test]
fn hidden_child() {
    let Some(path) = std::env::var_os(HIDDEN) else {
        return;
    };
    // As the stock command does.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let node = SqliteNode::open(path, Clock::system()).unwrap();
    runtime.unwrap().block_on(node.inspect()).unwrap();
    println!("{IS_OPEN}");
    // Until the parent has seen enough.
    let _ = std::io::stdin().read(&mut [0]);
}

/// Where tests run as root with all its rights they see what others hide; then the process is found by its files.
#[test]
fn a_process_that_hides_its_files_is_found_by_its_threads_name() {
    let folder = folder();
    let inner = folder.path().join("inner");
    let path = inner.join("locks.db");
    let name = "node::sqlite::tests::one_file::hidden_child";
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(HIDDEN, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(IS_OPEN)));
    fs::rename(&inner, folder.path().join("moved")).unwrap();
    let open = || SqliteNode::open(&path, Clock::system());
    let said = open().err().unwrap().to_string();
    assert!(said.contains(&format!("process {}", child.id())), "{said}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(open().is_ok());
}

#[test]
fn a_look_at_the_files_costs_microseconds() {
    let (folder, time) = (folder(), ByHand::default());
    let _store = store(&folder, &time, "boot");
    let names = Names::of(&folder.path().join("locks.db"));
    let (clock, looks) = (Clock::system(), 1_000);
    let mut each: Vec<_> = (0..5)
        .map(|_| {
            let begin = clock.now();
            for _ in 0..looks {
                assert!(names.look().unwrap().main.is_some());
            }
            clock.now().since(begin) / looks
        })
        .collect();
    each.sort();
    println!("{:?} a look", each[0]);
    assert!(each[0] < Duration::from_micros(100), "{each:?}");
}

#[test]
fn a_file_with_two_names_is_refused() {
    let (folder, time) = (folder(), ByHand::default());
    let (path, other) = (
        folder.path().join("locks.db"),
        folder.path().join("other.db"),
    );
    let mut first = store(&folder, &time, "boot");
    first.call(&call([acquire("k", "a")])).unwrap();
    fs::hard_link(&path, &other).unwrap();
    for path in [&path, &other] {
        let opened = Store::open(path, Clock::new(time.clone()), "boot".into());
        let refused = opened.err().unwrap();
        let said = refused.to_string();
        assert!(
            matches!(refused, OpenError::Linked { links: 2, .. }),
            "{said}"
        );
        assert!(said.contains("-samefile"), "{said}");
    }
    let why = unfit(&mut first);
    assert!(why.contains("2 names") && why.contains("locks.db"), "{why}");
    // No other process could use it meanwhile.
    fs::remove_file(&other).unwrap();
    let kept = first.call(&call([extend("k", "a", 1)])).unwrap();
    assert!(matches!(kept.answers[0], Answer::Kept { .. }));
}

#[test]
fn a_copy_of_an_earlier_time_is_refused() {
    let (folder, time) = (folder(), ByHand::default());
    let mut first = store(&folder, &time, "boot");
    let mut second = store(&folder, &time, "boot");
    first.call(&call([acquire("k", "a")])).unwrap();
    // As `.restore` of SQLite writes it: by a transaction, into the same file.
    let backup = Connection::open(folder.path().join("locks.db")).unwrap();
    backup
        .execute_batch("BEGIN; DELETE FROM wk_lease; UPDATE wk_node SET changes = 0; COMMIT")
        .unwrap();
    // Also for who has written nothing itself, and for who comes only now.
    let why = gone(&mut second);
    assert!(why.contains("earlier time"), "{why}");
    assert!(matches!(
        refused(&folder),
        OpenError::Replaced { what, .. } if what.contains("earlier time")
    ));
    gone(&mut first);
    drop((first, second));
    assert!(open(&folder, &time, "boot").is_ok());
}

#[test]
fn a_log_of_the_file_before_is_not_written_into_its_successor() {
    let (folder, time) = (folder(), ByHand::default());
    let mut killed = store(&folder, &time, "boot");
    killed.call(&call([acquire("k", "a")])).unwrap();
    let path = folder.path().join("locks.db");
    let names = Names::of(&path);
    // As after a kill: the log is left, and no process has it open.
    let (log, kept) = (names.wal.clone(), folder.path().join("kept"));
    fs::hard_link(&log, &kept).unwrap();
    drop(killed);
    fs::rename(&kept, &log).unwrap();
    fs::copy(&path, folder.path().join("backup")).unwrap();
    assert!(open(&folder, &time, "boot").is_ok(), "it is its own log");
    fs::write(&log, "").unwrap();
    let Entered::Alone(last) = Users::enter(&path).unwrap() else {
        panic!("alone")
    };
    last.note(&path, &names.look().unwrap(), 1).unwrap();
    drop(last);
    fs::rename(folder.path().join("backup"), &path).unwrap();
    let refused = refused(&folder);
    let said = refused.to_string();
    assert!(matches!(refused, OpenError::OtherLog { .. }), "{said}");
    assert!(said.contains("locks.db-wal beside it"), "{said}");
    fs::remove_file(&log).unwrap();
    assert!(open(&folder, &time, "boot").is_ok());
}

#[test]
fn a_call_that_changes_nothing_is_no_sign_of_life() {
    let (folder, time) = (folder(), ByHand::default());
    let mut store = store(&folder, &time, "boot");
    store.call(&call([acquire("k", "a")])).unwrap();
    let conn = Connection::open(folder.path().join("locks.db")).unwrap();
    let changes = || -> i64 {
        let changes = "SELECT changes FROM wk_node";
        conn.query_row(changes, [], |row| row.get(0)).unwrap()
    };
    let before = changes();
    store.call(&call([acquire("k", "b")])).unwrap();
    view(&mut store, "k");
    assert_eq!(changes(), before);
    store.call(&call([extend("k", "a", 1)])).unwrap();
    assert_eq!(changes(), before + 1);
}

#[test]
fn a_second_machine_on_the_file_voids_no_living_lease() {
    let (folder, time) = (folder(), ByHand::at(900_000));
    let mut first = store(&folder, &time, "boot-1");
    first.call(&call([acquire("k", "a")])).unwrap();
    // A machine of its own, with a clock of its own.
    let other = ByHand::at(5_000);
    let forward = |ms| {
        time.forward(ms);
        other.forward(ms);
    };
    let mut second = store(&folder, &other, "boot-2");
    let why = unfit(&mut second);
    assert!(
        why.contains("boot-1") && why.contains("10s 200ms more"),
        "a restart or a machine: {why}"
    );
    for seq in 1..20 {
        forward(3_000);
        let kept = first.call(&call([extend("k", "a", seq)])).unwrap();
        assert!(matches!(kept.answers[0], Answer::Kept { .. }));
        let why = unfit(&mut second);
        assert!(why.contains("another machine") && why.contains("boot-2"));
    }
    // The first dies. What it held is over when it would have been anyhow.
    forward(10_000);
    unfit(&mut second);
    forward(200);
    let granted = second.call(&call([acquire("k", "b")])).unwrap();
    assert!(matches!(
        granted.answers[0],
        Answer::Granted {
            grant: Token(2),
            ..
        }
    ));
    let why = gone(&mut first);
    assert!(why.contains("took it over (boot boot-2"), "{why}");
}

#[test]
fn a_file_without_leases_is_used_at_once_after_a_restart() {
    let (folder, time) = (folder(), ByHand::at(900_000));
    let mut before = store(&folder, &time, "boot-1");
    let release = Op::Release {
        key: "k".into(),
        owner: "a".into(),
        kind: Kind::Lock,
        marked: Duration::from_secs(30),
        retention: Duration::from_secs(30),
    };
    before.call(&call([acquire("k", "a"), release])).unwrap();
    drop(before);
    let mut after = store(&folder, &ByHand::at(1_000), "boot-2");
    let granted = after.call(&call([acquire("k", "b")])).unwrap();
    assert!(matches!(granted.answers[0], Answer::Granted { .. }));
}

#[test]
fn rights_that_are_taken_away_keep_others_out_and_end_no_lease() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, time) = (folder(), ByHand::default());
    let mut first = store(&folder, &time, "boot");
    first.call(&call([acquire("k", "a")])).unwrap();
    let path = folder.path().join("locks.db");
    let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    // What is open stays open: the holder goes on, and no other takes its place.
    mode(0o666);
    assert!(matches!(refused(&folder), OpenError::Stranger(_)));
    assert!(first.call(&call([extend("k", "a", 1)])).is_ok());
    mode(0o000);
    // Root reads and writes what it likes.
    if crate::owned::user() != 0 {
        assert!(matches!(refused(&folder), OpenError::NoAccess { .. }));
    }
    assert!(first.call(&call([extend("k", "a", 2)])).is_ok());
}

#[test]
fn a_full_disk_refuses_what_it_cannot_write_and_nothing_is_half_done() {
    let (folder, time) = (folder(), ByHand::default());
    let mut store = store(&folder, &time, "boot");
    store.call(&call([acquire("k", "a")])).unwrap();
    store.let_it_grow_no_more();
    let fill = |n: u32| Op::PutDoc {
        name: format!("d{n}"),
        rev: 1,
        ttl: Duration::from_secs(60),
        body: "x".repeat(20_000),
    };
    let mut full = None;
    for n in 0..100 {
        if let Err(error) = store.call(&call([acquire(&format!("k{n}"), "a"), fill(n)])) {
            full = Some((n, error));
            break;
        }
    }
    let (n, error) = full.unwrap();
    assert!(matches!(&error, NodeError::Unfit(why) if why.contains("full")));
    assert_eq!(view(&mut store, &format!("k{n}")).holder, None);
    // What needs no new room is still written: a lease is kept.
    let kept = store.call(&call([extend("k", "a", 1)])).unwrap();
    assert!(matches!(kept.answers[0], Answer::Kept { .. }));
}

#[test]
fn a_page_costs_what_it_shows_and_not_what_there_is() {
    let (folder, time) = (folder(), ByHand::at(1_000_000));
    let mut store = store(&folder, &time, "boot");
    store.skip_the_disk();
    store.call(&call([acquire("wk/5", "a")])).unwrap();
    let conn = Connection::open(folder.path().join("locks.db")).unwrap();
    let grow = |rows: u32| {
        let fill = format!(
            "PRAGMA synchronous = OFF; BEGIN; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
             INSERT OR REPLACE INTO wk_lease SELECT printf('wk/%07d', i), 'H', 'x', 1, '', 9e15, 1, 10000, 1, 0, 0, 0 FROM n;
             INSERT OR REPLACE INTO wk_body SELECT key, 1, 1, 'ledger' FROM wk_lease;
             INSERT INTO wk_release (key, owner, at, next) SELECT key, 'x', 1000000, NULL FROM wk_lease; COMMIT"
        );
        conn.execute_batch(&fill).unwrap();
    };
    let (prefix, from, count) = (String::new(), Cursor(String::from("wk/00005")), 250);
    let pages: [(&str, Op); 3] = [
        (
            "list",
            Op::List {
                prefix,
                from: from.clone(),
                count,
            },
        ),
        (
            "records",
            Op::Records {
                from: from.clone(),
                count,
            },
        ),
        ("sweep", Op::Sweep { from, count: 25 }),
    ];
    let mut took = |op: &Op| {
        let mut each: Vec<_> = (0..9)
            .map(|_| {
                let begin = Clock::system().now();
                store.call(&call([op.clone()])).unwrap();
                Clock::system().now().since(begin)
            })
            .collect();
        each.sort();
        each[4]
    };
    grow(1_000);
    let small = pages.clone().map(|(_, op)| took(&op));
    grow(100_000);
    for ((what, op), small) in pages.iter().zip(small) {
        let large = took(op);
        println!("{what}: {small:?} of a thousand rows, {large:?} of a hundred thousand");
        assert!(large < small * 20, "{what}: {small:?}, then {large:?}");
    }
    // What is over is cleared away a part at a time, between the calls of others.
    time.forward(60_000);
    let releases = || -> i64 {
        let count = "SELECT count(*) FROM wk_release";
        conn.query_row(count, [], |row| row.get(0)).unwrap()
    };
    let all = releases();
    store.call(&call([acquire("j", "a")])).unwrap();
    assert_eq!(all - releases(), 1_000);
    for n in 0..all / 1_000 {
        time.forward(100);
        store.call(&call([acquire(&format!("j{n}"), "a")])).unwrap();
    }
    assert_eq!(releases(), 0);
}
