//! What servers say when they do not serve: each refusal on a real server, by its own cause.

use std::{
    cell::{Cell, RefCell},
    io::Write,
    os::unix::net::UnixStream,
    time::Duration,
};

use tokio::{io::AsyncReadExt, net::TcpListener};
use watchkeeper_lock::{
    clock::Clock,
    node::{
        Answer, Kind, Node, NodeError,
        redis::{RedisNode, RedisNodeSettings},
    },
};

use crate::{bench::*, server::RedisServer};

/// Asked until it refuses for this cause.
async fn refuses(node: &RedisNode, cause: &str) -> NodeError {
    let last = RefCell::new(None);
    until(cause, async || {
        let error = send(node, vec![acquire("new", "b")]).await.err();
        let found = error.as_ref().is_some_and(|error| error.cause() == cause);
        last.replace(error);
        found
    })
    .await;
    last.into_inner().unwrap()
}

async fn serves(node: &RedisNode) -> Duration {
    until("the server to serve", async || {
        send(node, vec![acquire("again", "c")]).await.is_ok()
    })
    .await
}

pub(crate) fn a_full_memory_still_extends_and_releases() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        granted(&ask(&node, acquire("k", "a")).await);
        granted(&ask(&node, claim("c", "a")).await);
        server.raw(&["CONFIG", "SET", "maxmemory", "1"]);
        let full = refuses(&node, "oom").await;
        assert!(
            !full.is_down() && full.to_string().contains("maxmemory"),
            "{full}"
        );
        for kind in [Kind::Lock, Kind::Claim] {
            let key = if kind == Kind::Lock { "k" } else { "c" };
            let kept = ask(&node, extend(key, "a", kind, 1, 1)).await;
            assert!(matches!(kept, Answer::Kept { .. }), "{kept:?}");
        }
        assert_eq!(ask(&node, release("k", "a")).await, Answer::Done);
        server.raw(&["CONFIG", "SET", "maxmemory", "0"]);
        let seen = view(&node, "k").await;
        assert_eq!((seen.holder, seen.released), (None, true));
        assert_eq!(view(&node, "new").await.owner, None);
    });
}

pub(crate) fn a_server_that_cannot_save_refuses_as_misconf() {
    run(async {
        let server = RedisServer::start_with(&["--dbfilename", "taken.rdb"]);
        let node = client(&server);
        granted(&ask(&node, acquire("k", "a")).await);
        // The name of a directory: renaming a finished file onto it fails.
        std::fs::create_dir(server.folder().join("taken.rdb")).unwrap();
        std::fs::write(server.folder().join("taken.rdb/file"), "").unwrap();
        server.raw(&["CONFIG", "SET", "save", "3600 1000000"]);
        server.raw(&["BGSAVE"]);
        let stuck = refuses(&node, "misconf").await;
        assert!(
            !stuck.is_down() && stuck.to_string().contains("disk"),
            "{stuck}"
        );
        server.raw(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
        serves(&node).await;
    });
}

pub(crate) fn somebody_elses_script_makes_it_busy_and_nothing_of_ours_is_killed() {
    run(async {
        let server = RedisServer::start_with(&["--busy-reply-threshold", "20"]);
        let node = node(&RedisNodeSettings {
            node_timeout: Duration::from_millis(200),
            ..settings(&server)
        });
        granted(&ask(&node, acquire("k", "a")).await);
        let mut stranger = UnixStream::connect(server.socket()).unwrap();
        let endless = "while true do end";
        write!(
            stranger,
            "*3\r\n$4\r\nEVAL\r\n${}\r\n{endless}\r\n$1\r\n0\r\n",
            endless.len()
        )
        .unwrap();
        let busy = refuses(&node, "busy").await;
        assert!(busy.is_down(), "{busy}");
        assert!(server.raw(&["SCRIPT", "KILL"]).starts_with("+OK"));
        let back = serves(&node).await;
        assert!(back < Duration::from_secs(1), "{back:?}");
        assert_eq!(view(&node, "k").await.holder.as_deref(), Some("a"));
    });
}

pub(crate) fn a_loading_server_is_waited_for() {
    run(async {
        let mut server = RedisServer::start_with(&[
            "--dbfilename",
            "full.rdb",
            "--key-load-delay",
            "2000",
            "--loading-process-events-interval-bytes",
            "1024",
        ]);
        let fill = "for i = 1, 1000 do redis.call('SET', 'filler:' .. i, string.rep('x', 100)) end";
        server.raw(&["EVAL", fill, "0"]);
        server.raw(&["SAVE"]);
        server.restart();
        let node = client(&server);
        let loading = refuses(&node, "loading").await;
        assert!(
            loading.is_down() && loading.to_string().contains("wait"),
            "{loading}"
        );
        serves(&node).await;
    });
}

pub(crate) fn a_master_that_became_a_replica_is_looked_at_anew() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        granted(&ask(&node, acquire("k", "a")).await);
        server.raw(&["REPLICAOF", "127.0.0.1", "1"]);
        let demoted = refuses(&node, "readonly").await;
        assert!(
            demoted.is_down() && demoted.to_string().contains("master"),
            "{demoted}"
        );
        // It is not asked for so much as a look: what it knows is old.
        until("the new look", async || {
            matches!(send(&node, vec![read("k")]).await, Err(error) if error.to_string().contains("role"))
        })
        .await;
        server.raw(&["REPLICAOF", "NO", "ONE"]);
        let back = serves(&node).await;
        assert!(back < Duration::from_secs(1), "{back:?}");
    });
}

