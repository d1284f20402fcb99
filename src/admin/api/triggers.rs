//! Triggers that have not ended, and the order that one does not start.

use axum::response::Response;
use serde_json::Value;

use super::{
    super::{
        ask::Ask,
        problem::{Kind, Problem},
        schema::{Named, Schema, field, maybe},
        source::What,
    },
    orders::{STATES, WhyWords, give},
};

pub(super) static WAITING: Named = Named {
    name: "WaitingTrigger",
    about: "A trigger that has not ended, and what it waits for.",
    fields: &[
        field("id", "Its id.", Schema::Text),
        field("job", "The job.", Schema::Text),
        field("by", "Who asked for it.", Schema::Text),
        field("asked", "When that was.", Schema::Time),
        field("state", "How far it has come.", Schema::Word(STATES)),
        field("why", "What it waits for, or where it runs.", Schema::Text),
        field(
            "params",
            "Names of its parameters.",
            Schema::List(&Schema::Text),
        ),
        field(
            "run_id",
            "The id of its run; empty before it has started.",
            Schema::Text,
        ),
    ],
};

pub(super) static TRIGGERED: Named = Named {
    name: "Triggered",
    about: "A run that was asked for, and what became of it.",
    fields: &[
        field("job", "The job.", Schema::Text),
        field("id", "Unique; grows with time.", Schema::Text),
        field("by", "Who asked for it.", Schema::Text),
        field(
            "params",
            "Names of the parameters that it gives its run.",
            Schema::List(&Schema::Text),
        ),
        field("asked", "When that was.", Schema::Time),
        maybe(
            "withdrawn_by",
            "Who asks that it does not start; absent where it is still to start.",
            Schema::Text,
        ),
        field("state", "How far it has come.", Schema::Word(STATES)),
        field(
            "replica",
            "The id of the replica that says so.",
            Schema::Text,
        ),
        field(
            "run_id",
            "The id of its run; empty before it has started.",
            Schema::Text,
        ),
        field(
            "outcome",
            "How its run ended, as in the history; or `expired`, `withdrawn`, `unknown`. Empty before the end.",
            Schema::Text,
        ),
        field(
            "detail",
            "Why; empty when there is nothing to say.",
            Schema::Text,
        ),
        field(
            "ended",
            "When no attempt at it followed any more.",
            Schema::OrNull(&Schema::Time),
        ),
    ],
};

pub(super) async fn list(ask: Ask) -> Result<Response, Problem> {
    // Closed never: the semaphore lives as long as the router.
    let _turn = ask.shared.store.acquire().await;
    let job = ask.asked.text("job");
    let found = ask.shared.admin.source.triggers(job).await;
    let found = found.map_err(|why| Problem::new(Kind::Unavailable, why))?;
    let rows = match found {
        Value::Array(rows) => rows,
        _ => Vec::new(),
    };
    // One trigger of all shards is a row for each of them.
    let rows = rows.into_iter().map(|row| {
        let word = |name: &str| row[name].as_str().unwrap_or_default();
        (format!("{} {}", word("id"), word("job")), row)
    });
    Ok(ask.page(rows.collect()))
}

pub(super) async fn withdraw(ask: Ask) -> Result<Response, Problem> {
    let WhyWords { reason } = ask.words()?;
    let id = ask.asked.needed("id").to_owned();
    give(&ask, reason, What::Withdraw(id)).await
}
