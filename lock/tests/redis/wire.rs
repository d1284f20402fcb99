//! What stands in the server, for other clients and for a person who looks.

use std::time::Duration;

use watchkeeper_lock::node::{
    Announcement, Answer, Cursor, Kind, Node, Op, Page, Seen, Take, Token, Version,
};

use crate::{bench::*, server::RedisServer};

pub(crate) fn the_lock_is_a_plain_string_key_with_a_time_to_live() {
    run(async {
        let server = RedisServer::start();
        let node = raw_client(&server);
        ask(&node, acquire("order:42", "0123456789abcdef")).await;
        assert_eq!(
            server.raw(&["GET", "order:42"]),
            "$16\r\n0123456789abcdef\r\n"
        );
        let left = server.raw(&["PTTL", "order:42"]);
        let left: u64 = left.trim().trim_start_matches(':').parse().unwrap();
        assert!(left > 25_000 && left <= 30_000, "{left}");
        assert_eq!(
            server.raw(&["SET", "order:42", "x", "NX", "PX", "1000"]),
            "$-1\r\n"
        );
        ask(&node, release("order:42", "0123456789abcdef")).await;
        assert_eq!(
            server.raw(&["SET", "order:42", "x", "NX", "PX", "1000"]),
            "+OK\r\n"
        );
    });
}

pub(crate) fn a_foreign_value_is_respected_and_never_deleted() {
    run(async {
        let server = RedisServer::start();
        let node = raw_client(&server);
        for kind in [Kind::Lock, Kind::Claim] {
            let key = format!("order:{kind:?}");
            // Ours first, so that a record of ours stands beside the stranger's key.
            ask(&node, acquire_for(&key, "ours", kind, TTL, 0)).await;
            server.raw(&["SET", &key, "theirs", "PX", "60000"]);
            refused(&ask(&node, extend(&key, "ours", kind, 1, 1)).await);
            refused(&ask(&node, confirm(&key, "ours", kind, 1)).await);
            refused(&ask(&node, write(&key, "ours", 1, 1, "x")).await);
            assert_eq!(
                ask(&node, release_as(&key, "ours", kind, RETENTION)).await,
                Answer::Done
            );
            let answer = ask(&node, acquire_for(&key, "next", kind, TTL, 0)).await;
            assert_eq!(refused(&answer).holder.as_deref(), Some("theirs"));
            assert_eq!(server.raw(&["GET", &key]), "$6\r\ntheirs\r\n");
        }
        server.raw(&["SET", "order:forever", "theirs"]);
        let answer = ask(&node, acquire("order:forever", "ours")).await;
        assert_eq!(refused(&answer).remaining_ms, None);
    });
}

pub(crate) fn a_foreign_value_is_never_taken_by_the_record_and_never_cut() {
    run(async {
        let server = RedisServer::start();
        let node = raw_client(&server);
        let observed = |owner: &str, seen: Option<Seen>| match acquire("order", owner) {
            Op::Acquire {
                key,
                owner,
                kind,
                ttl,
                floor,
                ..
            } => Op::Acquire {
                key,
                owner,
                kind,
                ttl,
                floor,
                take: Take::Observed(seen),
                clamp: Duration::from_millis(10),
                ticket: None,
                waits: Duration::ZERO,
            },
            other => other,
        };
        granted(&ask(&node, observed("ours", None)).await);
        server.raw(&["SET", "order", "theirs"]);
        let seen = Seen {
            inc: String::new(),
            owner: "ours".into(),
            seq: 0,
        };
        for seen in [None, Some(seen.clone())] {
            let answer = ask(&node, observed("next", seen)).await;
            let seen = refused(&answer);
            assert!(seen.foreign && seen.named, "{seen:?}");
            assert_eq!(
                (seen.holder.as_deref(), seen.remaining_ms),
                (Some("theirs"), None)
            );
        }
        // It has left: what was seen of ours is still what stands there.
        server.raw(&["DEL", "order"]);
        refused(&ask(&node, observed("next", None)).await);
        granted(&ask(&node, observed("next", Some(seen))).await);
    });
}

pub(crate) fn a_key_of_another_type_counts_as_held() {
    run(async {
        let server = RedisServer::start();
        let node = raw_client(&server);
        server.raw(&["RPUSH", "list", "x"]);
        let ops = vec![
            acquire("list", "a"),
            release("list", "a"),
            acquire("free", "a"),
        ];
        let answers = send(&node, ops).await.unwrap().answers;
        assert!(refused(&answers[0]).holder.is_some());
        granted(&answers[2]);
        assert_eq!(server.raw(&["LLEN", "list"]), ":1\r\n");
    });
}

