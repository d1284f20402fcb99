//! The rules every node keeps, seen on Redis.

use std::{collections::BTreeSet, time::Duration};

use watchkeeper_lock::node::{
    Answer, Call, Cursor, Doc, Kind, Node, NodeError, NodeMs, Op, Page, Token, Version,
    redis::RedisNode, sum_of,
};

use crate::{bench::*, server::RedisServer};

pub(crate) fn a_free_lock_is_granted_and_a_held_one_refused() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        assert_eq!(granted(&ask(&node, acquire("k", "a")).await), 1);
        let answer = ask(&node, acquire("k", "b")).await;
        let view = refused(&answer);
        assert_eq!(view.holder.as_deref(), Some("a"));
        assert_eq!(view.owner.as_deref(), Some("a"));
        assert!(view.remaining_ms.unwrap() <= 30_000 && view.remaining_ms.unwrap() > 25_000);
        assert_eq!((view.token, view.released), (Token(1), false));

        let short = acquire_for("short", "a", Kind::Lock, Duration::from_millis(20), 0);
        granted(&ask(&node, short).await);
        until("expiry", async || view_free(&node, "short").await).await;
        assert_eq!(granted(&ask(&node, acquire("short", "b")).await), 2);
    });
}

async fn view_free(node: &watchkeeper_lock::node::redis::RedisNode, key: &str) -> bool {
    view(node, key).await.holder.is_none()
}

pub(crate) fn an_attempt_sent_again_is_granted_with_the_same_number() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        for kind in [Kind::Lock, Kind::Claim] {
            let owner = format!("{kind:?}");
            let once = || acquire_for(&owner, &owner, kind, TTL, 7);
            let first = granted(&ask(&node, once()).await);
            assert_eq!(granted(&ask(&node, once()).await), first);
        }
    });
}

pub(crate) fn what_is_released_is_never_granted_or_extended_again() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        ask(&node, acquire("k", "a")).await;
        assert_eq!(ask(&node, release("k", "a")).await, Answer::Done);
        refused(&ask(&node, acquire("k", "a")).await);
        refused(&ask(&node, extend("k", "a", Kind::Lock, 1, 1)).await);
        // Nor extended when another owner was here in between, whose token is larger.
        ask(&node, acquire("k", "b")).await;
        ask(&node, release("k", "b")).await;
        refused(&ask(&node, extend("k", "a", Kind::Lock, 9, 1)).await);
        assert_eq!(view(&node, "k").await.holder, None);

        ask(&node, claim("c", "a")).await;
        ask(&node, release_as("c", "a", Kind::Claim, RETENTION)).await;
        refused(&ask(&node, extend("c", "a", Kind::Claim, 1, 1)).await);
    });
}

pub(crate) fn counters_never_fall() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        assert_eq!(
            granted(&ask(&node, acquire_for("k", "a", Kind::Lock, TTL, 40)).await),
            41
        );
        ask(&node, confirm("k", "a", Kind::Lock, 50)).await;
        // What is forgotten leaves its number with the node.
        let soon = Duration::from_millis(1);
        ask(&node, release_as("k", "a", Kind::Lock, soon)).await;
        until("retention", async || swept(&node).await == 1).await;
        assert_eq!(view(&node, "k").await.owner, None);
        assert_eq!(granted(&ask(&node, acquire("k", "b")).await), 51);
        // Another lock's first holder starts there too; later holders count in the record.
        assert_eq!(granted(&ask(&node, acquire("other", "c")).await), 51);
        ask(&node, release("k", "b")).await;
        assert_eq!(granted(&ask(&node, acquire("k", "d")).await), 52);
        assert_eq!(granted(&ask(&node, claim("c", "e")).await), 51);
        assert_eq!(granted(&ask(&node, claim("d", "f")).await), 52);
    });
}

pub(crate) fn confirm_raises_and_shows_larger_grants() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        for kind in [Kind::Lock, Kind::Claim] {
            let key = format!("{kind:?}");
            let grant = granted(&ask(&node, acquire_for(&key, &key, kind, TTL, 100)).await);
            let smaller = confirm(&key, &key, kind, grant - 1);
            assert_eq!(ask(&node, smaller).await, Answer::Larger(Token(grant)));
            assert_eq!(
                ask(&node, confirm(&key, &key, kind, grant + 9)).await,
                Answer::Done
            );
            refused(&ask(&node, confirm(&key, "stranger", kind, 900)).await);
            ask(&node, release_as(&key, &key, kind, RETENTION)).await;
            refused(&ask(&node, confirm(&key, &key, kind, 900)).await);
            let next = granted(&ask(&node, acquire_for(&key, "next", kind, TTL, 0)).await);
            assert_eq!(next, grant + 10, "{kind:?}");
        }
    });
}

