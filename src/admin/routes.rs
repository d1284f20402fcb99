//! Paths and their answers: pages and health here, the API in `api`.
//!
//! A new endpoint is a line of [`super::api::ROUTES`]: the router, the decision who may ask, the description of the API and the
//! reference in the book follow. A new page is a line of [`PAGES`], and a line in three other tables as far as it is wanted there: the
//! ways between the pages (`VIEWS` in `page/layout.rs`), the pages that a link from elsewhere may lead to (`is_page` in `rights.rs`),
//! and those that are followed by a stream (`FOLLOWED` in `live.rs`). A test compares the first two.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use axum::{
    Extension, Router,
    extract::{ConnectInfo, DefaultBodyLimit, Query, Request, State, connect_info::Connected},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    middleware::{self, Next},
    response::{IntoResponse, Redirect, Response},
    routing::{any, get},
    serve::IncomingStream,
};

use super::{
    api, assets,
    listener::{Listener, Stay},
    live, openapi, orders,
    problem::{Kind, Problem, for_a_browser, wants_page},
    rights::{Asker, Refusal, Rules, Seen, Want},
    route::{Answer, Handler, Route},
    shared::Shared,
    source::Admin,
    views,
};
use crate::telemetry::metrics::Exposition;

/// An answer takes no longer than this to begin.
const LIMIT: Duration = Duration::from_secs(5);

/// Bytes of a body that a page may take.
const BODY: usize = 16 * 1024;

const PLAIN: &str = "text/plain";

/// Pages and health. What has no answers here is no part of the description of the API.
static PAGES: &[Route] = &[
    Route::page("/", Want::Lists, "The fleet at a glance", &[], || {
        get(views::home)
    }),
    Route::page(
        "/jobs/{job}",
        Want::Lists,
        "One job: who leads it and who has, its ticks and its runs",
        &[],
        || get(views::of_job),
    ),
    Route::page(
        "/runs",
        Want::Lists,
        "What runs, and how the runs of jobs ended",
        &[],
        || get(views::of_runs),
    ),
    Route::page(
        "/batches",
        Want::Lists,
        "Work in batches, and what of it waits for a person",
        &[],
        || get(views::of_batches),
    ),
    Route::page("/replicas", Want::Lists, "Replicas", &[], || {
        get(views::of_replicas)
    }),
    Route::page(
        "/nodes",
        Want::Lists,
        "Lock nodes, and how many more may fail",
        &[],
        || get(views::of_nodes),
    ),
    Route::page(
        "/locks",
        Want::Lists,
        "Locks, and one of them node by node",
        &[],
        || get(views::of_locks),
    ),
    Route::page(
        "/audit",
        Want::Outputs,
        "Who has ordered what, when and why",
        &[],
        || get(views::of_audit),
    ),
    Route::page(
        "/orders/{order}",
        Want::Outputs,
        "A form for an order; sent back by `POST`, with the token and its seal",
        &[],
        || get(orders::form).post(orders::give),
    ),
    Route::page(
        "/events",
        Want::Lists,
        "What changes on a page, as server-sent events",
        &[],
        || get(live::follow),
    ),
    Route::page(
        "/login",
        Want::Outputs,
        "Asks a browser for the token",
        &[],
        || get(login),
    ),
    Route::page(
        "/style.css",
        Want::Health,
        "The style of the pages",
        &[],
        || get(style),
    ),
    Route::page(
        "/app.js",
        Want::Health,
        "The script of the pages, which are complete without it",
        &[],
        || get(script),
    ),
    Route::page(
        "/icon.svg",
        Want::Health,
        "The picture beside the title of a page",
        &[],
        || get(icon),
    ),
    Route::page(
        "/livez",
        Want::Health,
        "Whether the process turns",
        &[
            Answer::text(200, "It does.", PLAIN),
            Answer::text(503, "What stands still.", PLAIN),
        ],
        || get(livez),
    ),
    Route::page(
        "/readyz",
        Want::Health,
        "Whether this replica is able to do its part",
        &[
            Answer::text(200, "It is; a standby is.", PLAIN),
            Answer::text(503, "What is in the way.", PLAIN),
        ],
        || get(readyz),
    ),
    Route::page(
        "/leaderz",
        Want::Health,
        "Whether this replica leads the job of `?job=NAME`, or any",
        &[
            Answer::text(200, "It leads.", PLAIN),
            Answer::text(404, "There is no such job.", PLAIN),
            Answer::text(503, "It stands by.", PLAIN),
        ],
        || get(leaderz),
    ),
    Route::page(
        "/metrics",
        Want::Health,
        "The metrics, as Prometheus or OpenMetrics has them",
        &[Answer::text(200, "The metrics.", PLAIN)],
        || get(metrics),
    ),
];

