use std::{
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use rusqlite::Connection;
use tempfile::TempDir;

use super::{OpenError, SqliteNode, store::Store};
use crate::{
    clock::{Clock, Moment, TimeSource},
    node::{
        Answer, Call, Cursor, Expiry, Kind, NodeError, Op, Record, Take, Ticket, Token, Version,
        View,
    },
};

mod damage;
mod one_file;
mod same_answers;

/// A clock that moves only when told; wall time is 5 s ahead of the boot clock.
#[derive(Clone, Default)]
struct ByHand(Arc<AtomicU64>);

use crate::node::calls::AHEAD;

impl ByHand {
    fn at(ms: u64) -> Self {
        Self(Arc::new(AtomicU64::new(ms)))
    }

    fn forward(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }

    fn ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl TimeSource for ByHand {
    fn now(&self) -> Moment {
        Moment::from_boot(Duration::from_millis(self.ms()))
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_millisecond(self.ms().cast_signed() + AHEAD).unwrap()
    }

    fn sleep_until(&self, _: Moment) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn store(folder: &TempDir, time: &ByHand, boot: &str) -> Store {
    let path = folder.path().join("locks.db");
    Store::open(&path, Clock::new(time.clone()), boot.to_owned()).unwrap()
}

/// The store of the next boot, when leases of the first are over.
fn restarted(folder: &TempDir, time: &ByHand) -> Store {
    let mut after = store(folder, time, "boot-2");
    let early = after.call(&call([]));
    assert!(matches!(early, Err(NodeError::Unfit(_))), "{early:?}");
    time.forward(10_200);
    after
}

fn call(ops: impl Into<Vec<Op>>) -> Call {
    Call {
        not_after: None,
        ops: ops.into(),
    }
}

fn acquire(key: &str, owner: &str) -> Op {
    let (key, owner) = (key.to_owned(), owner.to_owned());
    Op::Acquire {
        key,
        owner,
        kind: Kind::Lock,
        ttl: Duration::from_secs(10),
        floor: Token(0),
        take: Take::Server,
        clamp: Duration::from_secs(30),
        ticket: None,
        waits: Duration::ZERO,
    }
}

fn write(key: &str, owner: &str, body: &str) -> Op {
    Op::Write {
        key: key.to_owned(),
        owner: owner.to_owned(),
        version: Version {
            token: Token(1),
            rev: 1,
        },
        body: body.to_owned(),
        not_before: None,
        expiry: Expiry::Server,
    }
}

fn release(key: &str, owner: &str) -> Op {
    Op::Release {
        key: key.to_owned(),
        owner: owner.to_owned(),
        kind: Kind::Lock,
        marked: Duration::from_secs(30),
        retention: Duration::from_secs(3_600),
    }
}

fn view(store: &mut Store, key: &str) -> View {
    let mut reply = store
        .call(&call([Op::Read {
            key: key.to_owned(),
        }]))
        .unwrap();
    match reply.answers.remove(0) {
        Answer::View(view) => view,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reboot_voids_every_lease_and_keeps_counters_records_and_documents() {
    let (folder, time) = (folder(), ByHand::at(900_000));
    let version = Version {
        token: Token(1),
        rev: 1,
    };
    let mut before = store(&folder, &time, "boot-1");
    let write = Op::Write {
        key: "k".into(),
        owner: "a".into(),
        version,
        body: "ledger".into(),
        not_before: None,
        expiry: Expiry::Server,
    };
    let hour = Duration::from_secs(3600);
    let doc = Op::PutDoc {
        name: "pause".into(),
        rev: 1,
        ttl: hour,
        body: "yes".into(),
    };
    before.call(&call([acquire("k", "a"), write, doc])).unwrap();

    let time = ByHand::at(2_000);
    let mut after = restarted(&folder, &time);
    let seen = view(&mut after, "k");
    assert_eq!((seen.holder, seen.token), (None, Token(1)));
    assert_eq!(
        seen.record,
        Record {
            version,
            body: "ledger".into()
        }
    );
    let docs = after
        .call(&call([Op::Docs {
            dir: String::new(),
            from: Cursor::default(),
            count: 9,
        }]))
        .unwrap();
    assert!(matches!(&docs.answers[0], Answer::Page(page) if page.docs.len() == 1));
    let granted = after.call(&call([acquire("k", "b")])).unwrap();
    assert!(matches!(
        granted.answers[0],
        Answer::Granted {
            grant: Token(2),
            ..
        }
    ));
    // The store of the other boot is of another machine, or a ghost.
    assert!(matches!(
        before.call(&call([acquire("j", "a")])),
        Err(NodeError::Gone(_))
    ));
}

#[test]
fn a_body_of_an_earlier_boot_ends_after_its_retention_and_a_release_at_once() {
    let (folder, time) = (folder(), ByHand::at(900_000));
    let mut before = store(&folder, &time, "boot-1");
    let (key, owner) = ("k".to_owned(), "a".to_owned());
    let write = Op::Write {
        key: key.clone(),
        owner: owner.clone(),
        version: Version {
            token: Token(1),
            rev: 1,
        },
        body: "ledger".into(),
        not_before: None,
        expiry: Expiry::Server,
    };
    let release = Op::Release {
        key,
        owner,
        kind: Kind::Lock,
        marked: Duration::from_secs(3600),
        retention: Duration::from_secs(5),
    };
    let ops = [acquire("k", "a"), write, release];
    before.call(&call(ops)).unwrap();
    let time = ByHand::at(0);
    let mut after = store(&folder, &time, "boot-2");
    let seen = view(&mut after, "k");
    assert!(seen.released && !seen.named, "{seen:?}");
    let sweep = || Op::Sweep {
        from: Cursor::default(),
        count: 10,
    };
    time.forward(4_999);
    after.call(&call([sweep()])).unwrap();
    let seen = view(&mut after, "k");
    assert_eq!((seen.owner, seen.record.body.as_str()), (None, "ledger"));
    time.forward(1);
    assert_eq!(view(&mut after, "k").record, Record::default());
    // What it was granted is not.
    let reply = after.call(&call([acquire("k", "b")])).unwrap();
    assert!(matches!(reply.answers[0], Answer::Granted { grant, .. } if grant == Token(2)));
}

#[test]
fn a_new_file_is_for_its_owner_alone_and_its_folder_is_made() {
    let folder = folder();
    let path = folder.path().join("state").join("locks.db");
    let _node = SqliteNode::open(&path, Clock::system()).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let deep = folder.path().join("a").join("b").join("locks.db");
    let refused = SqliteNode::open(&deep, Clock::system());
    assert!(
        matches!(refused, Err(OpenError::Folder { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_store_of_somebody_else_is_refused() {
    use crate::owned::Stranger;
    let refused = |path: &std::path::Path| match SqliteNode::open(path, Clock::system()) {
        Err(OpenError::Stranger(stranger)) => stranger,
        other => panic!("{other:?}"),
    };
    let folder = folder();
    let path = folder.path().join("state").join("locks.db");
    drop(SqliteNode::open(&path, Clock::system()).unwrap());
    let inner = path.parent().unwrap();
    let mode = std::fs::metadata(inner).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "a folder of ours");

    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(matches!(refused(&link), Stranger::Link { .. }));
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(inner, open).unwrap();
    assert!(matches!(refused(&path), Stranger::Writable { .. }));
    let ours = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(inner, ours).unwrap();
    // Open all the while, so that what SQLite keeps beside the file is there.
    let _open = SqliteNode::open(&path, Clock::system()).unwrap();

    // Root alone can make files of others.
    if crate::owned::user() == 0 {
        for name in ["locks.db", "locks.db-wal", "."] {
            let other = inner.join(name);
            std::os::unix::fs::chown(&other, Some(65_534), None).unwrap();
            let stranger = refused(&path);
            assert!(
                matches!(stranger, Stranger::Owner { owner: 65_534, .. }),
                "{stranger}"
            );
            std::os::unix::fs::chown(&other, Some(0), None).unwrap();
        }
        drop(SqliteNode::open(&path, Clock::system()).unwrap());
    }
}

#[test]
fn what_is_not_a_store_is_refused_with_a_sentence() {
    let folder = folder();
    let text = folder.path().join("text");
    std::fs::write(
        &text,
        "not a database, and longer than the header of one".repeat(9),
    )
    .unwrap();
    let refused = SqliteNode::open(&text, Clock::system()).unwrap_err();
    assert!(
        matches!(refused, OpenError::NotADatabase { .. }),
        "{refused:?}"
    );
    let refused = SqliteNode::open(folder.path(), Clock::system()).unwrap_err();
    assert!(matches!(refused, OpenError::NotAFile { .. }), "{refused:?}");
    let refused = SqliteNode::open("/dev/null/locks.db", Clock::system()).unwrap_err();
    assert!(matches!(refused, OpenError::Folder { .. }), "{refused:?}");
}

#[test]
fn the_database_of_another_application_is_refused_and_left_as_it_is() {
    let folder = folder();
    let path = folder.path().join("app.db");
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch("CREATE TABLE customers (id INTEGER)")
        .unwrap();
    let refused = SqliteNode::open(&path, Clock::system()).unwrap_err();
    let OpenError::OfAnotherApplication { table, .. } = &refused else {
        panic!("{refused:?}")
    };
    assert_eq!(table, "customers");
    let mode: String = conn
        .query_row("PRAGMA journal_mode", [], |row| row.get(0))
        .unwrap();
    let tables: i64 = conn
        .query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))
        .unwrap();
    assert_eq!((&*mode, tables), ("delete", 1));
}

#[test]
fn a_file_of_another_layout_is_refused_and_left_alone() {
    let (folder, time) = (folder(), ByHand::default());
    drop(store(&folder, &time, "boot"));
    let path = folder.path().join("locks.db");
    let conn = Connection::open(&path).unwrap();
    for (layout, remedy) in [(4, "move --out FILE"), (6, "or a later one")] {
        conn.execute("UPDATE wk_meta SET value = ?1", [layout])
            .unwrap();
        let refused = Store::open(&path, Clock::new(time.clone()), "other".into());
        let refused = refused.err().unwrap();
        let named = format!("has layout {layout}, this version knows layout 5; ");
        let text = refused.to_string();
        assert!(text.contains(&named) && text.contains(remedy), "{text}");
        assert!(matches!(refused, OpenError::OtherLayout { .. }));
    }
    let boot: String = conn
        .query_row("SELECT boot FROM wk_node", [], |row| row.get(0))
        .unwrap();
    assert_eq!(boot, "boot");
}

#[test]
fn a_file_that_is_made_is_opened_and_read_beside_a_writer() {
    let (folder, time) = (folder(), ByHand::default());
    store(&folder, &time, "boot")
        .call(&call([acquire("k", "a")]))
        .unwrap();
    let writer = Connection::open(folder.path().join("locks.db")).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut beside = store(&folder, &time, "boot");
    assert_eq!(view(&mut beside, "k").owner.as_deref(), Some("a"));
    let written = beside.call(&call([acquire("j", "a")]));
    assert!(matches!(written, Err(NodeError::Unfit(_))), "{written:?}");
}

#[test]
fn a_file_that_is_locked_before_it_is_made_is_given_up_with_a_sentence() {
    let (folder, time) = (folder(), ByHand::default());
    let path = folder.path().join("locks.db");
    let writer = Connection::open(&path).unwrap();
    let open = |boot: &str| Store::open(&path, Clock::new(time.clone()), boot.into()).err();
    // Before anything was made, and after a reboot, when leases of the last one must be voided.
    for boot in ["boot-1", "boot-2"] {
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        let refused = open(boot).unwrap();
        assert!(matches!(refused, OpenError::Locked { .. }), "{refused:?}");
        let said = refused.to_string();
        assert!(said.contains("another process keeps") && said.contains("locks.db"));
        writer.execute_batch("COMMIT").unwrap();
        assert!(open(boot).is_none());
    }
}

#[test]
fn a_record_of_an_earlier_boot_names_nobody() {
    let (folder, time) = (folder(), ByHand::default());
    let mut before = store(&folder, &time, "boot-1");
    before.call(&call([acquire("k", "a")])).unwrap();
    drop(before);
    let mut after = restarted(&folder, &time);
    let seen = view(&mut after, "k");
    assert_eq!((seen.owner.as_deref(), seen.named), (Some("a"), false));
    let mut observed = acquire("k", "b");
    if let Op::Acquire { take, .. } = &mut observed {
        *take = Take::Observed(None);
    }
    let reply = after.call(&call([observed])).unwrap();
    assert!(matches!(reply.answers[0], Answer::Granted { .. }));
}

#[test]
fn a_busy_file_answers_unfit_and_a_reader_is_never_busy() {
    let (folder, time) = (folder(), ByHand::default());
    let mut waiting = store(&folder, &time, "boot");
    let busy = Connection::open(folder.path().join("locks.db")).unwrap();
    busy.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = waiting.call(&call([acquire("k", "a")]));
    assert!(matches!(refused, Err(NodeError::Unfit(_))), "{refused:?}");
    assert_eq!(view(&mut waiting, "k").holder, None);
    busy.execute_batch("ROLLBACK").unwrap();
    assert!(waiting.call(&call([acquire("k", "a")])).is_ok());
}

#[test]
fn many_processes_may_open_a_new_file_at_once() {
    let folder = folder();
    let path = folder.path().join("locks.db");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            // A disk that is slow to make it keeps the others out for longer than they try.
            scope.spawn(|| {
                let mut opened = (0..20).map(|_| SqliteNode::open(&path, Clock::system()));
                let opened = opened.find(|one| !matches!(one, Err(OpenError::Locked { .. })));
                assert!(matches!(&opened, Some(Ok(_))), "{opened:?}");
            });
        }
    });
}

#[test]
fn what_has_ended_is_removed_and_leases_are_left_to_sweeps() {
    let (folder, time) = (folder(), ByHand::at(10_000));
    let mut store = store(&folder, &time, "boot");
    let ttl = Duration::from_secs(1);
    let with = |mut op: Op, waiting: bool, place: bool| {
        if let Op::Acquire { waits, ticket, .. } = &mut op {
            *waits = if waiting { ttl } else { Duration::ZERO };
            *ticket = place.then(|| Ticket {
                id: "t".into(),
                life: ttl,
                polite: false,
            });
        }
        op
    };
    let over = Op::Release {
        key: "c".into(),
        owner: "a".into(),
        kind: Kind::Lock,
        marked: ttl,
        retention: ttl,
    };
    let doc = Op::PutDoc {
        name: "d".into(),
        rev: 1,
        ttl,
        body: String::new(),
    };
    let ops = [
        acquire("c", "a"),
        with(acquire("c", "b"), true, true),
        over,
        doc,
        acquire("k", "a"),
    ];
    store.call(&call(ops)).unwrap();
    let conn = Connection::open(folder.path().join("locks.db")).unwrap();
    let rows = |table: &str| -> i64 {
        let count = format!("SELECT count(*) FROM {table}");
        conn.query_row(&count, [], |row| row.get(0)).unwrap()
    };
    let tables = ["wk_doc", "wk_line", "wk_release", "wk_lease"];
    assert_eq!(tables.map(rows), [1, 1, 1, 2]);
    time.forward(60_000);
    store.call(&call([acquire("j", "a")])).unwrap();
    assert_eq!(tables.map(rows), [0, 0, 0, 3]);
    let sweep = Op::Sweep {
        from: Cursor::default(),
        count: 10,
    };
    store.call(&call([sweep])).unwrap();
    assert_eq!(rows("wk_lease"), 2);
}

#[test]
fn opening_twice_in_one_process_keeps_both_working() {
    let (folder, time) = (folder(), ByHand::default());
    let mut first = store(&folder, &time, "boot");
    first.call(&call([acquire("k", "a")])).unwrap();
    drop(store(&folder, &time, "boot"));
    let mut second = store(&folder, &time, "boot");
    assert_eq!(view(&mut second, "k").holder.as_deref(), Some("a"));
    assert!(Path::new(folder.path()).join("locks.db-wal").exists());
    assert!(first.call(&call([acquire("j", "a")])).is_ok());
}

/// As much as a ledger may be, and is not changed.
#[test]
fn a_lease_comes_and_goes_without_writing_the_body_again() {
    let (folder, time) = (folder(), ByHand::at(1_000));
    let mut store = store(&folder, &time, "boot");
    let body = "x".repeat(1_000_000);
    store
        .call(&call([
            acquire("k", "a"),
            write("k", "a", &body),
            release("k", "a"),
        ]))
        .unwrap();
    let log = folder.path().join("locks.db-wal");
    let written = || {
        let conn = Connection::open(folder.path().join("locks.db")).unwrap();
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .unwrap();
    };
    written();
    for owner in ["b", "c", "d"] {
        let taken = store.call(&call([acquire("k", owner)])).unwrap();
        let Answer::Granted { record, .. } = &taken.answers[0] else {
            panic!("{taken:?}")
        };
        assert!(record.body == body);
        store.call(&call([release("k", owner)])).unwrap();
    }
    let size = std::fs::metadata(log).unwrap().len();
    assert!(size < 200_000, "{size} bytes for three leases");
    // It ends a retention after the last of them.
    time.forward(1_000_000);
    assert_eq!(view(&mut store, "k").record.body, body);
    time.forward(3_600_000);
    assert_eq!(view(&mut store, "k").record, Record::default());
    // What has ended is not brought back by a lease.
    store.call(&call([acquire("k", "e")])).unwrap();
    assert_eq!(view(&mut store, "k").record, Record::default());
}
