//! Servers, and replicas that share them.

use std::{path::PathBuf, time::Duration};

use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};
use tokio_util::sync::CancellationToken;
use watchkeeper::{
    BatchJob, Spec, Worker,
    clock::Clock,
    config::{AdminSettings, LockSettings},
    lock::spawn::Spawn,
};

use crate::{
    postgres::{PostgresServer, USER},
    server::RedisServer,
};

/// Masters, and a folder.
pub(crate) struct Masters {
    pub(crate) servers: Vec<RedisServer>,
    folder: TempDir,
}

/// Some replicas in this process, each with connections and a keeper of its own.
pub(crate) struct Replicas {
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

// === impl Masters ===

impl Masters {
    pub(crate) fn start(nodes: usize) -> Self {
        Self {
            servers: (0..nodes).map(|_| RedisServer::start()).collect(),
            folder: TempDir::with_prefix("wk-batches-").unwrap(),
        }
    }

    pub(crate) fn locks(&self) -> LockSettings {
        LockSettings::redis(self.servers.iter().map(RedisServer::url))
    }

    /// A file that nobody else has.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// So many replicas of a worker with this one job.
    pub(crate) fn replicas<J: BatchJob>(
        &self,
        n: usize,
        name: &str,
        job: impl Fn() -> J,
        spec: &Spec,
    ) -> Replicas {
        let stop = CancellationToken::new();
        let mut tasks = Vec::new();
        for _ in 0..n {
            let worker = Worker::builder()
                .namespace("bench")
                .locks(self.locks())
                .admin(AdminSettings::off())
                .build()
                .batch_job(name, job(), spec.clone());
            let stop = stop.clone();
            let running = async move { worker.run_until(stop.cancelled_owned()).await.unwrap() };
            tasks.push(Spawn::system().spawn(running));
        }
        Replicas { stop, tasks }
    }
}

// === impl Replicas ===

impl Replicas {
    pub(crate) async fn end(self) {
        self.stop.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

/// Waits until this says yes, and fails after so long.
pub(crate) async fn until(what: &str, limit: Duration, mut yes: impl FnMut() -> bool) {
    let clock = Clock::system();
    let end = clock.now() + limit;
    while !yes() {
        assert!(clock.now() < end, "{what}: not within {limit:?}");
        clock.sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    Spawn::system().spawn(async move { drop(connection.await) });
    client
}

/// A server as fast as its settings make it, and a table of its own.
pub(crate) async fn database() -> (PostgresServer, Client, String) {
    let server = PostgresServer::start_with(&["shared_buffers=512MB", "max_wal_size=8GB"], |_| {});
    let url = server.url(USER, "postgres");
    let client = connect(&url).await;
    client.batch_execute(TABLE).await.unwrap();
    (server, client, url)
}

const TABLE: &str = "
CREATE TABLE notifications (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    recipient  text NOT NULL,
    body       text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    sent_at    timestamptz
);
CREATE INDEX notifications_unsent ON notifications (id) WHERE sent_at IS NULL;";

pub(crate) async fn insert(client: &Client, rows: u64) {
    let rows = format!(
        "INSERT INTO notifications (recipient, body)
         SELECT 'user' || i || '@example.org', 'Notification ' || i FROM generate_series(1, {rows}) AS i"
    );
    client.batch_execute(&rows).await.unwrap();
}
