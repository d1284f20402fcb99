//! Items of a job that do not go by themselves, and the orders that they are sent again, put aside or discarded.

use axum::response::Response;
use serde::Deserialize;

use super::{
    super::{
        ask::Ask,
        problem::{Kind, Problem},
        schema::{Field, Named, Schema, field, maybe},
        source::What,
    },
    orders::{NAME, REASON, give, refused},
};
use crate::fleet::items::{ItemOrder, ItemState, ItemsAsked, MOST_NAMED, WhichItems};

/// Where an item can stand.
pub(super) const STATES: &[&str] = &["retry", "dead", "in_doubt", "parked", "discarded"];

/// Those that wait for a person, and those that a person should know of.
const USUAL: [ItemState; 3] = [ItemState::Dead, ItemState::InDoubt, ItemState::Parked];

pub(super) static ITEM: Named = Named {
    name: "HeldItem",
    about: "An item of a job that was not sent.",
    fields: &[
        field(
            "id",
            "Its id, as a text. One of more than 1,024 bytes is cut, with a mark at its end.",
            Schema::Text,
        ),
        field("state", "Where it stands.", Schema::Word(STATES)),
        field(
            "attempts",
            "How often it was tried to send it.",
            Schema::Count,
        ),
        field(
            "since",
            "Since when it stands there; `null` when that is not known.",
            Schema::OrNull(&Schema::Time),
        ),
        field("reason", "Why.", Schema::Text),
        field(
            "key",
            "The key by which its receiver knows it.",
            Schema::Text,
        ),
        field(
            "row",
            "What its row says: `sent` and `gone` are the work of another hand.",
            Schema::Word(&["unsent", "sent", "gone"]),
        ),
    ],
};

pub(super) static RETRY: Named = Named {
    name: "RetryItems",
    about: "Which items are sent again, and why: some by their ids, or all in a state, which is said to be meant.",
    fields: SOME_OR_ALL,
};

pub(super) static DISCARD: Named = Named {
    name: "DiscardItems",
    about: "Which items are discarded, and why: some by their ids, or all in a state, which is said to be meant.",
    fields: SOME_OR_ALL,
};

const SOME_OR_ALL: &[Field] = &[
    maybe(
        "ids",
        "Their ids: 100 at most.",
        Schema::List(&Schema::Text),
    ),
    maybe("state", "All in this state.", Schema::Word(STATES)).with(&["reason", "sure"]),
    maybe(
        "after",
        "With `state`: from the first behind this one on, which an order before this one says as `next`.",
        Schema::OrNull(&Schema::Text),
    ),
    maybe(
        "sure",
        "`true`: it cannot be taken back, and it is meant.",
        Schema::Flag,
    ),
    REASON,
];

pub(super) static PARK: Named = Named {
    name: "ParkItems",
    about: "Which items are put aside, and why.",
    fields: &[
        field(
            "ids",
            "Their ids: 100 at most.",
            Schema::List(&Schema::Text),
        ),
        REASON,
    ],
};

pub(super) static CHANGED: Named = Named {
    name: "ItemsChanged",
    about: "What became of items. Each is counted once.",
    fields: &[
        field("job", "The job.", Schema::Text),
        field(
            "order",
            "What was ordered.",
            Schema::Word(&["retry", "park", "discard"]),
        ),
        field("said", "All of it in a sentence.", Schema::Text),
        field("changed", "As asked.", Schema::Count),
        field("unchanged", "They stood as asked already.", Schema::Count),
        field(
            "forgotten",
            "Their rows were sent or deleted by another hand: they are listed no more.",
            Schema::Count,
        ),
        field(
            "sending",
            "They are being sent, or their sender has died in the act: left alone.",
            Schema::Count,
        ),
        field(
            "unknown",
            "There are none with these ids, or they were sent.",
            Schema::Count,
        ),
        field(
            "left_alone",
            "Those that were named and left alone.",
            Schema::List(&Schema::Named(&LEFT_ALONE)),
        ),
        field(
            "more",
            "There are more: two seconds are over, or it has stopped. Give the order again.",
            Schema::Flag,
        ),
        field(
            "next",
            "Where there are more in a state: what the next order says as `after`.",
            Schema::OrNull(&Schema::Text),
        ),
        field(
            "stopped",
            "Why it has ended before its time, after what is counted here; `null` where it has not.",
            Schema::OrNull(&Schema::Text),
        ),
    ],
};

