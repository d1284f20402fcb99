//! A worker whose store is full when it starts, or becomes full while it leads: nothing runs that is not known to be its own, the log
//! and `doctor` say what to do, and it goes on by itself when there is room.

use std::collections::BTreeSet;
#[cfg(feature = "postgres")]
use std::sync::mpsc;

#[cfg(feature = "postgres")]
use libtest_mimic::Trial;
use rustix::process::Signal;
use serde_json::Value;

#[cfg(feature = "etcd")]
use crate::etcd_server::EtcdServer;
#[cfg(feature = "postgres")]
use crate::{
    access::trial_with_mounts,
    database::{execute, with_client},
    postgres::{self, PostgresServer, USER},
};
use crate::{process::Running, scene::Scene, store::Store, wait::soon};

/// So many that their leases fill a page of a table soon.
const JOBS: usize = 20;
const COMPLAINT: &str = "node refuses to write";

/// A worker of [`JOBS`] jobs, each of which runs once a second, and never a second time for one tick.
struct FullWorker {
    scene: Scene,
    worker: Running,
}

// === impl FullWorker ===

impl FullWorker {
    /// With these settings below `[locks]`.
    fn start(settings: &str) -> Self {
        let mut config = format!(
            "[admin]\nlisten = \"off\"\n[locks]\nrestart_guard = \"off\"\nttl = \"2s\"\n{settings}"
        );
        for job in 0..JOBS {
            config += &format!(
                "[jobs.beat-{job:02}]\nkind = \"heartbeat\"\nschedule = \"@every 1s\"\ninterrupted = \"skip\"\n\
                 params = {{ file = \"beats\" }}\n"
            );
        }
        let scene = Scene::new(Store::embedded());
        scene.write("worker.toml", &config);
        let worker = Running::start(scene.bare(&["run", "--config", "worker.toml"]));
        Self { scene, worker }
    }

    /// The runs that have begun, as job and tick, in their order.
    fn runs(&self) -> Vec<(String, String)> {
        let lines = self.scene.lines("beats");
        let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let read = |line: &String| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            (text(&line, "job"), text(&line, "tick"))
        };
        lines.iter().map(read).collect()
    }

    /// Waits until each job has run after the first `before` runs.
    fn wait_until_all_have_run(&self, before: usize) {
        soon("run of each job", || {
            let runs = self.runs();
            let jobs: BTreeSet<&String> = runs.iter().skip(before).map(|(job, _)| job).collect();
            jobs.len() == JOBS
        });
    }

    /// The log names the cause, and what to do.
    fn complains(&self, words: &[&str]) {
        let line = self.worker.wait_for_line(COMPLAINT);
        for words in words {
            assert!(line.contains(words), "{words}: {line}");
        }
    }

    /// So does `doctor`.
    fn is_found_by_doctor(&self, words: &[&str]) {
        let doctor = ["doctor", "--config", "worker.toml"];
        let found = self.scene.run_bare(&doctor).with(1);
        for words in words {
            assert!(found.out.contains(words), "{words}: {}", found.out);
        }
        assert!(!found.out.contains("no replica runs"), "{}", found.out);
    }

    /// It ends well, has complained once, and has begun no tick twice.
    fn ends(self) {
        let runs = self.runs();
        let ticks: BTreeSet<&(String, String)> = runs.iter().collect();
        assert_eq!(ticks.len(), runs.len(), "a tick was begun twice: {runs:?}");
        assert_eq!(self.worker.count(&[COMPLAINT]), 1, "complaints");
        self.worker.signal(Signal::TERM);
        self.worker.done().with(0);
    }
}

/// It waits, has begun nothing, and begins when there is room.
fn waits_for_room(settings: &str, says: &[&str], doctor: &[&str], make_room: impl FnOnce()) {
    let full = FullWorker::start(settings);
    full.complains(says);
    let started = "too few lock nodes have told for whom they keep locks";
    let line = full.worker.wait_for_line(started);
    assert!(line.contains("\"cause\":\"oom\""), "{line}");
    full.worker.wait_for_line("worker started");
    full.is_found_by_doctor(doctor);
    assert!(!full.worker.has_said("\"leading\""), "of what it leads");
    assert_eq!(full.runs(), [], "runs without a lease");
    make_room();
    full.wait_until_all_have_run(0);
    full.ends();
}