/// Planted by hand under names of ours: a document counts as absent, a lock as held, and all else in the call is answered.
pub(crate) fn a_key_of_another_type_costs_nothing_but_itself() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        let put = |name: &str| Op::PutDoc {
            name: name.into(),
            rev: 1,
            ttl: TTL,
            body: "ours".into(),
        };
        let docs = async |dir: &str| {
            let (dir, from, count) = (|| dir.to_owned(), Cursor::default, 9);
            let names = Op::DocNames {
                dir: dir(),
                from: from(),
                count,
            };
            let docs = Op::Docs {
                dir: dir(),
                from: from(),
                count,
            };
            let answers = send(&node, vec![names, docs]).await;
            let of = |answer: &Answer| match answer {
                Answer::Page(Page { docs, .. }) => {
                    docs.iter().map(|doc| doc.name.clone()).collect::<Vec<_>>()
                }
                other => panic!("{other:?}"),
            };
            let answers = answers.unwrap().answers;
            assert_eq!(of(&answers[0]), of(&answers[1]));
            of(&answers[0])
        };
        server.raw(&["SET", "{app}:2:doc:presence/wrong", "x"]);
        server.raw(&["ZADD", "{app}:2:docs:presence/", "+inf", "presence/wrong"]);
        server.raw(&["RPUSH", "{app}:2:doc:intent/pause.slow", "x"]);
        server.raw(&["SET", "{app}:2:docs:runs/", "x"]);
        ask(&node, put("presence/right")).await;
        assert_eq!(docs("presence/").await, ["presence/right"]);
        assert_eq!(docs("runs/").await, [""; 0]);
        let one = Op::Doc {
            name: "intent/pause.slow".into(),
        };
        assert_eq!(ask(&node, one).await, Answer::Docs(Vec::new()));
        // What is written there stands there.
        for (dir, name) in [
            ("intent/", "intent/pause.slow"),
            ("runs/", "runs/a"),
            ("presence/", "presence/wrong"),
        ] {
            assert_eq!(ask(&node, put(name)).await, Answer::Done);
            assert!(docs(dir).await.contains(&name.to_owned()));
        }

        server.raw(&["HSET", "{app}:2:t", "lwrong", "x"]);
        let of_both = |op: &dyn Fn(&str) -> Op| vec![op("wrong"), op("right")];
        let acquired = send(&node, of_both(&|key| acquire(key, "a"))).await;
        let acquired = acquired.unwrap().answers;
        let shown = refused(&acquired[0]);
        assert_eq!(shown.holder.as_deref(), Some("(malformed)"));
        granted(&acquired[1]);
        let extended = of_both(&|key| extend(key, "a", Kind::Lock, 1, 1));
        let extended = send(&node, extended).await.unwrap().answers;
        refused(&extended[0]);
        assert!(matches!(extended[1], Answer::Kept { .. }), "{extended:?}");
        let written = of_both(&|key| write(key, "a", 1, 1, "x"));
        let written = send(&node, written).await.unwrap().answers;
        refused(&written[0]);
        assert_eq!(written[1], Answer::Done);
        assert_eq!(names(&node, "").await, ["right", "wrong"]);
        let released = send(&node, of_both(&|key| release(key, "a"))).await;
        assert_eq!(released.unwrap().answers, [Answer::Done, Answer::Done]);
        assert_eq!(swept(&node).await, 0);
        let left = server.raw(&["HGET", "{app}:2:t", "lwrong"]);
        assert_eq!(left, "$1\r\nx\r\n");
    });
}

