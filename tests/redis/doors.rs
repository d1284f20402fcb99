//! Who is let in, and which servers are refused.

use watchkeeper::node::{
    NodeError,
    redis::{RedisNode, RedisNodeSettings},
};

use crate::{bench::*, server::RedisServer};

async fn refusal(node: &RedisNode) -> NodeError {
    send(node, vec![read("k")]).await.unwrap_err()
}

async fn unfit(node: &RedisNode) -> String {
    match refusal(node).await {
        NodeError::Unfit(why) => why,
        other => panic!("not unfit: {other:?}"),
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
            assert!(matches!(error, NodeError::Auth(_)), "{error:?}");
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
        assert!(matches!(error, NodeError::Auth(_)), "{error:?}");

        // Keys of ours, the script's commands and INFO are enough; without a channel nobody is told.
        let rights = "~{app}:* -@all +info +eval +evalsha +script|load +time +get +set +del +pttl +pexpire \
                      +persist +hget +hset +hmget +hexists +zadd +zrem +zrange +zremrangebyscore +publish";
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

        // One that is demoted under a connection says so itself.
        let master = RedisServer::start();
        let node = client(&master);
        granted(&ask(&node, acquire("k", "a")).await);
        master.raw(&["REPLICAOF", "127.0.0.1", "1"]);
        let demoted = send(&node, vec![acquire("other", "a")]).await;
        assert!(matches!(demoted, Err(NodeError::Unfit(_))), "{demoted:?}");
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
