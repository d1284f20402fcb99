//! A worker whose store wants a person can never lead: it says what is to be done, and does not start.

use std::process::{Command, Stdio};

use libtest_mimic::Trial;
#[cfg(feature = "postgres")]
use rustix::process::Signal;

#[cfg(feature = "etcd")]
use crate::etcd_server::{EtcdServer, Host, WORKER};
#[cfg(any(feature = "postgres", feature = "etcd"))]
use crate::papers::Papers;
#[cfg(feature = "postgres")]
use crate::{
    database::{Database, execute},
    postgres::{PostgresServer, USER},
};
use crate::{process::Running, scene::Scene, store::Store};

const WRONG: &str = "swordfish";

/// What is run, with these settings below `[locks]`.
fn configuration(settings: &str) -> String {
    format!(
        "[admin]\nlisten = \"off\"\n[locks]\nrestart_guard = \"off\"\nttl = \"20s\"\n{settings}\
         [jobs.beat]\nkind = \"heartbeat\"\nschedule = \"@every 1s\"\nparams = {{ file = \"beats\" }}\n"
    )
}

/// `run` with these settings below `[locks]`, whose store is not that of a scene; what its last line says.
#[cfg(any(feature = "postgres", feature = "etcd"))]
fn does_not_start(settings: &str, words: &[&str]) {
    let scene = Scene::new(Store::embedded());
    scene.write("worker.toml", &configuration(settings));
    ends(
        &scene,
        scene.bare(&["run", "--config", "worker.toml"]),
        words,
    );
}

/// It ends with these words, has begun nothing, and shows no password, neither a wrong one nor the right one.
fn ends(scene: &Scene, command: Command, words: &[&str]) {
    let done = Running::start(command).done().with(1);
    for secret in [WRONG, "hunter2"] {
        assert!(!done.err.contains(secret), "{done:?}");
    }
    let last = done.err.lines().last().unwrap_or_default();
    assert!(
        words.iter().all(|word| last.contains(word)),
        "{words:?}: {done:?}"
    );
    assert!(!done.err.contains("worker started"), "{done:?}");
    assert!(!scene.file("beats").exists(), "it has run a job: {done:?}");
}

#[cfg(feature = "postgres")]
pub(crate) fn a_worker_that_postgres_does_not_let_in_does_not_start() {
    let server = PostgresServer::start_with(&["fsync=on"], |folder| {
        PostgresServer::put(folder, "data/pg_hba.conf", "local all all scram-sha-256\n");
    });
    let url = server.url("worker", "postgres");
    let settings = format!(
        "backend = \"postgres\"\npostgres.url = {url:?}\npostgres.password = {WRONG:?}\npostgres.node_timeout = \"1s\"\n"
    );
    does_not_start(&settings, &["access refused", "locks.postgres.password"]);
}

/// A database that is not there, one in which our user may make no tables, one of a server that says of itself that it is old, and one
/// that does not wait for its disk.
#[cfg(feature = "postgres")]
pub(crate) fn a_worker_whose_postgres_wants_a_person_does_not_start() {
    let settings = |server: &PostgresServer, user: &str, database: &str| {
        let url = server.url(user, database);
        format!("backend = \"postgres\"\npostgres.url = {url:?}\npostgres.node_timeout = \"1s\"\n")
    };
    let server = PostgresServer::start_with(&["fsync=on"], |_| {});
    does_not_start(
        &settings(&server, USER, "elsewhere"),
        &["\"elsewhere\" does not exist", "CREATE DATABASE"],
    );
    execute(&server.url(USER, "postgres"), "CREATE ROLE guest LOGIN");
    does_not_start(
        &settings(&server, "guest", "postgres"),
        &[
            "the schema \"watchkeeper\" is not there",
            "watchkeeper locks schema",
        ],
    );
    execute(&server.url(USER, "postgres"), "CREATE DATABASE aged");
    execute(&server.url(USER, "aged"), OLD);
    does_not_start(
        &settings(&server, USER, "aged"),
        &["PostgreSQL 12", "PostgreSQL to 13"],
    );
    let careless = PostgresServer::start();
    does_not_start(
        &settings(&careless, USER, "postgres"),
        &["fsync", "set fsync = on"],
    );
}

/// Makes a database answer as one of an old server.
#[cfg(feature = "postgres")]
const OLD: &str = "CREATE SCHEMA old; \
    CREATE FUNCTION old.current_setting(text) RETURNS text LANGUAGE sql AS $$ \
        SELECT CASE $1 WHEN 'server_version_num' THEN '120022' ELSE pg_catalog.current_setting($1) END $$; \
    ALTER DATABASE aged SET search_path = old, pg_catalog";

/// Its certificate is signed by a CA that nothing names.
#[cfg(feature = "postgres")]
pub(crate) fn a_worker_that_does_not_trust_its_postgres_does_not_start() {
    let papers = Papers::new("localhost");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let port_setting = format!("port={port}");
    let settings = [
        "fsync=on",
        "listen_addresses=localhost",
        &port_setting,
        "ssl=on",
        "ssl_cert_file=../server.crt",
        "ssl_key_file=../server.key",
    ];
    let _server = PostgresServer::start_with(&settings, |folder| {
        for name in ["server.crt", "server.key"] {
            let text = std::fs::read_to_string(papers.path(name)).unwrap();
            PostgresServer::put(folder, name, &text);
        }
        PostgresServer::put(folder, "data/pg_hba.conf", "hostssl all all all trust\n");
    });
    let url = format!("postgres://{USER}@localhost:{port}/postgres?sslmode=require");
    let settings =
        format!("backend = \"postgres\"\npostgres.url = {url:?}\npostgres.node_timeout = \"1s\"\n");
    does_not_start(
        &settings,
        &[
            "no TLS connection",
            "invalid peer certificate",
            "sslrootcert",
            "locks.postgres.url",
        ],
    );
}

