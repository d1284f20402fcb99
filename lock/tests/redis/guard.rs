//! The restart guard on real servers: whatever loses memory, or brings an old one back, ends the vote.

use std::{sync::Arc, time::Duration};

use watchkeeper_lock::{
    clock::Clock,
    node::{
        Answer, Eligibility, GuardSettings, Node, Op, RestartGuard,
        redis::{RedisNode, RedisNodeSettings},
    },
};

use crate::{
    bench::*,
    it::conformance::admission::{self, admission, admitted, eligibility},
    server::RedisServer,
};

pub(crate) const MODES: [RestartGuard; 2] = [RestartGuard::Call, RestartGuard::Connection];

pub(crate) fn guarded(server: &RedisServer, mode: RestartGuard) -> RedisNode {
    with_config(&settings(server), mode, "one")
}

fn with_config(settings: &RedisNodeSettings, mode: RestartGuard, config: &str) -> RedisNode {
    let config = config.to_owned();
    node(&RedisNodeSettings {
        guard: GuardSettings { mode, config },
        ..settings.clone()
    })
}

/// Asks until the server is found again.
pub(crate) async fn eligibility_again(node: &RedisNode) -> Eligibility {
    until("an answer", async || send(node, vec![]).await.is_ok()).await;
    eligibility(node).await
}

pub(crate) fn every_rule_of_admission() {
    for mode in MODES {
        run(async {
            admission::every_rule(|| {
                let server = RedisServer::start();
                Box::new(move |config| {
                    let mode = match config.starts_with("off") {
                        true => RestartGuard::Off,
                        false => mode,
                    };
                    Arc::new(with_config(&settings(&server), mode, config)) as Arc<dyn Node>
                })
            })
            .await;
        });
    }
}

pub(crate) fn a_server_that_restarts_empty_does_not_vote() {
    for mode in MODES {
        run(async {
            let mut server = RedisServer::start();
            let node = guarded(&server, mode);
            admitted(&node, "n", "one").await;
            granted(&ask(&node, acquire("k", "a")).await);
            server.restart();
            assert_eq!(eligibility_again(&node).await, Eligibility::Unadmitted);
            assert_eq!(ask(&node, acquire("k", "b")).await, Answer::Unadmitted);
            assert_eq!(admission(&node).await.config, None);
        });
    }
}

pub(crate) fn a_flushed_server_does_not_vote() {
    for mode in MODES {
        run(async {
            let server = RedisServer::start();
            let node = guarded(&server, mode);
            admitted(&node, "n", "one").await;
            granted(&ask(&node, acquire("k", "a")).await);
            let before = admission(&node).await;
            server.raw(&["FLUSHALL"]);
            assert_eq!(ask(&node, acquire("k", "b")).await, Answer::Unadmitted);
            let after = admission(&node).await;
            assert_eq!(after.incarnation, before.incarnation, "the same process");
            // Also for a client whose connection has seen the marker, when others have admitted it anew.
            let other = guarded(&server, mode);
            admitted(&other, "m", "one").await;
            granted(&ask(&other, acquire("k", "b")).await);
            until("the new marker", async || {
                eligibility(&node).await.is_admitted()
            })
            .await;
            refused(&ask(&node, acquire("k", "c")).await);
        });
    }
}

pub(crate) fn an_old_snapshot_does_not_vote() {
    for mode in MODES {
        run(async {
            let mut server = RedisServer::start_with(&["--dbfilename", "dump.rdb"]);
            let node = guarded(&server, mode);
            admitted(&node, "n", "one").await;
            granted(&ask(&node, acquire("k", "a")).await);
            let before = admission(&node).await;
            assert_eq!(server.raw(&["SAVE"]), "+OK\r\n");
            ask(&node, release("k", "a")).await;
            granted(&ask(&node, acquire("k", "b")).await);
            server.restart();
            assert_eq!(eligibility_again(&node).await, Eligibility::Unadmitted);
            // The marker has come back with the rest, and is another process's.
            let after = admission(&node).await;
            assert_eq!((after.inc.as_str(), after.admitted), ("n", false));
            assert_ne!(after.incarnation, before.incarnation);
            let seen = view(&node, "k").await;
            assert_eq!((seen.owner.as_deref(), seen.named), (Some("a"), false));
            assert_eq!(ask(&node, acquire("k", "c")).await, Answer::Unadmitted);
        });
    }
}

