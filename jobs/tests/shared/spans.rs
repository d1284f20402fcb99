//! A receiver of traces, which reads them by the messages of OpenTelemetry, and beside it a service that notes in which span it was
//! called.
#![allow(dead_code, reason = "every suite uses its own part")]

use std::{
    net::Ipv4Addr,
    sync::{Arc, Condvar, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    http::HeaderMap,
    routing::post,
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest, common::v1::any_value, trace::v1::Span,
};
use prost::Message;
use tokio::{net::TcpListener, runtime::Runtime};
use watchkeeper::spawn::Spawn;

use crate::wait::SOON;

/// The variable that sends the traces of a program to a receiver.
pub(crate) const ENDPOINT: &str = "WATCHKEEPER_TELEMETRY__OTLP_ENDPOINT";

/// The receiver; ends with its runtime.
pub(crate) struct Spans {
    /// `http://127.0.0.1:PORT`
    pub(crate) endpoint: String,
    got: Arc<Got>,
    _runtime: Runtime,
}

#[derive(Default)]
struct Got {
    spans: Mutex<Vec<Span>>,
    news: Condvar,
    /// The header `traceparent` of each call, by the path.
    calls: Mutex<Vec<(String, String)>>,
}

// === impl Spans ===

impl Spans {
    pub(crate) fn receiver() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let got = Arc::new(Got::default());
        let listener = runtime
            .block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let app = Router::new()
            .route("/v1/traces", post(take))
            .route("/service/{name}", post(called))
            .with_state(Arc::clone(&got));
        runtime.block_on(async {
            Spawn::system().spawn(async move { axum::serve(listener, app).await.unwrap() });
        });
        Self {
            endpoint,
            got,
            _runtime: runtime,
        }
    }

    /// Where a service of this name is called.
    pub(crate) fn service(&self, name: &str) -> String {
        format!("{}/service/{name}", self.endpoint)
    }

    /// The headers `traceparent` of the calls of this service.
    pub(crate) fn calls(&self, name: &str) -> Vec<String> {
        let calls = self.got.calls.lock().unwrap();
        let of = calls.iter().filter(|(called, _)| called == name);
        of.map(|(_, header)| header.clone()).collect()
    }

    /// The first span for which `wanted` holds; waits for it.
    pub(crate) fn wait(&self, what: &str, wanted: impl Fn(&Span) -> bool) -> Span {
        let spans = self.got.spans.lock().unwrap();
        let none = |spans: &mut Vec<Span>| !spans.iter().any(&wanted);
        let (spans, waited) = self.got.news.wait_timeout_while(spans, SOON, none).unwrap();
        let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
        assert!(
            !waited.timed_out(),
            "no {what} within {SOON:?}, but {names:?}"
        );
        spans.iter().find(|span| wanted(span)).unwrap().clone()
    }

    /// All of the same trace that have come so far, in their order.
    pub(crate) fn beside(&self, one: &Span) -> Vec<Span> {
        let mut spans = self.got.spans.lock().unwrap().clone();
        spans.retain(|span| span.trace_id == one.trace_id);
        spans
    }
}

async fn take(State(got): State<Arc<Got>>, body: Bytes) {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    let scopes = request
        .resource_spans
        .into_iter()
        .flat_map(|resource| resource.scope_spans);
    let spans = scopes.flat_map(|scope| scope.spans);
    got.spans.lock().unwrap().extend(spans);
    got.news.notify_all();
}

async fn called(State(got): State<Arc<Got>>, Path(name): Path<String>, headers: HeaderMap) {
    let header = headers.get("traceparent").map(|value| value.to_str());
    let header = header.map_or("", |text| text.unwrap()).to_owned();
    got.calls.lock().unwrap().push((name, header));
}

/// What a program that is started by this span finds in `TRACEPARENT`.
pub(crate) fn traceparent(span: &Span) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id))
}

/// What a span says under this name; empty where it says nothing.
pub(crate) fn said(span: &Span, name: &str) -> String {
    let found = span.attributes.iter().find(|said| said.key == name);
    let value = found.and_then(|said| said.value.clone()?.value);
    match value {
        None => String::new(),
        Some(any_value::Value::StringValue(text)) => text,
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        Some(other) => format!("{other:?}"),
    }
}
