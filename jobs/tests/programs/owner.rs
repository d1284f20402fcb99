//! What the owner of a PostgreSQL database does for workers: makes the tables, grants rights, puts a password into a file, and looks at
//! the server with `doctor`.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    database::{Database, execute},
    operator::{ask, findings, has, json},
    postgres::{PostgresServer, USER, command, programs},
    process::{Done, Running},
    scene::Scene,
    store::Store,
    wait::until,
};

const SECRET: &str = "hunter2";
const WRONG: &str = "swordfish";

/// A server that asks all but its owners for a password, and a database of an owner.
struct Owned {
    server: PostgresServer,
    scene: Scene,
    /// Of the worker, which may do nothing there.
    url: String,
    /// Of the owner.
    owner: String,
}

// === impl Owned ===

impl Owned {
    fn start() -> Self {
        let server = PostgresServer::start_with(&["fsync=on"], |folder| {
            let rules = format!("local all {USER},owner trust\nlocal all all scram-sha-256\n");
            PostgresServer::put(folder, "data/pg_hba.conf", &rules);
        });
        let worker = format!("CREATE ROLE worker LOGIN PASSWORD '{SECRET}'");
        for statement in [
            "CREATE ROLE owner LOGIN",
            &worker,
            "CREATE DATABASE app OWNER owner",
        ] {
            execute(&server.url(USER, "postgres"), statement);
        }
        let scene = Scene::new(Store::embedded());
        scene.write("password", &format!("{SECRET}\n"));
        Self {
            url: server.url("worker", "app"),
            owner: server.url("owner", "app"),
            scene,
            server,
        }
    }

    /// `watchkeeper LINE`, in which `URL` is the database, for the worker with its password.
    fn worker(&self, line: &str) -> Command {
        let words = line.split_whitespace();
        let words: Vec<&str> = words
            .map(|word| {
                if word == "URL" {
                    self.url.as_str()
                } else {
                    word
                }
            })
            .collect();
        let mut command = self.scene.bare(&words);
        command.env("WATCHKEEPER_LOCKS__POSTGRES__PASSWORD_FILE", "password");
        command
    }

    fn run(&self, line: &str) -> Done {
        tight_lipped(Running::start(self.worker(line)).done())
    }

    /// Executes these statements as its owner: by the server's own client, where it is installed.
    fn executes(&self, statements: &str) {
        let client = programs().map(|folder| folder.join("psql"));
        let Some(client) = client.filter(|client| client.is_file()) else {
            return execute(&self.owner, statements);
        };
        let mut psql = command(&client, self.server.folder())
            .args(["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"])
            .args(["--username", "owner", "--dbname", "app", "--host"])
            .arg(self.server.folder())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("psql starts");
        let mut pipe = psql.stdin.take().expect("it was piped");
        pipe.write_all(statements.as_bytes()).expect("it reads");
        drop(pipe);
        let done = psql.wait_with_output().expect("our own child");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "psql: {said}");
    }
}

/// Shows no password, neither the right one nor a wrong one.
fn tight_lipped(done: Done) -> Done {
    for secret in [SECRET, WRONG] {
        let shown = done.out.contains(secret) || done.err.contains(secret);
        assert!(!shown, "{done:?}");
    }
    done
}

/// A worker's user that may make nothing is told who can make it; what is printed makes it, as often as it is run, and with the rights
/// that the book names, and no others, everything works.
pub(crate) fn what_is_printed_makes_the_tables_and_the_rights_of_the_book_suffice() {
    let owned = Owned::start();
    let tried = "lock k --wait 0s --postgres URL -- true";
    let nothing = owned.run(tried).with(125);
    nothing.says(&[
        "the schema \"watchkeeper\" is not there",
        "watchkeeper locks schema",
    ]);

    let made = owned.run("locks schema --postgres URL").with(0).out;
    for _ in 0..2 {
        owned.executes(&made);
    }
    let refused = owned.run(tried).with(125);
    refused.says(&[
        "access refused",
        "grant it to the user of locks.postgres.url",
    ]);

    let page = include_str!("../../../docs/operations/postgres.md");
    let (_, rights) = page.split_once("```postgresql\n  GRANT ").unwrap();
    let (rights, _) = rights.split_once("```").unwrap();
    owned.executes(&format!("GRANT {rights}"));
    for line in [
        tried,
        "elect k --postgres URL -- true",
        "locks --postgres URL",
        "doctor --postgres URL",
    ] {
        owned.run(line).with(0);
    }
    // A worker under the restart guard needs no more.
    let scene = &owned.scene;
    let config = format!(
        "[admin]\nlisten = \"off\"\n[worker]\nnamespace = \"guarded\"\n[locks]\nttl = \"2s\"\nmax_ttl = \"2s\"\n\
         backend = \"postgres\"\npostgres.url = {:?}\npostgres.node_timeout = \"100ms\"\n\
         [jobs.beat]\nkind = \"heartbeat\"\nschedule = \"@every 1s\"\nparams = {{ file = \"beats\" }}\n",
        owned.url
    );
    scene.write("worker.toml", &config);
    let mut worker = owned.worker("run --config worker.toml");
    worker.env_remove("WATCHKEEPER_LOCKS__RESTART_GUARD");
    let worker = Running::start(worker);
    // Two that have begun, and one that has ended.
    scene.wait_for_lines("beats", 3);
    assert!(!worker.has_said("access refused"), "it lacks a right");
    worker.signal(Signal::TERM);
    tight_lipped(worker.done()).with(0);
}