pub(crate) fn extend_renews_heals_and_refuses() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        let short = Duration::from_millis(500);
        ask(&node, acquire_for("k", "a", Kind::Lock, short, 0)).await;
        let kept = Answer::Kept {
            version: Version::default(),
        };
        assert_eq!(ask(&node, extend("k", "a", Kind::Lock, 1, 5)).await, kept);
        let seen = view(&node, "k").await;
        assert_eq!((seen.seq, seen.token), (1, Token(5)));
        assert!(seen.remaining_ms.unwrap() > 25_000);
        // A round that is not newer is an old message.
        refused(&ask(&node, extend("k", "a", Kind::Lock, 1, 5)).await);
        refused(&ask(&node, extend("k", "b", Kind::Lock, 2, 5)).await);

        let healed = Answer::Healed {
            version: Version::default(),
        };
        server.raw(&["HDEL", "{app}:2:t", "lk"]);
        assert_eq!(ask(&node, extend("k", "a", Kind::Lock, 2, 5)).await, healed);
        assert_eq!(ask(&node, extend("k", "a", Kind::Lock, 3, 5)).await, kept);
        assert_eq!(view(&node, "k").await.holder.as_deref(), Some("a"));

        // A node that lost everything is told the token by the heal.
        server.raw(&["FLUSHALL"]);
        assert_eq!(
            ask(&node, extend("k", "a", Kind::Lock, 4, 70)).await,
            healed
        );
        ask(&node, release("k", "a")).await;
        assert_eq!(granted(&ask(&node, acquire("k", "b")).await), 71);
    });
}

pub(crate) fn writes_are_ordered_by_token_and_revision() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        ask(&node, acquire("k", "a")).await;
        assert_eq!(
            ask(&node, write("k", "a", 1, 9, "nine")).await,
            Answer::Done
        );
        assert_eq!(
            ask(&node, write("k", "a", 1, 9, "nine")).await,
            Answer::Done
        );
        refused(&ask(&node, write("k", "a", 1, 9, "other")).await);
        refused(&ask(&node, write("k", "a", 1, 8, "old")).await);
        assert_eq!(
            ask(&node, write("k", "a", 1, 10, "ten")).await,
            Answer::Done
        );
        refused(&ask(&node, write("k", "b", 7, 1, "stranger")).await);
        ask(&node, release("k", "a")).await;
        refused(&ask(&node, write("k", "a", 1, 11, "late")).await);

        match ask(&node, acquire("k", "b")).await {
            Answer::Granted { grant, record } => {
                assert_eq!(grant, Token(2));
                assert_eq!(record.body, "ten");
                assert_eq!(
                    record.version,
                    Version {
                        token: Token(1),
                        rev: 10
                    }
                );
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(ask(&node, write("k", "b", 2, 1, "b")).await, Answer::Done);
        let kept = Answer::Kept {
            version: Version {
                token: Token(2),
                rev: 1,
            },
        };
        assert_eq!(ask(&node, extend("k", "b", Kind::Lock, 1, 2)).await, kept);
    });
}

pub(crate) fn a_write_before_its_time_is_too_early() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        ask(&node, acquire("k", "a")).await;
        let at = |when: i64| match write("k", "a", 1, 1, "tick") {
            Op::Write {
                key,
                owner,
                version,
                body,
                expiry,
                ..
            } => Op::Write {
                key,
                owner,
                version,
                body,
                not_before: Some(when),
                expiry,
            },
            other => other,
        };
        let wall = send(&node, vec![]).await.unwrap().wall_ms;
        match ask(&node, at(wall + 60_000)).await {
            Answer::TooEarly { wall_ms } => assert!(wall_ms >= wall && wall_ms < wall + 60_000),
            other => panic!("{other:?}"),
        }
        assert_eq!(view(&node, "k").await.record.body, "");
        assert_eq!(ask(&node, at(wall)).await, Answer::Done);
    });
}

