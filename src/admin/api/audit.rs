//! Orders that were given over HTTP, the latest first.

use axum::response::Response;

use super::super::{
    ask::Ask,
    problem::{Kind, Problem},
    schema::{Named, Schema, field, maybe},
};

/// The orders that there are.
pub(super) const ORDERS: &[&str] = &[
    "pause",
    "resume",
    "trigger",
    "resign",
    "drain",
    "withdraw",
    "break",
    "retry",
    "park",
    "discard",
    "pause_all",
    "resume_all",
];

pub(super) static ENTRY: Named = Named {
    name: "AuditEntry",
    about: "An order that was given over HTTP. It is written down before it is given.",
    fields: &[
        field("id", "Unique; grows with time.", Schema::Text),
        field(
            "at",
            "When it was asked for, by the fleet's time.",
            Schema::Time,
        ),
        field(
            "who",
            "Who asked: by the word of a proxy, or as the person called themselves; `a client with the token` where nothing was said.",
            Schema::Text,
        ),
        field("by", "Through which replica.", Schema::Text),
        field("order", "What.", Schema::Word(ORDERS)),
        field(
            "of",
            "The job, replica, trigger or lock that it is about.",
            Schema::Text,
        ),
        maybe(
            "items",
            "The items of the job that it is about: how many, and a list of their ids as JSON, of which 4,096 bytes are kept; or which all of them are.",
            Schema::Text,
        ),
        maybe(
            "owner",
            "Of a break: whose lease was meant, where that was said.",
            Schema::Text,
        ),
        maybe(
            "to",
            "Of a resignation: the replica that was to lead next, where that was said.",
            Schema::Text,
        ),
        field("reason", "Why; empty where nothing was said.", Schema::Text),
        field(
            "result",
            "What came of it; empty while that is not known.",
            Schema::Text,
        ),
    ],
};

pub(super) async fn list(ask: Ask) -> Result<Response, Problem> {
    let found = ask.shared.readings.orders().await;
    let orders = match &*found {
        Ok((_, orders)) => orders,
        Err(why) => return Err(Problem::new(Kind::Unavailable, why.as_str())),
    };
    let is = |name: &str, found: &str| ask.asked.text(name).is_none_or(|wanted| wanted == found);
    let rows = orders
        .iter()
        .filter(|entry| is("order", &entry.order) && is("of", &entry.of) && is("who", &entry.who));
    let rows = rows.map(|entry| (entry.id.clone(), entry));
    Ok(ask.page_from_the_end(rows.collect()))
}
