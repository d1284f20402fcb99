//! What people ask of the fleet over HTTP: `POST /api/v1/jobs/NAME/{trigger,pause,resume,resign}`,
//! `POST /api/v1/replicas/ID/drain`.
//!
//! # Invariants
//! - A5 Nothing is changed without the token, where there is one; without one only from this machine.
//!   (what_changes_wants_the_token)
//! - A6 A page of a stranger in somebody's browser cannot ask.   (a_browser_of_a_stranger_cannot_ask)

use axum::{
    Json,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    Done, Order, OrderError,
    routes::{Shared, Trouble},
};
use crate::intent::Given;

/// When to ask again after trouble of the store, in seconds.
const SOON: &str = "2";

/// What a request may say in its body.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Words {
    /// Why a job is paused.
    reason: String,
    /// Who is to lead next.
    to: Option<String>,
    /// What a run is given besides the configuration.
    params: Map<String, Value>,
}

pub(super) async fn order(
    State(shared): State<Shared>,
    Path((job, word)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Err((code, why)) = may_ask(&shared, &headers) {
        return refuse(code, why);
    }
    let words = match body.is_empty() {
        true => Words::default(),
        false => match serde_json::from_slice(&body) {
            Ok(words) => words,
            Err(error) => return refuse(StatusCode::BAD_REQUEST, &format!("the body: {error}")),
        },
    };
    let given = match Given::new(words.params) {
        Ok(given) if given.is_empty() || word == "trigger" => given,
        Ok(_) => {
            return refuse(
                StatusCode::BAD_REQUEST,
                "the body: only a trigger takes params",
            );
        }
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let order = match word.as_str() {
        "pause" => Order::Pause {
            reason: words.reason,
        },
        "resume" => Order::Resume,
        "trigger" => Order::Trigger { given },
        "resign" => Order::Resign { to: words.to },
        _ => {
            return refuse(
                StatusCode::NOT_FOUND,
                "a job can trigger, pause, resume and resign",
            );
        }
    };
    // Closed never: the semaphore lives as long as the router.
    let _turn = shared.store.acquire().await;
    answer(shared.admin.source.order(&job, order).await)
}

pub(super) async fn drain(
    State(shared): State<Shared>,
    Path(replica): Path<String>,
    headers: HeaderMap,
) -> Response {
    if let Err((code, why)) = may_ask(&shared, &headers) {
        return refuse(code, why);
    }
    // Closed never: the semaphore lives as long as the router.
    let _turn = shared.store.acquire().await;
    answer(shared.admin.source.drain(&replica).await)
}

fn answer(done: Result<Done, OrderError>) -> Response {
    match done {
        Ok(done) => {
            let code = match done.heard {
                true => StatusCode::OK,
                false => StatusCode::ACCEPTED,
            };
            (code, Json(done.answer)).into_response()
        }
        Err(OrderError::Unknown(why)) => refuse(StatusCode::NOT_FOUND, &why),
        Err(OrderError::Misfit(why)) => refuse(StatusCode::BAD_REQUEST, &why),
        Err(OrderError::NotPossible(why)) => refuse(StatusCode::CONFLICT, &why),
        Err(OrderError::Unavailable(why)) => refuse(StatusCode::SERVICE_UNAVAILABLE, &why),
    }
}

/// Whether the request may change anything; else why not.
fn may_ask(shared: &Shared, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
    let refused = |why| Err((StatusCode::FORBIDDEN, why));
    if shared.admin.read_only {
        return refused("this server changes nothing (admin.read_only)");
    }
    // Browsers say where a request comes from; no page of ours asks for anything.
    if headers.contains_key(header::ORIGIN) {
        return refused("requests of web pages are refused");
    }
    let Some(token) = &shared.admin.token else {
        return match shared.loopback {
            true => Ok(()),
            false => refused("other machines can ask only where admin.token is set"),
        };
    };
    let said = headers
        .get(header::AUTHORIZATION)
        .map(|said| said.as_bytes());
    let said = said.and_then(|said| said.strip_prefix(b"Bearer "));
    match said {
        Some(said) if same(said, token.expose().as_bytes()) => Ok(()),
        _ => Err((
            StatusCode::UNAUTHORIZED,
            "say the token: Authorization: Bearer TOKEN (admin.token)",
        )),
    }
}

/// Takes the same time wherever they differ.
fn same(said: &[u8], token: &[u8]) -> bool {
    let differs = said.iter().zip(token).fold(0, |all, (a, b)| all | (a ^ b));
    differs == 0 && said.len() == token.len()
}

fn refuse(code: StatusCode, why: &str) -> Response {
    let error = why.to_owned();
    let mut answer = (code, Json(Trouble { error })).into_response();
    if code == StatusCode::UNAUTHORIZED {
        let scheme = header::HeaderValue::from_static("Bearer");
        answer
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, scheme);
    }
    if code == StatusCode::SERVICE_UNAVAILABLE {
        let soon = header::HeaderValue::from_static(SOON);
        answer.headers_mut().insert(header::RETRY_AFTER, soon);
    }
    answer
}
