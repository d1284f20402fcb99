//! What is a new life of a server's memory, and what is not, event by event. The table of these stands in the book, under "The
//! restart guard"; `guard` has what the vote itself goes by.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use watchkeeper_lock::{
    clock::Clock,
    node::{
        Answer, Eligibility, GuardSettings, Kind, Op, RestartGuard,
        redis::{RedisNode, RedisNodeSettings},
    },
};

use crate::{
    bench::*,
    guard::{MODES, a_moment, eligibility_again, free_port, guarded},
    it::conformance::admission::{admission, admitted, eligibility},
    server::{RedisServer, binary},
};

/// A server that was admitted, and a client of each kind that has seen it.
struct Scene {
    server: RedisServer,
    clients: Vec<(RestartGuard, RedisNode)>,
}

// === impl Scene ===

impl Scene {
    async fn on(server: RedisServer) -> Self {
        let clients: Vec<_> = MODES
            .into_iter()
            .map(|mode| (mode, guarded(&server, mode)))
            .collect();
        admitted(&clients[0].1, "n", "one").await;
        for (_, client) in &clients {
            assert!(eligibility(client).await.is_admitted());
        }
        granted(&ask(&clients[0].1, acquire("before", "a")).await);
        Self { server, clients }
    }

    async fn fresh() -> Self {
        Self::on(RedisServer::start_with(&["--port", &free_port()])).await
    }

    /// Neither those who were there nor those who come take it for a loss.
    async fn goes_on(&self, why: &str) {
        a_moment().await;
        for (mode, client) in &self.clients {
            let vote = ask(client, acquire(&format!("{why} {mode:?}"), "a")).await;
            assert!(matches!(vote, Answer::Granted { .. }), "{why}: {vote:?}");
            let new = guarded(&self.server, *mode);
            let found = eligibility_again(&new).await;
            assert!(found.is_admitted(), "{why}, {mode:?}");
        }
    }

    /// Every new connection takes it for a loss, and with every call also those that were there.
    async fn is_lost(&self, why: &str) {
        a_moment().await;
        for (mode, client) in &self.clients {
            if *mode == RestartGuard::Call {
                let vote = answered(client, acquire(&format!("{why} {mode:?}"), "a")).await;
                assert_eq!(vote, Answer::Unadmitted, "{why}");
            }
            let new = guarded(&self.server, *mode);
            let found = eligibility_again(&new).await;
            assert_eq!(found, Eligibility::Unadmitted, "{why}, {mode:?}");
            assert_eq!(ask(&new, acquire("other", "a")).await, Answer::Unadmitted);
        }
    }

    fn replid(&self) -> String {
        info(&self.server, "master_replid")
    }

    /// The replica's memory of its masters ends when it has had no replica for so long: an hour otherwise.
    async fn backlog_ends(&self) {
        // The server looks once a second.
        self.server.raw(&["CONFIG", "SET", "repl-backlog-ttl", "1"]);
        let ended = async || info(&self.server, "repl_backlog_active") == "0";
        until("the end of the backlog", ended).await;
        self.server
            .raw(&["CONFIG", "SET", "repl-backlog-ttl", "3600"]);
    }
}

/// The first answer: a connection that has met the replica is made anew.
async fn answered(client: &RedisNode, op: Op) -> Answer {
    loop {
        if let Ok(mut reply) = send(client, vec![op.clone()]).await {
            return reply.answers.remove(0);
        }
        Clock::system().sleep(Duration::from_millis(5)).await;
    }
}

// === what loses nothing ===

pub(crate) fn a_backup_is_no_loss() {
    run(async {
        let scene = Scene::fresh().await;
        let before = scene.replid();
        backup(&scene.server);
        // What an incarnation was told by before.
        assert_ne!(scene.replid(), before);
        scene.goes_on("backup").await;
        scene.backlog_ends().await;
        scene.goes_on("backlog timeout").await;
    });
}

pub(crate) fn replicas_that_come_and_go_are_no_loss() {
    run(async {
        let scene = Scene::fresh().await;
        let (master, replica) = (&scene.server, RedisServer::start());
        let before = scene.replid();
        follow(&replica, master).await;
        assert_ne!(scene.replid(), before);
        scene.goes_on("first replica").await;
        // A partial resynchronization.
        master.raw(&["CLIENT", "KILL", "TYPE", "replica"]);
        let again = async || info(master, "sync_partial_ok") == "1";
        until("the replica is back", again).await;
        scene.goes_on("short break").await;
        replica.raw(&["REPLICAOF", "NO", "ONE"]);
        scene.goes_on("replica gone").await;
        scene.backlog_ends().await;
        scene.goes_on("backlog timeout").await;
    });
}

pub(crate) fn a_reload_of_the_same_data_is_no_loss() {
    run(async {
        // Versions before 7 have it allowed, and do not know the option.
        let scene = match version_is_6() {
            true => Scene::fresh().await,
            false => Scene::on(RedisServer::start_with(&["--enable-debug-command", "yes"])).await,
        };
        assert_eq!(scene.server.raw(&["DEBUG", "RELOAD"]), "+OK\r\n");
        scene.goes_on("reload").await;
    });
}

