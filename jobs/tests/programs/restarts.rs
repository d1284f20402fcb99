//! On Redis only: servers without persistence that are started again, under the guard.

use std::time::Duration;

use watchkeeper::clock::Clock;

use crate::{
    process::{Done, Running},
    scene::Scene,
    server::RedisServer,
    store::Store,
};

const MAX_TTL: Duration = Duration::from_secs(2);

fn run(scene: &Scene, nodes: &str, words: &[&str]) -> Done {
    let mut command = scene.guarded(words);
    command.args(["--nodes", nodes]);
    Running::start(command).done()
}

fn run_true(scene: &Scene, nodes: &str, words: &[&str]) -> Done {
    let mut command = scene.guarded(words);
    command.args(["--nodes", nodes, "--", "true"]);
    Running::start(command).done()
}

fn urls(servers: &[RedisServer]) -> String {
    let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
    urls.join(",")
}

pub(crate) fn a_rolling_restart_without_persistence_ends_no_leadership(store: Store) {
    let scene = Scene::new(store);
    let mut servers: Vec<RedisServer> = (0..5).map(|_| RedisServer::start()).collect();
    let nodes = urls(&servers);
    run(&scene, &nodes, &["doctor", "--bootstrap"]).with(0);
    let mut command = scene.guarded(&["elect", "svc", "--nodes", &nodes, "--", "sh", "-c"]);
    command.arg("echo leading; echo $WATCHKEEPER_TOKEN >> $F/led; exec sleep 600");
    command.env("F", scene.file(""));
    let mut leader = Running::start(command);
    leader.wait_for_line("leading");
    let clock = Clock::system();
    for server in &mut servers {
        server.restart();
        let start = clock.now();
        let words = ["doctor", "--wait-admitted", "--timeout", "30s"];
        let done = run(&scene, &nodes, &words).with(0);
        // Where it is not reached at the first look, it may vote by the next one.
        let seen = ["lost its memory or is new", "unreachable"];
        assert!(seen.iter().any(|why| done.out.contains(why)), "{done:?}");
        assert!(done.out.contains("every node votes"), "{done:?}");
        scene.measured("one node", &clock.now().since(start));
    }
    assert!(!leader.has_ended());
    assert_eq!(scene.lines("led").len(), 1, "one term outlasted them all");
}

pub(crate) fn a_restart_of_a_single_server_costs_the_longest_lease_and_says_so(store: Store) {
    let scene = Scene::new(store);
    let mut server = RedisServer::start();
    let clock = Clock::system();
    for _ in 0..2 {
        let start = clock.now();
        // Also a try sits it out: the next one would begin anew.
        let words = ["lock", "k", "--wait", "0s"];
        let done = run_true(&scene, &server.url(), &words).with(0);
        let took = clock.now().since(start);
        assert!(took >= MAX_TTL && took < MAX_TTL * 4, "{took:?}");
        let done = done.says(&["lost its memory", "until then no lock is granted"]);
        scene.measured("first lock", &took);
        drop(done);
        let start = clock.now();
        run_true(&scene, &server.url(), &["lock", "k", "--wait", "0s"]).with(0);
        assert!(clock.now().since(start) < MAX_TTL, "admitted for all");
        server.restart();
    }
}

pub(crate) fn a_limited_wait_ends_in_time_although_nodes_have_lost_their_memory(store: Store) {
    let scene = Scene::new(store);
    let servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::start()).collect();
    let nodes = urls(&servers);
    let clock = Clock::system();
    for verb in ["lock", "elect"] {
        let mut command = scene.guarded(&[verb, "k", "--wait", "2s", "--nodes", &nodes]);
        // Their watch takes far longer than the wait.
        for name in ["TTL", "MAX_TTL"] {
            command.env(format!("WATCHKEEPER_LOCKS__{name}"), "60s");
        }
        command.args(["--", "true"]);
        let start = clock.now();
        let done = Running::start(command).done().with(125);
        let took = clock.now().since(start);
        // Far below the watch, also where the machine is busy.
        assert!(took < Duration::from_secs(20), "{verb}: {took:?}");
        done.says(&["lost its memory or is new", "being admitted", "--wait 0s"]);
        scene.measured(verb, &took);
    }
}

pub(crate) fn only_new_nodes_are_let_in_at_once(store: Store) {
    let scene = Scene::new(store);
    let mut servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::start()).collect();
    let nodes = urls(&servers);
    run(&scene, &nodes, &["doctor", "--bootstrap"]).with(0);
    run_true(&scene, &nodes, &["lock", "k", "--wait", "0s"]).with(0);
    let again = run(&scene, &nodes, &["doctor", "--bootstrap"]).with(1);
    assert!(again.err.contains("it votes already"), "{again:?}");
    // One that was emptied is not new while the others are not.
    servers[0].restart();
    let again = run(&scene, &nodes, &["doctor", "--bootstrap"]).with(1);
    assert!(again.err.contains("it votes already"), "{again:?}");
    let told = run(&scene, &nodes, &["doctor"]).with(0);
    assert!(told.out.contains("no program watches it"), "{told:?}");
}

pub(crate) fn another_configuration_is_refused_until_the_fleet_is_changed(store: Store) {
    let scene = Scene::new(store);
    let servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::start()).collect();
    let nodes = urls(&servers);
    run(&scene, &nodes, &["doctor", "--bootstrap"]).with(0);
    run_true(&scene, &nodes, &["lock", "k"]).with(0);
    let other = |words: &[&str], tail: &[&str]| {
        let mut command = scene.guarded(words);
        command.args(["--nodes", &nodes]).args(tail);
        command.env("WATCHKEEPER_LOCKS__MAX_TTL", "3s");
        Running::start(command).done()
    };
    let refused = other(&["lock", "k"], &["--", "true"]).with(125);
    refused.says(&["max_ttl is 2s there and 3s here", "doctor --reconfigure"]);
    let told = other(&["doctor"], &[]).with(1);
    assert!(
        told.out.contains("max_ttl is 2s there and 3s here"),
        "{told:?}"
    );

    let holder = {
        let mut command = scene.guarded(&["lock", "k", "--nodes", &nodes, "--", "sh", "-c"]);
        command.arg("echo held; exec sleep 600");
        let holder = Running::start(command);
        holder.wait_for_line("held");
        holder
    };
    let refused = other(&["doctor", "--reconfigure"], &[]).with(1);
    assert!(refused.err.contains("lock/k is held there"), "{refused:?}");
    holder.signal(rustix::process::Signal::TERM);
    holder.done();
    let changed = other(&["doctor", "--reconfigure"], &[]).with(0);
    assert!(
        changed.out.contains("they vote for no program now"),
        "{changed:?}"
    );
    other(&["lock", "k"], &["--", "true"]).with(0);
    let refused = run_true(&scene, &nodes, &["lock", "k"]).with(125);
    refused.says(&["max_ttl is 3s there and 2s here"]);
}
