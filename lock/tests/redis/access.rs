//! Who is let in, and which servers are refused.

use std::{os::unix::fs::symlink, path::Path, sync::Arc, time::Duration};

use watchkeeper_lock::{
    Locks,
    node::{
        Answer, Node, NodeError,
        redis::{RedisNode, RedisNodeSettings},
    },
};

use crate::{bench::*, server::RedisServer};

async fn refusal(node: &RedisNode) -> NodeError {
    send(node, vec![read("k")]).await.unwrap_err()
}

async fn unfit(node: &RedisNode) -> String {
    match refusal(node).await {
        refused @ NodeError::Refused { .. } => refused.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

pub(crate) fn a_wrong_password_is_an_access_error_without_the_secret() {
    run(async {
        let server = RedisServer::start_with(&["--requirepass", "right-word"]);
        let none = settings(&server);
        let wrong = RedisNodeSettings {
            password: Some("wrong-word".into()),
            ..none.clone()
        };
        let wrong_in_url = RedisNodeSettings {
            url: format!("{}?pass=wrong-word", server.url()).into(),
            ..none.clone()
        };
        for settings in [&none, &wrong, &wrong_in_url] {
            let error = refusal(&node(settings)).await;
            assert!(matches!(error.cause(), "noauth" | "wrongpass"), "{error:?}");
            assert!(!format!("{error} {error:?}").contains("-word"), "{error}");
        }
        let right = RedisNodeSettings {
            password: Some("right-word".into()),
            ..none
        };
        send(&node(&right), vec![read("k")]).await.unwrap();
    });
}

pub(crate) fn a_user_without_rights_is_an_access_error() {
    run(async {
        let server = RedisServer::start();
        let user = |name: &str| RedisNodeSettings {
            username: Some(name.into()),
            password: Some("pw".into()),
            ..settings(&server)
        };
        server.raw(&[
            "ACL",
            "SETUSER",
            "narrow",
            "on",
            ">pw",
            "~{other}*",
            "+@all",
        ]);
        let error = refusal(&node(&user("narrow"))).await;
        assert!(error.to_string().contains("lacks ~{app}:2:*"), "{error}");

        // Keys of ours, the script's commands and INFO are enough; without a channel no waiter is told.
        let rights = "~{app}:* -@all +info +eval +evalsha +script|load +time +del +pttl +pexpire \
                      +persist +hget +hset +hmget +hdel +hscan +hstrlen +zadd +zrem +zrange +zrank +zscore +zrangebyscore +zscan +publish";
        let mut words = vec!["ACL", "SETUSER", "lean", "on", ">pw"];
        words.extend(rights.split_whitespace());
        assert_eq!(server.raw(&words), "+OK\r\n");
        let lean = node(&user("lean"));
        let ops = vec![
            acquire("k", "a"),
            write("k", "a", 1, 1, "x"),
            release("k", "a"),
        ];
        send(&lean, ops).await.unwrap();
    });
}

pub(crate) fn database_numbers_are_kept_apart() {
    run(async {
        let server = RedisServer::start();
        let second = RedisNodeSettings {
            url: format!("{}?db=2", server.url()).into(),
            ..settings(&server)
        };
        granted(&ask(&client(&server), acquire("k", "a")).await);
        granted(&ask(&node(&second), acquire("k", "b")).await);
    });
}

pub(crate) fn a_replica_is_refused() {
    run(async {
        let server = RedisServer::start_with(&["--replicaof", "127.0.0.1", "1"]);
        assert!(unfit(&client(&server)).await.contains("master"));
    });
}

pub(crate) fn an_evicting_server_is_refused() {
    run(async {
        let evicting = ["--maxmemory", "10mb", "--maxmemory-policy", "allkeys-lru"];
        let server = RedisServer::start_with(&evicting);
        assert!(unfit(&client(&server)).await.contains("noeviction"));
    });
}

pub(crate) fn run_ids_tell_servers_apart() {
    run(async {
        let (one, other) = (RedisServer::start(), RedisServer::start());
        let (a, b, c) = (client(&one), client(&one), client(&other));
        assert_eq!(a.run_id(), None);
        let (a_id, b_id) = (a.identity().await.unwrap(), b.identity().await.unwrap());
        assert_eq!(a_id, b_id);
        assert_eq!(a.run_id(), Some(a_id.run_id.clone()));
        assert_ne!(a_id.run_id, c.identity().await.unwrap().run_id);
        assert!(!a_id.append_only);
    });
}

/// Two of three addresses lead to one server for a while: its vote counts once.
pub(crate) fn an_address_that_leads_to_the_server_of_another_node_is_refused() {
    run(async {
        let servers = [0; 3].map(|_| RedisServer::start());
        let way = servers[1].folder().join("way");
        symlink(servers[1].socket(), &way).unwrap();
        let at = |socket: &Path| -> Arc<dyn Node> {
            Arc::new(node(&RedisNodeSettings {
                url: format!("unix://{}", socket.display()).into(),
                node_timeout: Duration::from_millis(500),
                ..settings(&servers[0])
            }))
        };
        let nodes = vec![at(&servers[0].socket()), at(&way), at(&servers[2].socket())];
        let locks = Locks::over(nodes).start().unwrap();
        let acquire = async |name| locks.lock(name).ttl(TTL).acquire().await;
        let patient = locks.lock("before").ttl(TTL).wait(PATIENT);
        let lease = patient.acquire().await.unwrap();
        lease.release().await;
        std::fs::remove_file(&way).unwrap();
        symlink(servers[0].socket(), &way).unwrap();
        servers[1].raw(&["CLIENT", "KILL", "TYPE", "normal"]);
        // The third is frozen, so that two votes of one server would be a majority.
        servers[2].freeze();
        let named = async || {
            let lost = acquire("after").await;
            assert!(lost.is_err(), "one vote is no majority of three");
            let trouble = locks.nodes().await.unwrap().swap_remove(1).trouble;
            trouble.is_some_and(|trouble| trouble.cause() == "twin")
        };
        until("the finding", named).await;
        std::fs::remove_file(&way).unwrap();
        symlink(servers[1].socket(), &way).unwrap();
        let again = async || acquire("again").await.is_ok();
        until("the server of its own", again).await;
    });
}

/// What the book says, word by word.
fn smallest_user() -> Vec<String> {
    let page = include_str!("../../../docs/operations/redis.md");
    let line = page
        .split("ACL SETUSER watchkeeper ")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap();
    let line = line.replace('\\', " ").replace("{watchkeeper}", "{app}");
    line.split_whitespace().map(str::to_owned).collect()
}

/// A server where only this user gets in.
fn server_for(rights: &[String]) -> RedisServer {
    let server = RedisServer::start();
    let mut words = vec!["ACL", "SETUSER", "watchkeeper"];
    words.extend(rights.iter().map(String::as_str));
    assert_eq!(server.raw(&words), "+OK\r\n");
    server
}

fn user(server: &RedisServer) -> RedisNodeSettings {
    RedisNodeSettings {
        username: Some("watchkeeper".into()),
        password: Some("PASSWORD".into()),
        ..settings(server)
    }
}

/// A server and the settings of a user with exactly the documented rights.
pub(crate) fn smallest() -> (RedisServer, RedisNodeSettings) {
    let server = server_for(&smallest_user());
    let settings = user(&server);
    (server, settings)
}

pub(crate) fn the_documented_user_hears_of_releases() {
    run(async {
        let (_server, settings) = smallest();
        let holder = node(&settings);
        let mut heard = node(&settings).announcements().await.unwrap();
        granted(&ask(&holder, acquire("k", "a")).await);
        refused(&ask(&holder, await_end("k", "b")).await);
        ask(&holder, release("k", "a")).await;
        assert_eq!(heard.recv().await.unwrap().key, "k");
    });
}

pub(crate) fn each_right_that_is_missing_is_named_with_the_remedy() {
    run(async {
        let rights = smallest_user();
        let spare = ["+ping", "+subscribe", "+publish", "+script|load"];
        let needed = rights
            .iter()
            .filter(|right| right.starts_with('+') && !spare.contains(&right.as_str()));
        let mut tried = 0;
        for missing in needed {
            let mut fewer = rights.clone();
            fewer.retain(|right| right != missing);
            let server = server_for(&fewer);
            let error = refusal(&node(&user(&server))).await;
            let text = error.to_string();
            assert_eq!(error.cause(), "noperm", "{missing}: {error:?}");
            assert!(
                text.contains(&format!("lacks {missing}:")),
                "{missing}: {text}"
            );
            assert!(text.contains("ACL SETUSER"), "{text}");
            tried += 1;
        }
        assert!(tried > 15, "{tried}");
        for missing in spare.iter().chain(&["&{app}:2:ch"]) {
            let mut fewer = rights.clone();
            fewer.retain(|right| right != missing);
            assert!(fewer.len() < rights.len(), "{missing}");
            let server = server_for(&fewer);
            let node = node(&user(&server));
            granted(&ask(&node, acquire("k", "a")).await);
            refused(&ask(&node, await_end("k", "b")).await);
            assert_eq!(ask(&node, release("k", "a")).await, Answer::Done);
        }
    });
}
