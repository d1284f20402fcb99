//! What all orders have in common: who asks and why, and what is answered.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use super::super::{
    ask::Ask,
    problem::{Kind, Problem},
    schema::{Field, Named, Schema, field, maybe},
    source::{Asked, Done, OrderError, What},
};
use crate::fleet::intent::MOST_REASON;

/// Bytes of the name of anything.
pub(super) const NAME: usize = 512;

/// How far a trigger has come.
pub(super) const STATES: &[&str] = &["asked", "accepted", "withdrawing", "started", "ended"];

/// Why something is asked for.
pub(super) const REASON: Field = maybe(
    "reason",
    "Why: 1,024 bytes at most. It stands in the audit.",
    Schema::Text,
);

/// The same where it must be said.
pub(super) const NEEDED_REASON: Field = field(REASON.name, REASON.about, REASON.schema);

/// A body that says no more.
pub(super) static WHY: Named = Named {
    name: "Why",
    about: "Why it is asked for.",
    fields: &[REASON],
};

/// A body that says no more.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WhyWords {
    pub(super) reason: String,
}

/// Gives an order, when its turn has come.
pub(super) async fn give(ask: &Ask, reason: String, what: What) -> Result<Response, Problem> {
    if reason.len() > MOST_REASON {
        let why = format!("the body: reason: at most {MOST_REASON} bytes");
        return Err(Problem::new(Kind::BadBody, why));
    }
    let of_items = matches!(what, What::Items { .. });
    let asked = Asked {
        who: ask.who.clone(),
        reason,
        what,
    };
    let turn = ask.shared.turn(of_items).await?;
    let given = ask.shared.give(turn, asked).await;
    given.map(ordered).map_err(refused)
}

fn ordered(done: Done) -> Response {
    let code = match done.heard {
        true => StatusCode::OK,
        false => StatusCode::ACCEPTED,
    };
    (code, Json(done.answer)).into_response()
}

pub(super) fn refused(error: OrderError) -> Problem {
    match error {
        OrderError::Unknown(why) => Problem::new(Kind::Unknown, why),
        OrderError::Misfit(why) => Problem::new(Kind::Misfit, why),
        OrderError::NotPossible(why) => Problem::new(Kind::NotPossible, why),
        OrderError::TooMany(why) => Problem::new(Kind::TooMany, why),
        OrderError::Unavailable(why) => Problem::new(Kind::Unavailable, why),
        OrderError::NoItems(why) => Problem::new(Kind::NoItems, why),
        OrderError::NotKnown(why) => Problem::new(Kind::NotKnown, why),
    }
}
