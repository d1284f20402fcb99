//! What real servers do to a client: forget, freeze, die, fill up.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use watchkeeper_lock::{
    clock::Clock,
    lock::{Locks, Timing},
    node::{
        Answer, Call, Node, NodeError, NodeMs,
        redis::{RedisNode, RedisNodeSettings},
    },
};

use crate::{bench::*, server::RedisServer};

const LIMIT: Duration = Duration::from_millis(100);

fn brisk(server: &RedisServer) -> RedisNode {
    node(&RedisNodeSettings {
        node_timeout: LIMIT,
        ..settings(server)
    })
}

async fn works(node: &RedisNode) -> bool {
    send(node, vec![read("k")]).await.is_ok()
}

/// Connected, and known to be.
async fn settled(node: &RedisNode) {
    until("a connection", async || works(node).await).await;
}

pub(crate) fn a_flushed_script_is_taught_again() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        granted(&ask(&node, acquire("k", "a")).await);
        server.raw(&["SCRIPT", "FLUSH"]);
        assert_eq!(ask(&node, release("k", "a")).await, Answer::Done);
        server.raw(&["CONFIG", "RESETSTAT"]);
        granted(&ask(&node, acquire("k", "b")).await);
        assert!(
            server
                .raw(&["INFO", "commandstats"])
                .contains("cmdstat_evalsha:calls=1,")
        );
    });
}

pub(crate) fn calls_that_lose_the_script_together_keep_their_order() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        settled(&node).await;
        server.raw(&["SCRIPT", "FLUSH"]);
        let calls = (0..20).map(|n| {
            let owner = format!("o{n}");
            let node = &node;
            async move { send(node, vec![acquire("k", &owner), release("k", &owner)]).await }
        });
        let mut last = 0;
        let mut executed = 0;
        for outcome in join_all(calls).await {
            match outcome {
                Ok(reply) => {
                    let grant = granted(&reply.answers[0]);
                    assert!(grant > last, "{grant} after {last}");
                    last = grant;
                    executed += 1;
                }
                // Refused rather than executed behind a younger call.
                Err(error) => assert_eq!(error.cause(), "noscript", "{error:?}"),
            }
        }
        assert!(executed >= 1);
    });
}

pub(crate) fn commands_of_one_client_keep_their_order() {
    run(async {
        let server = RedisServer::start();
        // Not connected yet: the order holds from the very first call on. More calls than the line's queue holds.
        let (one, two) = (client(&server), client(&server));
        let calls = (0..200).map(|n| {
            let owner = format!("o{n}");
            let (who, key) = if n % 2 == 0 { (&one, "k") } else { (&two, "l") };
            async move { send(who, vec![acquire(key, &owner), release(key, &owner)]).await }
        });
        let replies = join_all(calls).await;
        for client in 0..2 {
            let mut grants = replies
                .iter()
                .skip(client)
                .step_by(2)
                .map(|reply| granted(&reply.as_ref().unwrap().answers[0]));
            let first = grants.next().unwrap();
            let last = grants.try_fold(first, |last, grant| (grant > last).then_some(grant));
            assert!(last.is_some(), "client {client}");
        }
    });
}

pub(crate) fn a_frozen_node_times_out_promptly_then_fails_at_once_and_comes_back() {
    run(async {
        let server = RedisServer::start();
        let (node, clock) = (brisk(&server), Clock::system());
        settled(&node).await;
        server.freeze();

        let start = clock.now();
        let frozen = send(&node, vec![read("k")]).await;
        let waited = clock.now().since(start);
        assert!(matches!(frozen, Err(NodeError::Timeout(_))), "{frozen:?}");
        assert!(waited >= LIMIT && waited < 5 * LIMIT, "{waited:?}");

        // Known to be down: a hundred calls cost less than one time limit, also while probes hang.
        for _ in 0..3 {
            let start = clock.now();
            for _ in 0..100 {
                let down = send(&node, vec![read("k")]).await;
                assert!(matches!(down, Err(NodeError::Unreachable(_))), "{down:?}");
            }
            let waited = clock.now().since(start);
            assert!(waited < LIMIT, "{waited:?}");
            clock.sleep(Duration::from_millis(300)).await;
        }

        server.thaw();
        let back = until("the thawed node", async || works(&node).await).await;
        assert!(back < Duration::from_millis(1500), "{back:?}");
    });
}

