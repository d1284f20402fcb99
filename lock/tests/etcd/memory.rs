//! What a cluster remembers: copies from before, what others have written into our keys, and no room for more.

use std::time::Duration;

use watchkeeper_lock::{
    Locks,
    clock::Clock,
    node::{
        Answer, Eligibility,
        Kind::{Claim, Lock},
        Node, NodeError, Op, Refusal, Reply, RestartGuard,
    },
    settings::LockSettings,
};

use crate::{
    it::conformance::{
        LONG,
        admission::{admitted, eligibility},
        ask, ask_all, claim_for, granted, list, refused, release, take, view,
    },
    paper::Paper,
    scene::{fresh, guarded, node, over, put_doc, run, send, settings, trouble, until},
    server::EtcdServer,
};

/// What a lock shows whose row makes no sense.
const MALFORMED: Option<&str> = Some("(malformed)");

/// Whether it is an answer at all.
fn is_there(answered: &Result<Reply, NodeError>) -> bool {
    !matches!(
        answered,
        Err(NodeError::Unreachable(_) | NodeError::Timeout(_))
    )
}

/// Its revision is smaller than was seen, in the same cluster.
pub(crate) fn a_copy_from_before_is_refused() {
    let mut server = EtcdServer::start();
    run(async {
        let node = guarded(&server.url(), "n", RestartGuard::Call, "one");
        admitted(&node, "n", "one").await;
        granted(&node, take("k", "a")).await;
        let copy = server.snapshot();
        for rev in 1..=20 {
            ask(&node, put_doc("d", rev)).await;
        }
        server.kill();
        server.bring_back(&copy);
        server.start_again();
        let mut seen = None;
        until("an answer", async || {
            let answered = send(&node, vec![take("l", "a")]).await;
            let is_there = is_there(&answered);
            seen = Some(answered);
            is_there
        })
        .await;
        let Some(Err(NodeError::Gone(why))) = seen else {
            panic!("{seen:?}")
        };
        assert!(why.contains("copy from before"), "{why}");
        // Also when it has grown again: what it knows is old.
        let stranger = self::node(settings(&server.url(), "another"));
        for rev in 1..=40 {
            ask(&stranger, put_doc("d", rev)).await;
        }
        let still = send(&node, vec![take("l", "a")]).await;
        assert!(matches!(still, Err(NodeError::Gone(_))), "{still:?}");
    });
}

/// It is another life, whatever stands in it.
pub(crate) fn a_cluster_made_from_a_backup_does_not_vote() {
    let mut server = EtcdServer::start();
    let (paper, _reading) = Paper::reading(tracing::Level::INFO);
    run(async {
        let node = guarded(&server.url(), "n", RestartGuard::Call, "one");
        admitted(&node, "n", "one").await;
        granted(&node, take("k", "a")).await;
        assert_eq!(paper.lines_with("another cluster answers"), 0);
        let copy = server.snapshot();
        granted(&node, take("l", "a")).await;
        server.kill();
        server.bring_back_as_another(&copy);
        server.start_again();
        until("an answer", async || is_there(&send(&node, vec![]).await)).await;
        assert_eq!(eligibility(&node).await, Eligibility::Unadmitted);
        let told = paper.lines_with("another cluster answers at every endpoint");
        assert_eq!(told, 1, "{}", paper.text());
        assert_eq!(ask(&node, take("l", "b")).await, Answer::Unadmitted);
        // What it knew is shown all the same.
        assert_eq!(view(&node, "k").await.owner.as_deref(), Some("a"));
        assert_eq!(view(&node, "l").await.owner, None);
    });
}

/// The cluster that was met first is the one, and the other one gets not even a key.
pub(crate) fn nothing_is_written_into_another_cluster_among_the_endpoints() {
    let (mut ours, other) = (EtcdServer::start(), EtcdServer::start());
    run(async {
        let node = node(over(&[ours.url(), other.url()], "n"));
        granted(&node, take("k", "a")).await;
        ours.kill();
        for _ in 0..6 {
            assert!(send(&node, vec![]).await.is_err());
        }
        let keys = other.etcdctl(&["get", "--prefix", "watchkeeper/", "--keys-only"]);
        assert_eq!(keys.trim(), "");
        ours.start_again();
        until("our own", async || send(&node, vec![]).await.is_ok()).await;
        assert_eq!(view(&node, "k").await.owner.as_deref(), Some("a"));
    });
}