/// The marker was written for a history that the server then forgets.
pub(crate) fn the_end_of_the_backlog_is_no_loss_after_a_promotion() {
    run(async {
        let (master, server) = (
            RedisServer::start_with(&["--port", &free_port()]),
            RedisServer::start(),
        );
        follow(&server, &master).await;
        server.raw(&["REPLICAOF", "NO", "ONE"]);
        let scene = Scene::on(server).await;
        assert_ne!(info(&scene.server, "master_replid2"), NO_HISTORY);
        scene.backlog_ends().await;
        assert_eq!(info(&scene.server, "master_replid2"), NO_HISTORY);
        scene.goes_on("backlog timeout").await;
    });
}

// === what does ===

pub(crate) fn a_restart_is_a_loss_whatever_was_kept() {
    // Not even what the disk had no time for is lost.
    let all = ["--appendonly", "yes", "--appendfsync", "always"];
    for kept in [all.to_vec(), vec![]] {
        run(async {
            let mut server = RedisServer::start_with(&kept);
            let node = guarded(&server, RestartGuard::Call);
            admitted(&node, "n", "one").await;
            server.restart();
            assert_eq!(eligibility_again(&node).await, Eligibility::Unadmitted);
            let inc = admission(&node).await.inc;
            assert_eq!(inc, if kept.is_empty() { "" } else { "n" }, "{kept:?}");
        });
    }
}

pub(crate) fn a_table_that_is_gone_is_a_loss() {
    for gone in [
        vec!["FLUSHALL"],
        vec!["FLUSHDB"],
        vec!["DEL", TABLE],
        vec!["SWAPDB", "0", "1"],
    ] {
        run(async {
            let scene = Scene::fresh().await;
            scene.server.raw(&gone);
            for (mode, client) in &scene.clients {
                let vote = ask(client, acquire("k", "a")).await;
                assert_eq!(vote, Answer::Unadmitted, "{gone:?}, {mode:?}");
            }
        });
    }
}

pub(crate) fn the_table_of_another_database_is_a_loss() {
    run(async {
        let scene = Scene::fresh().await;
        let other = client_of(&scene.server, 1);
        admitted(&other, "m", "one").await;
        scene.server.raw(&["SWAPDB", "0", "1"]);
        scene.is_lost("swapped").await;
        assert_eq!(ask(&other, acquire("k", "a")).await, Answer::Unadmitted);
        scene.server.raw(&["SWAPDB", "0", "1"]);
        scene.goes_on("swapped back").await;
    });
}

/// What the master granted last never came to the one that it follows for a while.
pub(crate) fn a_master_that_took_over_the_memory_of_another_has_lost_its_own() {
    run(async {
        let scene = Scene::fresh().await;
        let (server, copy) = (
            &scene.server,
            RedisServer::start_with(&["--port", &free_port()]),
        );
        follow(&copy, server).await;
        let held = async || copy.raw(&["HEXISTS", TABLE, "lbefore"]) == ":1\r\n";
        until("the copy", held).await;
        copy.raw(&["REPLICAOF", "NO", "ONE"]);
        granted(&ask(&scene.clients[0].1, acquire("after", "a")).await);
        follow(server, &copy).await;
        server.raw(&["REPLICAOF", "NO", "ONE"]);
        assert_eq!(server.raw(&["HEXISTS", TABLE, "lafter"]), ":0\r\n");
        let marker = server.raw(&["HGET", TABLE, "m"]);
        assert!(marker.starts_with("$32\r\nn---------------0"), "{marker}");
        scene.is_lost("there and back").await;
        // Once it was seen it does not come back with the history that is forgotten.
        scene.backlog_ends().await;
        assert_eq!(info(server, "master_replid2"), NO_HISTORY);
        scene.is_lost("forgotten").await;
    });
}

/// What it confirmed would be in the memory of another, and nothing need be written for it.
pub(crate) fn a_replica_confirms_nothing() {
    run(async {
        let scene = Scene::fresh().await;
        let (server, copy) = (
            &scene.server,
            RedisServer::start_with(&["--port", &free_port()]),
        );
        follow(&copy, server).await;
        copy.raw(&["REPLICAOF", "NO", "ONE"]);
        let client = &scene.clients[0].1;
        // So that it must take all of the other's memory, and no history of its own is left.
        granted(&ask(client, acquire("after", "a")).await);
        follow(server, &copy).await;
        assert_eq!(info(server, "master_replid2"), NO_HISTORY);
        a_moment().await;
        let confirmed = ask(client, confirm("before", "a", Kind::Lock, 1)).await;
        assert_eq!(confirmed, Answer::Unadmitted);
    });
}

