//! A pooler that passes its client's greeting on, as pgagroal did, and gives the client another process of the server afterwards:
//! whatever was kept for the first one is not there, or is another's.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        UnixListener, UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
};
use watchkeeper_lock::{
    node::{Call, Node, NodeError, Op},
    spawn::Spawn,
};

use crate::{
    it::conformance::{ask, granted, take},
    node::{fresh, node, run, settings, url},
    server::{PostgresServer, USER},
};

/// What the second process has been told before the client comes to it.
#[derive(Clone, Copy, Debug)]
enum Told {
    /// The greeting alone.
    Greeting,
    /// All that the client has said to the first one.
    Everything,
}

struct Relay {
    swaps: Arc<AtomicBool>,
    dir: TempDir,
}

impl Relay {
    fn start(server: &Path, told: Told) -> Self {
        let dir = TempDir::with_prefix("wk-relay-").unwrap();
        let listener = UnixListener::bind(dir.path().join(".s.PGSQL.5432")).unwrap();
        let swaps = Arc::new(AtomicBool::new(false));
        let (server, swap) = (server.to_owned(), swaps.clone());
        Spawn::system().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                Spawn::system().spawn(carry(client, server.clone(), swap.clone(), told));
            }
        });
        Self { swaps, dir }
    }

    fn url(&self) -> String {
        let socket = self.dir.path().display().to_string().replace('/', "%2F");
        format!("postgres://{USER}@{socket}/postgres")
    }

    /// What the client says next goes to another process.
    fn swap(&self) {
        self.swaps.store(true, Ordering::SeqCst);
    }
}

async fn carry(client: UnixStream, server: PathBuf, swaps: Arc<AtomicBool>, told: Told) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = connect(&server).await;
    let (mut said, mut greeting) = (Vec::new(), None);
    let (mut asked, mut answered) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let mut answers = Frames::default();
    loop {
        tokio::select! {
            read = from_client.read(&mut asked) => {
                let Ok(n @ 1..) = read else { return };
                greeting.get_or_insert(n);
                if swaps.swap(false, Ordering::SeqCst) {
                    let (again, count) = match told {
                        Told::Greeting => (&said[..greeting.unwrap_or(0)], 1),
                        Told::Everything => (&said[..], answers.ready),
                    };
                    (from_server, to_server) = connect(&server).await;
                    to_server.write_all(again).await.unwrap();
                    swallow(&mut from_server, count).await;
                }
                said.extend_from_slice(&asked[..n]);
                if to_server.write_all(&asked[..n]).await.is_err() {
                    return;
                }
            }
            read = from_server.read(&mut answered) => {
                let Ok(n @ 1..) = read else { return };
                answers.add(&answered[..n]);
                if to_client.write_all(&answered[..n]).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn connect(server: &Path) -> (OwnedReadHalf, OwnedWriteHalf) {
    UnixStream::connect(server).await.unwrap().into_split()
}

/// Reads until the server has said so often that it is ready.
async fn swallow(from: &mut OwnedReadHalf, ready: u64) {
    let (mut frames, mut bytes) = (Frames::default(), vec![0; 64 * 1024]);
    while frames.ready < ready {
        let n = from.read(&mut bytes).await.unwrap();
        assert!(n > 0, "the server hung up");
        frames.add(&bytes[..n]);
    }
}

/// Messages of a server.
#[derive(Default)]
struct Frames {
    rest: Vec<u8>,
    /// How often it has said that it is ready for a query.
    ready: u64,
}

impl Frames {
    fn add(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        while let Some((kind, length)) = self.rest.split_first() {
            let Some(length) = length.first_chunk() else {
                return;
            };
            let whole = 1 + u32::from_be_bytes(*length) as usize;
            if self.rest.len() < whole {
                return;
            }
            self.ready += u64::from(*kind == b'Z');
            self.rest.drain(..whole);
        }
    }
}

pub(crate) fn a_pooler_that_was_not_noticed_is_noticed_before_anything_is_written(
    server: &PostgresServer,
) {
    run(async {
        for told in [Told::Greeting, Told::Everything] {
            let namespace = fresh();
            let relay = Relay::start(&server.socket(), told);
            let pooled = node(&settings(&relay.url(), &namespace));
            granted(&pooled, take("k", "a")).await;
            relay.swap();
            let refused = pooled.call(Call {
                not_after: None,
                ops: vec![take("l", "a")],
            });
            let Err(NodeError::Unreachable(why)) = refused.await else {
                panic!("{told:?}: taken for the process that it had met")
            };
            assert!(why.contains("a pooler stands before"), "{told:?}: {why}");
            let direct = node(&settings(&url(server), &namespace));
            let read = Op::Read { key: "l".into() };
            let watchkeeper_lock::node::Answer::View(view) = ask(&direct, read).await else {
                panic!("a view")
            };
            assert_eq!(view.owner, None, "{told:?}");
            // From now on nothing is kept, and each transaction may be another process's.
            granted(&pooled, take("l", "a")).await;
            relay.swap();
            granted(&pooled, take("m", "a")).await;
        }
    });
}
