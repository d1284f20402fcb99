//! A worker whose password is wrong can never lead: it says which key is to be corrected, and does not start.

#[cfg(feature = "etcd")]
use crate::etcd_server::{EtcdServer, WORKER};
#[cfg(feature = "postgres")]
use crate::postgres::PostgresServer;
use crate::{scene::Scene, store::Store};

const WRONG: &str = "swordfish";

/// `run` with these settings below `[locks]`, whose store is not that of a scene.
fn is_not_let_in(settings: &str, key: &str) {
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
        last.contains("access refused") && last.contains(key),
        "{done:?}"
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
    is_not_let_in(&settings, "locks.postgres.password");
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
    is_not_let_in(&settings, "locks.etcd.password");
}
