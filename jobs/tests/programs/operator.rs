//! What an operator does about locks: `locks show`, `locks --leaked`, `locks break`, and `doctor`.

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    process::Done,
    redis_place::{OK, user_with},
    scene::Scene,
    server::RedisServer,
    store::Store,
    wait::until,
};

/// `watchkeeper WORDS` on the scene's store.
pub(crate) fn ask(scene: &Scene, line: &str) -> Done {
    let store = scene.options();
    let words: Vec<&str> = line
        .split_whitespace()
        .chain(store.iter().map(String::as_str))
        .collect();
    scene.run_bare(&words)
}

pub(crate) fn json(done: &Done) -> Value {
    serde_json::from_str(&done.out).unwrap_or_else(|why| panic!("{why}: {done:?}"))
}

/// The findings of `doctor` that are of this severity.
pub(crate) fn findings(done: &Done, severity: &str) -> Vec<(String, String)> {
    let all = json(done);
    let of = |found: &Value, name: &str| found[name].as_str().unwrap().to_owned();
    let found = all["findings"].as_array().unwrap().iter();
    found
        .filter(|found| found["severity"] == severity)
        .map(|found| (of(found, "finding"), of(found, "remedy")))
        .collect()
}

#[track_caller]
pub(crate) fn has(found: &[(String, String)], finding: &str, remedy: &str) {
    let there = found
        .iter()
        .any(|(a, b)| a.contains(finding) && b.contains(remedy));
    assert!(there, "no {finding:?} with {remedy:?} in {found:?}");
}

// === locks ===

/// The holder hears of it and stops; the one that waits comes after it, under a larger token.
pub(crate) fn a_broken_holder_stops_before_the_next_begins(store: Store) {
    let scene = Scene::new(store);
    let script =
        "echo $WATCHKEEPER_TOKEN held; while true; do echo work >> $F/order; sleep 0.02; done";
    let holder = scene.spawn("lock k --ttl 3s", script);
    let line = holder.wait_for_line("held");
    let old: u64 = line.split(' ').next().unwrap().parse().unwrap();
    let next = scene.spawn(
        "lock k --ttl 3s",
        "echo next >> $F/order; echo $WATCHKEEPER_TOKEN next",
    );
    next.wait_for_line("waiting for the lock k");

    let shown = json(&ask(&scene, "locks show lock/k --json").with(0));
    assert_eq!(shown["state"], "held");
    // The largest that any node shows: one that the holder has not reached yet may have counted on for the one that waits.
    assert!(shown["token"].as_u64().unwrap() >= old, "{shown}");
    assert_eq!(shown["by_node"][0]["foreign"], false);
    let unasked = ask(&scene, "locks break lock/k").with(2);
    unasked.says(&["say --yes", "within a third of its ttl"]);
    let broken = json(&ask(&scene, "locks break lock/k --yes --json").with(0));
    assert_eq!(broken["outcome"], "final", "{broken}");
    assert!(broken["token"].as_u64().unwrap() > old, "{broken}");

    holder.done().with(125).says(&["lost the lock k"]);
    let done = next.done().with(0);
    let new: u64 = done.out.split(' ').next().unwrap().parse().unwrap();
    assert!(new > broken["token"].as_u64().unwrap());
    let order = scene.lines("order");
    assert_eq!(
        order.last().unwrap(),
        "next",
        "nothing of the old holder after it"
    );
    assert_eq!(order.iter().filter(|line| *line == "next").count(), 1);
    ask(&scene, "locks break lock/k --yes")
        .with(1)
        .says(&["not held"]);
    ask(&scene, "locks show lock/nobody")
        .with(1)
        .says(&["no node knows"]);
}

pub(crate) fn a_break_for_another_owner_touches_nobody(store: Store) {
    let scene = Scene::new(store);
    let mut holder = scene.holder("lock k --ttl 2s");
    ask(&scene, "locks break lock/k --owner him --yes")
        .with(1)
        .says(&["changed hands"]);
    assert!(!holder.has_ended());
    let shown = json(&ask(&scene, "locks show lock/k --json").with(0));
    assert_eq!(shown["state"], "held");
}

pub(crate) fn a_foreign_value_is_shown_and_never_broken(store: Store) {
    let scene = Scene::new(store);
    for server in scene.store.servers() {
        server.raw(&["SET", "orders", "of somebody else"]);
    }
    let shown = json(&ask(&scene, "locks show orders --raw --json").with(0));
    assert_eq!(shown["state"], "foreign");
    assert_eq!(shown["by_node"][2]["endless"], true);
    let broken = ask(&scene, "locks break orders --raw --yes --now").with(1);
    broken.says(&["never broken"]);
    for server in scene.store.servers() {
        assert!(server.raw(&["GET", "orders"]).contains("of somebody else"));
    }
}