/// It works all the same: it looks for releases, and says how it would hear of them.
#[cfg(feature = "postgres")]
pub(crate) fn a_worker_behind_a_pooler_says_that_it_hears_of_no_release() {
    let scene = Scene::new(Store::Postgres(Database::pooled_deaf()));
    let config = configuration(&scene.settings().replace("restart_guard = \"off\"\n", ""));
    scene.write("worker.toml", &config);
    let worker = Running::start(scene.bare(&["run", "--config", "worker.toml"]));
    let line = worker.wait_for_line("a pooler stands before the database");
    for words in [
        "releases are found by looking",
        "give locks.postgres.listen_url the address of the server itself",
    ] {
        assert!(line.contains(words), "{words}: {line}");
    }
    worker.wait_for_line("leading");
    worker.signal(Signal::TERM);
    worker.done().with(0);
}

/// Another CA has signed its certificate than the one that is named.
#[cfg(feature = "etcd")]
pub(crate) fn a_worker_that_does_not_trust_its_etcd_does_not_start() {
    let host = Host::new();
    let papers = Papers::new(host.name());
    let options = papers.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let server = EtcdServer::start_at(&host, &options);
    let (url, strangers) = (server.url(), Papers::new(host.name()));
    let settings = format!(
        "backend = \"etcd\"\netcd.endpoints = [{url:?}]\netcd.tls.ca = {:?}\netcd.node_timeout = \"1s\"\n",
        strangers.path("ca.crt")
    );
    let words = ["no TLS connection", &url, "locks.etcd.tls.ca"];
    does_not_start(&settings, &words);
}

/// Its user is let in, and may write what is none of ours.
#[cfg(feature = "etcd")]
pub(crate) fn a_worker_without_rights_in_etcd_does_not_start() {
    let mut server = EtcdServer::start_with(&["--bcrypt-cost", "4"]);
    server.lock_up("another/");
    let (name, password) = WORKER;
    let url = server.url();
    let settings = format!(
        "backend = \"etcd\"\netcd.endpoints = [{url:?}]\netcd.username = {name:?}\netcd.password = {password:?}\n\
         etcd.node_timeout = \"1s\"\n"
    );
    does_not_start(
        &settings,
        &[
            "access refused",
            &url,
            "permission denied",
            "`watchkeeper/`",
            "role grant-permission",
        ],
    );
}

/// On a disk of its own, a small one, in a namespace of mounts of its own.
pub(crate) fn a_worker_whose_file_has_no_room_does_not_start() {
    let scene = Scene::new(Store::embedded());
    std::fs::create_dir(scene.file("disk")).unwrap();
    let file = scene.file("disk/store.db");
    let settings = format!("backend = \"embedded\"\nembedded.path = {file:?}\n");
    scene.write("worker.toml", &configuration(&settings));
    let worker = scene.bare(&["run", "--config", "worker.toml"]);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", FULL_DISK]);
    command.arg(worker.get_program()).args(worker.get_args());
    for (name, value) in worker.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(scene.file(""));
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    let path = file.display().to_string();
    let words = [path.as_str(), "its disk is full", "locks.embedded.path"];
    ends(&scene, command, &words);
}

/// Mounts the disk, fills it until nothing more fits, and becomes the program that it is given.
const FULL_DISK: &str = "mount -t tmpfs -o size=128k none disk && \
    { head -c 1000000 /dev/zero > disk/filler 2>/dev/null || true; } && exec \"$0\" \"$@\"";

/// A case that mounts: ignored with the reason where that is not permitted, or a failure where `WATCHKEEPER_REQUIRE` names it.
pub(crate) fn trial_with_mounts(name: &str, case: fn()) -> Trial {
    let mut made = Command::new("unshare");
    made.args(["--mount", "true"]);
    made.stdout(Stdio::null()).stderr(Stdio::null());
    if made.status().is_ok_and(|status| status.success()) {
        return Trial::test(name, move || {
            case();
            Ok(())
        });
    }
    const WHY: &str = "`unshare --mount` is not permitted here: run as root";
    let required = std::env::var("WATCHKEEPER_REQUIRE")
        .is_ok_and(|list| list.split(',').any(|word| word.trim() == "mounts"));
    if required {
        return Trial::test(name, || Err(WHY.into()));
    }
    Trial::test(format!("{name} [{WHY}]"), || Err(WHY.into())).with_ignored_flag(true)
}

#[cfg(feature = "etcd")]
pub(crate) fn a_worker_that_etcd_does_not_let_in_does_not_start() {
    let mut server = EtcdServer::start_with(&["--bcrypt-cost", "4"]);
    server.lock_up("watchkeeper/");
    let settings = format!(
        "backend = \"etcd\"\netcd.endpoints = [{:?}]\netcd.username = {:?}\netcd.password = {WRONG:?}\n\
         etcd.node_timeout = \"1s\"\n",
        server.url(),
        WORKER.0
    );
    does_not_start(&settings, &["access refused", "locks.etcd.password"]);
}
