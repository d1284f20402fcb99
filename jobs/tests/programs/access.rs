//! A worker whose store wants a person can never lead: it says what is to be done, and does not start.

#[cfg(feature = "etcd")]
use crate::etcd_server::{EtcdServer, WORKER};
#[cfg(feature = "postgres")]
use crate::{
    database::execute,
    postgres::{PostgresServer, USER},
};
use crate::{scene::Scene, store::Store};

const WRONG: &str = "swordfish";

/// `run` with these settings below `[locks]`, whose store is not that of a scene; what its last line says.
fn does_not_start(settings: &str, words: &[&str]) {
    let scene = Scene::new(Store::embedded());
    let config = format!(
        "[admin]\nlisten = \"off\"\n[locks]\nrestart_guard = \"off\"\nttl = \"20s\"\n{settings}\
         [jobs.beat]\nkind = \"heartbeat\"\nschedule = \"@yearly\"\nparams = {{ file = \"beats\" }}\n"
    );
    scene.write("worker.toml", &config);
    let done = scene.run_bare(&["run", "--config", "worker.toml"]).with(1);
    assert!(!done.err.contains(WRONG), "{done:?}");
    let last = done.err.lines().last().unwrap_or_default();
    assert!(
        words.iter().all(|word| last.contains(word)),
        "{words:?}: {done:?}"
    );
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

/// A database that is not there, one in which our user may make no tables, and one that does not wait for its disk.
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
    let careless = PostgresServer::start();
    does_not_start(
        &settings(&careless, USER, "postgres"),
        &["fsync", "set fsync = on"],
    );
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
