//! What stands between a client and the server's socket: it counts the ways there and back, and holds answers.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::Notify,
};
use watchkeeper_lock::{clock::Clock, spawn::Spawn};

use crate::server::USER;

/// How much later an answer comes: what is sent together has left by then.
const WAY: Duration = Duration::from_millis(20);

pub(crate) struct Proxy {
    shared: Arc<Shared>,
    dir: TempDir,
}

#[derive(Default)]
struct Shared {
    /// How often the client has spoken after an answer.
    turns: AtomicU64,
    answered: AtomicBool,
    holds: AtomicBool,
    goes_on: Notify,
}

impl Proxy {
    pub(crate) fn start(server: &Path) -> Self {
        let dir = TempDir::with_prefix("wk-proxy-").unwrap();
        let listener = UnixListener::bind(dir.path().join(".s.PGSQL.5432")).unwrap();
        let shared = Arc::new(Shared::default());
        let (server, all) = (server.to_owned(), shared.clone());
        Spawn::system().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                Spawn::system().spawn(carry(client, server.clone(), all.clone()));
            }
        });
        Self { shared, dir }
    }

    pub(crate) fn url(&self) -> String {
        let socket = self.dir.path().display().to_string().replace('/', "%2F");
        format!("postgres://{USER}@{socket}/postgres")
    }

    /// Ways there and back so far.
    pub(crate) fn turns(&self) -> u64 {
        self.shared.turns.load(Ordering::SeqCst)
    }

    /// No answer comes through; the server does not hear of a client that goes away.
    pub(crate) fn hold(&self) {
        self.shared.holds.store(true, Ordering::SeqCst);
    }

    pub(crate) fn go_on(&self) {
        self.shared.holds.store(false, Ordering::SeqCst);
        self.shared.goes_on.notify_waiters();
    }
}

async fn carry(client: UnixStream, server: PathBuf, shared: Arc<Shared>) {
    let Ok(server) = UnixStream::connect(server).await else {
        return;
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let there = async {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(n @ 1..) = from_client.read(&mut bytes).await {
            if shared.answered.swap(false, Ordering::SeqCst) {
                shared.turns.fetch_add(1, Ordering::SeqCst);
            }
            if to_server.write_all(&bytes[..n]).await.is_err() {
                return;
            }
        }
        // A client that is frozen hangs up on nobody.
        while shared.holds.load(Ordering::SeqCst) {
            shared.goes_on.notified().await;
        }
    };
    let back = async {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(n @ 1..) = from_server.read(&mut bytes).await {
            while shared.holds.load(Ordering::SeqCst) {
                shared.goes_on.notified().await;
            }
            Clock::system().sleep(WAY).await;
            shared.answered.store(true, Ordering::SeqCst);
            if to_client.write_all(&bytes[..n]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = there => {}
        () = back => {}
    }
}