pub(crate) fn a_promoted_replica_does_not_vote() {
    for mode in MODES {
        run(async {
            let master = RedisServer::start_with(&["--port", &free_port()]);
            let replica = RedisServer::start();
            let port = master.raw(&["CONFIG", "GET", "port"]);
            let port = port.lines().nth(4).unwrap().to_owned();
            replica.raw(&["REPLICAOF", "127.0.0.1", &port]);
            let linked = async |server: &RedisServer| {
                let info = server.raw(&["INFO", "replication"]);
                info.contains("master_link_status:up")
            };
            until("the replica", async || linked(&replica).await).await;
            let node = guarded(&master, mode);
            admitted(&node, "n", "one").await;
            granted(&ask(&node, acquire("k", "a")).await);
            until("the copy", async || {
                replica.raw(&["HEXISTS", "{app}:2:t", "lk"]) == ":1\r\n"
            })
            .await;
            replica.raw(&["REPLICAOF", "NO", "ONE"]);
            let promoted = guarded(&replica, mode);
            assert_eq!(eligibility_again(&promoted).await, Eligibility::Unadmitted);
            assert_eq!(ask(&promoted, acquire("k", "b")).await, Answer::Unadmitted);
            assert_eq!(admission(&promoted).await.inc, "n");
            let goes_on = eligibility(&node).await.is_admitted();
            assert!(goes_on, "its master goes on");
        });
    }
}

pub(crate) fn a_master_that_was_a_replica_for_a_while_does_not_vote() {
    for mode in MODES {
        run(async {
            let server = RedisServer::start();
            let other = RedisServer::start_with(&["--port", &free_port()]);
            let port = other.raw(&["CONFIG", "GET", "port"]);
            let port = port.lines().nth(4).unwrap().to_owned();
            let node = guarded(&server, mode);
            admitted(&node, "n", "one").await;
            server.raw(&["REPLICAOF", "127.0.0.1", &port]);
            server.raw(&["REPLICAOF", "NO", "ONE"]);
            // Same process, same marker or none: what it missed meanwhile is not known.
            let after = guarded(&server, mode);
            assert_eq!(eligibility_again(&after).await, Eligibility::Unadmitted);
        });
    }
}

/// Connections that do not ask would go on to grant during the watch what is forgotten at its end.
pub(crate) fn g1_a_nomination_ends_the_votes_of_connections_that_do_not_ask() {
    run(async {
        let server = RedisServer::start();
        let node = guarded(&server, RestartGuard::Connection);
        admitted(&node, "n", "one").await;
        granted(&ask(&node, acquire("k", "a")).await);
        server.raw(&["REPLICAOF", "127.0.0.1", "1"]);
        server.raw(&["REPLICAOF", "NO", "ONE"]);
        a_moment().await;
        assert!(eligibility(&node).await.is_admitted(), "so far");
        let after = guarded(&server, RestartGuard::Connection);
        let nonce = "m".to_owned();
        ask(&after, Op::Nominate { nonce, over: None }).await;
        assert_eq!(ask(&node, acquire("l", "a")).await, Answer::Unadmitted);
        assert_eq!(eligibility_again(&node).await, Eligibility::Unadmitted);
    });
}

pub(crate) fn a_replica_for_a_while_is_noticed_by_every_call_also_over_a_living_connection() {
    for (mode, votes) in [
        (RestartGuard::Call, false),
        // What this mode gives up, which also shows that the connection lives.
        (RestartGuard::Connection, true),
    ] {
        run(async {
            let server = RedisServer::start();
            let node = guarded(&server, mode);
            admitted(&node, "n", "one").await;
            granted(&ask(&node, acquire("k", "a")).await);
            // Of a master that does not answer nothing is copied: the marker stays.
            server.raw(&["REPLICAOF", "127.0.0.1", "1"]);
            server.raw(&["REPLICAOF", "NO", "ONE"]);
            a_moment().await;
            let is_admitted = eligibility(&node).await.is_admitted();
            assert_eq!(is_admitted, votes, "{mode:?}");
            if mode == RestartGuard::Call {
                assert_eq!(ask(&node, acquire("l", "a")).await, Answer::Unadmitted);
            }
            assert_eq!(admission(&node).await.inc, "n", "the marker is there");
            // A new connection notices it in either mode.
            let after = guarded(&server, mode);
            assert_eq!(eligibility_again(&after).await, Eligibility::Unadmitted);
        });
    }
}

/// A server is asked once in each millisecond what it is.
pub(crate) async fn a_moment() {
    Clock::system().sleep(Duration::from_millis(3)).await;
}

pub(crate) fn free_port() -> String {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap().port().to_string()
}