/// Its terms end with their leases, and begin again when there is room.
fn stands_by_without_room(
    settings: &str,
    says: &[&str],
    doctor: &[&str],
    fill: impl FnOnce(),
    make_room: impl FnOnce(),
) {
    let full = FullWorker::start(settings);
    full.wait_until_all_have_run(0);
    assert!(!full.worker.has_said(COMPLAINT), "before it is full");
    fill();
    full.complains(says);
    let led = || full.worker.count(&["\"leading\""]);
    let ended = || full.worker.count(&["\"standing by\"", "\"expired\""]);
    soon("end of all terms", || ended() >= JOBS && ended() == led());
    let (terms, before) = (led(), full.runs().len());
    full.is_found_by_doctor(doctor);
    // A single lease may fit in where twenty do not.
    if led() == terms {
        assert_eq!(full.runs().len(), before, "runs without a lease");
    }
    make_room();
    full.wait_until_all_have_run(before);
    full.ends();
}

#[cfg(feature = "etcd")]
fn small_etcd() -> (EtcdServer, String) {
    let server = EtcdServer::start_with(&["--quota-backend-bytes", "4194304"]);
    let settings = format!(
        "backend = \"etcd\"\netcd.endpoints = [{:?}]\netcd.node_timeout = \"100ms\"\n",
        server.url()
    );
    (server, settings)
}

#[cfg(feature = "etcd")]
const ETCD_SAYS: [&str; 3] = ["database space exceeded", "oom", "etcdctl"];
#[cfg(feature = "etcd")]
const ETCD_FINDING: [&str; 2] = ["alarm:NOSPACE", "etcdctl alarm disarm"];

#[cfg(feature = "etcd")]
pub(crate) fn a_worker_waits_until_etcd_has_room() {
    let (server, settings) = small_etcd();
    server.fill();
    waits_for_room(&settings, &ETCD_SAYS, &ETCD_FINDING, || server.make_room());
}

#[cfg(feature = "etcd")]
pub(crate) fn a_leader_stands_by_until_etcd_has_room() {
    let (server, settings) = small_etcd();
    let (fill, make_room) = (|| server.fill(), || server.make_room());
    stands_by_without_room(&settings, &ETCD_SAYS, &ETCD_FINDING, fill, make_room);
}

/// A case that needs both.
#[cfg(feature = "postgres")]
pub(crate) fn trial_of_postgres(name: &str, case: fn()) -> Trial {
    match postgres::programs() {
        Some(_) => trial_with_mounts(name, case),
        None => postgres::trial_of_its_own(name, case),
    }
}

/// Its database is on a small disk, and has seen no client yet.
#[cfg(feature = "postgres")]
fn small_postgres() -> (PostgresServer, String) {
    let server = PostgresServer::start_on_a_small_disk(&["fsync=on"]);
    let place = server.small_disk();
    for statement in [
        format!("CREATE TABLESPACE small LOCATION '{}'", place.display()),
        "CREATE DATABASE app TABLESPACE small".to_owned(),
    ] {
        execute(&server.url(USER, "postgres"), &statement);
    }
    let url = server.url(USER, "app");
    let settings = format!(
        "backend = \"postgres\"\npostgres.url = {url:?}\npostgres.node_timeout = \"100ms\"\n"
    );
    (server, settings)
}

/// What a server without room says to the first client of a database names neither the disk nor a file.
#[cfg(feature = "postgres")]
pub(crate) fn a_worker_waits_until_postgres_has_room() {
    let (server, settings) = small_postgres();
    server.fill();
    let says = ["oom", "could not write init file", "make room on its disk"];
    waits_for_room(&settings, &says, &says[1..], || server.make_room());
}

/// What still fits into the tables' pages is written. A transaction that sees what was before keeps it there, so that nothing fits soon.
#[cfg(feature = "postgres")]
pub(crate) fn a_leader_stands_by_until_postgres_has_room() {
    let (server, settings) = small_postgres();
    let (go, gone) = mpsc::channel::<()>();
    let url = server.url(USER, "app");
    let fill = || {
        let (ready, is_ready) = mpsc::channel::<()>();
        with_client(&url, async move |client| {
            let look = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class";
            client.batch_execute(look).await.expect("it is there");
            ready.send(()).expect("the case waits");
            _ = tokio::task::spawn_blocking(move || gone.recv()).await;
        });
        is_ready.recv().expect("it looks");
        server.fill();
    };
    let make_room = || {
        drop(go);
        server.make_room();
    };
    let says = ["oom", "No space left on device", "make room on its disk"];
    stands_by_without_room(&settings, &says, &says[1..], fill, make_room);
}
