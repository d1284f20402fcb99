//! What something else has written into the tables costs what needs it alone, and is told.

use std::{cell::RefCell, time::Duration};

use futures_util::FutureExt;
use rusqlite::Connection;
use tempfile::TempDir;

use super::{AHEAD, ByHand, acquire, call, folder, release, restarted, store, view, write};
use crate::node::{
    Answer, Cursor, Kind, NodeError, Op, Record, Refusal, Take, Ticket, Token, Version,
    damage::{self, Damage},
    sqlite::store::Store,
};

/// A store with the tables of ours, but without their types: a fault of a disk knows none either.
fn loose(time: &ByHand) -> (TempDir, Store, Connection) {
    let folder = folder();
    let store = store(&folder, time, "boot");
    store.skip_the_disk();
    let conn = Connection::open(folder.path().join("locks.db")).unwrap();
    for (table, columns) in [
        ("wk_node", "id, forgotten, boot, seen, changes"),
        (
            "wk_lease",
            "key PRIMARY KEY, state, owner, granted, inc, until, seq, ttl, counter, token, rev, waits",
        ),
        ("wk_body", "key PRIMARY KEY, token, rev, body"),
        ("wk_kept", "key PRIMARY KEY, until, kept"),
        ("wk_doc", "name PRIMARY KEY, rev, ttl, until, body"),
        ("wk_line", "key PRIMARY KEY, waiters, until"),
        (
            "wk_release",
            "id INTEGER PRIMARY KEY AUTOINCREMENT, key, owner, at, next",
        ),
    ] {
        let anew = format!(
            "ALTER TABLE {table} RENAME TO before; CREATE TABLE {table} ({columns});
             INSERT INTO {table} SELECT * FROM before; DROP TABLE before;"
        );
        conn.execute_batch(&anew).unwrap();
    }
    (folder, store, conn)
}

fn one(store: &mut Store, op: Op) -> Answer {
    store.call(&call([op])).unwrap().answers.remove(0)
}

fn granted(answer: &Answer) -> Token {
    match answer {
        Answer::Granted { grant, .. } => *grant,
        other => panic!("{other:?}"),
    }
}

fn is_damage(answer: &Answer) -> bool {
    let Answer::Failed(NodeError::Refused { refusal, .. }) = answer else {
        return false;
    };
    *refusal == Refusal::Damaged
}

fn extend(key: &str, owner: &str, seq: u64, token: Token) -> Op {
    Op::Extend {
        key: key.into(),
        owner: owner.into(),
        kind: Kind::Lock,
        seq,
        ttl: Duration::from_secs(10),
        token,
        take: Take::Server,
    }
}

fn sweep() -> Op {
    Op::Sweep {
        from: Cursor::default(),
        count: 100,
    }
}

fn forgotten(store: &mut Store) -> Token {
    match one(store, Op::Admission) {
        Answer::Admission(shown) => shown.counter,
        other => panic!("{other:?}"),
    }
}

fn search(store: &mut Store) -> Damage {
    let (mut found, store) = (Damage::default(), RefCell::new(store));
    let ask = |ops: Vec<Op>| std::future::ready(store.borrow_mut().call(&call(ops)));
    let searched = damage::search(&mut found, ask).now_or_never().unwrap();
    searched.unwrap();
    found
}

/// What a row may be made to, and whether its counter can be read then.
const ROWS: [(&str, bool); 24] = [
    ("counter = -1, granted = -1", false),
    ("counter = 9007199254740991", false),
    ("counter = 'x', granted = NULL", false),
    ("counter = NULL", false),
    ("granted = -5", false),
    ("granted = 9223372036854775807", false),
    ("until = -1", true),
    ("until = 'soon'", true),
    ("until = NULL", true),
    ("until = 1e300", true),
    ("seq = -1", true),
    ("seq = x'00'", true),
    ("ttl = -1", true),
    ("ttl = 9223372036854775807", true),
    ("token = -1", true),
    ("rev = 9007199254740992", true),
    ("waits = -1", true),
    ("state = 'X'", true),
    ("state = NULL", true),
    ("owner = NULL", true),
    ("owner = x'61'", true),
    ("owner = CAST(x'ff' AS TEXT)", true),
    ("owner = CAST(zeroblob(50000000) AS TEXT)", true),
    ("inc = 7", true),
];

