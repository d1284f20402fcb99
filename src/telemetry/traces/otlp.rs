//! Sends spans by OTLP over HTTP, as OpenTelemetry's own exporter writes them.
//!
//! ```text
//! tell -> queue (2,048, never waited for) -> a batch of 512, or after a second -> three tries -> taken, or counted and gone
//! ```
//!
//! # Not promised
//! A receiver that takes a batch and says that it rejects a part of it has taken it: the exporter tells that to its log alone.

use std::{
    cell::Cell,
    collections::HashMap,
    io,
    sync::Once,
    thread,
    time::{Duration, SystemTime},
};

use opentelemetry::{
    InstrumentationScope, KeyValue, SpanId, TraceFlags, TraceId,
    trace::{Link, SpanContext, SpanKind, Status, TraceState},
};
use opentelemetry_otlp::{Protocol, RetryPolicy, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    trace::{SpanData, SpanEvents, SpanExporter, SpanLinks},
};
use reqwest::{Client, Url, redirect};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::fate::{Became, Count, ENDED, FAILED, FULL, LAST, Origin};
use crate::{
    clock::Clock,
    telemetry::TelemetrySettings,
    trace::{Recorded, Span, TraceContext, Value},
};

/// Spans that wait at one time.
pub(super) const ROOM: usize = 2048;
/// Spans that are sent together.
const BATCH: usize = 512;
/// A batch that is not full leaves after this time.
const GATHER: Duration = Duration::from_secs(1);
/// How long the receiver may take for one batch.
const ANSWER: Duration = Duration::from_secs(5);
/// How often a batch is sent before it is given up, and the first pause between; the next one is longer.
const TRIES: u32 = 3;
const AGAIN: Duration = Duration::from_millis(500);

/// The thread that sends. Dropped, it sends what waits, and ends.
#[derive(Debug)]
pub(super) struct Sending {
    stop: DropGuard,
    /// Told when the thread has ended.
    over: oneshot::Receiver<()>,
}

struct Exporter {
    to: opentelemetry_otlp::SpanExporter,
    scope: InstrumentationScope,
    clock: Clock,
    count: Count,
    /// Spans that were taken from the queue, and whose end is not known.
    under_way: Cell<u64>,
    /// Whether the receiver took nothing the last time.
    in_trouble: Cell<bool>,
}

// === impl Sending ===

impl Sending {
    pub(super) fn begin(
        endpoint: &str,
        settings: &TelemetrySettings,
        origin: &Origin,
        recorded: Recorded,
        count: Count,
    ) -> io::Result<Self> {
        let exporter = Exporter {
            to: exporter(endpoint, settings, origin)?,
            scope: InstrumentationScope::builder("watchkeeper")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
            clock: Clock::system(),
            count,
            under_way: Cell::new(0),
            in_trouble: Cell::new(false),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let stop = CancellationToken::new();
        let (told, (tell, over)) = (stop.clone(), oneshot::channel());
        thread::Builder::new()
            .name("watchkeeper-traces".to_owned())
            .spawn(move || {
                runtime.block_on(exporter.work(recorded, told));
                // A name that is still being looked up must not keep us.
                runtime.shutdown_background();
                let _ = tell.send(());
            })?;
        Ok(Self {
            stop: stop.drop_guard(),
            over,
        })
    }

    pub(super) async fn finish(self, clock: &Clock) {
        drop(self.stop);
        // A moment more than the thread allows itself.
        let _ = clock.timeout(LAST + LAST / 4, self.over).await;
    }
}

// === impl Exporter ===

impl Exporter {
    /// Sends until it is told to stop, then what is left, for as long as it may.
    async fn work(self, mut recorded: Recorded, stop: CancellationToken) {
        let enough = async {
            stop.cancelled().await;
            self.clock.sleep(LAST).await;
        };
        tokio::select! {
            biased;
            () = self.send_all(&mut recorded, &stop) => {}
            () = enough => {}
        }
        self.dropped(FULL, recorded.lost());
        let waiting = u64::try_from(recorded.spans.len()).unwrap_or(u64::MAX);
        self.dropped(ENDED, self.under_way.get().saturating_add(waiting));
    }

    async fn send_all(&self, recorded: &mut Recorded, stop: &CancellationToken) {
        loop {
            let spans = self.gather(recorded, stop).await;
            self.dropped(FULL, recorded.lost());
            if !spans.is_empty() {
                self.send(spans, stop).await;
            } else if stop.is_cancelled() || recorded.spans.is_closed() {
                return;
            }
        }
    }