pub(crate) fn a_server_that_is_slow_keeps_its_connections() {
    run(async {
        let server = RedisServer::start();
        // It may take a second to answer then.
        let node = node(&RedisNodeSettings {
            node_timeout: LIMIT * 3,
            ..settings(&server)
        });
        settled(&node).await;
        // Of others than this question.
        let clients = || -> Vec<String> {
            let list = server.raw(&["CLIENT", "LIST"]);
            let ours = list
                .lines()
                .filter(|line| line.contains("id=") && !line.contains("cmd=client"));
            let id = |line: &str| {
                line.split_whitespace()
                    .next()
                    .unwrap_or_default()
                    .to_owned()
            };
            ours.map(id).collect()
        };
        let before = clients();
        assert!(!before.is_empty());
        server.freeze();
        let frozen = send(&node, vec![read("k")]).await;
        assert!(matches!(frozen, Err(NodeError::Timeout(_))), "{frozen:?}");
        server.thaw();
        until("the slow node", async || works(&node).await).await;
        assert_eq!(clients(), before);
    });
}

pub(crate) fn a_node_frozen_from_the_start_delays_nobody() {
    run(async {
        let server = RedisServer::start();
        let (node, clock) = (brisk(&server), Clock::system());
        server.freeze();
        let start = clock.now();
        for _ in 0..100 {
            let down = send(&node, vec![read("k")]).await;
            assert!(matches!(down, Err(NodeError::Unreachable(_))), "{down:?}");
        }
        let waited = clock.now().since(start);
        assert!(waited >= LIMIT && waited < 3 * LIMIT, "{waited:?}");
        server.thaw();
        let back = until("the thawed node", async || works(&node).await).await;
        assert!(back < Duration::from_millis(1500), "{back:?}");
    });
}

pub(crate) fn an_answer_that_waited_while_we_were_stalled_counts() {
    run(async {
        let server = RedisServer::start();
        let node = brisk(&server);
        settled(&node).await;
        #[allow(
            clippy::disallowed_methods,
            reason = "the stall is the fault under test"
        )]
        let stall = async { std::thread::sleep(3 * LIMIT) };
        let (answer, ()) = tokio::join!(send(&node, vec![acquire("k", "a")]), stall);
        granted(&answer.unwrap().answers[0]);
        assert!(works(&node).await);
    });
}

pub(crate) fn a_frozen_node_is_noticed_though_every_caller_gives_up_early() {
    run(async {
        let server = RedisServer::start();
        let (node, clock) = (brisk(&server), Clock::system());
        settled(&node).await;
        server.freeze();
        let noticed = async || {
            let impatient = clock.timeout(LIMIT / 4, send(&node, vec![read("k")])).await;
            matches!(impatient, Ok(Err(NodeError::Unreachable(_))))
        };
        until("the silence to be noticed", noticed).await;
        server.thaw();
    });
}

pub(crate) fn what_waits_in_a_frozen_server_does_nothing_after_its_time() {
    run(async {
        let server = RedisServer::start();
        let node = brisk(&server);
        settled(&node).await;
        let until_then = NodeMs(now(&node).await.0 + 50);
        server.freeze();
        let call = Call {
            not_after: Some(until_then),
            ops: vec![acquire("k", "a")],
        };
        assert!(matches!(node.call(call).await, Err(NodeError::Timeout(_))));
        server.thaw();
        settled(&node).await;
        assert_eq!(view(&node, "k").await.owner, None);
    });
}

