//! What a call costs, in ways there and back and in rows, and what it leaves alone.

use std::{sync::Arc, time::Duration};

use watchkeeper_lock::{
    Locks,
    clock::Clock,
    lock::Timing,
    node::{Answer, Node, NodeError, Op, postgres::PostgresNodeSettings},
    spawn::Spawn,
};

use crate::{
    it::conformance::{LONG, ask, ask_all, granted, list, take},
    node::{DURABLE, PATIENT, client, fresh, node, run, send, settings, until, url},
    proxy::Proxy,
    server::PostgresServer,
};

pub(crate) fn a_client_that_freezes_between_its_flights_delays_others_for_a_while_only(
    server: &PostgresServer,
) {
    run(async {
        let proxy = Proxy::start(&server.socket());
        let namespace = fresh();
        let limit = Duration::from_millis(200);
        let idle = limit * 4;
        let short = |url: &str| PostgresNodeSettings {
            node_timeout: limit,
            ..settings(url, &namespace)
        };
        let frozen = node(&short(&proxy.url()));
        granted(&frozen, take("k", "a")).await;
        // From here on it hears no answer: it has the row, and does not go on.
        proxy.hold();
        let stuck = Spawn::system().spawn(async move {
            let answered = send(&frozen, vec![take("l", "a")]).await;
            assert!(answered.is_err(), "{answered:?}");
        });
        let watch = client(&url(server)).await;
        until("its transaction", async || {
            let idle = "SELECT FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE '%clock_timestamp()%'";
            watch.query(idle, &[]).await.unwrap().len() == 1
        })
        .await;
        let clock = Clock::system();
        let began = clock.now();
        let other = node(&short(&url(server)));
        until("another client", async || {
            matches!(send(&other, vec![take("m", "b")]).await, Ok(reply)
                if matches!(reply.answers[0], Answer::Granted { .. }))
        })
        .await;
        let waited = clock.now().since(began);
        assert!(waited < idle * 2, "{waited:?}");
        // What the frozen one wanted was not done.
        let Answer::View(view) = ask(&other, Op::Read { key: "l".into() }).await else {
            panic!("a view")
        };
        assert_eq!(view.owner, None);
        proxy.go_on();
        stuck.await.unwrap();
    });
}

/// By the ways there and back that a proxy counts.
pub(crate) fn an_extension_takes_two_ways_there_and_back_and_a_cycle_four(server: &PostgresServer) {
    use crate::it::conformance::{extend, release};
    use watchkeeper_lock::node::Kind;

    run(async {
        let proxy = Proxy::start(&server.socket());
        let node = node(&settings(&proxy.url(), &fresh()));
        ask_all(&node, vec![]).await;
        let before = proxy.turns();
        let (token, _) = granted(&node, take("k", "a")).await;
        let acquired = proxy.turns() - before;
        let kept = ask(&node, extend(Kind::Lock, "k", "a", 1, token.0)).await;
        assert!(matches!(kept, Answer::Kept { .. }), "{kept:?}");
        let extended = proxy.turns() - before - acquired;
        ask(&node, release(Kind::Lock, "k", "a")).await;
        let released = proxy.turns() - before - acquired - extended;
        let looked_before = proxy.turns();
        ask(&node, Op::Read { key: "k".into() }).await;
        let looked = proxy.turns() - looked_before;
        let refused_before = proxy.turns();
        granted(&node, take("l", "a")).await;
        ask(&node, take("l", "b")).await;
        let refused = proxy.turns() - refused_before - 2;
        assert_eq!(
            (acquired, extended, released, looked, refused),
            (2, 2, 2, 1, 1),
            "acquire, extend, release, look, refused"
        );
    });
}

/// The same of whole cycles, by the client that programs use: whatever its keeper does beside them is counted, too.
pub(crate) fn ten_cycles_of_a_lock_take_forty_one_ways_at_most(server: &PostgresServer) {
    run(async {
        let proxy = Proxy::start(&server.socket());
        let node: Arc<dyn Node> = Arc::new(node(&settings(&proxy.url(), &fresh())));
        let timing = Timing {
            node_timeout: PATIENT,
            ..Timing::default()
        };
        let locks = Locks::over(vec![node]).timing(timing).start().unwrap();
        let cycle = async |name: &str| {
            let lease = locks.lock(name).ttl(LONG).acquire().await.unwrap();
            lease.release().await;
        };
        // What is asked once in the life of a client.
        cycle("first").await;
        let before = proxy.turns();
        for _ in 0..10 {
            cycle("k").await;
        }
        let turns = proxy.turns() - before;
        assert!((40..=41).contains(&turns), "{turns}");
    });
}

/// What a person removes between the look and the writing: nothing is written then, and so nothing is told as done.
pub(crate) fn an_extension_of_a_row_that_has_gone_meanwhile_is_not_told_as_done(
    _: &PostgresServer,
) {
    let rows = a_person_beside_an_extension("DELETE FROM watchkeeper.lease");
    assert_eq!(rows, []);
}

/// A row is written where it was read: one that a person has changed meanwhile lies elsewhere.
pub(crate) fn an_extension_leaves_a_row_alone_that_was_changed_meanwhile(_: &PostgresServer) {
    let rows = a_person_beside_an_extension("UPDATE watchkeeper.lease SET waits = 7");
    assert_eq!(rows, [(0, 7)]);
}

