//! One PostgreSQL server for all cases that keep their locks in it, each in a schema of its own.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU32, Ordering},
    mpsc,
};

use tokio_postgres::NoTls;
use watchkeeper::spawn::Spawn;

use crate::postgres::{PostgresServer, USER};

/// Waits for its disk, which is memory in the daily run. Each worker has three connections.
const SETTINGS: [&str; 4] = [
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "max_connections=600",
];

static SERVER: Mutex<Option<Arc<PostgresServer>>> = Mutex::new(None);

/// The locks of one scene.
pub(crate) struct Database {
    server: Arc<PostgresServer>,
    schema: String,
    /// Dropped, whoever keeps the fleet out goes.
    blocker: Mutex<Option<mpsc::Sender<()>>>,
}

/// What is static is dropped by nobody: the server ends here, when its last case has.
pub(crate) fn end() {
    let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    *server = None;
}

impl Database {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        let start = || Arc::new(PostgresServer::start_with(&SETTINGS, |_| {}));
        Self {
            server: Arc::clone(server.get_or_insert_with(start)),
            schema: format!("s{}", NEXT.fetch_add(1, Ordering::Relaxed)),
            blocker: Mutex::default(),
        }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url(USER, "postgres")
    }

    #[allow(dead_code, reason = "each suite uses its own part")]
    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// What stands in the configuration below `[locks]`. It has just been started, and loses nothing.
    pub(crate) fn settings(&self) -> String {
        format!(
            "backend = \"postgres\"\nrestart_guard = \"off\"\npostgres.url = {:?}\npostgres.schema = {:?}\n\
             postgres.node_timeout = \"100ms\"\n",
            self.url(),
            self.schema
        )
    }

    /// Keeps the fleet out: somebody has its row.
    #[allow(dead_code, reason = "each suite uses its own part")]
    pub(crate) fn block(&self) {
        let (go, gone) = mpsc::channel::<()>();
        let (ready, is_ready) = mpsc::channel::<()>();
        let (url, schema) = (self.url(), self.schema.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let (client, connection) = tokio_postgres::connect(&url, NoTls)
                    .await
                    .expect("it is there");
                let moving = Spawn::system().spawn(async move { _ = connection.await });
                let take = format!("BEGIN; SELECT FROM {schema}.node FOR UPDATE");
                client.batch_execute(&take).await.expect("its row");
                ready.send(()).expect("the case waits");
                _ = tokio::task::spawn_blocking(move || gone.recv()).await;
                drop(client);
                _ = moving.await;
            });
        });
        is_ready.recv().expect("it has the row");
        *self.blocker.lock().unwrap_or_else(PoisonError::into_inner) = Some(go);
    }

    /// Lets it in again.
    #[allow(dead_code, reason = "each suite uses its own part")]
    pub(crate) fn unblock(&self) {
        *self.blocker.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