pub(crate) fn a_restarted_server_is_found_again() {
    run(async {
        let mut server = RedisServer::start();
        let node = brisk(&server);
        settled(&node).await;
        let before = node.run_id();
        granted(&ask(&node, acquire("k", "a")).await);

        server.kill();
        // The first call may have been on its way; all others know.
        let first = send(&node, vec![read("k")]).await.unwrap_err();
        assert!(
            matches!(first, NodeError::Timeout(_) | NodeError::Unreachable(_)),
            "{first:?}"
        );
        for _ in 0..10 {
            let down = send(&node, vec![read("k")]).await;
            assert!(matches!(down, Err(NodeError::Unreachable(_))), "{down:?}");
        }
        server.restart();
        until("the restarted server", async || works(&node).await).await;
        assert_ne!(node.run_id(), before);
        assert_eq!(view(&node, "k").await.owner, None);
    });
}

pub(crate) fn announcements_survive_a_restart() {
    run(async {
        let mut server = RedisServer::start();
        let mut heard = client(&server).announcements().await.unwrap();
        server.restart();
        let holder = client(&server);
        let clock = Clock::system();
        let told = async || {
            // Each time another lock.
            let key = format!("k{}", now(&holder).await.0);
            ask(&holder, acquire(&key, "a")).await;
            ask(&holder, await_end(&key, "b")).await;
            ask(&holder, release(&key, "a")).await;
            clock
                .timeout(Duration::from_millis(50), heard.recv())
                .await
                .is_ok()
        };
        let mut told = told;
        let start = clock.now();
        while !told().await {
            assert!(
                clock.now().since(start) < Duration::from_secs(5),
                "nothing was heard"
            );
        }
    });
}

/// What was announced before is not heard: those who wait for it look then.
pub(crate) fn a_listener_that_begins_late_says_so() {
    run(async {
        let server = RedisServer::start();
        let late = RedisNodeSettings {
            node_timeout: Duration::from_nanos(1),
            ..settings(&server)
        };
        let mut heard = node(&late).announcements().await.unwrap();
        let news = Clock::system().timeout(PATIENT, heard.recv()).await;
        let news = news.expect("it listens").expect("it goes on");
        assert_eq!(news.key, "");
    });
}

pub(crate) fn a_node_outlives_the_runtime_that_connected_it() {
    let server = RedisServer::start();
    let node = client(&server);
    runtime().block_on(async { granted(&ask(&node, acquire("k", "a")).await) });
    runtime().block_on(async {
        // The connection died with its runtime; another is made on this one.
        until("a new connection", async || works(&node).await).await;
        assert_eq!(view(&node, "k").await.holder.as_deref(), Some("a"));
    });
}

/// Callers go over a connection of their own, which lives where the first of them is.
pub(crate) fn locks_outlive_the_runtime_that_used_them_first() {
    for ends in [true, false] {
        let server = RedisServer::start();
        // Each call has to come through at once, also on a machine that is busy.
        let node_timeout = LIMIT * 10;
        let node: Arc<dyn Node> = Arc::new(node(&RedisNodeSettings {
            node_timeout,
            ..settings(&server)
        }));
        let timing = Timing {
            node_timeout,
            ..Timing::default()
        };
        let locks = Locks::over(vec![node]).timing(timing).start().unwrap();
        let use_it = |runtime: &tokio::runtime::Runtime, key: &str| {
            runtime.block_on(async {
                let lease = locks.lock(key).acquire().await.unwrap();
                assert_eq!(lease.release().await.nodes, 1, "{key}");
            });
        };
        let mut first = Some(runtime());
        first.iter().for_each(|first| use_it(first, "a"));
        if ends {
            // Otherwise it stands still.
            first = None;
        }
        let second = runtime();
        for key in ["b", "c", "d"] {
            use_it(&second, key);
        }
        drop(first);
        use_it(&second, "e");
    }
}