/// Who finds a lock held finds its holder; what its command was given is told nowhere.
pub(crate) fn the_holder_of_a_lock_can_be_found(store: Store) {
    let scene = Scene::new(store);
    let holder = scene.spawn("lock k --ttl 3s", "echo held; sleep 600 # hunter2");
    holder.wait_for_line("held");
    let mut shown = Value::Null;
    let told = until(|| {
        shown = json(&ask(&scene, "locks show lock/k --json").with(0));
        !shown["holder"].is_null()
    });
    assert!(told, "{shown}");
    let known = &shown["holder"];
    assert_eq!(known["command"], "sh", "{known}");
    assert_eq!(known["pid"], holder.pid(), "{known}");
    assert!(!shown.to_string().contains("hunter2"), "{shown}");
    let by = format!("sh, run by process {} on ", holder.pid());
    let text = ask(&scene, "locks show lock/k").with(0);
    assert!(text.out.contains(&by), "{text:?}");
    let rows = json(&ask(&scene, "locks lock/ --json").with(0));
    assert_eq!(rows[0]["holder"], *known);
    scene
        .run("lock k --wait 0s", "true")
        .with(3)
        .says(&["the lock k is held by", &by]);
    // It goes with its lock.
    holder.signal(Signal::TERM);
    holder.done();
    let shown = json(&ask(&scene, "locks show lock/k --json").with(0));
    assert!(shown["holder"].is_null(), "{shown}");
}

/// With raw keys: a key that lost its time to live outlives its holder, until it is broken.
pub(crate) fn a_key_without_end_is_found_and_ended(store: Store) {
    let scene = Scene::new(store);
    let holder = scene.holder("lock orders --raw --ttl 3s");
    // Its command begins when a majority has granted.
    let there = |server: &RedisServer| server.raw(&["EXISTS", "orders"]).starts_with(":1");
    assert!(until(|| scene.store.servers().iter().all(there)));
    // In one step: the holder extends it, which gives it a time to live again.
    holder.signal(Signal::STOP);
    let persisted = |server: &RedisServer| server.raw(&["PERSIST", "orders"]).starts_with(":1");
    assert!(scene.store.servers().iter().all(persisted));
    holder.kill();
    let leaked = json(&ask(&scene, "locks --leaked --raw --json").with(0));
    assert_eq!(leaked[0]["kind"], "endless", "{leaked}");
    let remedy = leaked[0]["remedy"].as_str().unwrap();
    let command = remedy.strip_prefix("watchkeeper ").unwrap();
    ask(&scene, &format!("{command} --raw --yes --now")).with(0);
    scene.run("lock orders --raw --wait 0s", "true").with(0);
    assert_eq!(
        json(&ask(&scene, "locks --leaked --raw --json").with(0)),
        Value::Array(vec![])
    );
}

// === doctor ===

pub(crate) fn a_healthy_store_has_no_error(store: Store) {
    let scene = Scene::new(store);
    scene.run("lock k", "true").with(0);
    let done = ask(&scene, "doctor --json").with(0);
    assert_eq!(findings(&done, "error"), []);
    let all = json(&done);
    for node in all["nodes"].as_array().unwrap() {
        assert_eq!(node["up"], true, "{node}");
        assert!(
            node["latency_us"].as_u64() > Some(0) && node["offset_ms"].is_i64(),
            "{node}"
        );
        assert!(node["version"].is_string(), "{node}");
    }
    has(
        &findings(&done, "warning"),
        "no replica runs",
        "watchkeeper run",
    );
    let told = ask(&scene, "doctor").with(0);
    assert!(told.out.contains("\n0 errors, "), "{told:?}");
}

pub(crate) fn every_fault_of_a_master_is_found_with_its_remedy(store: Store) {
    let scene = Scene::new(store);
    let [first, second, third] = scene.store.servers();
    let warned = findings(&ask(&scene, "doctor --json").with(0), "warning");
    has(&warned, "no append-only file", "appendonly yes");

    for words in [["maxmemory", "100mb"], ["maxmemory-policy", "allkeys-lru"]] {
        first.raw(&["CONFIG", "SET", words[0], words[1]]);
    }
    has(
        &findings(&ask(&scene, "doctor --json").with(1), "error"),
        "allkeys-lru",
        "noeviction",
    );
    first.raw(&["CONFIG", "SET", "maxmemory", "0"]);

    second.freeze();
    let done = ask(&scene, "doctor --json").with(1);
    has(&findings(&done, "error"), "does not answer", "start it");
    has(
        &findings(&done, "warning"),
        "no node to spare",
        "bring the others back",
    );
    second.thaw();

    // A replica of nobody that answers is a replica all the same.
    third.raw(&["REPLICAOF", "127.0.0.1", "1"]);
    has(
        &findings(&ask(&scene, "doctor --json").with(1), "error"),
        "slave",
        "address of a master",
    );
    third.raw(&["REPLICAOF", "NO", "ONE"]);
    ask(&scene, "doctor").with(0);
}

