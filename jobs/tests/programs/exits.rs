//! Exit statuses: the command's own, and ours.

use std::time::Duration;

use rustix::process::Signal;

use crate::{process::Running, scene::Scene, server::RedisServer, store::Store, wait::pause};

/// What a wait is limited to.
const LIMIT: Duration = Duration::from_secs(2);

/// Time for what is done at once, with processes to be started on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(3);

pub(crate) fn the_commands_status_is_ours(store: Store) {
    let scene = Scene::new(store);
    for verb in ["lock", "elect"] {
        let line = format!("{verb} k");
        let run = |script: &str| scene.run(&line, script);
        let done = run("echo out; echo err >&2").with(0);
        assert_eq!(done.out, "out\n");
        // Before it stands what is said of nodes that answer late, on a busy machine.
        assert!(done.err.ends_with("err\n"), "{done:?}");
        assert!(done.undisturbed < AT_ONCE, "{done:?}");
        run("exit 7").with(7);
        run("kill -9 $$").with(137);
        run("kill -TERM $$").with(143);
        let told = run("echo $WATCHKEEPER_KEY $WATCHKEEPER_TOKEN $WATCHKEEPER_REPLICA")
            .with(0)
            .out;
        let told: Vec<&str> = told.split_whitespace().collect();
        assert_eq!(told[0], "k");
        assert!(
            told[1].parse::<u64>().is_ok_and(|token| token >= 4),
            "{told:?}"
        );
        assert!(told[2].split('-').count() >= 3, "{told:?}");
    }
    let options = scene.store.options(&scene.file(""));
    let run = |program: &str| {
        let mut words = vec!["elect", "k", "--restart"];
        words.extend(options.iter().map(String::as_str));
        words.extend(["--", program]);
        scene.run_bare(&words)
    };
    run("no-such-program").with(127).says(&["no-such-program"]);
    run("/etc/passwd")
        .with(126)
        .says(&["/etc/passwd", "ermission denied"]);
    // They have released what they held.
    scene.run("elect k --wait 0s", "true").with(0);
}

pub(crate) fn a_lock_that_is_not_had_in_time_has_a_status_of_its_own(store: Store) {
    let scene = Scene::new(store);
    let _holder = scene.holder("lock k");
    let _leader = scene.holder("elect k");
    for verb in ["lock", "elect"] {
        let wait = |options: &str| scene.run(&format!("{verb} k {options}"), "echo never");
        let done = wait("--wait 200ms")
            .with(3)
            .says(&["k is held by s", "; nothing was run"]);
        assert!(
            done.out.is_empty() && done.undisturbed < AT_ONCE,
            "{done:?}"
        );
        assert!(done.took >= Duration::from_millis(200), "{done:?}");
        let done = wait("--wait 0s --quiet -E 77").with(77);
        assert_eq!(done.err, "");
        wait("--wait 0s --not-held-exit-code 0").with(0);
    }
    scene.run("lock other --wait 0s", "true").with(0);
    scene
        .run("lock k --wait 0s --namespace other", "true")
        .with(0);
}

pub(crate) fn a_wrong_usage_is_a_failure_of_ours(store: Store) {
    let scene = Scene::new(store);
    for words in [
        &["lock"][..],
        &["lock", "k"],
        &["elect", "", "--", "true"],
        &["lock", "k", "--nonsense", "--", "true"],
        &["lock", "k", "--wait", "3", "--", "true"],
        &["lock", "k", "--embedded", "f", "--raw", "--", "true"],
        &[
            "lock",
            "k",
            "--embedded",
            "f",
            "--log",
            "watchkeeper=loud",
            "--",
            "true",
        ],
        &["elect", "k", "--embedded", "/proc/no/such", "--", "true"],
        &["lock", "k", "--config", "no.toml", "--", "true"],
    ] {
        let done = scene.run_bare(words).with(125);
        assert!(!done.err.is_empty(), "{words:?}");
    }
    for verb in ["lock", "elect"] {
        scene.run_bare(&[verb, "--help"]).with(0);
    }
    scene.run_bare(&["status", "--nonsense"]).with(2);
}

pub(crate) fn a_store_that_does_not_answer_is_named(store: Store) {
    let scene = Scene::new(store);
    scene.store.block();
    let words = scene.store.blocked();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for verb in ["lock", "elect"] {
        let line = format!("{verb} k --wait 200ms");
        let done = scene.run(&line, "echo never").with(125).says(&words);
        assert!(done.out.is_empty(), "{done:?}");
    }
}

