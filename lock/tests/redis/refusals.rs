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
        Answer, Kind, Node, NodeError, Token,
        redis::{RedisNode, RedisNodeSettings},
    },
};

use crate::{bench::*, server::RedisServer};

/// Asked until it refuses for this cause. Each time of another lock: what is granted already is granted again without a word.
async fn refuses(node: &RedisNode, cause: &str) -> NodeError {
    let (last, tries) = (RefCell::new(None), Cell::new(0));
    until(cause, async || {
        tries.set(tries.get() + 1);
        let new = acquire(&format!("new {}", tries.get()), "b");
        let error = send(node, vec![new]).await.err();
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
        for (kind, node) in [("own", client(&server)), ("raw", raw_client(&server))] {
            let key = |what: &str| format!("{what} {kind}");
            for name in ["k", "many", "body", "broken"] {
                granted(&ask(&node, acquire(&key(name), "a")).await);
            }
            granted(&ask(&node, claim(&key("c"), "a")).await);
            let written = write(&key("body"), "a", 1, 1, "left");
            assert_eq!(ask(&node, written).await, Answer::Done);
            server.raw(&["CONFIG", "SET", "maxmemory", "1"]);
            let full = refuses(&node, "oom").await;
            assert!(
                !full.is_down() && full.to_string().contains("maxmemory"),
                "{full}"
            );
            for (name, kind) in [("k", Kind::Lock), ("c", Kind::Claim), ("many", Kind::Lock)] {
                let kept = ask(&node, extend(&key(name), "a", kind, 1, 1)).await;
                assert!(matches!(kept, Answer::Kept { .. }), "{kept:?}");
            }
            // A client that waits is told of the release all the same.
            refused(&ask(&node, await_end(&key("k"), "b")).await);
            let confirmed = confirm(&key("many"), "a", Kind::Lock, 9);
            assert_eq!(ask(&node, confirmed).await, Answer::Done);
            for name in ["k", "body"] {
                assert_eq!(ask(&node, release(&key(name), "a")).await, Answer::Done);
            }
            let many = vec![
                release(&key("many"), "a"),
                release_as(&key("c"), "a", Kind::Claim, RETENTION),
            ];
            send(&node, many).await.unwrap();
            let broken = ask(&node, break_lock(&key("broken"), "a")).await;
            assert!(matches!(broken, Answer::Broken(_)), "{broken:?}");
            let refused = send(&node, vec![claim(&key("new claim"), "b")]).await;
            assert_eq!(refused.unwrap_err().cause(), "oom");
            server.raw(&["CONFIG", "SET", "maxmemory", "0"]);
            for name in ["k", "many", "body"] {
                let seen = view(&node, &key(name)).await;
                assert_eq!((seen.holder, seen.released), (None, true));
            }
            assert_eq!(view(&node, &key("many")).await.token, Token(9));
            assert_eq!(view(&node, &key("body")).await.record.body, "left");
            assert!(view(&node, &key("broken")).await.broken);
            assert_eq!(view(&node, "new 1").await.owner, None);
        }
    });
}

/// Planted by hand under the one name that all memory lies under.
pub(crate) fn a_table_of_another_type_is_refused_by_its_name() {
    run(async {
        let server = RedisServer::start();
        let node = client(&server);
        server.raw(&["SET", "{app}:2:t", "x"]);
        let wrong = refuses(&node, "wrongtype").await;
        let text = wrong.to_string();
        assert!(text.contains("{app}:2:t is not a hash"), "{text}");
        assert!(text.contains("DEL") && wrong.is_down(), "{text}");
        assert_eq!(server.raw(&["GET", "{app}:2:t"]), "$1\r\nx\r\n");
        server.raw(&["DEL", "{app}:2:t"]);
        serves(&node).await;
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
        let (server, settings) = crate::access::smallest();
        let node = node(&settings);
        granted(&ask(&node, acquire("k", "a")).await);
        server.raw(&["ACL", "SETUSER", "watchkeeper", "-hset"]);
        refuses(&node, "noperm").await;
        until("the right by its name", async || {
            matches!(send(&node, vec![read("k")]).await, Err(error) if error.to_string().contains("lacks +hset:"))
        })
        .await;
        server.raw(&["ACL", "SETUSER", "watchkeeper", "+hset"]);
        serves(&node).await;
    });
}

pub(crate) fn a_raw_key_that_the_user_may_not_touch_is_refused_and_the_others_are_not() {
    run(async {
        let (server, settings) = crate::access::smallest();
        let node = node(&RedisNodeSettings {
            raw_keys: true,
            ..settings
        });
        // Keys of ours go by the namespace, these by their own names.
        let more = [
            "ACL",
            "SETUSER",
            "watchkeeper",
            "~mine:*",
            "+get",
            "+getrange",
        ];
        server.raw(&more);
        let lacks = refuses(&node, "noperm").await;
        assert!(lacks.to_string().contains("lacks +set:"), "{lacks}");
        server.raw(&["ACL", "SETUSER", "watchkeeper", "+set"]);
        until("the new rights", async || {
            send(&node, vec![acquire("mine:k", "a")]).await.is_ok()
        })
        .await;
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
