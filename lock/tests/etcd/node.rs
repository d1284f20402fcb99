//! What is asked of etcd and how, and how its answers are heard.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use watchkeeper_lock::{
    clock::Clock,
    node::{
        Announcements, Answer,
        Kind::Lock,
        Node, NodeError, RestartGuard, Token, View,
        etcd::{EtcdNode, EtcdNodeSettings},
    },
    spawn::Spawn,
};

use crate::{
    it::conformance::{
        FAR, LONG,
        admission::{self, admitted, eligibility},
        ask, ask_all, broken, extend, force, granted, list, refused, release, take, view, waiting,
        write,
    },
    proxy::{
        Asked::{Read, Write},
        Proxy,
    },
    scene::{PATIENT, fresh, guarded, node, over, put_doc, run, run_beside, send, settings, until},
    server::{EtcdServer, Host, pause},
};

pub(crate) fn every_rule_of_admission(server: &EtcdServer) {
    run(async {
        admission::every_rule(|| {
            let (url, namespace) = (server.url(), fresh());
            Box::new(move |config| {
                let mode = match config.starts_with("off") {
                    true => RestartGuard::Off,
                    false => RestartGuard::Call,
                };
                Arc::new(guarded(&url, &namespace, mode, config)) as Arc<dyn Node>
            })
        })
        .await;
    });
}

/// By the requests that a proxy counts.
pub(crate) fn a_look_costs_one_request_and_a_change_two(server: &EtcdServer) {
    run(async {
        let proxy = Proxy::start(server).await;
        let node = node(settings(&proxy.url(), &fresh()));
        // What is asked once only, by the first call.
        granted(&node, take("first", "a")).await;
        proxy.asked();
        let (token, _) = granted(&node, take("k", "a")).await;
        assert_eq!(proxy.asked(), [Read, Write], "an acquisition");
        let kept = ask(&node, extend(Lock, "k", "a", 1, token.0)).await;
        assert!(matches!(kept, Answer::Kept { .. }), "{kept:?}");
        assert_eq!(proxy.asked(), [Read, Write], "an extension");
        refused(&node, take("k", "b")).await;
        assert_eq!(proxy.asked(), [Read], "an attempt in vain");
        view(&node, "k").await;
        assert_eq!(proxy.asked(), [Read], "a look");
        ask(&node, release(Lock, "k", "a")).await;
        assert_eq!(proxy.asked(), [Read, Write], "a release");
        let both = vec![take("k", "c"), take("l", "c")];
        ask_all(&node, both).await;
        assert_eq!(proxy.asked(), [Read, Write], "two acquisitions in one call");
    });
}

/// What is promised and stands there already is compared all the same: one request more, and nothing is written.
pub(crate) fn what_is_promised_again_is_compared_and_not_written(server: &EtcdServer) {
    run(async {
        let (proxy, namespace) = (Proxy::start(server).await, fresh());
        let node = node(settings(&proxy.url(), &namespace));
        let (token, _) = granted(&node, take("k", "a")).await;
        let body = write("k", "a", (token.0, 1), "body");
        assert_eq!(ask(&node, body.clone()).await, Answer::Done);
        // With their revisions.
        let keys = || server.keys(&format!("watchkeeper/{namespace}/"));
        let before = keys();
        proxy.asked();
        assert_eq!(granted(&node, take("k", "a")).await.0, token);
        assert_eq!(proxy.asked(), [Read, Write], "a grant that stands");
        assert_eq!(ask(&node, body).await, Answer::Done);
        assert_eq!(proxy.asked(), [Read, Write], "a body that stands");
        assert_eq!(keys(), before);
    });
}

/// The grant stands at the look, and is over when that is heard of: it was broken, and another one has the lock.
pub(crate) fn what_is_granted_again_without_writing_is_compared(server: &EtcdServer) {
    run(async {
        let (proxy, namespace) = (Proxy::start(server).await, fresh());
        let late = node(settings(&proxy.url(), &namespace));
        granted(&late, take("k", "a")).await;
        let other = node(settings(&server.url(), &namespace));
        granted(&other, take("first of the other", "b")).await;
        proxy.hold();
        let call = Spawn::system().spawn(async move {
            let seen = refused(&late, take("k", "a")).await;
            assert_eq!(seen.owner.as_deref(), Some("b"));
        });
        proxy.holds_an_answer().await;
        broken(&other, force("k", "a", FAR, true)).await;
        granted(&other, take("k", "b")).await;
        proxy.go_on();
        call.await.unwrap();
    });
}

/// A program stands still between its look and its writing, and delays no other.
pub(crate) fn what_was_decided_on_an_old_look_is_decided_anew(server: &EtcdServer) {
    run(async {
        let (proxy, namespace) = (Proxy::start(server).await, fresh());
        let late = node(settings(&proxy.url(), &namespace));
        granted(&late, take("first", "a")).await;
        let other = node(settings(&server.url(), &namespace));
        granted(&other, take("first of the other", "b")).await;
        proxy.hold();
        // It finds a lock that is free, and hears of that later.
        let call = Spawn::system().spawn(async move {
            let seen = refused(&late, take("k", "a")).await;
            assert_eq!(seen.owner.as_deref(), Some("b"));
        });
        proxy.holds_an_answer().await;
        granted(&other, take("k", "b")).await;
        proxy.go_on();
        call.await.unwrap();
    });
}