static LEFT_ALONE: Named = Named {
    name: "LeftAlone",
    about: "An item that was named and left alone.",
    fields: &[
        field("id", "Its id.", Schema::Text),
        field("why", "Why.", Schema::Text),
    ],
};

/// What the body of an order may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SomeOrAll {
    ids: Vec<String>,
    state: Option<ItemState>,
    after: Option<String>,
    sure: bool,
    reason: String,
}

/// The same of one that names them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ParkWords {
    ids: Vec<String>,
    reason: String,
}

pub(super) async fn list(ask: Ask) -> Result<Response, Problem> {
    let asked = &ask.asked;
    let words = asked.text("state").map(|words| words.split(','));
    let mut states: Vec<ItemState> = words
        .into_iter()
        .flatten()
        .filter_map(ItemState::of)
        .collect();
    if states.is_empty() {
        states.extend(USUAL);
    }
    // One order, and each once: what is asked for in other words is read once.
    states.sort_unstable();
    states.dedup();
    let job = asked.needed("job");
    let wanted = ItemsAsked {
        states,
        after: asked.text("after").map(str::to_owned),
        limit: asked.number("limit"),
    };
    let found = ask.shared.readings.items(job, wanted).await;
    let page = match &*found {
        Ok(page) => page,
        Err(error) => return Err(refused(error.clone())),
    };
    let rows = page.items.iter().map(|item| (item.id.clone(), item));
    Ok(ask.page_as_it_is(&rows.collect::<Vec<_>>(), page.more))
}

pub(super) async fn retry(ask: Ask) -> Result<Response, Problem> {
    some_or_all(ask, ItemOrder::Retry).await
}

pub(super) async fn discard(ask: Ask) -> Result<Response, Problem> {
    some_or_all(ask, ItemOrder::Discard).await
}

async fn some_or_all(ask: Ask, order: ItemOrder) -> Result<Response, Problem> {
    let SomeOrAll {
        ids,
        state,
        after,
        sure,
        reason,
    } = ask.words()?;
    let which = match (ids.is_empty(), state) {
        (true, Some(_)) if reason.trim().is_empty() => {
            return Err(bad("reason: say why, it is shown to all who ask later"));
        }
        (true, Some(_)) if !sure => {
            return Err(bad("sure: say true, it cannot be taken back"));
        }
        (true, Some(state)) => WhichItems::All { state, after },
        (false, None) if after.is_some() => {
            return Err(bad("after: it goes with state, and not with ids"));
        }
        (false, None) => named(ids)?,
        (true, None) => return Err(bad("ids, or state: say which items")),
        (false, Some(_)) => return Err(bad("ids, or state: not both")),
    };
    of_items(&ask, reason, order, which).await
}

pub(super) async fn park(ask: Ask) -> Result<Response, Problem> {
    let ParkWords { ids, reason } = ask.words()?;
    let which = named(ids)?;
    of_items(&ask, reason, ItemOrder::Park, which).await
}

async fn of_items(
    ask: &Ask,
    reason: String,
    order: ItemOrder,
    which: WhichItems,
) -> Result<Response, Problem> {
    let job = ask.asked.needed("job").to_owned();
    give(ask, reason, What::Items { job, order, which }).await
}

fn named(ids: Vec<String>) -> Result<WhichItems, Problem> {
    if ids.is_empty() || ids.len() > MOST_NAMED {
        return Err(bad(&format!("ids: 1 to {MOST_NAMED} of them")));
    }
    if ids.iter().any(|id| id.is_empty() || id.len() > NAME) {
        return Err(bad(&format!("ids: each has 1 to {NAME} bytes")));
    }
    Ok(WhichItems::Named(ids))
}

fn bad(why: &str) -> Problem {
    Problem::new(Kind::BadBody, format!("the body: {why}"))
}
