//! One connection while it works: what is on it, and what it shows of its server.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use deadpool_redis::{
    Connection,
    redis::{Cmd, RedisResult, Value, aio::MultiplexedConnection, cmd, from_redis_value},
};
use futures_util::future::{BoxFuture, join_all, poll_fn};
use tokio::task::unconstrained;

use crate::{
    clock::Moment,
    node::redis::{
        preflight::{self, Identity},
        route::Reach,
        script::{Marker, Peer},
    },
};

/// A server in use is looked at again after so many times the time limit of a call, within these bounds.
const LIMITS_TO_A_LOOK: u32 = 20;
const LOOKS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// One connection, checked out of the pool for as long as it works.
pub(super) struct LiveConnection {
    /// The server, as it was found.
    pub(super) reach: Arc<Reach>,
    pub(super) connection: MultiplexedConnection,
    pub(super) seat: Seat,
    pub(super) identity: Identity,
    pub(super) made: Moment,
    /// Number of requests put on this line.
    pub(super) sent: AtomicU64,
    /// How many had been put there when the server was last taught the scripts.
    pub(super) taught: AtomicU64,
    /// With the marker under which the server was seen to be admitted.
    pub(super) peer: Mutex<Arc<Peer>>,
    /// When the server is looked at again, in milliseconds since the connection was made.
    pub(super) next_look_ms: AtomicU64,
}

/// The line's place in the pool. A line is given up only when it is no good: its connection is never pooled again.
pub(super) struct Seat(pub(super) Mutex<Option<Connection>>);

pub(super) type Request = BoxFuture<'static, RedisResult<Value>>;

/// Puts a request on the line: its place in the order is taken when this returns.
pub(super) async fn put_on(line: &LiveConnection, cmd: Cmd) -> Request {
    let mut connection = line.connection.clone();
    let mut request: Request = Box::pin(unconstrained(async move {
        connection.send_packed_command(&cmd).await
    }));
    // The first poll hands the bytes to the connection's queue, which is fair.
    match poll_fn(|cx| Poll::Ready(Pin::as_mut(&mut request).poll(cx))).await {
        Poll::Ready(done) => Box::pin(async move { done }),
        Poll::Pending => request,
    }
}

/// Asks for all of this at once.
pub(super) async fn ask_all<const N: usize>(
    connection: &MultiplexedConnection,
    asked: [Cmd; N],
) -> Vec<RedisResult<Value>> {
    let sent = asked.map(|cmd| {
        let mut connection = connection.clone();
        async move {
            let answer = connection.send_packed_command(&cmd).await;
            answer.and_then(Value::extract_error)
        }
    });
    join_all(sent).await
}

// === impl LiveConnection ===

impl LiveConnection {
    /// What the server says of itself.
    pub(super) async fn info(&self) -> Option<String> {
        let answer = ask_all(&self.connection, [cmd("INFO")]).await.pop()?.ok()?;
        from_redis_value(answer).ok()
    }

    /// Whether the server that it led to answers, and may still keep locks.
    pub(super) async fn is_itself(&self, raw: bool) -> bool {
        let info = self.info().await;
        info.is_some_and(|info| preflight::judge(&info, raw).is_ok_and(|now| now == self.identity))
    }

    pub(super) fn peer(&self) -> Arc<Peer> {
        self.known().clone()
    }

    /// What was seen before the silence is compared again.
    pub(super) fn forget_marker(&self) {
        let mut known = self.known();
        let server = known.server.clone();
        *known = Arc::new(Peer {
            server,
            marker: None,
        });
    }

    /// When the marker is not the one that was seen, the next call compares the incarnation again. Whether it was lost.
    pub(super) fn learn(&self, marker: Marker) -> bool {
        let Marker::Now(marker) = marker else {
            return false;
        };
        let mut known = self.known();
        if known.marker == marker {
            return false;
        }
        let lost = marker.is_none();
        let server = known.server.clone();
        *known = Arc::new(Peer { server, marker });
        lost
    }

    /// Whether the server is to be looked at again; only one caller is told so.
    pub(super) fn is_due(&self, now: Moment, limit: Duration) -> bool {
        let age = u64::try_from(now.since(self.made).as_millis()).unwrap_or(u64::MAX);
        let next = self.next_look_ms.load(Ordering::Relaxed);
        let later = age.saturating_add(between_looks_ms(limit));
        let took = |next| {
            let (store, load) = (Ordering::Relaxed, Ordering::Relaxed);
            let taken = &self.next_look_ms;
            taken.compare_exchange(next, later, store, load).is_ok()
        };
        age >= next && took(next)
    }

    fn known(&self) -> MutexGuard<'_, Arc<Peer>> {
        self.peer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn between_looks_ms(limit: Duration) -> u64 {
    let (least, most) = LOOKS;
    let between = (limit * LIMITS_TO_A_LOOK).clamp(least, most);
    u64::try_from(between.as_millis()).unwrap_or(u64::MAX)
}

// === impl Seat ===

impl Seat {
    pub(super) fn leave(&self) {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(connection) = taken {
            drop(Connection::take(connection));
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
    }
}
