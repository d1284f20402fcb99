//! The same work written by hand: one multiplexed connection per server, all servers asked in parallel, all answers
//! awaited, nothing else done. No token, no record, no deadline, no thread of its own.

use std::sync::Arc;

use deadpool_redis::redis::{
    Client, Cmd, FromRedisValue, Pipeline, Script, Value, aio::MultiplexedConnection, cmd, pipe,
};
use futures_util::future::join_all;

pub(crate) const TTL_MS: u64 = 10_000;
const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
/// Publishes as well.
const HAND_OVER: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) \
                         redis.call('PUBLISH', KEYS[1], ARGV[1]) return 1 end return 0";
/// All of them by one owner.
const EXTEND_MANY: &str = "local kept = 0 for i, key in ipairs(KEYS) do if redis.call('GET', key) == ARGV[1] then \
                           redis.call('PEXPIRE', key, ARGV[2]) kept = kept + 1 end end return kept";

/// Cheap to clone; all clones share the connections.
#[derive(Clone)]
pub(crate) struct ByHand {
    connections: Vec<MultiplexedConnection>,
    scripts: Arc<[Script; 3]>,
}

impl ByHand {
    pub(crate) async fn connect(urls: &[String]) -> Self {
        let sources = [RELEASE, HAND_OVER, EXTEND_MANY];
        let mut connections = Vec::new();
        for url in urls {
            let client = Client::open(url.as_str()).unwrap();
            let mut connection = client.get_multiplexed_async_connection().await.unwrap();
            for source in sources {
                let load = cmd("SCRIPT").arg("LOAD").arg(source).clone();
                load.exec_async(&mut connection).await.unwrap();
            }
            connections.push(connection);
        }
        Self {
            connections,
            scripts: Arc::new(sources.map(Script::new)),
        }
    }

    /// Acquires and releases once.
    pub(crate) async fn cycle(&self, key: &str, owner: &str) -> bool {
        self.acquire(key, owner).await && self.release(key, owner).await
    }

    /// Whether all nodes granted it.
    pub(crate) async fn acquire(&self, key: &str, owner: &str) -> bool {
        let mut set = cmd("SET");
        set.arg(key).arg(owner).arg("NX").arg("PX").arg(TTL_MS);
        let granted: Vec<Option<String>> = self.everywhere(&set).await;
        granted.iter().all(Option::is_some)
    }

    pub(crate) async fn release(&self, key: &str, owner: &str) -> bool {
        self.with_owner(&self.scripts[0], key, owner).await
    }

    /// Releases, and publishes it.
    pub(crate) async fn hand_over(&self, key: &str, owner: &str) -> bool {
        self.with_owner(&self.scripts[1], key, owner).await
    }

    async fn with_owner(&self, script: &Script, key: &str, owner: &str) -> bool {
        let mut call = cmd("EVALSHA");
        call.arg(script.get_hash()).arg(1).arg(key).arg(owner);
        let done: Vec<i64> = self.everywhere(&call).await;
        done.iter().all(|n| *n == 1)
    }

    /// Sets all of these keys in one pipeline; whether all were granted everywhere.
    pub(crate) async fn acquire_many(&self, keys: &[String], owner: &str) -> bool {
        let mut sets = pipe();
        for key in keys {
            sets.cmd("SET")
                .arg(key)
                .arg(owner)
                .arg("NX")
                .arg("PX")
                .arg(TTL_MS);
        }
        let asked = self.connections.iter().map(|connection| {
            let (mut connection, sets): (_, &Pipeline) = (connection.clone(), &sets);
            async move {
                sets.query_async::<Vec<Value>>(&mut connection)
                    .await
                    .unwrap()
            }
        });
        let granted = join_all(asked).await;
        granted
            .iter()
            .flatten()
            .all(|granted| *granted == Value::Okay)
    }

    /// Deletes all of these keys.
    pub(crate) async fn delete_many(&self, keys: &[String]) {
        let mut delete = cmd("DEL");
        delete.arg(keys);
        let _: Vec<i64> = self.everywhere(&delete).await;
    }

    /// Extends all of these keys, `chunk` in a call, all calls and nodes at once; whether all were kept.
    pub(crate) async fn extend_many(&self, keys: &[String], owner: &str, chunk: usize) -> bool {
        let calls = keys.chunks(chunk).map(|keys| {
            let mut call = cmd("EVALSHA");
            call.arg(self.scripts[2].get_hash())
                .arg(keys.len())
                .arg(keys);
            call.arg(owner).arg(TTL_MS);
            async move {
                let kept: Vec<usize> = self.everywhere(&call).await;
                kept.iter().all(|n| *n == keys.len())
            }
        });
        join_all(calls).await.into_iter().all(|kept| kept)
    }

    /// One round trip.
    pub(crate) async fn ping(&self) {
        let _: Vec<String> = self.everywhere(&cmd("PING")).await;
    }

    async fn everywhere<T: FromRedisValue>(&self, call: &Cmd) -> Vec<T> {
        let asked = self.connections.iter().map(|connection| {
            let mut connection = connection.clone();
            async move { call.query_async(&mut connection).await.unwrap() }
        });
        join_all(asked).await
    }
}
