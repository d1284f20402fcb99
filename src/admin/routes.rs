//! Paths and their answers.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{Query, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Serialize;
use tokio::sync::Semaphore;

use super::{Admin, orders, page};
use crate::{status::FleetStatus, telemetry::metrics::Exposition};

/// An answer takes no longer than this.
const LIMIT: Duration = Duration::from_secs(5);

/// Questions to the store at one time: however many people look at the page, the locks come first.
const STORE_READS: usize = 4;

/// Runs that are shown when nobody says how many.
const RUNS: usize = 20;

const STYLE: &str = include_str!("style.css");

/// On every answer: nothing is loaded but our own style, nobody frames us, nothing is kept. One request per
/// connection, so that the life of a connection bounds a slow client and nobody else.
const HEADERS: &[(header::HeaderName, &str)] = &[
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::CONNECTION, "close"),
];

#[derive(Clone)]
pub(super) struct Shared {
    pub(super) admin: Admin,
    pub(super) store: Arc<Semaphore>,
    pub(super) loopback: bool,
}

/// The answers to every path. `loopback`: only this machine can reach us.
pub(super) fn router(admin: Admin, loopback: bool) -> Router {
    let shared = Shared {
        admin,
        store: Arc::new(Semaphore::new(STORE_READS)),
        loopback,
    };
    Router::new()
        .route("/", get(home))
        .route("/style.css", get(style))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/leaderz", get(leaderz))
        .route("/metrics", get(metrics))
        .route("/api/v1/fleet", get(fleet))
        .route("/api/v1/jobs", get(jobs))
        .route("/api/v1/jobs/{job}/{order}", post(orders::order))
        .route("/api/v1/replicas/{replica}/drain", post(orders::drain))
        .route("/api/v1/triggers", get(triggers))
        .route("/api/v1/triggers/{id}/withdraw", post(orders::withdraw))
        .route("/api/v1/nodes", get(nodes))
        .route("/api/v1/locks", get(locks))
        .route("/api/v1/runs", get(runs))
        .fallback(|| async { (StatusCode::NOT_FOUND, "no such page\n") })
        .layer(middleware::from_fn_with_state(shared.clone(), guard))
        .with_state(shared)
}

async fn guard(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let mut answer = if shared.loopback && foreign_host(request.headers()) {
        let why = "this page answers to the names and addresses of its own machine only\n";
        (StatusCode::MISDIRECTED_REQUEST, why).into_response()
    } else {
        let answer = shared.admin.clock.timeout(LIMIT, next.run(request)).await;
        answer.unwrap_or_else(|_| unavailable("no answer in time"))
    };
    for (name, value) in HEADERS {
        let value = HeaderValue::from_static(value);
        answer.headers_mut().insert(name.clone(), value);
    }
    answer
}

/// Whether the request came by a name that somebody may have pointed at the loopback address. Addresses and
/// `localhost` cannot be pointed elsewhere.
fn foreign_host(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else {
        return false;
    };
    let Ok(host) = host.to_str() else { return true };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let ours =
        name == "localhost" || name.ends_with(".localhost") || name.parse::<IpAddr>().is_ok();
    !ours
}

// === health ===

async fn livez(State(shared): State<Shared>) -> Response {
    health(shared.admin.source.live())
}

async fn readyz(State(shared): State<Shared>) -> Response {
    health(shared.admin.source.ready())
}

fn health(state: Result<(), String>) -> Response {
    match state {
        Ok(()) => "ok\n".into_response(),
        Err(why) => unavailable(&why),
    }
}

async fn leaderz(
    State(shared): State<Shared>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let source = &shared.admin.source;
    let leads = match query.get("job") {
        Some(job) => source.leads(job),
        None => Some(source.leads_any()),
    };
    match leads {
        Some(true) => "leading\n".into_response(),
        Some(false) => unavailable("standing by"),
        None => (StatusCode::NOT_FOUND, "no such job\n").into_response(),
    }
}

fn unavailable(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}

// === metrics ===

async fn metrics(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|a| a.to_str().ok());
    let exposition = Exposition::for_accept(accept.unwrap_or_default());
    let text = shared.admin.metrics.render(exposition);
    ([(header::CONTENT_TYPE, exposition.content_type())], text).into_response()
}

// === the fleet ===

async fn read_fleet(shared: &Shared) -> FleetStatus {
    // Closed never: the semaphore lives as long as the router.
    let _turn = shared.store.acquire().await;
    shared.admin.source.fleet().await
}

async fn fleet(State(shared): State<Shared>) -> Json<FleetStatus> {
    Json(read_fleet(&shared).await)
}

async fn jobs(State(shared): State<Shared>) -> Response {
    Json(read_fleet(&shared).await.jobs).into_response()
}

async fn nodes(State(shared): State<Shared>) -> Response {
    Json(read_fleet(&shared).await.nodes).into_response()
}

#[derive(Serialize)]
pub(super) struct Trouble {
    pub(super) error: String,
}

async fn locks(State(shared): State<Shared>) -> Response {
    let _turn = shared.store.acquire().await;
    match shared.admin.source.locks().await {
        Ok(locks) => Json(locks).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, Json(Trouble { error })).into_response(),
    }
}

async fn triggers(
    State(shared): State<Shared>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let _turn = shared.store.acquire().await;
    let job = query.get("job").map(String::as_str);
    match shared.admin.source.triggers(job).await {
        Ok(triggers) => Json(triggers).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, Json(Trouble { error })).into_response(),
    }
}

async fn runs(
    State(shared): State<Shared>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let refuse = |code: StatusCode, error: &str| {
        let error = error.to_owned();
        (code, Json(Trouble { error })).into_response()
    };
    let Some(job) = query.get("job") else {
        return refuse(
            StatusCode::BAD_REQUEST,
            "name the job: /api/v1/runs?job=NAME",
        );
    };
    let limit = match query.get("limit").map(|limit| limit.parse()) {
        None => RUNS,
        Some(Ok(limit)) => limit,
        Some(Err(_)) => return refuse(StatusCode::BAD_REQUEST, "limit is a number of runs"),
    };
    let _turn = shared.store.acquire().await;
    match shared.admin.source.runs(job, limit).await {
        Ok(Some(runs)) => Json(runs).into_response(),
        Ok(None) => refuse(StatusCode::NOT_FOUND, "no such job"),
        Err(error) => refuse(StatusCode::SERVICE_UNAVAILABLE, &error),
    }
}

async fn home(State(shared): State<Shared>) -> Response {
    let fleet = read_fleet(&shared).await;
    let view = page::View {
        fleet: &fleet,
        replica: &shared.admin.source.replica(),
        ready: shared.admin.source.ready(),
        now: shared.admin.source.wall(),
    };
    let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    (kind, page::render(&view)).into_response()
}

async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE).into_response()
}