pub(crate) fn a_planned_failover_is_a_loss_on_either_side() {
    run(async {
        let scene = Scene::fresh().await;
        let (server, replica) = (
            &scene.server,
            RedisServer::start_with(&["--port", &free_port()]),
        );
        follow(&replica, server).await;
        let fails_over = async |from: &RedisServer, to: &RedisServer| {
            let order = ["FAILOVER", "TO", "127.0.0.1", &port(to)];
            // It needs a replica that has acknowledged.
            until("the order", async || from.raw(&order) == "+OK\r\n").await;
            until("the master", async || info(to, "role") == "master").await;
            until("the replica", async || {
                info(from, "master_link_status") == "up"
            })
            .await;
        };
        fails_over(server, &replica).await;
        let promoted = guarded(&replica, RestartGuard::Call);
        assert_eq!(eligibility_again(&promoted).await, Eligibility::Unadmitted);
        fails_over(&replica, server).await;
        scene.is_lost("failover").await;
    });
}

/// What nothing tells from its own memory: the book says so.
pub(crate) fn a_table_that_a_person_puts_back_is_not_noticed() {
    run(async {
        let scene = Scene::fresh().await;
        scene.server.raw(&["COPY", TABLE, "kept"]);
        granted(&ask(&scene.clients[0].1, acquire("after", "a")).await);
        scene.server.raw(&["COPY", "kept", TABLE, "REPLACE"]);
        assert_eq!(scene.server.raw(&["HEXISTS", TABLE, "lafter"]), ":0\r\n");
        scene.goes_on("put back").await;
    });
}

// === eviction ===

pub(crate) fn eviction_switched_on_under_a_living_connection_is_noticed() {
    for mode in MODES {
        run(async {
            let server = RedisServer::start();
            let node = guarded(&server, mode);
            admitted(&node, "n", "one").await;
            granted(&ask(&node, acquire("k", "a")).await);
            server.raw(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
            server.raw(&["CONFIG", "SET", "maxmemory", "1000"]);
            // The table goes as a whole, and with it the vote.
            match send(&node, vec![acquire("k", "b")]).await {
                Ok(reply) => assert_eq!(reply.answers, [Answer::Unadmitted]),
                Err(refused) => assert_eq!(refused.cause(), "oom"),
            }
            let named = async || {
                let answer = send(&node, vec![]).await;
                answer.is_err_and(|trouble| trouble.cause() == "evicts")
            };
            until("the finding", named).await;
            server.raw(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
            server.raw(&["CONFIG", "SET", "maxmemory", "0"]);
            assert_eq!(eligibility_again(&node).await, Eligibility::Unadmitted);
        });
    }
}

pub(crate) fn eviction_is_noticed_before_anything_was_evicted() {
    run(async {
        let server = RedisServer::start();
        let patient = node(&settings(&server));
        granted(&ask(&patient, acquire("k", "a")).await);
        let node = node(&RedisNodeSettings {
            node_timeout: Duration::from_millis(50),
            ..settings(&server)
        });
        server.raw(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
        server.raw(&["CONFIG", "SET", "maxmemory", "1gb"]);
        let clock = Clock::system();
        let began = clock.now();
        let named = async || {
            let answer = send(&node, vec![]).await;
            answer.is_err_and(|trouble| trouble.cause() == "evicts")
        };
        until("the finding", named).await;
        assert!(clock.now().since(began) < Duration::from_secs(5));
    });
}

// === servers ===

const TABLE: &str = "{app}:2:t";
const NO_HISTORY: &str = "0000000000000000000000000000000000000000";

/// One field of what the server tells of itself.
fn info(server: &RedisServer, field: &str) -> String {
    let all = server.raw(&["INFO"]);
    let found = all
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    found.unwrap_or_default().to_owned()
}

fn port(server: &RedisServer) -> String {
    info(server, "tcp_port")
}

async fn follow(replica: &RedisServer, master: &RedisServer) {
    at_once(master);
    replica.raw(&["REPLICAOF", "127.0.0.1", &port(master)]);
    let linked = async || info(replica, "master_link_status") == "up";
    until("the replica", linked).await;
}

/// Versions that copy without a file wait five seconds for more replicas otherwise.
fn at_once(server: &RedisServer) {
    server.raw(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
}

/// As `redis-cli --rdb` does: a replica that leaves with the copy.
fn backup(server: &RedisServer) {
    at_once(server);
    let mut stream = UnixStream::connect(server.socket()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    stream.write_all(b"SYNC\r\n").unwrap();
    let (mut copy, mut part) = (Vec::new(), [0; 4096]);
    while !copy.windows(5).any(|word| word == b"REDIS")
        && !copy.windows(6).any(|word| word == b"VALKEY")
    {
        let read = stream.read(&mut part).unwrap();
        assert!(read > 0, "the server hangs up");
        copy.extend_from_slice(&part[..read]);
    }
}

fn version_is_6() -> bool {
    let said = std::process::Command::new(binary().unwrap())
        .arg("--version")
        .output()
        .unwrap();
    String::from_utf8_lossy(&said.stdout).contains("v=6.")
}

fn client_of(server: &RedisServer, db: u8) -> RedisNode {
    node(&RedisNodeSettings {
        url: format!("{}?db={db}", server.url()).into(),
        guard: GuardSettings {
            mode: RestartGuard::Call,
            config: "one".to_owned(),
        },
        ..settings(server)
    })
}
