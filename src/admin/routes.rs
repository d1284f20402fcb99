//! Paths and their answers.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Extension, Json, Router,
    extract::{ConnectInfo, DefaultBodyLimit, Query, Request, State, connect_info::Connected},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
    serve::IncomingStream,
};
use tokio::sync::Semaphore;

use super::{
    commands,
    listener::Listener,
    page,
    rights::{Refusal, Rules, Seen},
    shared::{Shared, Trouble},
    source::Admin,
};
use crate::{
    fleet::status::{FleetStatus, JobStatus},
    telemetry::metrics::Exposition,
};

/// An answer takes no longer than this.
const LIMIT: Duration = Duration::from_secs(5);

/// Questions to the store at one time: however many people look at the page, the locks come first.
const STORE_READS: usize = 4;

/// Runs that are shown when the request does not say how many.
const RUNS: usize = 20;

/// Bytes of a body: more than any order needs.
pub(super) const BODY: usize = 16 * 1024;

const STYLE: &str = include_str!("style.css");

/// On every answer: nothing is loaded but our own style, no page frames us, nothing is kept. One request per
/// connection, so that the life of a connection bounds a slow client alone.
static HEADERS: [(header::HeaderName, &str); 8] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (
        header::HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        header::HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (header::CONNECTION, "close"),
];

/// Where a request comes from.
#[derive(Clone, Copy)]
pub(super) struct Peer(SocketAddr);

impl Connected<IncomingStream<'_, Listener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Listener>) -> Self {
        Self(*stream.remote_addr())
    }
}

/// The answers to every path. `loopback`: only this machine can reach us.
pub(super) fn router(admin: Admin, loopback: bool) -> Router {
    let rules = Rules {
        token: admin.token.clone(),
        read_only: admin.read_only,
        loopback,
        hosts: admin.hosts.clone(),
        proxies: admin.proxies.clone(),
    };
    let shared = Shared {
        admin,
        store: Arc::new(Semaphore::new(STORE_READS)),
        rules: Arc::new(rules),
    };
    Router::new()
        .route("/", get(home))
        .route("/login", get(login))
        .route("/style.css", get(style))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/leaderz", get(leaderz))
        .route("/metrics", get(metrics))
        .route("/api/v1/fleet", get(fleet))
        .route("/api/v1/jobs", get(jobs))
        .route("/api/v1/jobs/{job}/{command}", post(commands::order))
        .route("/api/v1/replicas/{replica}/drain", post(commands::drain))
        .route("/api/v1/triggers", get(triggers))
        .route("/api/v1/triggers/{id}/withdraw", post(commands::withdraw))
        .route("/api/v1/nodes", get(nodes))
        .route("/api/v1/locks", get(locks))
        .route("/api/v1/runs", get(runs))
        .fallback(|| async { (StatusCode::NOT_FOUND, "no such page\n") })
        .layer(DefaultBodyLimit::max(BODY))
        // Outermost: who may not ask is told so before anything of a body is read.
        .layer(middleware::from_fn_with_state(shared.clone(), guard))
        .with_state(shared)
}

async fn guard(
    State(shared): State<Shared>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let (head, body) = request.into_parts();
    let mut answer = match shared.rules.judge(&head, peer.ip()) {
        Ok(seen) => {
            let mut request = Request::from_parts(head, body);
            request.extensions_mut().insert(seen);
            let answer = shared.admin.clock.timeout(LIMIT, next.run(request)).await;
            answer.unwrap_or_else(|_| {
                let mut late = unavailable("no answer in time");
                let soon = HeaderValue::from_static(commands::SOON);
                late.headers_mut().insert(header::RETRY_AFTER, soon);
                late
            })
        }
        Err(refusal) => refused(refusal, head.method == Method::GET),
    };
    for (name, value) in &HEADERS {
        let value = HeaderValue::from_static(value);
        answer.headers_mut().insert(name.clone(), value);
    }
    answer
}