pub(crate) fn a_late_call_changes_nothing() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        let at = now(&node).await;
        let late = Call {
            not_after: Some(NodeMs(at.0 - 1)),
            ops: vec![acquire("k", "a")],
        };
        match node.call(late).await {
            Err(NodeError::Late { at: then }) => assert!(then >= at),
            other => panic!("{other:?}"),
        }
        assert_eq!(view(&node, "k").await.owner, None);
        let in_time = Call {
            not_after: Some(NodeMs(at.0 + 60_000)),
            ops: vec![acquire("k", "a")],
        };
        granted(&node.call(in_time).await.unwrap().answers[0]);
    });
}

pub(crate) fn claims_of_one_owner_share_one_grant() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        let ops = vec![
            claim("c/1", "a"),
            claim("c/2", "a"),
            claim("c/1", "b"),
            claim("c/3", "b"),
        ];
        let answers = send(&node, ops).await.unwrap().answers;
        assert_eq!((granted(&answers[0]), granted(&answers[1])), (1, 1));
        refused(&answers[2]);
        assert_eq!(granted(&answers[3]), 2);
        // Releasing one claim of an owner leaves his others alone.
        ask(&node, release_as("c/1", "a", Kind::Claim, RETENTION)).await;
        let kept = Answer::Kept {
            version: Version::default(),
        };
        assert_eq!(
            ask(&node, extend("c/2", "a", Kind::Claim, 1, 1)).await,
            kept
        );
        refused(&ask(&node, extend("c/1", "a", Kind::Claim, 1, 1)).await);
        granted(&ask(&node, claim("c/1", "b")).await);
    });
}

pub(crate) fn a_claim_is_never_healed() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        ask(&node, claim("c", "a")).await;
        server.raw(&["HDEL", "{app}:2:t", "lc"]);
        refused(&ask(&node, extend("c", "a", Kind::Claim, 1, 1)).await);
        assert_eq!(view(&node, "c").await.holder, None);
    });
}

pub(crate) fn lists_show_locks_and_claims_by_prefix() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        let shortly = acquire_for("b/short", "a", Kind::Claim, Duration::from_millis(10), 0);
        let ops = vec![
            acquire("job/x", "a"),
            acquire("job/y", "a"),
            claim("b/1", "a"),
            shortly,
        ];
        send(&node, ops).await.unwrap();
        assert_eq!(names(&node, "job/").await, ["job/x", "job/y"]);
        until("claims to end", async || names(&node, "").await.len() == 3).await;
        assert_eq!(names(&node, "b/").await, ["b/1"]);
        // A released lock is shown as long as its record is remembered.
        send(
            &node,
            vec![
                release("job/x", "a"),
                release_as("job/y", "a", Kind::Lock, Duration::from_millis(1)),
                release_as("b/1", "a", Kind::Claim, RETENTION),
            ],
        )
        .await
        .unwrap();
        until("records to end", async || {
            swept(&node).await;
            names(&node, "").await == ["job/x"]
        })
        .await;
    });
}

pub(crate) fn documents_are_replaced_by_larger_revisions_only() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        let put = |name: &str, rev: u64, ttl: Duration, body: &str| Op::PutDoc {
            name: name.into(),
            rev,
            ttl,
            body: body.into(),
        };
        let docs = async || match ask(
            &node,
            Op::Docs {
                dir: "presence/".into(),
                from: Cursor::default(),
                count: 9,
            },
        )
        .await
        {
            Answer::Page(page) => page.docs,
            other => panic!("{other:?}"),
        };
        let ops = vec![
            put("presence/a", 9, TTL, "nine"),
            put("presence/a", 10, TTL, "ten"),
            put("presence/a", 10, TTL, "another ten"),
            put("presence/a", 2, TTL, "two"),
            put("intent/x", 1, TTL, "not asked for"),
            put("presence/b", 1, Duration::from_millis(10), "short"),
        ];
        assert!(
            send(&node, ops)
                .await
                .unwrap()
                .answers
                .iter()
                .all(|a| *a == Answer::Done)
        );
        until("the short document to end", async || {
            docs().await.len() == 1
        })
        .await;
        let ten = Doc {
            name: "presence/a".into(),
            rev: 10,
            body: "ten".into(),
        };
        assert_eq!(docs().await, [ten]);
        ask(
            &node,
            Op::RemoveDoc {
                name: "presence/a".into(),
            },
        )
        .await;
        assert_eq!(docs().await, []);
    });
}