/// The key was not there at the look, and is not there when it is written: in between another one had the lock, and its record was
/// cleaned away.
pub(crate) fn what_was_deleted_meanwhile_is_no_absence(server: &EtcdServer) {
    run(async {
        let (proxy, namespace) = (Proxy::start(server).await, fresh());
        let late = node(settings(&proxy.url(), &namespace));
        granted(&late, take("first", "a")).await;
        let other = node(settings(&server.url(), &namespace));
        granted(&other, take("first of the other", "b")).await;
        proxy.hold();
        let last = Arc::new(AtomicU64::new(0));
        let before = last.clone();
        let call = Spawn::system().spawn(async move {
            let token = granted(&late, take("k", "a")).await.0.0;
            let before = before.load(Ordering::SeqCst);
            assert!(token > before, "tokens rise: {before} {token}");
        });
        proxy.holds_an_answer().await;
        for round in 0..5 {
            let owner = format!("b{round}");
            let token = granted(&other, take("k", &owner)).await.0.0;
            last.store(token, Ordering::SeqCst);
            ask(&other, release(Lock, "k", &owner)).await;
        }
        // As one who cleans does it.
        let of = |key: &str| format!("watchkeeper/{namespace}/{key}");
        server.put(&of("lock/k"), "");
        server.etcdctl(&["del", &of("lock/k")]);
        server.put(&of("swept"), "1");
        assert_eq!(view(&other, "k").await.token, Token(0));
        proxy.go_on();
        call.await.unwrap();
    });
}

/// Whether a transaction was executed whose answer was lost is not known, and nothing is lost by asking again.
pub(crate) fn what_was_written_without_an_answer_is_found_by_the_same_attempt(server: &EtcdServer) {
    run(async {
        let (proxy, namespace) = (Proxy::start(server).await, fresh());
        let node = node(settings(&proxy.url(), &namespace));
        granted(&node, take("first", "a")).await;
        proxy.lose_the_next_answer();
        let lost = send(&node, vec![take("k", "a")]).await;
        assert!(matches!(lost, Err(NodeError::Timeout(_))), "{lost:?}");
        let other = self::node(settings(&server.url(), &namespace));
        let shown = refused(&other, take("k", "b")).await;
        assert_eq!(shown.owner.as_deref(), Some("a"));
        let (again, _) = granted(&node, take("k", "a")).await;
        assert_eq!(again, shown.token);
    });
}

pub(crate) fn where_nothing_listens_there_is_no_node_and_the_next_endpoint_is_asked(
    server: &EtcdServer,
) {
    run(async {
        let (nowhere, namespace) = (Host::new(), fresh());
        let nowhere = format!("http://{}", nowhere.address());
        let alone = node(settings(&nowhere, &namespace));
        let why = send(&alone, vec![take("k", "a")]).await;
        assert!(matches!(why, Err(NodeError::Unreachable(_))), "{why:?}");
        assert!(send(&alone, vec![]).await.is_err());
        let both = node(over(&[nowhere, server.url()], &namespace));
        granted(&both, take("k", "a")).await;
    });
}

pub(crate) fn a_server_that_was_killed_votes_at_once_with_all_it_knew() {
    let mut server = EtcdServer::start();
    run(async {
        let first = guarded(&server.url(), "n", RestartGuard::Call, "one");
        admitted(&first, "n", "one").await;
        granted(&first, take("k", "a")).await;
        server.kill();
        let Err(why) = send(&first, vec![take("l", "a")]).await else {
            panic!("it is not there")
        };
        assert!(why.is_down(), "{why}");
        server.start_again();
        until("the server", async || send(&first, vec![]).await.is_ok()).await;
        assert!(eligibility(&first).await.is_admitted());
        let seen = refused(&first, take("k", "b")).await;
        assert_eq!(seen.owner.as_deref(), Some("a"));
    });
}

/// One that is asked while it starts has not found all of its log yet.
pub(crate) fn a_server_that_starts_is_not_taken_for_a_copy_from_before() {
    let mut server = EtcdServer::start();
    let url = server.url();
    run_beside(async {
        let (written, is_over) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let node = node(EtcdNodeSettings {
            node_timeout: Duration::from_millis(500),
            ..settings(&url, "n")
        });
        let asking = {
            let (written, is_over) = (written.clone(), is_over.clone());
            Spawn::system().spawn(async move {
                for rev in 1.. {
                    if is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    match send(&node, vec![put_doc("d", rev)]).await {
                        Ok(_) => _ = written.fetch_add(1, Ordering::SeqCst),
                        Err(why @ NodeError::Gone(_)) => panic!("{why}"),
                        Err(_) => Clock::system().sleep(Duration::from_millis(2)).await,
                    }
                }
            })
        };
        let clock = Clock::system();
        for _ in 0..4 {
            let enough = written.load(Ordering::SeqCst) + 20;
            let end = clock.now() + Duration::from_secs(30);
            while written.load(Ordering::SeqCst) < enough {
                assert!(!asking.is_finished() && clock.now() < end, "it writes");
                pause(Duration::from_millis(5));
            }
            server.kill();
            server.start_again();
        }
        is_over.store(true, Ordering::SeqCst);
        asking.await.unwrap();
    });
}