pub(crate) fn a_password_is_taken_from_a_file_and_no_other_is_shown() {
    let owned = Owned::start();
    let all = "GRANT ALL ON DATABASE app TO worker";
    execute(&owned.owner, all);
    let tried = "lock k --wait 0s --postgres URL -- true";
    owned.run(tried).with(0);
    let with = |line: &str, name: &str, value: &str| {
        let mut command = owned.worker(line);
        command.env_remove("WATCHKEEPER_LOCKS__POSTGRES__PASSWORD_FILE");
        command.env(format!("WATCHKEEPER_LOCKS__POSTGRES__{name}"), value);
        tight_lipped(Running::start(command).done())
    };
    with(tried, "PASSWORD", SECRET).with(0);
    let refused = with(tried, "PASSWORD", WRONG).with(125);
    refused.says(&["access refused", "locks.postgres.password"]);
    owned.scene.write("wrong", WRONG);
    let refused = with(tried, "PASSWORD_FILE", "wrong").with(125);
    refused.says(&["access refused", "locks.postgres.password"]);
    let missing = with(tried, "PASSWORD_FILE", "nowhere").with(125);
    missing.says(&["WATCHKEEPER_LOCKS__POSTGRES__PASSWORD_FILE"]);
    // Nor one that stands in the address, also where everything is told.
    let (user, host) = owned.url.split_once('@').unwrap();
    let url = format!("{user}:{WRONG}@{host}");
    let line = format!("lock k --log trace --wait 0s --postgres {url} -- true");
    with(&line, "NODE_TIMEOUT", "250ms").with(125);
}

// === doctor ===

/// The first of the nodes that `doctor --json` shows of this server, and all that it says.
fn examined(scene: &Scene, server: &PostgresServer) -> (Value, Done) {
    let url = server.url(USER, "postgres");
    let done = scene.run_bare(&["doctor", "--json", "--postgres", &url]);
    (json(&done)["nodes"][0].clone(), done)
}

/// A primary and a standby that follows it, asynchronously, then synchronously, and is promoted in the end.
pub(crate) fn doctor_tells_what_a_server_is_and_how_its_standbys_follow() {
    let mut server = PostgresServer::start_with(&["fsync=on", "synchronous_commit=on"], |_| {});
    let standby = server.standby();
    let scene = Scene::new(Store::embedded());
    let seen = |what: &str, server: &PostgresServer, wanted: &dyn Fn(&Value) -> bool| {
        let mut last = None;
        let there = until(|| {
            let now = examined(&scene, server);
            let is_right = wanted(&now.0);
            last = Some(now);
            is_right
        });
        let (node, done) = last.expect("it was asked");
        assert!(there, "no {what}: {node}");
        (node, done)
    };
    let on_timeline = |node: &Value, number: &str| {
        let life = node["run_id"].as_str().expect("its life");
        let (system, timeline) = life.split_once(':').expect("two numbers");
        assert!(system.parse::<u64>().is_ok(), "{life}");
        timeline == number
    };

    let (node, done) = seen("standby", &server, &|node| node["replicas"] == 1);
    assert_eq!(node["role"], "primary", "{node}");
    assert_eq!(node["fsync"], "on, synchronous_commit on", "{node}");
    assert_eq!(node["pooler"], false, "{node}");
    assert!(node["synchronous_standbys"].is_null(), "{node}");
    assert!(on_timeline(&node, "1"), "{node}");
    has(
        &findings(&done.with(0), "warning"),
        "1 standby(s) follow it asynchronously",
        "set synchronous_standby_names",
    );

    let primary = server.url(USER, "postgres");
    execute(&primary, "ALTER SYSTEM SET synchronous_standby_names = '*'");
    execute(&primary, "SELECT pg_reload_conf()");
    let (_, done) = seen("synchronous standby", &server, &|node| {
        node["synchronous_standbys"] == "*"
    });
    let warned = findings(&done.with(0), "warning");
    let is_asynchronous = |found: &(String, String)| found.0.contains("asynchronously");
    assert!(!warned.iter().any(is_asynchronous), "{warned:?}");

    let (node, done) = examined(&scene, &standby);
    assert_eq!(node["role"], "standby", "{node}");
    has(
        &findings(&done.with(1), "error"),
        "its role is standby: it does not vote",
        "locks.postgres.url",
    );

    server.stop();
    execute(&standby.url(USER, "postgres"), "SELECT pg_promote()");
    // Its own word for it is a checkpoint old.
    let (node, _) = seen("new timeline", &standby, &|node| on_timeline(node, "2"));
    assert_eq!(node["role"], "primary", "{node}");
}

pub(crate) fn doctor_tells_of_a_server_that_does_not_wait_for_its_disk() {
    let server = PostgresServer::start();
    let scene = Scene::new(Store::embedded());
    let (node, done) = examined(&scene, &server);
    assert_eq!(node["fsync"], "off, synchronous_commit off", "{node}");
    assert_eq!(node["up"], false, "{node}");
    has(
        &findings(&done.with(1), "error"),
        "fsync is off",
        "set fsync = on in postgresql.conf",
    );
}

pub(crate) fn doctor_tells_whether_a_pooler_stands_before_the_database() {
    for (database, pooler) in [(Database::new(), false), (Database::pooled(), true)] {
        let scene = Scene::new(Store::Postgres(database));
        let done = ask(&scene, "doctor --json").with(0);
        assert_eq!(json(&done)["nodes"][0]["pooler"], pooler, "{done:?}");
    }
}