/// What `--wait` says is a limit: the command gives up within a second of it, whatever its nodes do meanwhile.
pub(crate) fn a_limit_is_a_limit_whatever_the_nodes_do(store: Store) {
    let scene = &Scene::new(store);
    type Fault = fn(&mut [RedisServer]);
    let none: Fault = |_| {};
    let frozen: Fault = |servers| servers[..2].iter().for_each(RedisServer::freeze);
    let all_frozen: Fault = |servers| servers.iter().for_each(RedisServer::freeze);
    let dead: Fault = |servers| servers.iter_mut().for_each(RedisServer::kill);
    let forgot: Fault = |servers| servers.iter_mut().for_each(RedisServer::restart);
    let readers: Fault = |servers| {
        for server in servers {
            server.raw(&["REPLICAOF", "127.0.0.1", "1"]);
        }
    };
    // From the start, and in the middle of the wait for a holder.
    let cases: [(&str, Fault, Option<Fault>); 8] = [
        ("new nodes", none, None),
        ("frozen nodes", frozen, None),
        ("only frozen nodes", all_frozen, None),
        ("nodes that refuse", dead, None),
        ("nodes that are no masters", readers, None),
        ("nodes that freeze", none, Some(frozen)),
        ("nodes that die", none, Some(dead)),
        ("nodes that forget", none, Some(forgot)),
    ];
    std::thread::scope(|scope| {
        for (what, before, later) in cases {
            scope.spawn(move || {
                let mut servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
                let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
                let nodes = urls.join(",");
                let start = |verb: &str, words: &[&str], command: &str| {
                    let mut started = scene.guarded(&[verb, "k", "--nodes", &nodes]);
                    // A watch takes far longer than the wait.
                    for name in ["TTL", "MAX_TTL"] {
                        started.env(format!("WATCHKEEPER_LOCKS__{name}"), "60s");
                    }
                    started.args(words).args(["--", "sh", "-c", command]);
                    Running::start(started)
                };
                let mut holder = None;
                if later.is_some() {
                    let mut admit = scene.guarded(&["doctor", "--bootstrap", "--nodes", &nodes]);
                    for name in ["TTL", "MAX_TTL"] {
                        admit.env(format!("WATCHKEEPER_LOCKS__{name}"), "60s");
                    }
                    Running::start(admit).done().with(0);
                    let held = start("lock", &[], "echo held; exec sleep 600");
                    held.wait_for_line("held");
                    holder = Some(held);
                }
                before(&mut servers);
                // An election has another lock, which is free.
                let verbs = if later.is_some() {
                    &["lock"][..]
                } else {
                    &["lock", "elect"]
                };
                let waits = verbs
                    .iter()
                    .map(|verb| start(verb, &["--wait", "2s"], "true"));
                let waits: Vec<_> = waits.collect();
                if let Some(later) = later {
                    pause(LIMIT / 2);
                    later(&mut servers);
                }
                for waiter in waits {
                    let done = waiter.done();
                    assert!(matches!(done.code, Some(3 | 125)), "{what}: {done:?}");
                    scene.measured(what, &done.took);
                    // Two more for a busy machine.
                    let grace = Duration::from_secs(1 + 2);
                    assert!(done.undisturbed < LIMIT + grace, "{what}: {done:?}");
                }
                drop(holder);
            });
        }
    });
}

/// The same of a store that is one server, which remembers: it crashes and stands still in the middle of the wait, and does not answer
/// from the start.
#[cfg(any(feature = "postgres", feature = "etcd"))]
pub(crate) fn a_limit_is_a_limit_whatever_the_server_does(store: Store) {
    let scene = Scene::new(store);
    let waits = |verb: &str| scene.spawn(&format!("{verb} k --wait 2s"), "echo never");
    let ends = |what: &str, waiter: Running| {
        let done = waiter.done();
        scene.measured(what, &done.took);
        assert!(matches!(done.code, Some(3 | 125)), "{what}: {done:?}");
        assert!(done.out.is_empty(), "{what}: {done:?}");
        // Two more for a busy machine.
        let grace = Duration::from_secs(1 + 2);
        assert!(done.undisturbed < LIMIT + grace, "{what}: {done:?}");
    };
    // Its lease outlasts them all.
    let _holder = scene.holder("lock k --ttl 30s");
    type Fault = fn(&Store);
    let faults: [(&str, Fault); 2] = [
        ("a server that crashes", Store::crash),
        ("a server that freezes", Store::block),
    ];
    for (what, fault) in faults {
        let waiter = waits("lock");
        waiter.wait_for_line("waiting for the lock k");
        fault(&scene.store);
        ends(what, waiter);
    }
    for waiter in ["lock", "elect"].map(waits) {
        ends("a server that stands still", waiter);
    }
    scene.store.unblock();
}