/// Nobody has it again before the longest lease is over, and then somebody has.
pub(crate) fn a_lease_lost_with_a_cluster_is_granted_again_when_the_longest_is_over() {
    let mut server = EtcdServer::start();
    run(async {
        let longest = Duration::from_secs(2);
        let mut settings = LockSettings::etcd([server.url()])
            .ttl(longest)
            .max_ttl(longest);
        settings.etcd.node_timeout = Duration::from_millis(100);
        let locks = || Locks::open(&settings, "n").unwrap().start().unwrap();
        let (one, other) = (locks(), locks());
        let wait = Duration::from_secs(30);
        // It is founded by the first who asks.
        let first = one.lock("early").wait(wait).acquire().await.unwrap();
        let copy = server.snapshot();
        let lost = one.lock("late").wait(wait).acquire().await.unwrap();
        server.kill();
        server.bring_back_as_another(&copy);
        let clock = Clock::system();
        let began = clock.now();
        server.start_again();
        let again = other.lock("late").wait(wait).acquire().await.unwrap();
        let after = clock.now().since(began);
        assert!(!lost.is_held() && !first.is_held());
        assert!(after >= longest, "{after:?}");
        println!("[etcd] granted again {after:.1?} after the restoration");
        let (before, token) = (lost.token(), again.token());
        assert!(token > before, "tokens rise: {before} {token}");
    });
}

/// Keys that were deleted and written again, from a dump perhaps, are another life.
pub(crate) fn keys_that_were_made_again_do_not_vote(server: &EtcdServer) {
    run(async {
        let namespace = fresh();
        let node = guarded(&server.url(), &namespace, RestartGuard::Call, "one");
        admitted(&node, "n", "one").await;
        granted(&node, take("k", "a")).await;
        server.make_again(&format!("watchkeeper/{namespace}/"));
        assert_eq!(eligibility(&node).await, Eligibility::Unadmitted);
        assert_eq!(ask(&node, take("l", "b")).await, Answer::Unadmitted);
        assert_eq!(view(&node, "k").await.owner.as_deref(), Some("a"));
    });
}

/// What something else has written costs its own lock.
pub(crate) fn a_damaged_key_costs_its_lock_alone(server: &EtcdServer) {
    run(async {
        let huge = "x".repeat(1024 * 1024);
        let nonsense = [
            "no json",
            "7",
            "{\"stranger\":1}",
            "{\"row\":{\"state\":\"X\"}}",
            "{\"row\":\"a\"}",
            &huge,
        ];
        for value in nonsense {
            let what = &value[..value.len().min(30)];
            let namespace = fresh();
            let node = node(settings(&server.url(), &namespace));
            for key in ["k", "l"] {
                granted(&node, take(key, "a")).await;
            }
            server.put(&format!("watchkeeper/{namespace}/lock/k"), value);
            let shown = view(&node, "k").await;
            assert_eq!(shown.holder.as_deref(), MALFORMED, "{what}");
            let shown = refused(&node, take("k", "b")).await;
            assert_eq!(shown.holder.as_deref(), MALFORMED, "{what}");
            let ops = vec![take("k", "b"), take("m", "b"), release(Lock, "l", "a")];
            let answers = ask_all(&node, ops).await.answers;
            assert!(matches!(answers[0], Answer::Refused(_)), "{what}");
            assert!(matches!(answers[1], Answer::Granted { .. }), "{what}");
            assert_eq!(answers[2], Answer::Done, "{what}");
            let listed = list(&node, "").await;
            assert!(listed.iter().any(|shown| shown.key == "m"), "{what}");
        }
    });
}

/// Nothing at all is what a record leaves that was forgotten, and no damage.
pub(crate) fn an_empty_key_is_a_lock_that_nobody_has(server: &EtcdServer) {
    run(async {
        let namespace = fresh();
        let node = node(settings(&server.url(), &namespace));
        let (before, _) = granted(&node, take("k", "a")).await;
        server.put(&format!("watchkeeper/{namespace}/lock/k"), "");
        assert_eq!(view(&node, "k").await.owner, None);
        let (token, _) = granted(&node, take("k", "b")).await;
        assert!(token > before, "tokens rise: {before} {token}");
    });
}

