//! What people ask of the fleet over HTTP: `POST /api/v1/jobs/NAME/{trigger,pause,resume,resign}`,
//! `POST /api/v1/replicas/ID/drain`, `POST /api/v1/triggers/ID/withdraw`.
//!
//! A request that comes here has the right to ask: [`super::rights`] has looked before anything of its body was read.

use std::time::Duration;

use axum::{
    Json,
    body::Bytes,
    extract::{Path, State, rejection::BytesRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::SemaphorePermit;

use super::{
    shared::{Shared, Trouble},
    source::{Done, Order, OrderError},
};
use crate::fleet::intent::TriggerParams;

/// When to ask again after trouble of the store, in seconds.
pub(super) const SOON: &str = "2";

/// How long a command waits for its turn: what is asked in time can be answered in time.
const TURN: Duration = Duration::from_secs(1);

/// What a request may say in its body.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Words {
    /// Why a job is paused.
    reason: String,
    /// The replica that is to lead next.
    to: Option<String>,
    /// What a run is given besides the configuration.
    params: Map<String, Value>,
}

pub(super) async fn order(
    State(shared): State<Shared>,
    Path((job, word)): Path<(String, String)>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(error) => return refuse(error.status(), &format!("the body: {}", error.body_text())),
    };
    let words = match body.is_empty() {
        true => Words::default(),
        // Serde would also take a list for the words, one by one.
        false if !body.trim_ascii_start().starts_with(b"{") => {
            return refuse(StatusCode::BAD_REQUEST, "the body: this must be an object");
        }
        false => match serde_json::from_slice(&body) {
            Ok(words) => words,
            Err(error) => return refuse(StatusCode::BAD_REQUEST, &format!("the body: {error}")),
        },
    };
    let given = match TriggerParams::new(words.params) {
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
    let Some(_turn) = turn(&shared).await else {
        return busy();
    };
    answer(shared.admin.source.order(&job, order).await)
}

pub(super) async fn drain(State(shared): State<Shared>, Path(replica): Path<String>) -> Response {
    let Some(_turn) = turn(&shared).await else {
        return busy();
    };
    answer(shared.admin.source.drain(&replica).await)
}

pub(super) async fn withdraw(State(shared): State<Shared>, Path(id): Path<String>) -> Response {
    let Some(_turn) = turn(&shared).await else {
        return busy();
    };
    answer(shared.admin.source.withdraw(&id).await)
}

/// The right to ask something of the store; none when too many have it.
async fn turn(shared: &Shared) -> Option<SemaphorePermit<'_>> {
    let turn = shared.admin.clock.timeout(TURN, shared.store.acquire());
    // Closed never: the semaphore lives as long as the router.
    turn.await.ok()?.ok()
}

fn busy() -> Response {
    let why = "too many ask at one time: nothing was asked for, do it again";
    refuse(StatusCode::SERVICE_UNAVAILABLE, why)
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
        Err(OrderError::TooMany(why)) => refuse(StatusCode::TOO_MANY_REQUESTS, &why),
        Err(OrderError::Unavailable(why)) => refuse(StatusCode::SERVICE_UNAVAILABLE, &why),
    }
}

fn refuse(code: StatusCode, why: &str) -> Response {
    let error = why.to_owned();
    let mut answer = (code, Json(Trouble { error })).into_response();
    if code == StatusCode::SERVICE_UNAVAILABLE {
        let soon = header::HeaderValue::from_static(SOON);
        answer.headers_mut().insert(header::RETRY_AFTER, soon);
    }
    answer
}