pub(crate) fn a_wait_without_limit_outlasts_its_store(store: Store) {
    let scene = Scene::new(store);
    scene.store.block();
    let lock = scene.spawn("lock k", "echo mine");
    let elect = scene.spawn("elect k", "echo mine");
    lock.wait_for_line("waiting for the lock k");
    elect.wait_for_line("standing by for k");
    scene.store.unblock();
    for done in [lock.done(), elect.done()] {
        assert_eq!(done.with(0).out, "mine\n");
    }
}

/// Also when the command would end well by itself: its end is ours.
pub(crate) fn a_lost_lock_stops_the_command_and_is_a_failure(store: Store) {
    let scene = Scene::new(store);
    let script = "trap 'exit 0' TERM; echo held; while true; do sleep 0.05; done";
    let holder = scene.spawn("lock k --raw --ttl 1s", script);
    holder.wait_for_line("held");
    for server in scene.store.servers() {
        server.raw(&["SET", "k", "of somebody else", "PX", "60000"]);
    }
    let done = holder.done().with(125);
    done.says(&["lost the lock k", "the command was stopped"]);
    // Whoever has it now keeps it.
    scene.run("lock k --raw --wait 0s", "true").with(3);
    let waiter = scene.spawn("lock k --raw", "true");
    waiter.wait_for_line("waiting for the lock k");
    waiter.signal(Signal::TERM);
    waiter.done().with(143);
    for server in scene.store.servers() {
        assert!(server.raw(&["GET", "k"]).contains("of somebody else"));
    }
}

/// Its lease cannot be extended any more: the command is told to stop, and has gone before another process can have the lock.
#[cfg(any(feature = "postgres", feature = "etcd"))]
pub(crate) fn a_store_that_goes_away_stops_the_command(store: Store) {
    let scene = Scene::new(store);
    let script = "trap 'echo told; exit 0' TERM; echo held; while true; do sleep 0.05; done";
    let holder = scene.spawn("lock k --ttl 2s", script);
    holder.wait_for_line("held");
    scene.store.block();
    let done = holder.done().with(125);
    let done = done.says(&["lost the lock k", "the command was stopped"]);
    assert_eq!(done.out, "held\ntold\n");
    scene.store.unblock();
    scene.run("lock k", "true").with(0);
}

/// A worker waits for its store, says so, and does as it is told meanwhile.
pub(crate) fn a_worker_waits_for_a_file_that_is_kept_locked(store: Store) {
    let scene = Scene::new(store);
    let writer = rusqlite::Connection::open(scene.file("store.db")).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let job = "[jobs.beat]\nkind = \"heartbeat\"\nschedule = \"@yearly\"\nparams = { file = \"beats\" }\n";
    let config = format!(
        "[admin]\nlisten = \"off\"\n[locks]\n{}{job}",
        scene.settings()
    );
    scene.write("worker.toml", &config);
    let start = || Running::start(scene.bare(&["run", "--config", "worker.toml"]));
    let (told, waits) = (start(), start());
    for worker in [&told, &waits] {
        worker.wait_for_line("another process keeps it locked; waiting for it");
    }
    told.signal(Signal::TERM);
    told.done().with(0);
    assert!(!waits.has_said("worker started"));
    writer.execute_batch("COMMIT").unwrap();
    waits.wait_for_line("worker started");
    waits.signal(Signal::TERM);
    waits.done().with(0);
}

/// Another process is in the middle of a write: before the file is made, and after.
pub(crate) fn a_file_that_is_kept_locked_is_named_and_waited_for(store: Store) {
    let scene = Scene::new(store);
    let path = scene.file("store.db");
    let writer = rusqlite::Connection::open(&path).unwrap();
    for (made, said) in [
        (false, "another process keeps it locked"),
        (true, "1 needed; embedded: "),
    ] {
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        let done = scene.run("lock k --wait 1200ms", "echo never").with(125);
        let done = done.says(&[said]);
        assert!(done.out.is_empty(), "{done:?}");
        assert!(done.undisturbed < AT_ONCE, "{done:?}");
        for verb in ["lock", "elect"] {
            let waiter = scene.spawn(&format!("{verb} k"), "echo never");
            let waits = match verb {
                "lock" => "waiting for the ",
                _ if made => "standing by",
                _ => "waiting for the store",
            };
            waiter.wait_for_line(waits);
            waiter.signal(Signal::TERM);
            let status = if verb == "lock" { 143 } else { 0 };
            assert_eq!(waiter.done().with(status).out, "");
        }
        let waiter = scene.spawn("lock k", "echo mine");
        waiter.wait_for_line("waiting for the ");
        writer.execute_batch("COMMIT").unwrap();
        assert_eq!(waiter.done().with(0).out, "mine\n");
    }
    // Who only asks is answered beside any writer.
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let embedded = scene.options();
    let mut words = vec!["locks", "show", "lock/k"];
    words.extend(embedded.iter().map(String::as_str));
    scene.run_bare(&words).with(0);
}