/// Whatever stands there, it costs its own lock, and no script or answer breaks.
pub(crate) fn a_row_of_another_shape_costs_its_lock_alone() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        let wide = |c: &str| c.repeat(150);
        let short = |state: &str, first: &str, owner: &str| {
            format!("{state}{first}{}{}{owner}", "0".repeat(54), "-".repeat(16))
        };
        let of_nines = format!("H{}{}", "9".repeat(16), "0".repeat(120));
        let blank = format!("R{}-5{}", " ".repeat(14), "0".repeat(120));
        let rows = [
            "",
            "x",
            "H",
            "C",
            &of_nines,
            &blank,
            &wide("z"),
            &wide("H"),
            &wide("C"),
            &wide("h"),
            &short("r", " ", "a"),
            &short("h", "0", ""),
            &short("b", "0", "a"),
        ];
        for (n, row) in rows.into_iter().enumerate() {
            server.raw(&["HSET", "{app}:2:t", "lwrong", row]);
            let good = format!("good {n}");
            let alone = ask(&node, await_end("wrong", "a")).await;
            assert_eq!(
                refused(&alone).holder.as_deref(),
                Some("(malformed)"),
                "{row}"
            );
            assert_eq!(ask(&node, release("wrong", "a")).await, Answer::Done);
            let ops = vec![
                acquire("wrong", "a"),
                claim("wrong", "a"),
                extend("wrong", "a", Kind::Lock, 1, 1),
                extend("wrong", "a", Kind::Claim, 1, 1),
                confirm("wrong", "a", Kind::Lock, 1),
                confirm("wrong", "a", Kind::Claim, 1),
                acquire(&good, "a"),
            ];
            let mut answers = send(&node, ops).await.unwrap().answers;
            granted(&answers.pop().unwrap());
            for answer in answers {
                assert_eq!(
                    refused(&answer).holder.as_deref(),
                    Some("(malformed)"),
                    "{row}"
                );
            }
            let ops = vec![
                write("wrong", "a", 1, 1, "x"),
                break_lock("wrong", "a"),
                release_as("wrong", "a", Kind::Claim, RETENTION),
            ];
            let answers = send(&node, ops).await.unwrap().answers;
            refused(&answers[0]);
            refused(&answers[1]);
            let shown = view(&node, "wrong").await;
            assert_eq!(shown.holder.as_deref(), Some("(malformed)"), "{row}");
            assert_eq!(swept(&node).await, 0);
            assert_eq!(names(&node, "wrong").await, ["wrong"]);
            let left = server.raw(&["HGET", "{app}:2:t", "lwrong"]);
            assert_eq!(left, format!("${}\r\n{row}\r\n", row.len()));
        }
        for body in ["", "x", &wide("z"), &"1".repeat(54)] {
            server.raw(&["HSET", "{app}:2:t", "ebare", body]);
            for op in [acquire("bare", "a"), read("bare")] {
                let refused = send(&node, vec![op]).await.unwrap_err();
                assert_eq!(refused.cause(), "damaged", "{body}");
            }
            server.raw(&["HDEL", "{app}:2:t", "ebare"]);
            granted(&ask(&node, acquire("bare", "a")).await);
            ask(&node, release("bare", "a")).await;
            server.raw(&["HDEL", "{app}:2:t", "lbare"]);
        }
    });
}

/// However much stands there, and whatever is asked for, a page is small: the server has others to serve.
pub(crate) fn a_large_table_is_walked_in_small_pages() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        let fill = "for i = 1, 5000 do redis.call('HSET', '{app}:2:t', 'ljob/' .. i, ARGV[1]) end";
        let released = format!("R{}{}-a", "0".repeat(116), "-".repeat(15));
        server.raw(&["EVAL", fill, "0", &released]);
        let pages = async |op: &dyn Fn(Cursor) -> Op| {
            let (mut sizes, mut from) = (Vec::new(), Some(Cursor::default()));
            while let Some(cursor) = from {
                let Answer::Page(page) = ask(&node, op(cursor)).await else {
                    panic!("not a page")
                };
                sizes.push(page.views.len() + usize::try_from(page.forgotten).unwrap());
                from = page.next;
            }
            assert!(
                sizes.len() > 20 && sizes.iter().all(|size| *size < 250),
                "{sizes:?}"
            );
            sizes.into_iter().sum::<usize>()
        };
        let count = u32::MAX;
        let prefix = String::from("job/");
        let list = |from| Op::List {
            prefix: prefix.clone(),
            from,
            count,
        };
        assert!(pages(&list).await >= 5000);
        assert!(pages(&|from| Op::Records { from, count }).await >= 5000);
        assert_eq!(pages(&|from| Op::Sweep { from, count }).await, 5000);
        assert_eq!(names(&node, "").await, [""; 0]);
    });
}

pub(crate) fn raw_keys_that_never_end_are_found() {
    run(async {
        let server = RedisServer::start();
        let raw = raw_client(&server);
        for key in ["ends", "stays"] {
            granted(&ask(&raw, acquire(key, "a")).await);
        }
        server.raw(&["PERSIST", "stays"]);
        server.raw(&["SET", "of another program", "x"]);
        assert_eq!(raw.endless().await.unwrap(), ["stays"]);
        assert_eq!(client(&server).endless().await.unwrap(), [""; 0]);
    });
}

pub(crate) fn one_call_is_one_command() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        now(&node).await;
        server.raw(&["CONFIG", "RESETSTAT"]);
        for n in 0..20 {
            let key = format!("k{n}");
            send(
                &node,
                vec![acquire(&key, "a"), read(&key), release(&key, "a")],
            )
            .await
            .unwrap();
        }
        let stats = server.raw(&["INFO", "commandstats"]);
        assert!(stats.contains("cmdstat_evalsha:calls=20,"), "{stats}");
        for other in [
            "cmdstat_ping",
            "cmdstat_eval:",
            "cmdstat_script",
            "cmdstat_unwatch",
        ] {
            assert!(!stats.contains(other), "{other} in {stats}");
        }
    });
}

