//! The lock nodes, as this replica sees them.

use axum::response::Response;

use super::super::{
    ask::Ask,
    problem::Problem,
    schema::{Named, Schema, field},
};

pub(super) static NODE: Named = Named {
    name: "Node",
    about: "One lock node.",
    fields: &[
        field("name", "Its name, without credentials.", Schema::Text),
        field("up", "Whether it answers.", Schema::Flag),
        field(
            "votes",
            "Whether its votes count: one that is new, was started again or has lost its memory answers, and does not vote yet.",
            Schema::Flag,
        ),
        field(
            "votes_in_ms",
            "How much longer at most it does not vote; `null` when it votes, or when that is not known.",
            Schema::OrNull(&Schema::Count),
        ),
        field(
            "cause",
            "Why it does not answer or vote, in a word.",
            Schema::OrNull(&Schema::Text),
        ),
        field(
            "error",
            "The last error in full.",
            Schema::OrNull(&Schema::Text),
        ),
        field(
            "rtt_us",
            "Round trip of the last call that it answered, in microseconds.",
            Schema::OrNull(&Schema::Count),
        ),
        field(
            "offset_ms",
            "Its wall clock minus that of the machine which answers, in milliseconds; 0 within the error.",
            Schema::OrNull(&Schema::Integer),
        ),
    ],
};

pub(super) async fn list(ask: Ask) -> Result<Response, Problem> {
    let nodes = ask.shared.fleet(ask.seen).await.nodes;
    let up = ask.asked.flag("up");
    // In the order of the configuration.
    let rows = nodes.into_iter().enumerate();
    let rows = rows.filter(|(_, node)| up.is_none_or(|up| node.up == up));
    let rows = rows.map(|(place, node)| (format!("{place:04}"), node));
    Ok(ask.page(rows.collect()))
}