    /// The next batch: full, or what came within a while; when told to stop, what is there.
    async fn gather(&self, recorded: &mut Recorded, stop: &CancellationToken) -> Vec<Span> {
        let mut spans = Vec::new();
        tokio::select! {
            biased;
            _ = recorded.spans.recv_many(&mut spans, BATCH) => {}
            () = stop.cancelled() => {}
        }
        let until = self.clock.now() + GATHER;
        while spans.len() < BATCH && !stop.is_cancelled() && !recorded.spans.is_closed() {
            let left = BATCH - spans.len();
            tokio::select! {
                biased;
                _ = recorded.spans.recv_many(&mut spans, left) => {}
                () = stop.cancelled() => {}
                () = self.clock.sleep_until(until) => break,
            }
        }
        spans
    }

    async fn send(&self, spans: Vec<Span>, stop: &CancellationToken) {
        let spans: Vec<SpanData> = spans.into_iter().map(|span| self.data(span)).collect();
        let count = u64::try_from(spans.len()).unwrap_or(u64::MAX);
        self.under_way.set(count);
        let mut pause = AGAIN;
        for attempt in 1..=TRIES {
            let sent = self.clock.timeout(ANSWER, self.to.export(spans.clone()));
            let why = match sent.await {
                Ok(Ok(())) => {
                    self.under_way.set(0);
                    (self.count)(Became::Sent, count);
                    if self.in_trouble.replace(false) {
                        tracing::info!("the receiver of traces takes them again");
                    }
                    return;
                }
                // Says no more than a status: neither the address nor what was answered.
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
            if !self.in_trouble.replace(true) {
                tracing::warn!(
                    why,
                    "the receiver of traces does not take them; what it misses is counted and gone"
                );
            }
            if attempt == TRIES || stop.is_cancelled() {
                break;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = self.clock.sleep(pause) => {}
            }
            pause *= 2;
        }
        self.under_way.set(0);
        self.dropped(FAILED, count);
    }

    fn dropped(&self, why: &'static str, count: u64) {
        if count > 0 {
            (self.count)(Became::Dropped(why), count);
        }
    }

    fn data(&self, span: Span) -> SpanData {
        let attributes = span.says.into_iter().map(|(name, value)| match value {
            Value::Text(text) => KeyValue::new(name, text),
            Value::Number(number) => KeyValue::new(name, number),
        });
        let mut links = SpanLinks::default();
        let before = span
            .follows
            .map(|before| Link::with_context(context(before)));
        links.links.extend(before);
        SpanData {
            span_context: context(span.context),
            parent_span_id: span.parent.map_or(SpanId::INVALID, |parent| {
                SpanId::from_bytes(parent.span_id())
            }),
            // Others may have told of it, or will.
            parent_span_is_remote: span.parent.is_some(),
            span_kind: match span.asks {
                true => SpanKind::Client,
                false => SpanKind::Internal,
            },
            name: span.name,
            start_time: SystemTime::from(span.start),
            end_time: SystemTime::from(span.end),
            attributes: attributes.collect(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links,
            status: span.failure.map_or(Status::Unset, Status::error),
            instrumentation_scope: self.scope.clone(),
        }
    }
}

fn context(of: TraceContext) -> SpanContext {
    SpanContext::new(
        TraceId::from_bytes(of.trace_id()),
        SpanId::from_bytes(of.span_id()),
        TraceFlags::SAMPLED,
        false,
        TraceState::default(),
    )
}

/// What writes and sends a batch. Its answer is awaited on the thread that sends.
fn exporter(
    endpoint: &str,
    settings: &TelemetrySettings,
    origin: &Origin,
) -> io::Result<opentelemetry_otlp::SpanExporter> {
    let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
    let headers = settings.headers().unwrap_or_default().into_iter();
    // The exporter takes them for percent-encoded.
    let headers = headers.map(|(name, value)| (name.to_owned(), value.replace('%', "%25")));
    let mut exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(client(&url)?)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(url)
        .with_timeout(ANSWER)
        .with_headers(headers.collect::<HashMap<_, _>>())
        // We do that ourselves.
        .with_retry_policy(RetryPolicy::disabled())
        .build()
        .map_err(io::Error::other)?;
    let resource = Resource::builder_empty().with_attributes([
        KeyValue::new("service.name", settings.otlp_service.clone()),
        KeyValue::new("service.namespace", origin.namespace.clone()),
        KeyValue::new("service.instance.id", origin.replica.clone()),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("host.name", origin.host.clone()),
    ]);
    exporter.set_resource(&resource.build());
    Ok(exporter)
}

/// The client of ours, and not one that brings a cryptography of its own.
fn client(url: &str) -> io::Result<Client> {
    static CRYPTO: Once = Once::new();
    CRYPTO.call_once(|| {
        // An error says that there is a provider, which is all we want.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    let url = Url::parse(url).map_err(io::Error::other)?;
    let mut client = Client::builder()
        .timeout(ANSWER)
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never());
    if is_local(&url) {
        // Proxies are for the world outside.
        client = client.no_proxy();
    }
    let client = client.build();
    client.map_err(|error| io::Error::other(error.without_url()))
}

fn is_local(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
#[cfg(feature = "admin")]
mod tests;
