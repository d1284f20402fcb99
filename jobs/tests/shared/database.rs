//! PostgreSQL for cases that keep their locks in it: one server for all, each in a schema of its own; a server of its own for those
//! that do it harm; behind a pooler.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio_postgres::{Client, NoTls};
use watchkeeper::{
    clock::{Clock, Moment},
    spawn::Spawn,
};

use crate::{
    pooler::Pooler,
    postgres::{PostgresServer, USER},
    wait::pause,
};

/// For so long a standby misses what its primary commits, before that is killed.
const NOT_COPIED: Duration = Duration::from_millis(1_500);

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
    /// The server itself.
    direct: String,
    schema: String,
    /// Whether the restart guard is on.
    guarded: bool,
    pooler: Option<Pooler>,
    /// Past the pooler it is told of releases.
    listens: bool,
    own: Option<Mutex<PostgresServer>>,
    /// It follows that one, asynchronously.
    standby: Option<Box<PostgresServer>>,
    _shared: Option<Arc<PostgresServer>>,
    /// Dropped, whoever keeps the fleet out goes.
    blocker: Mutex<Option<mpsc::Sender<()>>>,
}

/// What is static is dropped by nobody: the server ends here, when its last case has.
pub(crate) fn end() {
    let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    *server = None;
}

fn shared() -> Arc<PostgresServer> {
    let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    let start = || Arc::new(PostgresServer::start_with(&SETTINGS, |_| {}));
    Arc::clone(server.get_or_insert_with(start))
}

#[allow(dead_code, reason = "each suite uses its own part")]
impl Database {
    pub(crate) fn new() -> Self {
        let server = shared();
        Self {
            direct: server.url(USER, "postgres"),
            schema: schema(),
            guarded: false,
            pooler: None,
            listens: true,
            own: None,
            standby: None,
            _shared: Some(server),
            blocker: Mutex::default(),
        }
    }

    /// The same behind a pooler of its own; releases are heard of past it.
    pub(crate) fn pooled() -> Self {
        let new = Self::new();
        let pooler = new._shared.as_deref().map(Pooler::start);
        Self { pooler, ..new }
    }

    /// The same with nothing past it: it hears of no release, and looks.
    pub(crate) fn pooled_deaf() -> Self {
        Self {
            listens: false,
            ..Self::pooled()
        }
    }

    /// One more of the same sort.
    pub(crate) fn another(&self) -> Self {
        match self {
            Self {
                standby: Some(_), ..
            } => Self::with_standby(),
            Self { guarded: true, .. } => Self::guarded(),
            Self { own: Some(_), .. } => Self::own(),
            Self { listens: false, .. } => Self::pooled_deaf(),
            Self {
                pooler: Some(_), ..
            } => Self::pooled(),
            _ => Self::new(),
        }
    }

    /// A server of its own.
    pub(crate) fn own() -> Self {
        let server = PostgresServer::start_with(&SETTINGS, |_| {});
        Self {
            direct: server.url(USER, "postgres"),
            schema: schema(),
            guarded: false,
            pooler: None,
            listens: true,
            own: Some(Mutex::new(server)),
            standby: None,
            _shared: None,
            blocker: Mutex::default(),
        }
    }

    /// The same, for a fleet with its restart guard on.
    pub(crate) fn guarded() -> Self {
        Self {
            guarded: true,
            ..Self::own()
        }
    }

    /// The same with a standby that follows it, asynchronously. Both are named.
    pub(crate) fn with_standby() -> Self {
        let mut server = PostgresServer::start_with(&SETTINGS, |_| {});
        let standby = server.standby();
        Self {
            direct: format!(
                "postgres://{USER}@{},{}/postgres",
                server.host(),
                standby.host()
            ),
            schema: schema(),
            guarded: true,
            pooler: None,
            listens: true,
            own: Some(Mutex::new(server)),
            standby: Some(Box::new(standby)),
            _shared: None,
            blocker: Mutex::default(),
        }
    }

    pub(crate) fn url(&self) -> String {
        match &self.pooler {
            Some(pooler) => pooler.url("postgres"),
            None => self.direct.clone(),
        }
    }

    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// What stands in the configuration below `[locks]`. It has just been started, and loses nothing: so most cases do without the
    /// guard, lest what they measure is the founding of a fleet.
    pub(crate) fn settings(&self) -> String {
        let guard = match self.guarded {
            true => "max_ttl = \"2s\"",
            false => "restart_guard = \"off\"",
        };
        let listen = match self.listens {
            true => format!("postgres.listen_url = {:?}\n", self.direct),
            false => String::new(),
        };
        format!(
            "backend = \"postgres\"\n{guard}\npostgres.url = {:?}\n{listen}postgres.schema = {:?}\n\
             postgres.node_timeout = \"100ms\"\n",
            self.url(),
            self.schema
        )
    }

