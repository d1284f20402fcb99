//! A network in front of a server: every byte arrives later, in order.

use std::{path::PathBuf, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        UnixListener, UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    task::JoinSet,
};
use watchkeeper_lock::clock::Clock;

use crate::{scene::url_of, server::RedisServer};

/// Ends its connections when it is dropped.
pub(crate) struct Proxy {
    socket: PathBuf,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Delays each direction by so much.
    pub(crate) fn before(server: &RedisServer, delay: Duration) -> Self {
        let (behind, socket) = (server.socket(), server.folder().join("far.sock"));
        let listener = UnixListener::bind(&socket).unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (near, _) = listener.accept().await.unwrap();
                let far = UnixStream::connect(&behind).await.unwrap();
                let ((near_out, near_in), (far_out, far_in)) =
                    (near.into_split(), far.into_split());
                connections.spawn(carry(near_out, far_in, delay));
                connections.spawn(carry(far_out, near_in, delay));
            }
        });
        Self {
            socket,
            _tasks: tasks,
        }
    }

    pub(crate) fn url(&self) -> String {
        url_of(&self.socket)
    }
}

/// Reading goes on while earlier bytes wait: the delay is not a limit on what is under way.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let clock = Clock::system();
    let (queue, mut queued) = mpsc::unbounded_channel();
    let read = async {
        let mut bytes = vec![0; 65_536];
        while let Ok(n @ 1..) = from.read(&mut bytes).await {
            let at = clock.now() + delay;
            if queue.send((at, bytes[..n].to_vec())).is_err() {
                break;
            }
        }
        drop(queue);
    };
    let write = async {
        while let Some((at, bytes)) = queued.recv().await {
            clock.sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                break;
            }
        }
    };
    tokio::join!(read, write);
}