#[test]
fn a_damaged_row_bars_its_lock_for_the_longest_lease_and_no_longer() {
    for (damage, is_counted) in ROWS {
        let time = ByHand::at(1_000_000);
        let (_folder, mut store, conn) = loose(&time);
        for owner in ["x", "y"] {
            store
                .call(&call([acquire("k", owner), release("k", owner)]))
                .unwrap();
        }
        let held = granted(&one(&mut store, acquire("k", "a")));
        conn.execute(&format!("UPDATE wk_lease SET {damage}"), [])
            .unwrap();

        // What looks changes nothing, and says it.
        let found = search(&mut store);
        assert_eq!(found.found, ["the row of `k` is malformed"], "{damage}");
        assert!(view(&mut store, "k").is_malformed(), "{damage}");
        time.forward(60_000);
        one(&mut store, sweep());
        assert_eq!(forgotten(&mut store), Token(0), "{damage}");
        granted(&one(&mut store, acquire("other", "b")));

        // Its holder believes in it for its ttl from now at most.
        let refused = one(&mut store, extend("k", "a", 1, held));
        assert!(matches!(&refused, Answer::Refused(view) if view.is_malformed()));
        let refused = one(&mut store, acquire("k", "b"));
        assert!(matches!(&refused, Answer::Refused(view) if view.is_malformed()));
        time.forward(29_999);
        for op in [extend("k", "a", 2, held), acquire("k", "b")] {
            let refused = one(&mut store, op);
            assert!(
                matches!(refused, Answer::Refused(_)),
                "{damage}: {refused:?}"
            );
        }
        time.forward(1);
        let next = granted(&one(&mut store, acquire("k", "b")));
        match is_counted {
            true => assert_eq!(next, Token(held.0 + 1), "{damage}"),
            false => assert!(next > Token(1_000_000_000), "{damage}: {next}"),
        }
        let late = one(&mut store, extend("k", "a", 3, held));
        assert!(matches!(late, Answer::Refused(_)), "{damage}: {late:?}");
        assert_eq!(search(&mut store).found, [""; 0]);
    }
}

#[test]
fn a_claim_in_the_place_of_a_damaged_row_waits_as_long() {
    let time = ByHand::at(1_000_000);
    let (_folder, mut store, conn) = loose(&time);
    let claim = |owner: &str| match acquire("k", owner) {
        Op::Acquire {
            key,
            owner,
            ttl,
            floor,
            take,
            clamp,
            waits,
            ..
        } => Op::Acquire {
            kind: Kind::Claim,
            ticket: None,
            key,
            owner,
            ttl,
            floor,
            take,
            clamp,
            waits,
        },
        other => other,
    };
    let held = granted(&one(&mut store, claim("a")));
    conn.execute("UPDATE wk_lease SET granted = NULL", [])
        .unwrap();
    for wait in [0, 29_999] {
        time.forward(wait);
        let refused = one(&mut store, claim("b"));
        assert!(matches!(refused, Answer::Refused(_)), "{refused:?}");
    }
    time.forward(1);
    assert!(granted(&one(&mut store, claim("b"))) > held);
}

/// Such an end makes sense by itself.
#[test]
fn an_end_far_away_is_cut_to_the_longest_lease() {
    let time = ByHand::at(1_000_000);
    let (_folder, mut store, conn) = loose(&time);
    one(&mut store, acquire("k", "a"));
    conn.execute("UPDATE wk_lease SET until = 9223372036854775807", [])
        .unwrap();
    for wait in [0, 29_999] {
        time.forward(wait);
        let refused = one(&mut store, acquire("k", "b"));
        assert!(matches!(refused, Answer::Refused(_)), "{refused:?}");
    }
    time.forward(1);
    granted(&one(&mut store, acquire("k", "b")));
}

#[test]
fn an_end_far_away_keeps_nobody_out_after_a_restart() {
    let (folder, time) = (folder(), ByHand::at(1_000));
    let mut before = store(&folder, &time, "boot-1");
    one(&mut before, acquire("k", "a"));
    drop(before);
    let conn = Connection::open(folder.path().join("locks.db")).unwrap();
    conn.execute("UPDATE wk_lease SET until = 9223372036854775807", [])
        .unwrap();
    drop(conn);
    granted(&one(&mut restarted(&folder, &time), acquire("k", "b")));
}

/// How long a store of the next boot grants nothing, and what it says at first.
fn shut(folder: &TempDir) -> (u64, String) {
    let time = ByHand::at(5_000);
    let mut after = store(folder, &time, "boot-2");
    after.skip_the_disk();
    let mut why = String::new();
    for waited in 0..=1_000 {
        match after.call(&call([])) {
            Ok(_) => return (waited * 100, why),
            Err(NodeError::Unfit(said)) if waited == 0 => why = said,
            Err(_) => {}
        }
        time.forward(100);
    }
    (u64::MAX, why)
}

