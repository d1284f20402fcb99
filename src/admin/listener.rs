//! Where it listens: which address, how many connections, for how long.

use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;

/// Where the server listens unless told otherwise: this machine only.
pub(super) const DEFAULT_LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8787);

/// How many ports after the default one are tried: several replicas on one machine need no configuration.
const NEXT_PORTS: u16 = 100;

/// Connections at one time.
const MOST: usize = 128;

/// Life of a connection; each carries one request.
const LIFE: Duration = Duration::from_secs(10);

/// Life of a connection whose answer is a stream, from the beginning of the stream on: its client comes back after that.
const STREAM: Duration = Duration::from_secs(3600);

/// How long what is written may wait for a client that does not read.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes that a connection may send: one request, with a head of what a browser needs at most, and its body.
const BYTES: usize = 64 * 1024;

/// Listens at `listen`. Port 0 takes any free one. The default port, when taken, moves to the next free one.
///
/// # Errors
/// Those of the operating system; any other port that is taken.
pub(crate) async fn bind(listen: SocketAddr) -> io::Result<TcpListener> {
    if listen.port() == DEFAULT_LISTEN.port() {
        bind_or_next(listen).await
    } else {
        TcpListener::bind(listen).await
    }
}

pub(super) async fn bind_or_next(listen: SocketAddr) -> io::Result<TcpListener> {
    let last = listen.port().saturating_add(NEXT_PORTS);
    let mut bound = TcpListener::bind(listen).await;
    for port in listen.port().saturating_add(1)..=last {
        match &bound {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            _ => break,
        }
        bound = TcpListener::bind(SocketAddr::new(listen.ip(), port)).await;
    }
    bound
}

/// Accepts connections, and makes room by sending the oldest one away that is no stream.
pub(super) struct Listener {
    listener: TcpListener,
    connections: Connections,
    clock: Clock,
    most: usize,
    life: Duration,
}

/// The open connections, oldest first.
#[derive(Clone, Default)]
pub(super) struct Connections(Arc<Mutex<List>>);

#[derive(Default)]
struct List {
    arrived: u64,
    present: BTreeMap<u64, Present>,
}

struct Present {
    away: CancellationToken,
    stay: Stay,
}

/// Lets the answer of a connection go on for longer than other connections live.
#[derive(Clone, Debug, Default)]
pub(super) struct Stay(CancellationToken);

/// A connection that ends on its own.
pub(super) struct Connection {
    stream: TcpStream,
    /// Ready when this connection has to go.
    end: BoxFuture<'static, ()>,
    streams: Stay,
    clock: Clock,
    /// Ready when its client has kept us waiting for too long; none while nothing waits to be written.
    stuck: Option<BoxFuture<'static, ()>>,
    /// Bytes that it may still send.
    left: usize,
    number: u64,
    connections: Connections,
}

// === impl Listener ===

impl Listener {
    pub(super) fn new(listener: TcpListener, clock: Clock) -> Self {
        Self::with_limits(listener, clock, MOST, LIFE)
    }

    pub(super) fn with_limits(
        listener: TcpListener,
        clock: Clock,
        most: usize,
        life: Duration,
    ) -> Self {
        Self {
            listener,
            connections: Connections::default(),
            clock,
            most,
            life,
        }
    }

    pub(super) fn connections(&self) -> Connections {
        self.connections.clone()
    }
}

impl axum::serve::Listener for Listener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let (stream, address) = axum::serve::Listener::accept(&mut self.listener).await;
        let (clock, life, streams) = (self.clock.clone(), self.life, Stay::default());
        let (number, away) = self.connections.welcome(self.most, &streams);
        let stay = streams.clone();
        let end = async move {
            tokio::select! {
                () = away.cancelled() => {}
                () = stay.end(&clock, life) => {}
            }
        };
        let connection = Connection {
            stream,
            end: end.boxed(),
            streams,
            clock: self.clock.clone(),
            stuck: None,
            left: BYTES,
            number,
            connections: self.connections.clone(),
        };
        (connection, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

// === impl Connections ===

impl Connections {
    /// Ends every connection.
    pub(super) fn send_away(&self) {
        self.list(|list| list.present.values().for_each(|one| one.away.cancel()));
    }

    fn welcome(&self, most: usize, stay: &Stay) -> (u64, CancellationToken) {
        let away = CancellationToken::new();
        self.list(|list| {
            while list.present.len() >= most {
                let Some(oldest) = list.first_to_go().and_then(|n| list.present.remove(&n)) else {
                    break;
                };
                oldest.away.cancel();
            }
            list.arrived += 1;
            let present = Present {
                away: away.clone(),
                stay: stay.clone(),
            };
            list.present.insert(list.arrived, present);
            (list.arrived, away.clone())
        })
    }

    fn list<T>(&self, f: impl FnOnce(&mut List) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl List ===

impl List {
    /// The oldest and not the newest: a new client may be a probe, the oldest one is stuck. A stream is old because its client is
    /// there, and there are few of them.
    fn first_to_go(&self) -> Option<u64> {
        let mut present = self.present.iter();
        let other = present.find(|(_, one)| !one.stay.is_taken());
        let oldest = other.or_else(|| self.present.first_key_value());
        oldest.map(|(number, _)| *number)
    }
}

// === impl Stay ===

impl Stay {
    /// The answer is a stream.
    pub(super) fn for_a_stream(&self) {
        self.0.cancel();
    }

    fn is_taken(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Returns when the life of the connection is over.
    async fn end(&self, clock: &Clock, life: Duration) {
        tokio::select! {
            biased;
            () = self.0.cancelled() => clock.sleep(STREAM).await,
            () = clock.sleep(life) => {}
        }
    }
}

// === impl Connection ===

impl Connection {
    /// What lets its answer go on.
    pub(super) fn stay_on(&self) -> Stay {
        self.streams.clone()
    }

    /// What became of a write, unless it has waited for too long.
    fn written<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let clock = &self.clock;
        let stuck = self.stuck.get_or_insert_with(|| {
            let clock = clock.clone();
            async move { clock.sleep(PATIENCE).await }.boxed()
        });
        match stuck.poll_unpin(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                self.stuck = None;
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }

    fn stay(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.end.poll_unpin(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(()) => {
                // A future that has ended must not be asked again; this connection stays over.
                self.end = std::future::ready(()).boxed();
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stay(cx)?;
        if self.left == 0 {
            return Poll::Ready(Err(io::ErrorKind::FileTooLarge.into()));
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let came = buf.filled().len().saturating_sub(before);
        self.left = self.left.saturating_sub(came);
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stay(cx)?;
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.written(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stay(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let number = self.number;
        self.connections.list(|list| list.present.remove(&number));
    }
}
