//! Every lock, as the nodes show it.

use axum::response::Response;

use super::super::{
    ask::Ask,
    problem::{Kind, Problem},
    schema::{Named, Schema, field},
};

pub(super) static LOCK: Named = Named {
    name: "Lock",
    about: "One lock.",
    fields: &[
        field("key", "The lock.", Schema::Text),
        field(
            "owner",
            "The random value of its holder, or of its last one; empty when it was never held.",
            Schema::Text,
        ),
        field("token", "The fencing token of that owner.", Schema::Count),
        field(
            "remaining_ms",
            "Remaining life of the key; `null` when it is free or has no end.",
            Schema::OrNull(&Schema::Count),
        ),
        field(
            "held",
            "Whether a majority of the nodes shows this owner in the key.",
            Schema::Flag,
        ),
        field(
            "nodes",
            "Nodes that show this owner in the key.",
            Schema::Count,
        ),
        field(
            "released",
            "Whether the last holder has released it.",
            Schema::Flag,
        ),
        field(
            "replica",
            "The id of the replica that holds it, where it tells of itself.",
            Schema::OrNull(&Schema::Text),
        ),
        field(
            "holder",
            "The process that holds it, where it tells of itself.",
            Schema::OrNull(&Schema::Named(&HOLDER)),
        ),
    ],
};

static HOLDER: Named = Named {
    name: "Holder",
    about: "A process that holds a lock: a worker, or a program under `lock` or `elect`.",
    fields: &[
        field("id", "Unique: host, process id, nonce.", Schema::Text),
        field(
            "name",
            "The name of the replica or of the program.",
            Schema::Text,
        ),
        field("host", "The machine.", Schema::Text),
        field("pid", "The process.", Schema::Count),
        field(
            "command",
            "What runs under the lock, by its name alone; `null` for a worker.",
            Schema::OrNull(&Schema::Text),
        ),
        field(
            "since",
            "Since when it holds the lock, by its own clock, where it tells.",
            Schema::OrNull(&Schema::Time),
        ),
    ],
};

pub(super) async fn list(ask: Ask) -> Result<Response, Problem> {
    let found = ask.shared.readings.locks().await;
    let locks = match &*found {
        Ok(locks) => locks,
        Err(why) => return Err(Problem::new(Kind::Unavailable, why.as_str())),
    };
    let (prefix, held) = (ask.asked.text("prefix"), ask.asked.flag("held"));
    let rows = locks.iter().filter(|lock| {
        let begins = prefix.is_none_or(|prefix| lock.key.starts_with(prefix));
        begins && held.is_none_or(|held| lock.held == held)
    });
    // A lock has one row.
    let rows = rows.map(|lock| (lock.key.clone(), lock));
    Ok(ask.page(rows.collect()))
}