pub(crate) fn one_call_is_one_step() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        let ops = vec![
            acquire("k", "a"),
            release("k", "a"),
            acquire("k", "b"),
            read("k"),
        ];
        let answers = send(&node, ops).await.unwrap().answers;
        assert_eq!((granted(&answers[0]), granted(&answers[2])), (1, 2));
        match &answers[3] {
            Answer::View(view) => assert_eq!(view.holder.as_deref(), Some("b")),
            other => panic!("{other:?}"),
        }
    });
}

/// Whatever it is asked for. What a page costs is counted by what the script asks of its server, not by a clock.
pub(crate) fn no_page_of_documents_keeps_a_server_for_long() {
    const MANY: usize = 20_000;
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        let put = |n: usize, body: &str| Op::PutDoc {
            name: format!("intent/{n}"),
            rev: 1,
            ttl: TTL,
            body: body.into(),
        };
        for some in (0..MANY).collect::<Vec<_>>().chunks(250) {
            let ops = some.iter().map(|n| put(*n, "a short body")).collect();
            send(&node, ops).await.unwrap();
        }
        let dir = || "intent/".to_owned();
        let names = |from| Op::DocNames {
            dir: dir(),
            from,
            count: 1_000_000,
        };
        let docs = |from| Op::Docs {
            dir: dir(),
            from,
            count: 1_000_000,
        };
        let (found, most) = commands_of_pages(&server, &node, names).await;
        assert_eq!(found, MANY);
        assert!(most <= 300, "{most} commands for a page of names");
        let (found, most) = commands_of_pages(&server, &node, docs).await;
        assert_eq!(found, MANY);
        assert!(most <= 250, "{most} commands for a page of documents");

        // All that has ended goes with the pages, too.
        let half: Vec<_> = (0..MANY)
            .step_by(2)
            .map(|n| format!("intent/{n}"))
            .collect();
        for some in half.chunks(500) {
            let mut words = vec!["ZADD", "{app}:2:docs:intent/"];
            words.extend(some.iter().flat_map(|name| ["1", name]));
            server.raw(&words);
        }
        let card = || server.raw(&["ZCARD", "{app}:2:docs:intent/"]);
        let before = card();
        ask(&node, names(Cursor::default())).await;
        assert_eq!(
            (before.as_str(), card().as_str()),
            (":20000\r\n", ":19750\r\n")
        );
        commands_of_pages(&server, &node, names).await;
        let (found, _) = commands_of_pages(&server, &node, names).await;
        assert!(found < MANY, "{found}");
        assert_eq!(card(), ":10000\r\n");
    });
}

/// Each replica of a fleet looks at all of them again and again.
pub(crate) fn a_look_at_who_lives_costs_no_more_the_more_there_are() {
    run(async {
        let mut cost = Vec::new();
        for many in [20, 2_000] {
            let server = RedisServer::start();
            let node = client(&server);
            let put = |n: usize, rev: u64| Op::PutDoc {
                name: format!("presence/{n}"),
                rev,
                ttl: TTL,
                body: "a short body".into(),
            };
            for some in (0..many).collect::<Vec<_>>().chunks(250) {
                let ops = some.iter().map(|n| put(*n, *n as u64)).collect();
                send(&node, ops).await.unwrap();
            }
            let look = async |sums: Vec<u64>| {
                let living = Op::Living {
                    dir: "presence/".into(),
                    least: TTL / 2,
                    most: TTL,
                    known: sums,
                };
                server.raw(&["CONFIG", "RESETSTAT"]);
                let answer = ask(&node, living).await;
                (answer, commands_of(&server))
            };
            let (Answer::Lives { sum, docs, .. }, _) = look(vec![]).await else {
                panic!("no lives");
            };
            assert_eq!(docs.len(), many);
            assert_eq!(sum, sum_of(0..many as u64));
            look(vec![sum]).await;
            let (_, at_rest) = look(vec![sum]).await;
            // One of them tells something else: its document is read once, and not by each who looks.
            ask(&node, put(7, 10_007)).await;
            let (_, first) = look(vec![sum]).await;
            let (_, second) = look(vec![sum]).await;
            // A sign of life changes nothing.
            let touch = Op::TouchDoc {
                name: "presence/7".into(),
                rev: 10_007,
                ttl: TTL,
            };
            ask(&node, touch).await;
            let (_, touched) = look(vec![sum]).await;
            assert_eq!((at_rest, at_rest), (second, touched));
            cost.push((at_rest, first));
        }
        let [(few, few_first), (many, many_first)] = cost[..] else {
            panic!("{cost:?}");
        };
        assert!(few == many && many < 12, "{cost:?} commands");
        assert!(many_first < few_first + 8, "{cost:?} commands");
    });
}

