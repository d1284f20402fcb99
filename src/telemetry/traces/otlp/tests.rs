//! Against receivers of our own, which read by the messages of OpenTelemetry. Costs seven seconds of waiting.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue as Said, any_value},
    trace::v1::{Span as Received, span, status},
};
use prost::Message;
use tokio::{net::TcpListener, sync::mpsc};

use super::*;
use crate::{
    secret::Secret,
    spawn::Spawn,
    telemetry::traces::Traces,
    trace::{Tracer, current},
};

/// One request that a receiver has read.
struct Got {
    headers: HeaderMap,
    request: ExportTraceServiceRequest,
}

type Requests = mpsc::UnboundedReceiver<Got>;

/// A receiver that answers its first requests with 503, so many; and its address.
async fn receiver(refuses: u32) -> (String, Requests) {
    let (tell, requests) = mpsc::unbounded_channel();
    let asked = Arc::new(AtomicU32::new(0));
    let answer = move |headers: HeaderMap, body: Bytes| {
        let (tell, asked) = (tell.clone(), asked.clone());
        async move {
            if asked.fetch_add(1, Ordering::SeqCst) < refuses {
                return StatusCode::SERVICE_UNAVAILABLE;
            }
            let request = ExportTraceServiceRequest::decode(body).unwrap();
            let _ = tell.send(Got { headers, request });
            StatusCode::OK
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().route("/v1/traces", post(answer));
    Spawn::system().spawn(async move {
        let _ = axum::serve(listener, app).await;
    });
    (address, requests)
}

/// A receiver that takes connections and never says a word.
async fn hangs() -> (String, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    (address, listener)
}

/// What became of spans, by a word.
type Counted = Arc<Mutex<BTreeMap<&'static str, u64>>>;

fn begin(endpoint: &str) -> (Traces, Counted) {
    let counted = Counted::default();
    let counts = counted.clone();
    let count = move |became: Became, count: u64| {
        let word = match became {
            Became::Sent => "sent",
            Became::Dropped(why) => why,
        };
        *counts.lock().unwrap().entry(word).or_default() += count;
    };
    let settings = TelemetrySettings::default()
        .otlp(endpoint)
        .otlp_headers(Secret::new("authorization=Bearer abc"));
    let origin = Origin {
        namespace: "shop".to_owned(),
        replica: "host-1-a".to_owned(),
        host: "host".to_owned(),
    };
    let traces = Traces::begin(&settings, &origin, Box::new(count));
    (traces.unwrap().unwrap(), counted)
}

fn tell(tracer: &Tracer, spans: usize) {
    for _ in 0..spans {
        drop(tracer.begin_for(None, "program", &Clock::system()));
    }
}

fn said(of: &[Said], name: &str) -> Option<String> {
    let found = of.iter().find(|said| said.key == name)?;
    match found.value.clone()?.value? {
        any_value::Value::StringValue(text) => Some(text),
        any_value::Value::IntValue(number) => Some(number.to_string()),
        other => Some(format!("{other:?}")),
    }
}

fn spans(got: &Got) -> Vec<Received> {
    let resources = got.request.resource_spans.iter();
    let scopes = resources.flat_map(|resource| &resource.scope_spans);
    scopes.flat_map(|scope| scope.spans.clone()).collect()
}

#[tokio::test]
async fn spans_arrive_as_they_were_told() {
    let (endpoint, mut requests) = receiver(0).await;
    let (traces, counted) = begin(&format!("{endpoint}/"));
    let clock = Clock::system();
    let tracer = traces.tracer().clone();
    let place = tracer.attempt("report", "2026-05-04T08:00:00Z", 1).unwrap();
    let mut piece = tracer.begin("http", place.context(), &clock).unwrap();
    piece.say("watchkeeper.token", 7_u64);
    piece.say("watchkeeper.job", "report");
    piece.fail("failed");
    let context = piece.context();
    drop(piece.asking());
    let got = requests.recv().await.unwrap();
    // The end would wait for its answer for two seconds alone.
    let answered = async {
        while counted.lock().unwrap().is_empty() {
            clock.sleep(Duration::from_millis(5)).await;
        }
    };
    clock
        .timeout(Duration::from_secs(60), answered)
        .await
        .unwrap();
    traces.finish(&clock).await;

    assert_eq!(got.headers["content-type"], "application/x-protobuf");
    assert_eq!(got.headers["authorization"], "Bearer abc");
    let resource = got.request.resource_spans[0].resource.clone().unwrap();
    for (name, value) in [
        ("service.name", "watchkeeper"),
        ("service.namespace", "shop"),
        ("service.instance.id", "host-1-a"),
    ] {
        let said = said(&resource.attributes, name);
        assert_eq!(said.as_deref(), Some(value), "{name}");
    }
    let spans = spans(&got);
    assert_eq!(spans.len(), 1, "{spans:?}");
    let span = &spans[0];
    assert_eq!(span.name, "http");
    assert_eq!(span.trace_id, context.trace_id());
    assert_eq!(span.span_id, context.span_id());
    assert_eq!(span.parent_span_id, place.context().span_id());
    assert!(span.links.is_empty(), "{:?}", span.links);
    assert_eq!(span.kind, span::SpanKind::Client as i32);
    assert!(0 < span.start_time_unix_nano && span.start_time_unix_nano <= span.end_time_unix_nano);
    let of = &span.attributes;
    assert_eq!(said(of, "watchkeeper.token").as_deref(), Some("7"));
    assert_eq!(said(of, "watchkeeper.job").as_deref(), Some("report"));
    let status = span.status.clone().unwrap();
    assert_eq!(status.code, status::StatusCode::Error as i32);
    assert_eq!(status.message, "failed");
    assert_eq!(*counted.lock().unwrap(), BTreeMap::from([("sent", 1)]));
    assert_eq!(current(), None);
}

#[tokio::test]
async fn a_receiver_that_is_busy_is_asked_again() {
    let (endpoint, mut requests) = receiver(2).await;
    let (traces, counted) = begin(&endpoint);
    tell(traces.tracer(), 3);
    let got = requests.recv().await.unwrap();
    assert_eq!(spans(&got).len(), 3);
    traces.finish(&Clock::system()).await;
    assert_eq!(*counted.lock().unwrap(), BTreeMap::from([("sent", 3)]));
}

#[tokio::test]
async fn a_receiver_that_hangs_delays_nothing() {
    const TOLD: usize = 20_000;
    let (endpoint, _listener) = hangs().await;
    let (traces, counted) = begin(&endpoint);
    let clock = Clock::system();
    let began = clock.now();
    tell(traces.tracer(), TOLD);
    let took = clock.now().since(began);
    // Any wait for the receiver would be one of seconds, and one for room would never end.
    assert!(took < ANSWER, "{took:?}");
    traces.finish(&clock).await;
    let counted = counted.lock().unwrap().clone();
    let all: u64 = counted.values().sum();
    assert_eq!(all, TOLD as u64, "each is counted once: {counted:?}");
    assert!(!counted.contains_key("sent"), "{counted:?}");
    assert!(counted[FULL] >= (TOLD - ROOM - BATCH) as u64, "{counted:?}");
}

#[tokio::test]
async fn the_end_waits_for_a_receiver_that_hangs_no_longer_than_it_may() {
    let (endpoint, _listener) = hangs().await;
    let (traces, counted) = begin(&endpoint);
    tell(traces.tracer(), 1);
    let clock = Clock::system();
    let began = clock.now();
    traces.finish(&clock).await;
    let took = clock.now().since(began);
    assert!(took < LAST * 2, "{took:?}");
    assert_eq!(*counted.lock().unwrap(), BTreeMap::from([(ENDED, 1)]));
}

#[test]
fn an_address_that_makes_no_sense_is_told_and_no_panic() {
    let settings = TelemetrySettings::default().otlp("http://[");
    let origin = Origin {
        namespace: String::new(),
        replica: String::new(),
        host: String::new(),
    };
    assert!(Traces::begin(&settings, &origin, Box::new(|_, _| {})).is_err());
}