    /// Kills the server in the middle of whatever it does, and starts it again.
    pub(crate) fn crash(&self) {
        let own = self.own.as_ref().expect("a server of its own");
        let mut server = own.lock().unwrap_or_else(PoisonError::into_inner);
        server.kill();
        server.start_again();
    }

    /// The number of the layout in which it is written.
    pub(crate) fn layout(&self) -> i32 {
        let ask = format!("SELECT layout FROM {}.node", self.schema);
        with_client(&self.direct, async move |client| {
            let row = client.query_one(&ask, &[]).await.expect("its row");
            row.get::<_, i32>(0)
        })
        .join()
        .expect("it is read")
    }

    /// As a program of another layout would have left it.
    pub(crate) fn set_layout(&self, layout: i32) {
        let set = format!("UPDATE {}.node SET layout = {layout}", self.schema);
        with_client(&self.direct, async move |client| {
            client.batch_execute(&set).await.expect("its row");
        })
        .join()
        .expect("it is written");
    }

    /// Kills the primary after its standby has heard no more of it for a while, and says when the standby was promoted.
    pub(crate) fn replace_master(&self) -> Moment {
        let standby = self.standby.as_ref().expect("a primary with a standby");
        with_client(&standby.url(USER, "postgres"), async |client| {
            let alone = "ALTER SYSTEM SET primary_conninfo = ''";
            client.batch_execute(alone).await.expect("a superuser");
            let read = "SELECT pg_reload_conf()";
            client.batch_execute(read).await.expect("a superuser");
            let copies = "SELECT FROM pg_stat_wal_receiver";
            while !client.query(copies, &[]).await.expect("a view").is_empty() {
                Clock::system().sleep(Duration::from_millis(20)).await;
            }
        })
        .join()
        .expect("it is cut off");
        pause(NOT_COPIED);
        let own = self.own.as_ref().expect("a server of its own");
        own.lock().unwrap_or_else(PoisonError::into_inner).kill();
        with_client(&standby.url(USER, "postgres"), async |client| {
            let promoted = client.query_one("SELECT pg_promote()", &[]).await;
            assert!(promoted.expect("a superuser").get::<_, bool>(0), "promoted");
        })
        .join()
        .expect("it is promoted");
        Clock::system().now()
    }

    /// Keeps the fleet out: a server of its own stands still; in one that others use somebody has the fleet's row, which is there once
    /// the fleet has begun.
    pub(crate) fn block(&self) {
        if let Some(server) = &self.own {
            let server = server.lock().unwrap_or_else(PoisonError::into_inner);
            return server.freeze();
        }
        let (go, gone) = mpsc::channel::<()>();
        let (ready, is_ready) = mpsc::channel::<()>();
        let take = format!("BEGIN; SELECT FROM {}.node FOR UPDATE", self.schema);
        with_client(&self.direct, async move |client| {
            client.batch_execute(&take).await.expect("its row");
            ready.send(()).expect("the case waits");
            _ = tokio::task::spawn_blocking(move || gone.recv()).await;
        });
        is_ready.recv().expect("it has the row");
        *self.blocker.lock().unwrap_or_else(PoisonError::into_inner) = Some(go);
    }

    /// Lets it in again.
    pub(crate) fn unblock(&self) {
        if let Some(server) = &self.own {
            let server = server.lock().unwrap_or_else(PoisonError::into_inner);
            return server.thaw();
        }
        *self.blocker.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Runs these statements.
#[allow(dead_code, reason = "each suite uses its own part")]
pub(crate) fn execute(url: &str, statements: &str) {
    let statements = statements.to_owned();
    let done = with_client(url, async move |client| {
        client.batch_execute(&statements).await.expect("they run");
    });
    done.join().expect("they run");
}

/// Runs this with a client of its own, on a thread of its own.
pub(crate) fn with_client<T: Send + 'static>(
    url: &str,
    act: impl AsyncFnOnce(Client) -> T + Send + 'static,
) -> JoinHandle<T> {
    let url = url.to_owned();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let connected = tokio_postgres::connect(&url, NoTls).await;
            let (client, connection) = connected.expect("it is there");
            let moving = Spawn::system().spawn(async move { _ = connection.await });
            let done = act(client).await;
            _ = moving.await;
            done
        })
    })
}

fn schema() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("s{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
