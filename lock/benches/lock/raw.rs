//! The same work written by hand: one multiplexed connection per server, all servers asked in parallel, all answers
//! awaited, nothing else done. No token, no record, no deadline, no thread of its own. And, to tell the price of a promise
//! from that of our code, the least that keeps a token and a record of the holder.

use std::{sync::Arc, time::Duration};

use deadpool_redis::redis::{
    AsyncConnectionConfig, Client, Cmd, FromRedisValue, Pipeline, Script, Value,
    aio::MultiplexedConnection, cmd, pipe,
};
use futures_util::future::join_all;

pub(crate) const TTL_MS: u64 = 10_000;
/// On a busy machine a server may stand still for longer than the client's half second.
const PATIENCE: Duration = Duration::from_secs(20);
const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
/// Publishes as well.
const HAND_OVER: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) \
                         redis.call('PUBLISH', KEYS[1], ARGV[1]) return 1 end return 0";
/// The least with what Redlock lacks: a token above every earlier one, and a record of its holder that outlives the key.
const REMEMBER: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
                        local token = redis.call('HINCRBY', KEYS[3], 'counter', 1) \
                        redis.call('HSET', KEYS[2], 'owner', ARGV[1], 'ttl', ARGV[2], 'counter', token, 'released', '0') \
                        redis.call('PERSIST', KEYS[2]) return token end \
                        return redis.call('HMGET', KEYS[2], 'owner', 'ttl', 'released')";
/// Its release, told to the waiters; the record is kept for a while.
const FORGET: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end \
                      if redis.call('HGET', KEYS[2], 'owner') == ARGV[1] then \
                      redis.call('HSET', KEYS[2], 'released', '1') redis.call('PEXPIRE', KEYS[2], ARGV[2]) end \
                      redis.call('PUBLISH', KEYS[3], ARGV[1]) return 1";
/// Keys of one owner with the least that a claim has besides: a token for all of them, and a place in a list.
const CLAIM_MANY: &str = "local time = redis.call('TIME') local ends = time[1] * 1000 + ARGV[2] local got, list = 0, {} \
                          for i = 4, #KEYS do if redis.call('SET', KEYS[i], ARGV[1], 'NX', 'PX', ARGV[2]) then \
                          list[2 * got + 1] = ends list[2 * got + 2] = KEYS[i] got = got + 1 end end \
                          redis.call('HSET', KEYS[2], 'grant', redis.call('HINCRBY', KEYS[1], 'counter', 1)) \
                          redis.call('PEXPIRE', KEYS[2], ARGV[2]) \
                          redis.call('ZADD', KEYS[3], unpack(list)) return got";
/// All of them by one owner.
const EXTEND_MANY: &str = "local kept = 0 for i, key in ipairs(KEYS) do if redis.call('GET', key) == ARGV[1] then \
                           redis.call('PEXPIRE', key, ARGV[2]) kept = kept + 1 end end return kept";

/// The same with the round written into each one's record, which must still name the owner.
const REMEMBER_MANY: &str = "local kept = 0 for i, key in ipairs(KEYS) do local record = 'record/' .. key \
                             local r = redis.call('HMGET', record, 'owner', 'seq', 'released') \
                             if redis.call('GET', key) == ARGV[1] and (r[1] or ARGV[1]) == ARGV[1] and r[3] ~= '1' and \
                             tonumber(r[2] or 0) < tonumber(ARGV[3]) then redis.call('PEXPIRE', key, ARGV[2]) \
                             redis.call('HSET', record, 'owner', ARGV[1], 'seq', ARGV[3]) kept = kept + 1 end end return kept";

/// A connection to one server.
pub(crate) async fn connect(url: &str) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let client = Client::open(url).unwrap();
    let connected = client.get_multiplexed_async_connection_with_config(&config);
    connected.await.unwrap()
}

/// Cheap to clone; all clones share the connections.
#[derive(Clone)]
pub(crate) struct ByHand {
    connections: Vec<MultiplexedConnection>,
    scripts: Arc<[Script; 7]>,
}

impl ByHand {
    pub(crate) async fn connect(urls: &[String]) -> Self {
        let sources = [
            RELEASE,
            HAND_OVER,
            EXTEND_MANY,
            REMEMBER,
            FORGET,
            REMEMBER_MANY,
            CLAIM_MANY,
        ];
        let mut connections = Vec::new();
        for url in urls {
            let mut connection = connect(url).await;
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

    /// The same with a token and a record, one script each.
    pub(crate) async fn cycle_with_token(&self, key: &str, owner: &str) -> bool {
        let granted: Vec<u64> = self.remembered(3, key, owner).await;
        let told: Vec<u64> = self.remembered(4, key, owner).await;
        granted.iter().chain(&told).all(|n| *n > 0)
    }

    async fn remembered<T: FromRedisValue>(&self, script: usize, key: &str, owner: &str) -> Vec<T> {
        let mut call = cmd("EVALSHA");
        call.arg(self.scripts[script].get_hash()).arg(3);
        call.arg(key).arg(format!("record/{key}")).arg("node");
        call.arg(owner).arg(TTL_MS);
        self.everywhere(&call).await
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

    /// The same by a script that also draws a token and lists the keys; they must be free.
    pub(crate) async fn claim_many(&self, keys: &[String], owner: &str) -> bool {
        let mut call = cmd("EVALSHA");
        call.arg(self.scripts[6].get_hash()).arg(keys.len() + 3);
        call.arg("node").arg(format!("owner/{owner}")).arg("list");
        call.arg(keys).arg(owner).arg(TTL_MS);
        let claimed: Vec<usize> = self.everywhere(&call).await;
        claimed.iter().all(|n| *n == keys.len())
    }

    /// Deletes all of these keys, and takes them out of the list.
    pub(crate) async fn delete_many(&self, keys: &[String]) {
        let unlist = cmd("ZREM").arg("list").arg(keys).clone();
        let _: Vec<i64> = self.everywhere(&unlist).await;
        let mut delete = cmd("DEL");
        delete.arg(keys);
        let _: Vec<i64> = self.everywhere(&delete).await;
    }

    /// Extends all of these keys, `chunk` in a call, all calls and nodes at once; whether all were kept.
    pub(crate) async fn extend_many(&self, keys: &[String], owner: &str, chunk: usize) -> bool {
        self.many(2, keys, owner, chunk, 0).await
    }

    /// The same, each with its record.
    pub(crate) async fn extend_many_records(
        &self,
        keys: &[String],
        owner: &str,
        chunk: usize,
        seq: u64,
    ) -> bool {
        self.many(5, keys, owner, chunk, seq).await
    }

    async fn many(
        &self,
        script: usize,
        keys: &[String],
        owner: &str,
        chunk: usize,
        seq: u64,
    ) -> bool {
        let calls = keys.chunks(chunk).map(|keys| {
            let mut call = cmd("EVALSHA");
            call.arg(self.scripts[script].get_hash())
                .arg(keys.len())
                .arg(keys);
            call.arg(owner).arg(TTL_MS).arg(seq);
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