/// `looking`: nothing would be changed, so that a browser may ask its user.
fn refused(refusal: Refusal, looking: bool) -> Response {
    let Refusal { code, why } = refusal;
    let error = why.to_owned();
    let mut answer = (code, Json(Trouble { error })).into_response();
    if code == StatusCode::UNAUTHORIZED {
        let schemes: &[&str] = match looking {
            true => &[
                "Basic realm=\"Watchkeeper: the token is the password\"",
                "Bearer",
            ],
            false => &["Bearer"],
        };
        for scheme in schemes {
            let scheme = HeaderValue::from_static(scheme);
            answer
                .headers_mut()
                .append(header::WWW_AUTHENTICATE, scheme);
        }
    }
    answer
}

/// Where the page sends clients that have the token: a browser keeps what it was given for this address.
async fn login() -> Redirect {
    Redirect::to("/")
}

// === health ===

async fn livez(State(shared): State<Shared>) -> Response {
    health(shared.admin.source.live())
}

async fn readyz(State(shared): State<Shared>, Extension(seen): Extension<Seen>) -> Response {
    health(ready(&shared, seen))
}

/// Why not: in full with the token.
fn ready(shared: &Shared, seen: Seen) -> Result<(), String> {
    let ready = shared.admin.source.ready();
    ready.map_err(|why| if seen.token { why } else { in_short(&why) })
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

async fn read_fleet(shared: &Shared, seen: Seen) -> FleetStatus {
    // Closed never: the semaphore lives as long as the router.
    let _turn = shared.store.acquire().await;
    let mut fleet = shared.admin.source.fleet().await;
    if !seen.token {
        withhold(&mut fleet);
    }
    fleet
}

/// Takes away what is more than names and standings: what runs, panics and checks say, and what stands in a configuration.
fn withhold(fleet: &mut FleetStatus) {
    fleet.jobs.iter_mut().for_each(withhold_of);
    for reload in fleet.replicas.iter_mut().filter_map(|r| r.reload.as_mut()) {
        reload.error = reload.error.as_ref().map(|_| WITHHELD.to_owned());
    }
    for why in fleet.replicas.iter_mut().filter_map(|r| r.unfit.as_mut()) {
        *why = in_short(why);
    }
}

fn withhold_of(job: &mut JobStatus) {
    for run in &mut job.running {
        run.message = None;
    }
    if let Some(trouble) = &mut job.trouble {
        WITHHELD.clone_into(&mut trouble.why);
    }
    job.by_shard.iter_mut().for_each(withhold_of);
}

/// Why a replica is unfit, without what a job has said in its panic, or a check in its error: the name of either alone, which
/// stands before it.
fn in_short(why: &str) -> String {
    match why.split_once(": ") {
        Some((what, _)) => format!("{what}: {WITHHELD}"),
        None => why.to_owned(),
    }
}

/// In the place of what only the token shows.
const WITHHELD: &str = "sign in to see why";

async fn fleet(
    State(shared): State<Shared>,
    Extension(seen): Extension<Seen>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Json<FleetStatus> {
    let mut fleet = read_fleet(&shared, seen).await;
    if query.get("shards").is_none_or(|asked| asked != "true") {
        fleet.forget_shards();
    }
    Json(fleet)
}

async fn jobs(
    shared: State<Shared>,
    seen: Extension<Seen>,
    query: Query<BTreeMap<String, String>>,
) -> Response {
    let Json(fleet) = fleet(shared, seen, query).await;
    Json(fleet.jobs).into_response()
}

async fn nodes(State(shared): State<Shared>, Extension(seen): Extension<Seen>) -> Response {
    Json(read_fleet(&shared, seen).await.nodes).into_response()
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

async fn home(
    State(shared): State<Shared>,
    Extension(seen): Extension<Seen>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let fleet = read_fleet(&shared, seen).await;
    let view = page::View {
        shards: query.get("shards").map(String::as_str),
        fleet: &fleet,
        signed_in: seen.token,
        replica: &shared.admin.source.replica(),
        ready: ready(&shared, seen),
        now: shared.admin.source.wall(),
    };
    let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    (kind, page::render(&view)).into_response()
}

async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE).into_response()
}
