//! A local web service that takes notifications and counts: for the demonstration and for tests.
//!
//! It behaves as a receiver should: an item whose `Idempotency-Key` it has seen is answered like the first time and not
//! taken again. It can be told to behave badly.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::IntoResponse,
    routing::{get, post},
};
use serde::Serialize;
use serde_json::Value;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use watchkeeper::{
    clock::{Clock, Moment},
    spawn::Spawn,
};

/// The receiver; ends when dropped.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// What was received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Requests in all.
    pub requests: u64,
    /// Items taken: the first time that a key was seen.
    pub accepted: u64,
    /// Requests with a key that was seen before: recognised and not taken again.
    pub repeats_recognised: u64,
    /// Items taken again because they came under another key. Must be zero.
    pub accepted_twice: u64,
    /// Requests refused, as told.
    pub refused: u64,
    /// The key under which each item was taken first, by `table/id`.
    #[serde(skip)]
    pub items: BTreeMap<String, String>,
    /// Those that came again under the same key, by `table/id`.
    #[serde(skip)]
    pub repeated: BTreeSet<String>,
    /// The largest `Watchkeeper-Token`.
    #[serde(skip)]
    pub largest_token: u64,
}

/// How to behave from now on.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Answer the next so many requests with `status` and do not take them.
    pub refuse_next: u64,
    /// The status of refusals; 503 when zero.
    pub status: u16,
    /// `Retry-After` of refusals, in seconds.
    pub retry_after: Option<u64>,
    /// Always refuse these ids with 422.
    pub never: BTreeSet<String>,
    /// Take the next so many requests and do not answer them until [`Receiver::release`].
    pub hang_next: u64,
    /// Wait so long before each answer.
    pub delay: Duration,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<Inner>,
    /// Counted where it is told: requests that come at the same time cannot tell an older count last.
    tally: watch::Sender<Tally>,
    /// Grows with every release of hanging requests.
    releases: watch::Sender<u64>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct Inner {
    keys: BTreeSet<String>,
    faults: Faults,
    /// When each request came.
    arrived: Vec<Moment>,
}

/// What to do with a request, once it is counted.
enum Verdict {
    Taken(Duration),
    Hang,
    Refused(StatusCode, Option<u64>),
}

// === impl Receiver ===