/// Takes and releases a lock for which another one waits.
async fn hand_over(holder: &EtcdNode, other: &EtcdNode, key: &str) {
    granted(holder, take(key, "a")).await;
    // A waiter asks to be told.
    refused(other, waiting(take(key, "b"), LONG)).await;
    ask(holder, release(Lock, key, "a")).await;
}

/// Also by those that have listened through a restart of the server.
pub(crate) fn other_clients_hear_of_a_release_also_after_a_restart() {
    let mut server = EtcdServer::start();
    run(async {
        let clock = Clock::system();
        let (holder, other) = (
            node(settings(&server.url(), "n")),
            node(settings(&server.url(), "n")),
        );
        let mut heard = other.announcements().await.expect("it has some");
        hand_over(&holder, &other, "it's \"k\"").await;
        let news = clock.timeout(PATIENT, heard.recv()).await;
        let news = news.expect("it is told").expect("it goes on");
        assert_eq!((&*news.key, &*news.owner), ("it's \"k\"", "a"));
        server.kill();
        server.start_again();
        until("both", async || {
            send(&holder, vec![]).await.is_ok() && send(&other, vec![]).await.is_ok()
        })
        .await;
        hears_again(&holder, &other, &mut heard).await;
    });
}

/// What happens before it listens again may be lost to it, and what happens then is not. Whether it was told that something may be.
async fn hears_again(holder: &EtcdNode, other: &EtcdNode, heard: &mut Announcements) -> bool {
    let clock = Clock::system();
    let (mut round, mut is_told, mut is_interrupted) = (0, false, false);
    until("a release that is heard of", async || {
        round += 1;
        let key = format!("k{round}");
        hand_over(holder, other, &key).await;
        let soon = Duration::from_millis(500);
        while let Ok(news) = clock.timeout(soon, heard.recv()).await {
            let news = news.expect("it goes on");
            is_told |= news.key == key;
            is_interrupted |= news.key.is_empty();
        }
        is_told
    })
    .await;
    is_interrupted
}

/// A memory that is not as far as the one that was listened to: the watch would wait there for a revision that is far away.
pub(crate) fn a_listener_begins_anew_in_a_cluster_made_from_a_backup() {
    listens_on_after(EtcdServer::bring_back_as_another);
}

/// The same in a copy from before, for those that have just come.
pub(crate) fn a_listener_begins_anew_in_a_copy_from_before() {
    listens_on_after(EtcdServer::bring_back);
}

fn listens_on_after(restored: fn(&mut EtcdServer, &Path)) {
    let mut server = EtcdServer::start();
    run(async {
        let clock = Clock::system();
        let (first, listener) = (
            node(settings(&server.url(), "n")),
            node(settings(&server.url(), "n")),
        );
        granted(&first, take("early", "a")).await;
        let copy = server.snapshot();
        // Far more than what the handovers below write while they are waited for.
        for rev in 1..=300 {
            ask(&first, put_doc("d", rev)).await;
        }
        let mut heard = listener.announcements().await.expect("it has some");
        hand_over(&first, &listener, "late").await;
        let news = clock.timeout(PATIENT, heard.recv()).await;
        let news = news.expect("it is told").expect("it goes on");
        assert_eq!(news.key, "late");
        server.kill();
        restored(&mut server, &copy);
        server.start_again();
        // These have seen nothing of what was lost.
        let (holder, other) = (
            node(settings(&server.url(), "n")),
            node(settings(&server.url(), "n")),
        );
        until("both", async || {
            send(&holder, vec![]).await.is_ok() && send(&other, vec![]).await.is_ok()
        })
        .await;
        let is_interrupted = hears_again(&holder, &other, &mut heard).await;
        assert!(is_interrupted, "what it has missed, it is to look for");
    });
}

/// Neither a name nor a namespace reaches into the keys of another one.
pub(crate) fn fleets_beside_each_other_see_their_own_locks_alone(server: &EtcdServer) {
    run(async {
        let first = fresh();
        let namespaces = [&first, &format!("{first}-0"), &format!("{first}.lock")];
        let nodes = namespaces.map(|namespace| node(settings(&server.url(), namespace)));
        let long = "x".repeat(3_000);
        let names = [
            "k",
            "k/lock",
            "k0",
            "k/",
            "/",
            "0",
            "ü",
            "\u{10ffff}",
            &long,
        ];
        for (n, node) in nodes.iter().enumerate() {
            for name in names {
                granted(node, take(name, &n.to_string())).await;
            }
        }
        for (n, node) in nodes.iter().enumerate() {
            let listed = list(node, "").await;
            assert_eq!(listed.len(), names.len());
            let owner = n.to_string();
            let is_its_own = |shown: &View| shown.owner.as_deref() == Some(&*owner);
            assert!(listed.iter().all(is_its_own), "{listed:?}");
        }
    });
}