fn commands_of(server: &RedisServer) -> usize {
    let told = server.raw(&["INFO", "commandstats"]);
    let calls = told
        .lines()
        .filter_map(|line| line.split_once(":calls=")?.1.split_once(','));
    calls.filter_map(|(n, _)| n.parse::<usize>().ok()).sum()
}

/// As with documents: what one page looks at does not grow with the table. A listing that finds nothing shows how much each page
/// passes over.
pub(crate) fn no_page_of_the_table_keeps_a_server_for_long() {
    const PAGE: usize = 250;
    run(async {
        for many in [2_000, 20_000] {
            let server = RedisServer::start();
            let node = client(&server);
            let fill = "for i = ARGV[2] + 1, ARGV[2] + 2000 do redis.call('HSET', '{app}:2:t', 'ljob/' .. i, ARGV[1]) end";
            let released = format!("R{}{}-a", "0".repeat(116), "-".repeat(15));
            for from in (0..many).step_by(2_000) {
                server.raw(&["EVAL", fill, "0", &released, &from.to_string()]);
            }
            let count = u32::MAX;
            let list = |prefix: &'static str| {
                move |from| Op::List {
                    prefix: prefix.to_owned(),
                    from,
                    count,
                }
            };
            type Paged<'a> = &'a dyn Fn(Cursor) -> Op;
            let records = |from| Op::Records { from, count };
            let sweep = |from| Op::Sweep { from, count };
            let (all, none) = (list("job/"), list("batch/"));
            // What is swept is gone.
            let walks: [(&str, Paged, usize); 4] = [
                ("listing", &all, many),
                ("listing of nothing", &none, 0),
                ("records", &records, many),
                ("sweep", &sweep, many),
            ];
            for (what, op, found) in walks {
                let pages = pages(&server, &node, op).await;
                let rows =
                    |page: &Page| page.views.len() + usize::try_from(page.forgotten).unwrap();
                let most = pages.iter().map(|(page, _)| rows(page)).max();
                let dearest = pages.iter().map(|(_, commands)| *commands).max();
                let told = format!(
                    "{what} of {many}: {} pages, {most:?} rows and {dearest:?} commands at most",
                    pages.len()
                );
                let sum: usize = pages.iter().map(|(page, _)| rows(page)).sum();
                assert!(sum >= found && (found > 0 || sum == 0), "{told}: {sum}");
                assert!(most <= Some(PAGE) && dearest <= Some(PAGE), "{told}");
                assert!(pages.len() * PAGE >= many, "{told}");
            }
        }
    });
}

/// How many documents are on the pages, and how many commands the dearest of them took.
async fn commands_of_pages(
    server: &RedisServer,
    node: &RedisNode,
    op: impl Fn(Cursor) -> Op,
) -> (usize, usize) {
    let pages = pages(server, node, op).await;
    let most = pages.iter().map(|(_, commands)| *commands).max();
    let docs = pages.into_iter().flat_map(|(page, _)| page.docs);
    let found: BTreeSet<_> = docs.map(|doc| doc.name).collect();
    (found.len(), most.unwrap_or_default())
}

/// All pages, each with the number of commands that it took.
async fn pages(
    server: &RedisServer,
    node: &RedisNode,
    op: impl Fn(Cursor) -> Op,
) -> Vec<(Page, usize)> {
    let mut pages = Vec::new();
    let mut next = Some(Cursor::default());
    while let Some(from) = next {
        server.raw(&["CONFIG", "RESETSTAT"]);
        let Answer::Page(page) = ask(node, op(from)).await else {
            panic!("no page");
        };
        let commands = commands_of(server);
        next = page.next.clone();
        pages.push((page, commands));
    }
    pages
}
