//! The same work written by hand: one multiplexed connection per server, all servers asked in parallel, all answers
//! awaited, nothing else done. No token, no record, no deadline, no thread of its own.

use deadpool_redis::redis::{Client, Cmd, FromRedisValue, Script, aio::MultiplexedConnection, cmd};
use futures_util::future::join_all;

use crate::scene::Scene;

const KEY: &str = "by-hand";
const TTL_MS: u64 = 10_000;
const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
const EXTEND: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                      return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0";

pub(crate) struct ByHand {
    connections: Vec<MultiplexedConnection>,
    release: Script,
    extend: Script,
}

impl ByHand {
    pub(crate) async fn connect(scene: &Scene) -> Self {
        let mut connections = Vec::new();
        for server in &scene.servers {
            let client = Client::open(server.url()).unwrap();
            let mut connection = client.get_multiplexed_async_connection().await.unwrap();
            for source in [RELEASE, EXTEND] {
                let load = cmd("SCRIPT").arg("LOAD").arg(source).clone();
                load.exec_async(&mut connection).await.unwrap();
            }
            connections.push(connection);
        }
        Self {
            connections,
            release: Script::new(RELEASE),
            extend: Script::new(EXTEND),
        }
    }

    pub(crate) async fn acquire(&self, owner: &str) {
        let mut set = cmd("SET");
        set.arg(KEY).arg(owner).arg("NX").arg("PX").arg(TTL_MS);
        let granted: Vec<Option<String>> = self.everywhere(&set).await;
        assert!(granted.iter().all(Option::is_some), "{granted:?}");
    }

    pub(crate) async fn extend(&self, owner: &str) {
        let mut call = evalsha(&self.extend);
        call.arg(owner).arg(TTL_MS);
        let kept: Vec<i64> = self.everywhere(&call).await;
        assert!(kept.iter().all(|n| *n == 1), "{kept:?}");
    }

    pub(crate) async fn release(&self, owner: &str) {
        let mut call = evalsha(&self.release);
        call.arg(owner);
        let deleted: Vec<i64> = self.everywhere(&call).await;
        assert!(deleted.iter().all(|n| *n == 1), "{deleted:?}");
    }

    async fn everywhere<T: FromRedisValue>(&self, call: &Cmd) -> Vec<T> {
        let asked = self.connections.iter().map(|connection| {
            let mut connection = connection.clone();
            async move { call.query_async(&mut connection).await.unwrap() }
        });
        join_all(asked).await
    }
}

fn evalsha(script: &Script) -> Cmd {
    let mut call = cmd("EVALSHA");
    call.arg(script.get_hash()).arg(1).arg(KEY);
    call
}
