//! Every lock, as the nodes show it, and the order that a lease ends by force.

use axum::response::Response;
use serde::Deserialize;

use super::{
    super::{
        ask::Ask,
        problem::{Kind, Problem},
        schema::{Named, Schema, field, maybe},
        source::What,
    },
    orders::{NAME, NEEDED_REASON, give},
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

pub(super) static BREAK: Named = Named {
    name: "Break",
    about: "Whose lease ends by force, and why. `reason` and `sure` are needed, as in the form of the page.",
    fields: &[
        maybe(
            "owner",
            "Whose lease, as the list of locks shows it: that of another one stays. By default that of the owner on most nodes.",
            Schema::Text,
        ),
        field(
            "sure",
            "`true`: it cannot be taken back, and it is meant.",
            Schema::Flag,
        ),
        NEEDED_REASON,
    ],
};

pub(super) static BROKEN: Named = Named {
    name: "Broken",
    about: "A lease that has ended by force.",
    fields: &[
        field("key", "The lock.", Schema::Text),
        field("owner", "Whose lease it was.", Schema::Text),
        field(
            "token",
            "The token of the break: a receiver that is told it refuses that holder.",
            Schema::Count,
        ),
        field(
            "remaining_ms",
            "For how long the lock is not free at most; `null` where that is not known: `max_ttl` then.",
            Schema::OrNull(&Schema::Count),
        ),
        field("said", "All of it in a sentence.", Schema::Text),
    ],
};

/// What the body of a break may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct BreakWords {
    owner: Option<String>,
    sure: bool,
    reason: String,
}

pub(super) async fn break_lease(ask: Ask) -> Result<Response, Problem> {
    let BreakWords {
        owner,
        sure,
        reason,
    } = ask.words()?;
    let bad = |why: &str| Problem::new(Kind::BadBody, format!("the body: {why}"));
    if reason.trim().is_empty() {
        return Err(bad("reason: say why, it is shown to all who ask later"));
    }
    if !sure {
        return Err(bad("sure: say true, it cannot be taken back"));
    }
    if let Some(owner) = &owner
        && !(1..=NAME).contains(&owner.len())
    {
        return Err(bad(&format!("owner: 1 to {NAME} bytes")));
    }
    let key = ask.asked.needed("key").to_owned();
    give(&ask, reason, What::Break { key, owner }).await
}

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