/// On every answer: nothing is loaded but our own style, script and sign, no text becomes markup but what the one policy of that script
/// lets through, forms go to us alone, no page frames us, nothing is kept. One request per
/// connection, so that the life of a connection bounds a slow client alone.
static HEADERS: [(header::HeaderName, &str); 8] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
         base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types watchkeeper",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // Not "no-referrer": with that a form of ours would not say where it comes from.
    (header::REFERRER_POLICY, "same-origin"),
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

/// Where a request comes from, and what lets its answer go on.
#[derive(Clone)]
pub(super) struct Peer {
    address: SocketAddr,
    stay: Stay,
}

impl Connected<IncomingStream<'_, Listener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Listener>) -> Self {
        Self {
            address: *stream.remote_addr(),
            stay: stream.io().stay_on(),
        }
    }
}

// === impl Peer ===

impl Peer {
    #[cfg(test)]
    pub(super) fn stay(&self) -> &Stay {
        &self.stay
    }
}

/// Every route, in the order of the book.
pub(super) fn routes() -> Vec<&'static Route> {
    PAGES.iter().chain(api::ROUTES).collect()
}

/// What all answers share. `loopback`: only this machine can reach us.
pub(super) fn shared(admin: Admin, loopback: bool) -> Shared {
    let routes = routes();
    let looks = routes.iter().filter(|route| route.want != Want::Change);
    let rules = Rules {
        token: admin.token.clone(),
        read_only: admin.read_only,
        loopback,
        hosts: admin.hosts.clone(),
        proxies: admin.proxies.clone(),
        user_header: admin.user_header.clone(),
        wants: looks.map(|route| (route.path, route.want)).collect(),
    };
    let description = openapi::description(&routes).to_string();
    Shared::new(admin, rules, description.into())
}

/// The answers to every path.
pub(super) fn router(shared: Shared) -> Router {
    let mut router = Router::new();
    for page in PAGES {
        if let Handler::Page(methods) = page.handler {
            router = router.route(page.path, methods());
        }
    }
    router
        .route("/api/{*path}", any(answer))
        .method_not_allowed_fallback(other_method)
        .fallback(nothing)
        .layer(DefaultBodyLimit::max(BODY))
        // Outermost: a client that may not ask is told so before anything of a body is read.
        .layer(middleware::from_fn_with_state(shared.clone(), guard))
        .with_state(shared)
}

async fn guard(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let (head, body) = request.into_parts();
    let asker = shared.rules.asker(&head, peer.address.ip());
    let wants_page = wants_page(head.uri.path(), &head.headers);
    let answer = match shared.rules.judge(&head, peer.address.ip()) {
        Ok(seen) => {
            let mut request = Request::from_parts(head, body);
            request.extensions_mut().insert(seen);
            request.extensions_mut().insert(asker);
            request.extensions_mut().insert(peer.stay);
            let answer = shared.admin.clock.timeout(LIMIT, next.run(request)).await;
            answer.unwrap_or_else(|_| {
                let late = Problem::new(Kind::Late, "no answer in time");
                late.into_response()
            })
        }
        Err(refusal) => {
            let looking = [Method::GET, Method::HEAD].contains(&head.method);
            refused(refusal, looking)
        }
    };
    let mut answer = match wants_page {
        true => for_a_browser(answer),
        false => answer,
    };
    for (name, value) in &HEADERS {
        // A document with a tag says by itself how it may be kept.
        if *name == header::CACHE_CONTROL && answer.headers().contains_key(name) {
            continue;
        }
        let value = HeaderValue::from_static(value);
        answer.headers_mut().insert(name.clone(), value);
    }
    answer
}

/// `looking`: nothing would be changed, so that a browser may ask its user.
fn refused(refusal: Refusal, looking: bool) -> Response {
    let Refusal { kind, why } = refusal;
    let mut answer = Problem::new(kind, why).into_response();
    if kind == Kind::TokenNeeded {
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

/// What the API answers.
async fn answer(
    State(shared): State<Shared>,
    Extension(seen): Extension<Seen>,
    Extension(asker): Extension<Asker>,
    Extension(stay): Extension<Stay>,
    request: Request,
) -> Response {
    let who = asker.who;
    api::answer(shared, api::Client { seen, who, stay }, request).await
}

async fn nothing() -> Problem {
    Problem::new(Kind::NoSuchPath, "there is no such page")
}

/// The methods that the page takes stand in `Allow`.
async fn other_method() -> Problem {
    Problem::new(Kind::NoSuchMethod, "the page does not take this method")
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
    health(shared.ready(seen))
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
    let text = shared.scrapes.text(exposition).await;
    ([(header::CONTENT_TYPE, exposition.content_type())], text).into_response()
}

// === pages ===

async fn style(uri: Uri, headers: HeaderMap) -> Response {
    assets::STYLE.answer(&uri, &headers)
}

async fn script(uri: Uri, headers: HeaderMap) -> Response {
    assets::SCRIPT.answer(&uri, &headers)
}

async fn icon(uri: Uri, headers: HeaderMap) -> Response {
    assets::ICON.answer(&uri, &headers)
}