fn lasting(op: Op, secs: u64) -> Op {
    let mut op = op;
    if let Op::Acquire { ttl, .. } | Op::Extend { ttl, .. } = &mut op {
        *ttl = Duration::from_secs(secs);
    }
    op
}

fn claim(key: &str, owner: &str) -> Op {
    let mut op = acquire(key, owner);
    if let Op::Acquire { kind, .. } = &mut op {
        *kind = Kind::Claim;
    }
    op
}

/// Leases that say of themselves that they are very long, or do not say it.
const OVERLONG: [(&str, &str); 5] = [
    ("C", "until = 9223372036854775807"),
    ("C", "until = -7 + 9999999999"),
    ("H", "until = 9223372036854775807, ttl = -1"),
    ("H", "until = 9000000000, ttl = 9000000000"),
    ("H", "until = 9000000000, ttl = 9223372036854775807"),
];

#[test]
fn a_damaged_lease_keeps_a_file_of_another_boot_shut_as_long_as_the_longest_that_was_granted() {
    for (state, damage) in OVERLONG {
        let (folder, time) = (folder(), ByHand::at(1_000));
        let mut before = store(&folder, &time, "boot-1");
        // Another process, which has ended: not all leases are equally long.
        one(&mut before, lasting(acquire("ended", "x"), 20));
        one(&mut before, release("ended", "x"));
        drop(before);
        let mut before = store(&folder, &time, "boot-1");
        one(&mut before, claim("c", "a"));
        one(&mut before, acquire("k", "a"));
        drop(before);
        let conn = Connection::open(folder.path().join("locks.db")).unwrap();
        let damage = format!("UPDATE wk_lease SET {damage} WHERE state = '{state}'");
        conn.execute(&damage, []).unwrap();
        drop(conn);
        let (waited, said) = shut(&folder);
        assert_eq!(waited, 20_400, "{damage}: {said}");
        let lease = if state == "C" { "`c`" } else { "`k`" };
        assert!(
            said.contains(&format!("the lease of {lease} is damaged")),
            "{said}"
        );
    }
}

/// What lives is waited for, whatever has become of what is noted.
#[test]
fn a_damaged_note_of_the_longest_lease_shortens_no_wait() {
    for damage in [
        "UPDATE wk_meta SET value = 1 WHERE name = 'longest'",
        "UPDATE wk_meta SET value = 0 WHERE name LIKE 'longest%'",
        "UPDATE wk_meta SET value = -9223372036854775807 - 1 WHERE name LIKE 'longest%'",
        "DELETE FROM wk_meta WHERE name = 'longest again'",
        // As it was written before there was one.
        "DELETE FROM wk_meta WHERE name LIKE 'longest%'",
    ] {
        let (folder, time) = (folder(), ByHand::at(1_000));
        let mut first = store(&folder, &time, "boot-1");
        one(&mut first, lasting(acquire("k", "a"), 25));
        let conn = Connection::open(folder.path().join("locks.db")).unwrap();
        conn.execute_batch(damage).unwrap();
        // A process that comes later grants a shorter one.
        let mut second = store(&folder, &time, "boot-1");
        one(&mut second, claim("c", "b"));
        drop((first, second));
        conn.execute("UPDATE wk_lease SET until = 1 << 60 WHERE key = 'c'", [])
            .unwrap();
        drop(conn);
        let (waited, said) = shut(&folder);
        assert_eq!(waited, 25_500, "{damage}: {said}");
    }
    // And with nothing noted since, nothing is known.
    let (folder, time) = (folder(), ByHand::at(1_000));
    one(&mut store(&folder, &time, "boot-1"), claim("c", "b"));
    let conn = Connection::open(folder.path().join("locks.db")).unwrap();
    conn.execute_batch(
        "UPDATE wk_lease SET until = 1 << 60; UPDATE wk_meta SET value = 7 WHERE name = 'longest'",
    )
    .unwrap();
    drop(conn);
    let (waited, said) = shut(&folder);
    assert_eq!(waited, u64::MAX);
    assert!(
        said.contains("for 3months") && said.contains("`c`"),
        "{said}"
    );
}