/// A document is stored anew by its writer.
pub(crate) fn a_damaged_document_counts_as_absent(server: &EtcdServer) {
    run(async {
        let namespace = fresh();
        let node = node(settings(&server.url(), &namespace));
        for name in ["d", "e"] {
            ask(&node, put_doc(name, 1)).await;
        }
        server.put(&format!("watchkeeper/{namespace}/doc/d"), "no json");
        let doc = |name: &str| Op::Doc {
            name: name.to_owned(),
        };
        assert_eq!(ask(&node, doc("d")).await, Answer::Docs(vec![]));
        let found = ask(&node, doc("e")).await;
        assert!(
            matches!(&found, Answer::Docs(docs) if docs.len() == 1),
            "{found:?}"
        );
        assert_eq!(ask(&node, put_doc("d", 1)).await, Answer::Done);
        let found = ask(&node, doc("d")).await;
        assert!(
            matches!(&found, Answer::Docs(docs) if docs.len() == 1),
            "{found:?}"
        );
    });
}

/// Without the first key nothing is known of what was granted.
pub(crate) fn a_first_key_that_makes_no_sense_is_refused(server: &EtcdServer) {
    run(async {
        for value in ["no json", "{}", ""] {
            let namespace = fresh();
            let node = node(settings(&server.url(), &namespace));
            granted(&node, take("k", "a")).await;
            server.put(&format!("watchkeeper/{namespace}/node"), value);
            let why = trouble(&node, take("l", "a")).await;
            let NodeError::Refused { refusal, .. } = why else {
                panic!("{value:?}: {why:?}")
            };
            assert_eq!(refusal, Refusal::WrongType, "{value:?}");
        }
    });
}

/// Nothing is granted by keys whose meaning is not known, and nothing in them is changed.
pub(crate) fn keys_of_another_layout_are_refused_and_left_alone(server: &EtcdServer) {
    run(async {
        let namespace = fresh();
        let node = node(settings(&server.url(), &namespace));
        granted(&node, take("k", "a")).await;
        let first = format!("watchkeeper/{namespace}/node");
        // The first key as it stands, but for another number and a field that is not known.
        for layout in [2, 0] {
            let value = format!(r#"{{"layout":{layout},"base":0,"gate":"","more":1}}"#);
            server.put(&first, &value);
            for key in ["k", "l"] {
                let why = trouble(&node, take(key, "b")).await.to_string();
                assert!(why.contains(&format!("of layout {layout},")), "{why}");
                assert!(why.contains("move --out FILE"), "{why}");
            }
        }
        server.put(&first, r#"{"layout":1,"base":0,"gate":""}"#);
        // Nothing was written meanwhile.
        assert_eq!(view(&node, "k").await.owner.as_deref(), Some("a"));
        assert_eq!(view(&node, "l").await.owner, None);
    });
}

/// Nothing is granted then, what stands is shown, and nothing is half done.
pub(crate) fn a_full_database_is_refused_until_there_is_room() {
    let server = EtcdServer::start_with(&["--quota-backend-bytes", "4194304"]);
    run(async {
        let node = node(settings(&server.url(), "n"));
        granted(&node, take("k", "a")).await;
        granted(&node, claim_for("c", "a", LONG)).await;
        server.fill();
        let why = trouble(&node, take("l", "a")).await;
        let NodeError::Refused { refusal, .. } = why else {
            panic!("{why:?}")
        };
        assert_eq!(refusal, Refusal::OutOfMemory);
        // It says so to whoever looks for faults, and which member has raised the alarm.
        let facts = node.inspect().await.unwrap();
        let alarms = facts.alarms.unwrap_or_default();
        assert!(alarms.contains("NOSPACE"), "{alarms}");
        assert_eq!(facts.members[0].alarms.as_deref(), Some(&*alarms));
        assert_eq!(view(&node, "k").await.owner.as_deref(), Some("a"));
        assert_eq!(view(&node, "l").await.owner, None);
        // What it can let go of without writing is let go of.
        for (kind, key) in [(Lock, "k"), (Claim, "c")] {
            let is_released = match send(&node, vec![release(kind, key, "a")]).await {
                Ok(reply) => reply.answers == [Answer::Done],
                Err(NodeError::Refused { refusal, .. }) => {
                    assert_eq!(refusal, Refusal::OutOfMemory);
                    false
                }
                Err(why) => panic!("{why:?}"),
            };
            println!("[etcd] {key} released in a full database: {is_released}");
            assert_eq!(view(&node, key).await.holder.is_none(), is_released);
        }
        server.make_room();
        until("room", async || {
            let taken = send(&node, vec![take("l", "a")]).await;
            taken.is_ok_and(|reply| matches!(reply.answers[0], Answer::Granted { .. }))
        })
        .await;
        for (kind, key) in [(Lock, "k"), (Claim, "c")] {
            ask(&node, release(kind, key, "a")).await;
            assert_eq!(view(&node, key).await.holder, None);
        }
    });
}