pub(crate) fn keys_of_ours_share_one_hash_tag_and_leave_nothing_behind() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        let put = Op::PutDoc {
            name: "d".into(),
            rev: 1,
            ttl: TTL,
            body: "b".into(),
        };
        send(&node, vec![acquire("k", "a"), claim("c", "b"), put])
            .await
            .unwrap();
        let keys = server.raw(&["KEYS", "*"]);
        let mut keys: Vec<&str> = keys
            .split("\r\n")
            .filter(|line| line.contains(':'))
            .collect();
        keys.sort_unstable();
        assert_eq!(keys, ["{app}:2:doc:d", "{app}:2:docs:", "{app}:2:t",]);
        let soon = Duration::from_millis(1);
        let ops = vec![
            release_as("k", "a", Kind::Lock, soon),
            release_as("c", "b", Kind::Claim, soon),
            Op::RemoveDoc { name: "d".into() },
        ];
        send(&node, ops).await.unwrap();
        // Nothing is left but the number of what was forgotten.
        until("the release to be swept", async || swept(&node).await == 1).await;
        assert_eq!(server.raw(&["HKEYS", "{app}:2:t"]), "*1\r\n$1\r\nc\r\n");
        assert_eq!(server.raw(&["DBSIZE"]), ":1\r\n");
    });
}

/// The largest number that a node keeps.
const LARGEST: u64 = (1 << 53) - 1;

pub(crate) fn large_numbers_stay_exact() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        for (key, floor) in [
            ("a", 1 << 31),
            ("b", 1_795_189_257_541_390),
            ("c", (1 << 53) - 100),
        ] {
            for kind in [Kind::Lock, Kind::Claim] {
                let key = format!("{key}{kind:?}");
                let successor = format!("next-{key}");
                let grant = granted(&ask(&node, acquire_for(&key, &key, kind, TTL, floor)).await);
                assert!(grant > floor && grant <= floor + 9, "{grant} {floor}");
                let confirmed = confirm(&key, &key, kind, grant + 1);
                assert_eq!(ask(&node, confirmed).await, Answer::Done);
                if kind == Kind::Lock {
                    assert_eq!(view(&node, &key).await.token, Token(grant + 1));
                    let (token, rev) = (grant + 1, LARGEST);
                    assert_eq!(
                        ask(&node, write(&key, &key, token, rev, "x")).await,
                        Answer::Done
                    );
                    let version = Version {
                        token: Token(token),
                        rev,
                    };
                    assert_eq!(view(&node, &key).await.record.version, version);
                    ask(&node, extend(&key, &key, kind, LARGEST - 1, token)).await;
                    assert_eq!(view(&node, &key).await.seq, LARGEST - 1);
                }
                ask(&node, release_as(&key, &key, kind, RETENTION)).await;
                let next = granted(&ask(&node, acquire_for(&key, &successor, kind, TTL, 0)).await);
                assert_eq!(next, grant + 2);
                ask(&node, release_as(&key, &successor, kind, RETENTION)).await;
            }
        }
        let stored = server.raw(&["HGET", "{app}:2:t", "c"]);
        let digits = stored.split("\r\n").nth(1).unwrap();
        assert!(digits.parse::<u64>().unwrap() > (1 << 53) - 100, "{stored}");
    });
}

pub(crate) fn other_clients_hear_of_a_release() {
    run(async {
        let server = RedisServer::start();
        let (holder, waiter) = (client(&server), client(&server));
        let mut heard = waiter.announcements().await.unwrap();
        let key = "a key with spaces";
        ask(&holder, acquire(key, "a")).await;
        refused(&ask(&waiter, await_end(key, "w")).await);
        ask(&holder, release(key, "a")).await;
        let it = Announcement {
            key: key.into(),
            owner: "a".into(),
            next: None,
        };
        assert_eq!(heard.recv().await, Some(it));
        // Not of a release that no client waits for, nor of one that is not held.
        ask(&holder, acquire("quiet", "b")).await;
        ask(&holder, release("quiet", "b")).await;
        ask(&holder, release("free", "b")).await;
        ask(&holder, acquire(key, "c")).await;
        ask(&holder, release(key, "c")).await;
        assert_eq!(heard.recv().await.unwrap().owner, "c");
    });
}

pub(crate) fn a_full_call_stays_within_the_arguments_of_the_server() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        let most = watchkeeper_lock::node::redis::MAX_OPS;
        let ops = (0..most).map(|n| claim(&format!("c/{n}"), "a")).collect();
        let answers = send(&node, ops).await.unwrap().answers;
        assert_eq!(answers.len(), most);
        assert!(answers.iter().all(|answer| granted(answer) == 1));
        assert_eq!(names(&node, "c/").await.len(), most);
    });
}