/// Executes a statement between the look of an extension and its writing, of which nobody knows then what became of it. Rounds and waits
/// that stand afterwards.
fn a_person_beside_an_extension(statement: &str) -> Vec<(i64, i64)> {
    use crate::it::conformance::extend;
    use watchkeeper_lock::node::Kind;

    let server = PostgresServer::start_with(&DURABLE, |_| {});
    run(async {
        let namespace = fresh();
        let proxy = Proxy::start(&server.socket());
        let slow = node(&settings(&proxy.url(), &namespace));
        let (token, _) = granted(&slow, take("k", "a")).await;
        proxy.hold();
        let extending = Spawn::system().spawn(async move {
            let extended = send(&slow, vec![extend(Kind::Lock, "k", "a", 1, token.0)]).await;
            assert!(
                matches!(extended, Err(NodeError::Timeout(_))),
                "{extended:?}"
            );
        });
        let person = client(&url(&server)).await;
        until("its transaction", async || {
            let idle = "SELECT FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE '%lease%'";
            !person.query(idle, &[]).await.unwrap().is_empty()
        })
        .await;
        let which = format!("WHERE namespace = '{namespace}' AND key = 'k'");
        let changed = person.execute(&format!("{statement} {which}"), &[]).await;
        assert_eq!(changed.unwrap(), 1);
        proxy.go_on();
        extending.await.unwrap();
        let rows = format!("SELECT seq, waits FROM watchkeeper.lease {which}");
        let rows = person.query(&rows, &[]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    })
}

/// One call carries 500 extensions, and nothing else goes along; of all else 250.
pub(crate) fn a_call_carries_more_extensions_than_anything_else(server: &PostgresServer) {
    use crate::it::conformance::extend;
    use watchkeeper_lock::node::Kind;

    run(async {
        let namespace = fresh();
        let node = node(&settings(&url(server), &namespace));
        let most = node.most_extensions();
        assert_eq!(most, 500);
        let keys: Vec<String> = (0..=most).map(|n| format!("k{n:03}")).collect();
        let mut extensions = Vec::new();
        for keys in keys.chunks(250) {
            let taken = keys.iter().map(|key| take(key, "a")).collect();
            for (key, answer) in keys.iter().zip(ask_all(&node, taken).await.answers) {
                let Answer::Granted { grant, .. } = answer else {
                    panic!("{answer:?}")
                };
                extensions.push(extend(Kind::Lock, key, "a", 1, grant.0));
            }
        }
        let refused = |answer| matches!(answer, Err(NodeError::Protocol(_)));
        assert!(refused(send(&node, extensions.clone()).await));
        let mixed = Op::Read { key: "k".into() };
        let mixed = extensions.iter().take(250).cloned().chain([mixed]);
        assert!(refused(send(&node, mixed.collect()).await));
        extensions.pop();
        let extended = ask_all(&node, extensions).await.answers;
        let kept = |answer: &Answer| matches!(answer, Answer::Kept { .. });
        assert!(extended.len() == most && extended.iter().all(kept));
        let person = client(&url(server)).await;
        let rounds = "SELECT count(*) FILTER (WHERE seq = 1), count(*) FILTER (WHERE seq = 0) FROM watchkeeper.lease \
                      WHERE namespace = $1";
        let row = person.query_one(rounds, &[&namespace]).await.unwrap();
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (500, 1));
    });
}

/// By the entries of indexes that the server reads: those of other locks are none of its business, however many there are.
pub(crate) fn pages_and_extensions_read_no_more_than_themselves(_: &PostgresServer) {
    use crate::it::conformance::extend;
    use watchkeeper_lock::node::Kind;

    const LISTED: i64 = 20;
    let server = PostgresServer::start_with(&DURABLE, |_| {});
    run(async {
        let node = node(&settings(&url(&server), "n"));
        let mut leases = Vec::new();
        for key in ["a/1", "a/2", "a/3"] {
            leases.push((key, granted(&node, take(key, "a")).await.0));
        }
        let other = client(&url(&server)).await;
        let fill = "INSERT INTO watchkeeper.lease SELECT 'n', ('b/' || g)::bytea, 'R', 'x', 1, '', 1, 0, 1000, 1, 0, 0, 0 \
                    FROM generate_series(1, 50000) AS g";
        other.batch_execute(fill).await.unwrap();
        let read = async || {
            let read = "SELECT coalesce(sum(idx_scan), 0)::int8, coalesce(sum(idx_tup_read), 0)::int8 \
                        FROM pg_stat_user_indexes WHERE relname = 'lease'";
            let row = other.query_one(read, &[]).await.unwrap();
            (row.get::<_, i64>(0), row.get::<_, i64>(1))
        };
        let before = read().await;
        let (mut after, mut seq) = (before, 0);
        // The server counts by and by, while it is asked.
        until("the counts", async || {
            assert_eq!(list(&node, "a/").await.len(), 3);
            seq += 1;
            let extensions = leases
                .iter()
                .map(|(key, token)| extend(Kind::Lock, key, "a", seq, token.0));
            let extended = ask_all(&node, extensions.collect()).await.answers;
            let kept = |answer: &Answer| matches!(answer, Answer::Kept { .. });
            assert!(extended.iter().all(kept), "{extended:?}");
            after = read().await;
            after.0 - before.0 >= LISTED
        })
        .await;
        let (looks, entries) = (after.0 - before.0, after.1 - before.1);
        assert!(entries < 50 * looks, "{entries} entries in {looks} looks");
    });
}
