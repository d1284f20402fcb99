//! What is left on a server of names that were used once: keepers sweep it.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use watchkeeper_lock::{
    Locks,
    clock::Clock,
    lock::Timing,
    node::{Expiry, Node},
};

use crate::{
    bench::{client, run},
    server::RedisServer,
};

const TABLE: &str = "{app}:2:t";

/// As long as a release stays marked, and its body is kept.
const SOON: Duration = Duration::from_millis(500);

/// The first walk of a keeper comes at a random time within half a minute: of so many the first comes soon.
const KEEPERS: usize = 16;

/// The longest that is waited for a walk, and for each name in it: a busy machine sweeps a thousand in a second.
const PATIENCE: Duration = Duration::from_secs(90);
const OF_A_NAME: Duration = Duration::from_millis(1);

const USED: &str = "for _ = 1, 100000 do redis.call('HGET', KEYS[1], 'm') end";

/// Cycles at one time.
const AT_ONCE: usize = 64;

pub(crate) fn names_that_were_used_once_take_no_memory() {
    run(used_once(6_000));
}

/// By hand: `cargo test --release --test redis a_million -- --ignored --nocapture`.
pub(crate) fn a_million_names_that_were_used_once_take_no_memory() {
    run(used_once(1_000_000));
}

async fn used_once(names: usize) {
    let server = RedisServer::start();
    let clock = Clock::system();
    // What the first clients leave behind for good, such as scripts, is no matter of names.
    cycles(&server, "before", 100).await;
    sweep(&server).await;
    let before = State::of(&server).await;

    let began = clock.now();
    let most = cycles(&server, "name", names).await;
    let cycled = clock.now().since(began);
    sweep(&server).await;
    let all = clock.now().since(began);
    // A hash that has lost its fields moves into a smaller table a step with each command on it: the next clients would do it.
    let steps = "for i = 1, 200000 do redis.call('HGET', KEYS[1], 'none') end";
    server.raw(&["EVAL", steps, "1", TABLE]);
    let after = State::of(&server).await;
    println!(
        "{names} names, used once in {cycled:?}, swept after {all:?}: {before:?}, at most {most:?}, then {after:?}"
    );
    assert_eq!(after.rows, before.rows);
    let (grown, left) = (
        most.bytes.saturating_sub(before.bytes),
        after.bytes.saturating_sub(before.bytes),
    );
    assert!(
        most.rows > names / 20,
        "nothing shows that names were there"
    );
    // A table that was left large and nearly empty is made smaller by the next field that goes: one or two bytes a name till then.
    assert!(
        left < 150_000 + 2 * names && left < grown / 8,
        "{left} of {grown}"
    );
}

/// What a server holds.
#[derive(Clone, Copy, Debug)]
struct State {
    rows: usize,
    bytes: usize,
}

impl State {
    /// When its clients have gone: each has buffers.
    async fn of(server: &RedisServer) -> Self {
        let clock = Clock::system();
        let alone = || number(server, "clients", "connected_clients") == 1;
        for _ in 0..200 {
            if alone() {
                break;
            }
            clock.sleep(Duration::from_millis(20)).await;
        }
        assert!(alone(), "the clients have gone");
        // A hash that was larger moves to its smaller table step by step, as it is used.
        server.raw(&["EVAL", USED, "1", TABLE]);
        Self::now(server)
    }

    fn now(server: &RedisServer) -> Self {
        let rows = server.raw(&["HLEN", TABLE]);
        Self {
            rows: rows[1..].trim().parse().unwrap(),
            bytes: number(server, "memory", "used_memory"),
        }
    }
}

fn number(server: &RedisServer, section: &str, field: &str) -> usize {
    let info = server.raw(&["INFO", section]);
    let found = info
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    found.unwrap().trim().parse().unwrap()
}

fn locks(server: &RedisServer) -> Locks {
    let node: Arc<dyn Node> = Arc::new(client(server));
    let timing = Timing {
        ttl: SOON,
        max_ttl: SOON,
        retention: SOON,
        node_timeout: SOON,
        ..Timing::default()
    };
    let locks = Locks::over(vec![node]).timing(timing);
    locks.expiry(Expiry::Observed).start().unwrap()
}

/// Acquires and releases so many locks of different names. The most that the server held meanwhile.
async fn cycles(server: &RedisServer, family: &str, names: usize) -> State {
    let locks = locks(server);
    let cycle = |n: usize| {
        let lock = locks.lock(&format!("{family}/{n}")).wait(PATIENCE);
        async move {
            lock.acquire().await.unwrap().release().await;
            n
        }
    };
    let mut most = State::now(server);
    let mut done = stream::iter(0..names).map(cycle).buffer_unordered(AT_ONCE);
    while let Some(n) = done.next().await {
        if n % 1_000 == 999 {
            let now = State::now(server);
            most = State {
                rows: most.rows.max(now.rows),
                bytes: most.bytes.max(now.bytes),
            };
        }
    }
    drop(done);
    locks.settle().await;
    most
}

/// By processes that come when all is over.
async fn sweep(server: &RedisServer) {
    let clock = Clock::system();
    clock.sleep(SOON * 2).await;
    // That a process swept which has gone since is known for minutes, for as long as it might only have been resting.
    server.raw(&["DEL", "{app}:2:doc:keeper/sweeper", "{app}:2:docs:keeper/"]);
    let keepers: Vec<Locks> = (0..KEEPERS).map(|_| locks(server)).collect();
    let names = u32::try_from(State::now(server).rows).unwrap();
    let limit = clock.now() + PATIENCE + OF_A_NAME * names;
    while names_are_left(server) {
        assert!(clock.now() < limit, "not swept: {:?}", State::now(server));
        clock.sleep(Duration::from_millis(20)).await;
    }
    drop(keepers);
}

/// Beside what the server says of itself. All fields are looked at when they are few.
fn names_are_left(server: &RedisServer) -> bool {
    if State::now(server).rows > 100 {
        return true;
    }
    let fields = server.raw(&["HKEYS", TABLE]);
    fields.lines().any(|field| field.starts_with(['l', 'e']))
}