/// What was noted counts for one boot.
#[test]
fn the_longest_lease_of_an_earlier_boot_is_waited_for_no_more() {
    let (folder, time) = (folder(), ByHand::at(1_000));
    let mut before = store(&folder, &time, "boot-1");
    one(&mut before, lasting(acquire("k", "a"), 25));
    one(&mut before, release("k", "a"));
    drop(before);
    let mut after = store(&folder, &ByHand::at(9), "boot-1b");
    one(&mut after, claim("c", "b"));
    drop(after);
    let conn = Connection::open(folder.path().join("locks.db")).unwrap();
    conn.execute("UPDATE wk_lease SET until = 1 << 60 WHERE key = 'c'", [])
        .unwrap();
    drop(conn);
    assert_eq!(shut(&folder).0, 10_200);
}

#[test]
fn a_damaged_counter_of_what_was_forgotten_is_told_and_goes_on_from_the_clock() {
    for damage in ["-1", "9007199254740991", "'x'", "NULL", "x'00'"] {
        let time = ByHand::at(1_000_000);
        let (_folder, mut store, conn) = loose(&time);
        let held = granted(&one(&mut store, acquire("k", "a")));
        conn.execute(&format!("UPDATE wk_node SET forgotten = {damage}"), [])
            .unwrap();
        assert_eq!(search(&mut store).found.len(), 1, "{damage}");
        let kept = one(&mut store, extend("k", "a", 1, held));
        assert!(matches!(kept, Answer::Kept { .. }), "{damage}: {kept:?}");
        let refused = one(&mut store, acquire("new", "b"));
        assert!(is_damage(&refused), "{damage}: {refused:?}");
        let now = (1_000_000 + AHEAD).cast_unsigned() * 1_000;
        assert_eq!(forgotten(&mut store), Token(now), "{damage}");
        let next = granted(&one(&mut store, acquire("new", "b")));
        assert_eq!(next, Token(now + 1), "{damage}");
        assert_eq!(search(&mut store).found, [""; 0]);
    }
}

#[test]
fn a_damaged_body_is_inherited_by_none_until_it_is_written_anew() {
    for damage in [
        "token = -1",
        "rev = NULL",
        "rev = 9007199254740992",
        "body = NULL",
        "body = x'61'",
        "body = CAST(x'ff' AS TEXT)",
        "body = CAST(zeroblob(70000000) AS TEXT)",
    ] {
        let time = ByHand::at(1_000_000);
        let (_folder, mut store, conn) = loose(&time);
        let left = [
            acquire("k", "a"),
            write("k", "a", "left"),
            release("k", "a"),
        ];
        store.call(&call(left)).unwrap();
        conn.execute(&format!("UPDATE wk_body SET {damage}"), [])
            .unwrap();
        let found = search(&mut store).found;
        assert_eq!(found, ["the body of `k` is damaged"], "{damage}");
        for op in [acquire("k", "b"), Op::Read { key: "k".into() }] {
            let refused = one(&mut store, op);
            assert!(is_damage(&refused), "{damage}: {refused:?}");
        }
        one(&mut store, sweep());
        granted(&one(&mut store, acquire("other", "b")));
        // Its own heir, which another store would have told what was left.
        let healed = one(&mut store, extend("k", "b", 1, Token(2)));
        let version = Version::default();
        assert_eq!(healed, Answer::Healed { version }, "{damage}");
        assert_eq!(one(&mut store, write("k", "b", "anew")), Answer::Done);
        assert_eq!(view(&mut store, "k").record.body, "anew", "{damage}");
    }
}

#[test]
fn a_body_whose_end_makes_no_sense_is_kept() {
    for damage in ["-1", "'x'", "NULL", "x'00'"] {
        let time = ByHand::at(1_000_000);
        let (_folder, mut store, conn) = loose(&time);
        let left = [
            acquire("k", "a"),
            write("k", "a", "left"),
            release("k", "a"),
        ];
        store.call(&call(left)).unwrap();
        conn.execute(&format!("UPDATE wk_kept SET until = {damage}"), [])
            .unwrap();
        time.forward(100_000_000);
        one(&mut store, sweep());
        match one(&mut store, acquire("k", "b")) {
            Answer::Granted { record, .. } => assert_eq!(record.body, "left", "{damage}"),
            other => panic!("{damage}: {other:?}"),
        }
        // And ends as others do.
        one(&mut store, release("k", "b"));
        time.forward(3_600_000);
        assert_eq!(view(&mut store, "k").record, Record::default(), "{damage}");
    }
}