impl Receiver {
    /// Listens on a free local port.
    ///
    /// # Errors
    /// When there is none.
    pub async fn start(spawn: &Spawn) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            tally: watch::Sender::new(Tally::default()),
            releases: watch::Sender::new(0),
            clock: Clock::system(),
        });
        let service = Router::new()
            .route("/notifications", post(take))
            .route("/tally", get(show))
            .with_state(Arc::clone(&shared));
        let task = spawn.spawn(async move {
            // Serving ends with the task; a listener that broke is seen as refused connections.
            let _ = axum::serve(listener, service).await;
        });
        Ok(Self {
            address,
            shared,
            task,
        })
    }

    /// Where to send: `http://127.0.0.1:PORT/notifications`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/notifications", self.address)
    }

    /// What was received so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.shared.tally.borrow().clone()
    }

    /// Follows the tally.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Tally> {
        self.shared.tally.subscribe()
    }

    /// Behaves like this from now on.
    pub fn behave(&self, faults: Faults) {
        self.shared.inner(|inner| inner.faults = faults);
    }

    /// Answers the requests that hang.
    pub fn release(&self) {
        self.shared.releases.send_modify(|n| *n += 1);
    }

    /// The most requests that came within any time of this length.
    #[must_use]
    pub fn most_within(&self, span: Duration) -> usize {
        self.shared.inner(|inner| {
            let (arrived, mut first) = (&inner.arrived, 0);
            let counts = arrived.iter().enumerate().map(|(last, at)| {
                while at.since(arrived[first]) >= span {
                    first += 1;
                }
                last - first + 1
            });
            counts.max().unwrap_or(0)
        })
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl Tally ===

impl Tally {
    /// How many of these ids of `table` never arrived.
    pub fn lost(&self, table: &str, ids: impl IntoIterator<Item = i64>) -> usize {
        let missing = |id: &i64| !self.items.contains_key(&format!("{table}/{id}"));
        ids.into_iter().filter(missing).count()
    }
}

// === serving ===

async fn take(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> impl IntoResponse {
    let header = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
    let Ok(body) = serde_json::from_slice::<Value>(&body) else {
        return (StatusCode::BAD_REQUEST, HeaderMap::new());
    };
    let Some(key) = header("idempotency-key") else {
        return (StatusCode::BAD_REQUEST, HeaderMap::new());
    };
    let token = header("watchkeeper-token")
        .and_then(|t| t.parse().ok())
        .unwrap_or(0);
    let mut releases = shared.releases.subscribe();
    let now = shared.clock.now();
    match shared.take(key, token, &body, now) {
        Verdict::Hang => {
            // The sender lives as long as `shared`, so this ends with a release only.
            let _ = releases.changed().await;
            (StatusCode::NO_CONTENT, HeaderMap::new())
        }
        Verdict::Taken(delay) => {
            if !delay.is_zero() {
                shared.clock.sleep(delay).await;
            }
            (StatusCode::NO_CONTENT, HeaderMap::new())
        }
        Verdict::Refused(status, after) => {
            let mut headers = HeaderMap::new();
            if let Some(after) = after {
                headers.insert("retry-after", after.into());
            }
            (status, headers)
        }
    }
}

async fn show(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    axum::Json(shared.tally.borrow().clone())
}

impl Shared {
    fn take(&self, key: &str, token: u64, body: &Value, now: Moment) -> Verdict {
        self.inner(|inner| {
            let mut verdict = Verdict::Hang;
            self.tally
                .send_modify(|tally| verdict = inner.take(tally, key, token, body, now));
            verdict
        })
    }

    fn inner<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Inner {
    fn take(
        &mut self,
        tally: &mut Tally,
        key: &str,
        token: u64,
        body: &Value,
        now: Moment,
    ) -> Verdict {
        self.arrived.push(now);
        let faults = &mut self.faults;
        let id = match &body["id"] {
            Value::String(id) => id.clone(),
            id => id.to_string(),
        };
        tally.requests += 1;
        tally.largest_token = tally.largest_token.max(token);
        if faults.never.contains(&id) {
            tally.refused += 1;
            return Verdict::Refused(StatusCode::UNPROCESSABLE_ENTITY, None);
        }
        if faults.refuse_next > 0 {
            faults.refuse_next -= 1;
            tally.refused += 1;
            let status = StatusCode::from_u16(faults.status);
            return Verdict::Refused(
                status.unwrap_or(StatusCode::SERVICE_UNAVAILABLE),
                faults.retry_after,
            );
        }
        let item = format!("{}/{id}", body["table"].as_str().unwrap_or_default());
        if !self.keys.insert(key.to_owned()) {
            tally.repeats_recognised += 1;
            tally.repeated.insert(item);
        } else if tally.items.contains_key(&item) {
            tally.accepted_twice += 1;
        } else {
            tally.accepted += 1;
            tally.items.insert(item, key.to_owned());
        }
        if faults.hang_next > 0 {
            faults.hang_next -= 1;
            return Verdict::Hang;
        }
        Verdict::Taken(faults.delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_key_is_taken_once_and_an_item_under_two_keys_is_noticed() {
        let (mut inner, mut tally) = (Inner::default(), Tally::default());
        let body = json!({"id": 1, "table": "t"});
        for key in ["a", "a", "b"] {
            inner.take(&mut tally, key, 3, &body, Moment::ZERO);
        }
        assert_eq!(
            (
                tally.accepted,
                tally.repeats_recognised,
                tally.accepted_twice
            ),
            (1, 1, 1)
        );
        assert_eq!(tally.lost("t", [1, 2]), 1);
        assert_eq!(tally.largest_token, 3);
    }
}
