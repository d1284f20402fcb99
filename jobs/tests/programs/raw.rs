//! On Redis only: keys of others, and passwords.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use watchkeeper::{chance::Chance, clock::Clock};

use crate::{
    process::Running, scene::Scene, server::RedisServer, store::Store, wait::pause, wait::until,
};

pub(crate) fn a_verbatim_key_is_shared_with_other_clients(store: Store) {
    let scene = Scene::new(store);
    let servers = scene.store.servers();
    for server in &servers[..2] {
        server.raw(&["SET", "shared:k", "theirs", "NX", "PX", "60000"]);
    }
    scene.run("lock shared:k --raw --wait 0s", "true").with(3);
    // Without raw keys it is a lock of another fleet.
    let line = "lock shared:k --wait 0s --namespace plain";
    scene.run(line, "true").with(0);
    let refused = scene.run("lock shared:k --wait 0s", "true").with(125);
    refused.says(&[
        "raw_keys is true there and false here",
        "doctor --reconfigure",
    ]);
    for server in &servers[..2] {
        server.raw(&["DEL", "shared:k"]);
    }
    let holder = scene.holder("elect shared:k --raw");
    // One that answered too late for the vote has it from the next renewal on.
    let has_it = |server: &RedisServer| server.raw(&["EXISTS", "shared:k"]) == ":1\r\n";
    assert!(until(|| servers.iter().all(has_it)), "not on every node");
    for server in servers {
        let refused = server.raw(&["SET", "shared:k", "theirs", "NX", "PX", "60000"]);
        assert_eq!(refused, "$-1\r\n");
    }
    scene.run("lock shared:k --raw --wait 0s", "true").with(3);
    drop(holder);
}

/// Three foreign clients, which try every 30 to 60 ms, and four shells that run one command after the other: ours get two
/// thirds of an equal share at least, and no two are ever in the section.
pub(crate) fn commands_get_their_share_beside_foreign_clients(store: Store) {
    const TIME: Duration = Duration::from_secs(15);
    let scene = Scene::new(store);
    let over = AtomicBool::new(false);
    let section = "mkdir $F/in && sleep 0.02 && rmdir $F/in";
    let (ours, theirs) = std::thread::scope(|scope| {
        let (scene, over) = (&scene, &over);
        let ours: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(move || {
                    let mut turns = 0;
                    while !over.load(Ordering::SeqCst) {
                        let done = scene.run("lock shared:k --raw --wait 5s -E 3", section);
                        match done.code {
                            Some(0) => turns += 1,
                            Some(3) => {}
                            _ => panic!("{done:?}"),
                        }
                    }
                    turns
                })
            })
            .collect();
        let theirs: Vec<_> = (0..3)
            .map(|n| scope.spawn(move || takes_turns(scene, n, over)))
            .collect();
        let (clock, start) = (Clock::system(), Clock::system().now());
        until(|| clock.now().since(start) > TIME);
        over.store(true, Ordering::SeqCst);
        let sum = |all: Vec<std::thread::ScopedJoinHandle<'_, u32>>| {
            all.into_iter().map(|one| one.join().unwrap()).sum::<u32>()
        };
        (sum(ours), sum(theirs))
    });
    scene.measured("turns of ours and theirs", &(ours, theirs));
    assert!(ours + theirs > 50, "{ours} and {theirs}");
    // Two thirds of four sevenths.
    assert!(ours * 21 >= (ours + theirs) * 8, "{ours} and {theirs}");
}

/// A Redlock client as there are many: all masters, a majority, give back, a pause.
fn takes_turns(scene: &Scene, n: u64, over: &AtomicBool) -> u32 {
    const REMOVE: &str =
        "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])";
    let (servers, value) = (scene.store.servers(), format!("stranger-{n}"));
    let (chance, section) = (Chance::seeded(n), scene.file("in"));
    let mut turns = 0;
    while !over.load(Ordering::SeqCst) {
        let granted = |server: &&RedisServer| {
            server.raw(&["SET", "shared:k", &value, "NX", "PX", "5000"]) == "+OK\r\n"
        };
        if servers.iter().filter(granted).count() >= 2 {
            enter(&section);
            turns += 1;
        }
        for server in servers {
            server.raw(&["EVAL", REMOVE, "1", "shared:k", &value]);
        }
        pause(Duration::from_millis(30) + chance.up_to(Duration::from_millis(30)));
    }
    turns
}

fn enter(section: &Path) {
    fs::create_dir(section).expect("no other is in the section");
    pause(Duration::from_millis(20));
    fs::remove_dir(section).expect("no other is in the section");
}

/// Another client may write anything into the key that we share with it.
pub(crate) fn a_foreign_value_commands_no_terminal(store: Store) {
    let scene = Scene::new(store);
    let value = "\u{1b}[2J\u{1b}]0;name\u{7}\u{9b}31m\u{202e}\nnobody";
    let long = format!("{value}{}", "x".repeat(100_000));
    for (key, value) in [("shared:k", value), ("shared:long", &long)] {
        for server in scene.store.servers() {
            server.raw(&["SET", key, value, "PX", "60000"]);
        }
        let store = scene.options();
        for line in [
            format!("locks show {key} --raw"),
            format!("locks show {key} --raw --json"),
            format!("locks break {key} --raw --yes"),
        ] {
            let words = line.split(' ').chain(store.iter().map(String::as_str));
            let done = scene.run_bare(&words.collect::<Vec<_>>());
            tame(&line, &done.out);
            tame(&line, &done.err);
            let said = format!("{}{}", done.out, done.err);
            assert!(said.contains("\\u001b[2J"), "{line}: {said}");
        }
        let done = scene
            .run(&format!("lock {key} --raw --wait 0s"), "true")
            .with(3);
        tame("lock", &done.err);
    }
}

fn tame(what: &str, text: &str) {
    let commands = |c: char| {
        c.is_control() && c != '\n'
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
    };
    let found = text
        .find(commands)
        .map(|at| text[at..].chars().take(20).collect::<String>());
    assert_eq!(found, None, "{what}");
}

pub(crate) fn a_password_from_a_file_is_used_and_none_is_shown(store: Store) {
    let scene = Scene::new(store);
    let server = RedisServer::start_with(&["--requirepass", "hunter2"]);
    scene.write("password", "hunter2\n");
    let url = server.url();
    let words = ["lock", "k", "--nodes", &url, "--wait", "0s", "--", "true"];
    let with = |name: &str, value: &str| {
        let mut command = scene.bare(&words);
        command.env(name, value);
        Running::start(command).done()
    };
    with("WATCHKEEPER_LOCKS__REDIS__PASSWORD_FILE", "password").with(0);
    let done = with("WATCHKEEPER_LOCKS__REDIS__PASSWORD", "swordfish").with(125);
    assert!(!done.err.contains("swordfish"), "{}", done.err);
    for url in [
        "redis://:hunter2@127.0.0.1:1",
        "redis://:hunter2@127.0.0.1:x",
        "rediss://:hunter2@h",
    ] {
        let options = [
            "lock", "k", "--log", "trace", "--nodes", url, "--wait", "0s", "--", "true",
        ];
        let done = scene.run_bare(&options).with(125);
        assert!(!done.err.contains("hunter2"), "{}", done.err);
    }
}