#[test]
fn documents_queues_and_news_that_make_no_sense_count_as_absent() {
    let time = ByHand::at(1_000_000);
    let (_folder, mut store, conn) = loose(&time);
    let put = |name: &str, rev| Op::PutDoc {
        name: name.into(),
        rev,
        ttl: Duration::from_secs(3_600),
        body: "news".into(),
    };
    for name in ["d/a", "d/b", "d/c", "d/d"] {
        one(&mut store, put(name, 1));
    }
    let plant = "
        UPDATE wk_doc SET rev = -1 WHERE name = 'd/a';
        UPDATE wk_doc SET body = CAST(x'ff' AS TEXT) WHERE name = 'd/b';
        UPDATE wk_doc SET until = NULL WHERE name = 'd/c';
        INSERT INTO wk_doc VALUES (x'642f', 1, 1, 1, 'x'), (CAST(x'642fff' AS TEXT), 1, 1, 9e15, 'x');
        INSERT INTO wk_lease SELECT CAST(x'6aff' AS TEXT), 'H', 'x', 1, '', 9e15, 1, 1, 1, 0, 0, 0;
        INSERT INTO wk_lease SELECT x'6a', 'H', 'x', 1, '', 9e15, 1, 1, 1, 0, 0, 0;
        INSERT INTO wk_line VALUES ('k', x'ff', 'x'), ('j', CAST(zeroblob(2000000) AS TEXT), NULL);
        INSERT INTO wk_release (id, key, owner, at, next) VALUES
            (-5, 'k', x'ff', 'x', NULL), (1, NULL, 'x', NULL, 7), (2, 'told', 'x', 1000000, NULL);";
    conn.execute_batch(plant).unwrap();

    let dir = || ("d/".to_owned(), Cursor::default(), 9);
    let names = |answer: Answer| match answer {
        Answer::Page(page) => page
            .docs
            .into_iter()
            .map(|doc| doc.name)
            .collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let (from_dir, from, count) = dir();
    let docs = Op::Docs {
        dir: from_dir,
        from,
        count,
    };
    assert_eq!(names(one(&mut store, docs)), ["d/d"]);
    for name in ["d/a", "d/b", "d/c"] {
        one(&mut store, put(name, 2));
    }
    let (from_dir, from, count) = dir();
    let all = Op::DocNames {
        dir: from_dir,
        from,
        count,
    };
    assert_eq!(names(one(&mut store, all)), ["d/a", "d/b", "d/c", "d/d"]);

    for key in ["j", "k"] {
        one(&mut store, acquire(key, "a"));
        let mut waiting = acquire(key, "b");
        if let Op::Acquire { ticket, waits, .. } = &mut waiting {
            *waits = Duration::from_secs(9);
            *ticket = Some(Ticket {
                id: "t".into(),
                life: *waits,
                polite: true,
            });
        }
        let refused = one(&mut store, waiting);
        assert!(matches!(refused, Answer::Refused(view) if view.ahead == Some(0)));
        one(&mut store, release(key, "a"));
    }
    let told = store.releases(-9).unwrap();
    let told: Vec<_> = told.iter().map(|(_, news)| news.key.as_str()).collect();
    assert_eq!(told, ["told", "j", "k"]);
    for page in [
        sweep(),
        Op::List {
            prefix: String::new(),
            from: Cursor::default(),
            count: 9,
        },
        Op::Records {
            from: Cursor::default(),
            count: 9,
        },
    ] {
        let shown = one(&mut store, page);
        assert!(matches!(shown, Answer::Page(_)), "{shown:?}");
    }

    // What was planted is in the way of nothing that is cleared away.
    time.forward(60_000);
    for _ in 0..2 {
        one(&mut store, acquire("j", "c"));
        time.forward(60_000);
    }
    let left = "SELECT count(*) FROM wk_release";
    let left = conn.query_row(left, [], |row| row.get(0));
    assert_eq!(left, Ok(0));
}

#[test]
fn a_lock_is_released_although_the_numbers_of_announcements_are_at_their_end() {
    let time = ByHand::at(1_000_000);
    let (_folder, mut store, conn) = loose(&time);
    conn.execute(
        "INSERT INTO wk_release (id, key, owner, at) VALUES (9223372036854775807, 'k', 'x', 1000000)",
        [],
    )
    .unwrap();
    let mut waiting = acquire("k", "b");
    if let Op::Acquire { waits, .. } = &mut waiting {
        *waits = Duration::from_secs(9);
    }
    store
        .call(&call([acquire("k", "a"), waiting, release("k", "a")]))
        .unwrap();
    assert!(view(&mut store, "k").released);
}
