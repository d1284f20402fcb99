//! The fleet in one document.

use axum::{body::Bytes, response::Response};

use super::{
    super::{
        ask::Ask,
        problem::{Kind, Problem},
        schema::{Named, Schema, field},
        stream::ClientSlot,
    },
    jobs::JOB,
    nodes::NODE,
    replicas::REPLICA,
};

pub(super) static FLEET: Named = Named {
    name: "Fleet",
    about: "What the fleet looks like.",
    fields: &[
        field(
            "replicas",
            "Every replica that was heard of lately, by name.",
            Schema::List(&Schema::Named(&REPLICA)),
        ),
        field(
            "jobs",
            "Every job that any replica knows, by name.",
            Schema::List(&Schema::Named(&JOB)),
        ),
        field(
            "nodes",
            "The lock nodes, in the order of the configuration, as this replica sees them.",
            Schema::List(&Schema::Named(&NODE)),
        ),
    ],
};

/// A document, and the slot that it takes until it is sent.
struct Held {
    json: Vec<u8>,
    _slot: ClientSlot,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.json
    }
}

pub(super) async fn show(ask: Ask) -> Result<Response, Problem> {
    let Some(slot) = ask.shared.whole_fleets.take(ask.seen) else {
        let why = "the whole fleet is being sent to as many clients as may be: do it again, or read /api/v1/jobs page by page";
        return Err(Problem::new(Kind::Busy, why));
    };
    let mut fleet = ask.shared.fleet(ask.seen).await;
    if ask.asked.flag("shards") != Some(true) {
        fleet.forget_shards();
    }
    let held = Held {
        // Texts, numbers and string keys: always serializable.
        json: serde_json::to_vec(&fleet).unwrap_or_default(),
        _slot: slot,
    };
    Ok(ask.bytes(Bytes::from_owner(held)))
}
