//! On Redis only: keys of others, and passwords.

use crate::{process::Running, scene::Scene, server::RedisServer, store::Store};

pub(crate) fn a_verbatim_key_is_shared_with_other_clients(store: Store) {
    let scene = Scene::new(store);
    let servers = scene.store.servers();
    for server in &servers[..2] {
        server.raw(&["SET", "shared:k", "theirs", "NX", "PX", "60000"]);
    }
    scene.run("lock shared:k --raw --wait 0s", "true").with(3);
    scene.run("lock shared:k --wait 0s", "true").with(0);
    for server in &servers[..2] {
        server.raw(&["DEL", "shared:k"]);
    }
    let holder = scene.holder("elect shared:k --raw");
    for server in servers {
        let refused = server.raw(&["SET", "shared:k", "theirs", "NX", "PX", "60000"]);
        assert_eq!(refused, "$-1\r\n");
    }
    scene.run("lock shared:k --raw --wait 0s", "true").with(3);
    drop(holder);
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