pub(crate) fn rights_taken_away_are_missed_by_name_and_found_again() {
    run(async {
        let (server, settings) = crate::doors::smallest();
        let node = node(&settings);
        granted(&ask(&node, acquire("k", "a")).await);
        server.raw(&["ACL", "SETUSER", "watchkeeper", "-set"]);
        refuses(&node, "noperm").await;
        until("the right by its name", async || {
            matches!(send(&node, vec![read("k")]).await, Err(error) if error.to_string().contains("lacks +set:"))
        })
        .await;
        server.raw(&["ACL", "SETUSER", "watchkeeper", "+set"]);
        serves(&node).await;
    });
}

pub(crate) fn a_raw_key_that_the_user_may_not_touch_is_refused_and_the_others_are_not() {
    run(async {
        let (server, settings) = crate::doors::smallest();
        let node = node(&RedisNodeSettings {
            raw_keys: true,
            ..settings
        });
        // Keys of ours go by the namespace, these by their own names.
        server.raw(&["ACL", "SETUSER", "watchkeeper", "~mine:*"]);
        granted(&ask(&node, acquire("mine:k", "a")).await);
        let refused = send(&node, vec![acquire("theirs:k", "a")])
            .await
            .unwrap_err();
        assert_eq!(refused.cause(), "nokey", "{refused}");
        assert!(
            !refused.is_down() && refused.to_string().contains("~PATTERN"),
            "{refused}"
        );
        assert_eq!(server.raw(&["EXISTS", "theirs:k"]), ":0\r\n");
        granted(&ask(&node, acquire("mine:l", "a")).await);
    });
}

pub(crate) fn a_server_that_wants_replicas_refuses_until_it_wants_none() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        granted(&ask(&node, acquire("k", "a")).await);
        server.raw(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
        let wants = refuses(&node, "noreplicas").await;
        assert!(
            wants.to_string().contains("min-replicas-to-write 0"),
            "{wants}"
        );
        server.raw(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
        serves(&node).await;
        assert_eq!(view(&node, "k").await.holder.as_deref(), Some("a"));
    });
}

pub(crate) fn a_password_that_comes_and_goes_is_named() {
    run(async {
        let server = RedisServer::start_with(&["--requirepass", "word"]);
        let none = client(&server);
        assert!(refuses(&none, "noauth").await.is_down());
        let wrong = node(&RedisNodeSettings {
            password: Some("other".into()),
            ..settings(&server)
        });
        let error = refuses(&wrong, "wrongpass").await;
        assert!(
            error.to_string().contains("locks.redis.password"),
            "{error}"
        );
    });
}

pub(crate) fn a_cluster_without_slots_is_down() {
    run(async {
        let server = RedisServer::start_with(&["--cluster-enabled", "yes", "--port", "0"]);
        let node = client(&server);
        let down = refuses(&node, "clusterdown").await;
        assert!(
            down.is_down() && down.to_string().contains("without cluster mode"),
            "{down}"
        );
    });
}

pub(crate) fn a_server_that_hangs_up_is_not_stormed() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let server = RedisServer::start();
        let node = node(&RedisNodeSettings {
            url: url.into(),
            ..settings(&server)
        });
        let clock = Clock::system();
        let end = clock.now() + Duration::from_secs(3);
        let asking = async {
            // Subscribing and calling, as hard as one can.
            let _announcements = node.announcements().await;
            while clock.now() < end {
                _ = send(&node, vec![read("k")]).await;
                clock.sleep(Duration::from_millis(1)).await;
            }
        };
        let came = Cell::new(0_u32);
        let hanging_up = async {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                came.set(came.get() + 1);
                // Half of them get a word in first.
                if came.get().is_multiple_of(2) {
                    _ = stream.read(&mut [0; 16]).await;
                }
            }
        };
        tokio::select! {
            () = asking => {}
            () = hanging_up => {}
        }
        let came = came.get();
        println!("{came} connections in 3 s");
        assert!(came > 4 && came <= 40, "{came} connections in 3 s");
    });
}
