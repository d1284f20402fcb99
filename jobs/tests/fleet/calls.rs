//! Calls of a web service: repeats have the key of their tick, and a successor has a larger token.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Condvar, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
};
use serde_json::Value;
use tokio::{net::TcpListener, runtime::Runtime};
use watchkeeper::spawn::Spawn;

use crate::{fleet::Fleet, store::Store, wait::SOON};

const CALLS: &str = r#"
[jobs.call]
kind = "http"
schedule = "@every 1s"
retry = { attempts = 3, backoff = "100ms" }
[jobs.call.params]
url = "http://me:hunter2@$SERVICE/hook/${job}?tick=${tick}"
headers = { X-Of = "${attempt} of $${job}" }
body = '{"token": ${token}, "by": "${replica}"}'
"#;

/// What a call was.
#[derive(Clone, Debug)]
struct Call {
    uri: String,
    headers: BTreeMap<String, String>,
    body: Value,
}

/// A web service that refuses the first call; ends with its runtime.
struct Service {
    address: SocketAddr,
    calls: Arc<Calls>,
    _runtime: Runtime,
}

#[derive(Default)]
struct Calls {
    all: Mutex<Vec<Call>>,
    news: Condvar,
}

// === impl Call ===

impl Call {
    fn text(&self, header: &str) -> &str {
        self.headers.get(header).map_or("", String::as_str)
    }

    fn number(&self, header: &str) -> u64 {
        self.text(header).parse().unwrap()
    }
}

// === impl Service ===

impl Service {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let calls = Arc::new(Calls::default());
        let listener = runtime
            .block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().fallback(take).with_state(Arc::clone(&calls));
        runtime.block_on(async {
            Spawn::system().spawn(async move { axum::serve(listener, app).await.unwrap() });
        });
        Self {
            address,
            calls,
            _runtime: runtime,
        }
    }

    /// The first call for which `wanted` holds; waits for it.
    fn wait(&self, what: &str, wanted: impl Fn(&Call) -> bool) -> Call {
        let all = self.calls.all.lock().unwrap();
        let none = |all: &mut Vec<Call>| !all.iter().any(&wanted);
        let (all, waited) = self.calls.news.wait_timeout_while(all, SOON, none).unwrap();
        assert!(!waited.timed_out(), "no {what} within {SOON:?}: {all:?}");
        all.iter().find(|call| wanted(call)).unwrap().clone()
    }

    fn all(&self) -> Vec<Call> {
        self.calls.all.lock().unwrap().clone()
    }
}

async fn take(
    State(calls): State<Arc<Calls>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let text = |value: &axum::http::HeaderValue| value.to_str().unwrap().to_owned();
    let headers = headers
        .iter()
        .map(|(name, value)| (name.to_string(), text(value)));
    let call = Call {
        uri: uri.to_string(),
        headers: headers.collect(),
        body: serde_json::from_slice(&body).unwrap(),
    };
    let mut all = calls.all.lock().unwrap();
    all.push(call);
    calls.news.notify_all();
    if all.len() == 1 {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::NO_CONTENT
    }
}

/// Every call says what it is for, a refused one comes again under its key, and the next leader has a larger token.
pub(crate) fn a_call_is_repeated_under_its_key_and_a_successor_has_a_larger_token(store: Store) {
    let service = Service::start();
    let mut fleet = Fleet::of(
        2,
        store,
        &CALLS.replace("$SERVICE", &service.address.to_string()),
    );
    let again = service.wait("second attempt", |call| {
        call.text("watchkeeper-attempt") == "2"
    });
    let first = &service.all()[0];
    assert_eq!(first.number("watchkeeper-attempt"), 1);
    for same in [
        "idempotency-key",
        "watchkeeper-tick",
        "watchkeeper-job",
        "watchkeeper-token",
    ] {
        assert_eq!(first.text(same), again.text(same), "{same}");
    }
    assert_ne!(
        first.text("watchkeeper-run-id"),
        again.text("watchkeeper-run-id")
    );

    service.wait("next tick", |call| {
        call.text("watchkeeper-tick") > first.text("watchkeeper-tick")
    });
    let old = fleet.leader("call");
    fleet.kill(old.worker);
    let next = service.wait("call of the successor", |call| {
        call.number("watchkeeper-token") > old.token
    });
    assert_eq!(
        next.text("watchkeeper-replica"),
        fleet.replica(1 - old.worker)
    );
    assert_ne!(
        next.text("watchkeeper-replica"),
        first.text("watchkeeper-replica")
    );

    let mut latest: BTreeMap<String, u64> = BTreeMap::new();
    for call in service.all() {
        let tick = call.text("watchkeeper-tick");
        let token = call.number("watchkeeper-token");
        let attempt = call.number("watchkeeper-attempt");
        assert_eq!(
            call.uri,
            format!("/hook/call?tick={}", tick.replace(':', "%3A"))
        );
        assert_eq!(call.text("idempotency-key"), format!("call/{tick}"));
        assert_eq!(call.text("watchkeeper-job"), "call");
        assert_eq!(call.text("x-of"), format!("{attempt} of ${{job}}"));
        assert_eq!(call.text("content-type"), "application/json");
        assert_eq!(call.text("authorization"), "Basic bWU6aHVudGVyMg==");
        assert_eq!(call.body["token"], token);
        assert_eq!(call.body["by"], call.text("watchkeeper-replica"));
        // Each start of a tick is an attempt of its own.
        let before = latest.insert(tick.to_owned(), attempt).unwrap_or(0);
        assert!(attempt > before, "{call:?}");
    }
    let log = fleet.log.tail(usize::MAX);
    assert!(
        log.contains("answered 503") && !log.contains("hunter2"),
        "{log}"
    );
}
