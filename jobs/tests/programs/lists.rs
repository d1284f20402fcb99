//! On Redis only: programs that were given different nodes, or the same by other addresses, under the guard. What they are told,
//! and how the commands lead from one list to another.

use std::os::unix::fs::symlink;

use crate::{
    process::{Done, Running},
    scene::Scene,
    server::RedisServer,
    store::Store,
};

const SHARES_ONE: &str =
    "its fleet has 3 nodes, of which 1 here: redis.nodes is another list there";

fn run(scene: &Scene, nodes: &str, words: &[&str]) -> Done {
    let mut command = scene.guarded(words);
    command.args(["--nodes", nodes]);
    Running::start(command).done()
}

fn takes_a_lock(scene: &Scene, nodes: &str) -> Done {
    let mut command = scene.guarded(&["lock", "k", "--wait", "8s"]);
    command.args(["--nodes", nodes, "--", "true"]);
    Running::start(command).done()
}

fn urls<'a>(servers: impl IntoIterator<Item = &'a RedisServer>) -> String {
    let urls: Vec<String> = servers.into_iter().map(RedisServer::url).collect();
    urls.join(",")
}

/// Other addresses for the same servers.
fn other_addresses(scene: &Scene, servers: &[RedisServer]) -> String {
    let link = |(n, server): (usize, &RedisServer)| {
        let path = scene.file(&format!("lock-{n}.sock"));
        symlink(server.socket(), &path).unwrap();
        format!("unix://{}", path.display())
    };
    let urls: Vec<String> = servers.iter().enumerate().map(link).collect();
    urls.join(",")
}

fn says(done: &Done, texts: &[&str]) {
    for text in texts {
        assert!(done.out.contains(text), "no {text:?} in {done:?}");
    }
}

pub(crate) fn lists_that_differ_are_found_with_their_remedy(store: Store) {
    let scene = Scene::new(store);
    let [a, b, c] = scene.store.servers();
    let (d, e) = (RedisServer::start(), RedisServer::start());
    let fleet = urls([a, b, c]);
    run(&scene, &fleet, &["doctor", "--bootstrap"]).with(0);
    takes_a_lock(&scene, &fleet).with(0);

    // Two lists that share one node.
    let other = urls([c, &d, &e]);
    let told = run(&scene, &other, &["doctor"]).with(1);
    says(
        &told,
        &[
            SHARES_ONE,
            "doctor --reconfigure",
            "it waits for",
            "there is no fleet on them",
        ],
    );
    let refused = takes_a_lock(&scene, &other).with(125);
    refused.says(&[SHARES_ONE, "doctor --reconfigure"]);
    let refused = run(&scene, &other, &["doctor", "--bootstrap"]).with(1);
    refused.says(&["it votes already"]);

    // Another number of nodes.
    let longer = urls([a, b, c, &d, &e]);
    let differs = "the number of nodes is 3 there and 5 here";
    let told = run(&scene, &longer, &["doctor"]).with(1);
    says(&told, &[differs, "doctor --reconfigure"]);
    takes_a_lock(&scene, &longer).with(125).says(&[differs]);

    // The fleet notices nothing; the order is no part of a list.
    takes_a_lock(&scene, &urls([b, c, a])).with(0);
    let told = run(&scene, &fleet, &["doctor"]).with(0);
    says(&told, &["is admitted: its votes count"]);
}

pub(crate) fn a_fleet_under_other_addresses_votes_and_is_moved_to_them(store: Store) {
    let scene = Scene::new(store);
    let servers = scene.store.servers();
    let before = urls(servers);
    run(&scene, &before, &["doctor", "--bootstrap"]).with(0);
    takes_a_lock(&scene, &before).with(0);

    let renamed = other_addresses(&scene, servers);
    takes_a_lock(&scene, &renamed).with(0);
    let told = run(&scene, &renamed, &["doctor"]).with(0);
    says(
        &told,
        &["by other addresses", "give the addresses of before"],
    );

    let moved = run(&scene, &renamed, &["doctor", "--reconfigure"]).with(0);
    says(
        &moved,
        &[
            "has other addresses for the nodes",
            "they vote for no program now",
        ],
    );
    takes_a_lock(&scene, &renamed).with(0);
    let told = run(&scene, &renamed, &["doctor", "--reconfigure"]).with(0);
    says(&told, &["no node keeps locks for another configuration"]);
    // Now those of before are the other ones.
    let told = run(&scene, &before, &["doctor"]).with(0);
    says(&told, &["by other addresses"]);
}

pub(crate) fn a_fleet_grows_from_three_nodes_to_five(store: Store) {
    let scene = Scene::new(store);
    let [a, b, c] = scene.store.servers();
    let (d, e) = (RedisServer::start(), RedisServer::start());
    let three = urls([a, b, c]);
    run(&scene, &three, &["doctor", "--bootstrap"]).with(0);
    takes_a_lock(&scene, &three).with(0);
    let five = urls([a, b, c, &d, &e]);
    let grown = run(&scene, &five, &["doctor", "--reconfigure"]).with(0);
    says(&grown, &["the number of nodes is 3 there and 5 here"]);
    takes_a_lock(&scene, &five).with(0);
    let words = ["doctor", "--wait-admitted", "--timeout", "20s"];
    says(&run(&scene, &five, &words).with(0), &["every node votes"]);
    let refused = takes_a_lock(&scene, &three).with(125);
    refused.says(&["the number of nodes is 5 there and 3 here"]);
}

pub(crate) fn a_fleet_that_waits_for_its_nodes_says_for_which(store: Store) {
    let scene = Scene::new(store);
    let [a, b, _] = scene.store.servers();
    let mut gone = RedisServer::start();
    let nodes = urls([a, b, &gone]);
    gone.kill();
    // Two of three, both new: they are no fleet.
    let waits = format!("it waits for {}", gone.socket().display());
    let told = run(&scene, &nodes, &["doctor"]).with(1);
    says(&told, &[&waits, "start what it waits for"]);
    takes_a_lock(&scene, &nodes).with(125).says(&[&waits]);
    let words = ["doctor", "--wait-admitted", "--timeout", "3s"];
    run(&scene, &nodes, &words).with(1).says(&[&waits]);
    let refused = run(&scene, &nodes, &["doctor", "--bootstrap"]).with(1);
    refused.says(&["all nodes are needed"]);
    // All of them: watched, for programs have met two.
    gone.restart();
    let words = ["doctor", "--wait-admitted", "--timeout", "20s"];
    says(&run(&scene, &nodes, &words).with(0), &["every node votes"]);
    takes_a_lock(&scene, &nodes).with(0);
}

pub(crate) fn new_nodes_are_let_in_at_once_as_one_fleet(store: Store) {
    let scene = Scene::new(store);
    let servers = scene.store.servers();
    let [a, b, c] = servers;
    let twice = format!(
        "{},{}",
        urls([a, b]),
        other_addresses(&scene, &servers[..1])
    );
    let refused = run(&scene, &twice, &["doctor", "--bootstrap"]).with(1);
    refused.says(&["it is the same server as"]);
    run(&scene, &urls([a, b, c]), &["doctor", "--bootstrap"]).with(0);
    takes_a_lock(&scene, &urls([a, b, c])).with(0);
    // A part of them is no fleet, and none of them is new.
    let d = RedisServer::start();
    let refused = run(&scene, &urls([&d, a, b]), &["doctor", "--bootstrap"]).with(1);
    refused.says(&["it votes already"]);
}