pub(crate) fn two_addresses_of_one_server_are_found(store: Store) {
    let scene = Scene::new(store);
    let [first, second, _] = scene.store.servers();
    // Another path to the same socket.
    let link = scene.file("link.sock");
    std::os::unix::fs::symlink(first.socket(), &link).unwrap();
    let urls = [
        first.url(),
        second.url(),
        format!("unix://{}", link.display()),
    ];
    let done = scene
        .run_bare(&["doctor", "--json", "--nodes", &urls.join(",")])
        .with(1);
    has(
        &findings(&done, "error"),
        "same server as",
        "each server once",
    );
}

pub(crate) fn a_user_without_rights_is_told_which(store: Store) {
    let scene = Scene::new(store);
    for server in scene.store.servers() {
        let words = [
            "ACL", "SETUSER", "reader", "on", ">pw", "~*", "+@read", "+info", "+evalsha",
        ];
        server.raw(&words);
    }
    let urls = scene.store.servers().each_ref().map(RedisServer::url);
    let mut command = scene.bare(&["doctor", "--json", "--nodes", &urls.join(",")]);
    command.env("WATCHKEEPER_LOCKS__REDIS__USERNAME", "reader");
    command.env("WATCHKEEPER_LOCKS__REDIS__PASSWORD", "pw");
    let done = crate::process::Running::start(command).done().with(1);
    has(&findings(&done, "error"), "access refused", "ACL SETUSER");
}

/// The smallest rights that the book names are enough for these commands, too.
pub(crate) fn the_rights_that_are_named_suffice(store: Store) {
    let scene = Scene::new(store);
    let rights = smallest_rights();
    for server in scene.store.servers() {
        assert_eq!(server.raw(&user_with(&rights)), OK);
    }
    let urls = scene.store.servers().each_ref().map(RedisServer::url);
    rights_suffice(&scene, &urls.join(","));
}

/// The same where servers are replaced, and of what those that replace them are asked.
pub(crate) fn the_rights_that_are_named_suffice_across_servers(store: Store) {
    let scene = Scene::new(store);
    let page = include_str!("../../../docs/operations/redis-failover.md");
    let after = |words: &str| -> Vec<String> {
        let (_, rest) = page.split_once(words).unwrap();
        let rights = rest.split('`').nth(1).unwrap();
        rights.split_whitespace().map(str::to_owned).collect()
    };
    let mut rights = smallest_rights();
    rights.extend(after("in a Cluster also "));
    let of_sentinels = after("A user of the sentinels\nneeds ");
    let url = scene.store.failover().with_users(&rights, &of_sentinels);
    rights_suffice(&scene, &url);
}

/// As the book has them, with a password.
fn smallest_rights() -> Vec<String> {
    let page = include_str!("../../../docs/operations/redis.md");
    let (_, rule) = page.split_once("ACL SETUSER watchkeeper ").unwrap();
    let (rule, _) = rule.split_once("```").unwrap();
    let rule = rule.replace('\\', " ").replace("PASSWORD", "pw");
    rule.split_whitespace().map(str::to_owned).collect()
}

/// A lock is taken and nothing is found, as that user. The guard needs no more; it is the first to need them.
fn rights_suffice(scene: &Scene, nodes: &str) {
    for words in [&["lock", "k"][..], &["doctor"]] {
        let mut command = scene.guarded(words);
        command.args(["--nodes", nodes]);
        if words.len() > 1 {
            command.args(["--", "true"]);
        }
        command.env("WATCHKEEPER_LOCKS__REDIS__USERNAME", "watchkeeper");
        command.env("WATCHKEEPER_LOCKS__REDIS__PASSWORD", "pw");
        crate::process::Running::start(command).done().with(0);
    }
}

/// As managed servers do: `doctor` says less, and all works.
pub(crate) fn servers_that_hide_their_configuration_cost_a_warning() {
    let hidden = ["--rename-command", "CONFIG", "", "--appendonly", "yes"];
    let servers = [(); 3].map(|()| RedisServer::start_with(&hidden));
    let refused = servers[0].raw(&["CONFIG", "GET", "port"]);
    assert!(refused.starts_with("-ERR unknown command"), "{refused}");
    let scene = Scene::new(Store::embedded());
    let urls = servers.each_ref().map(RedisServer::url).join(",");
    let lock = scene.bare(&["lock", "k", "--nodes", &urls, "--", "true"]);
    crate::process::Running::start(lock).done().with(0);
    let done = scene
        .run_bare(&["doctor", "--json", "--nodes", &urls])
        .with(0);
    assert_eq!(findings(&done, "error"), []);
    has(
        &findings(&done, "warning"),
        "appendfsync cannot be read",
        "look at the server yourself",
    );
}

/// Nothing is made where there is nothing.
pub(crate) fn a_store_that_is_not_there_is_not_made(store: Store) {
    let scene = Scene::new(store);
    ask(&scene, "doctor").with(0);
    ask(&scene, "locks show job/x").with(1);
    assert!(!scene.file("store.db").exists());
    let wrong = scene
        .run_bare(&["doctor", "--nodes", "rediss:/nonsense"])
        .with(1);
    assert!(wrong.out.contains("--nodes"), "{wrong:?}");
}
