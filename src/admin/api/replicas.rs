//! Replicas, and the order that one of them drains.

use axum::response::Response;

use super::{
    super::{
        ask::Ask,
        problem::Problem,
        schema::{Named, Schema, field},
        source::What,
    },
    orders::{WhyWords, give},
};

pub(super) static REPLICA: Named = Named {
    name: "Replica",
    about: "One running worker.",
    fields: &[
        field("id", "Unique: host, process id, nonce.", Schema::Text),
        field("name", "The configured name.", Schema::Text),
        field("host", "The machine.", Schema::Text),
        field("pid", "The process.", Schema::Count),
        field("version", "Version of the program.", Schema::Text),
        field(
            "mode",
            "`shared` or `failover`; empty where the replica does not tell.",
            Schema::Text,
        ),
        field(
            "role",
            "What it is at the moment.",
            Schema::Word(&["leader", "standby", "observer"]),
        ),
        field(
            "priority",
            "Larger is preferred among the candidates for a job.",
            Schema::Integer,
        ),
        field("draining", "Nothing new starts here.", Schema::Flag),
        field("fit", "Whether it is fit to work.", Schema::Flag),
        field(
            "unfit",
            "Why it is unfit; in full with the token alone.",
            Schema::OrNull(&Schema::Text),
        ),
        field("started", "When the process started.", Schema::Time),
        field("seen_ms_ago", "Age of this news.", Schema::Count),
        field(
            "admin",
            "Address of its status page.",
            Schema::OrNull(&Schema::Text),
        ),
        field(
            "reload",
            "What became of its last reload; `null` before the first.",
            Schema::OrNull(&Schema::Named(&RELOAD)),
        ),
        field(
            "notices",
            "How it stands with the receivers of notices that its configuration names.",
            Schema::List(&Schema::Named(&NOTICE)),
        ),
    ],
};

static NOTICE: Named = Named {
    name: "Notice",
    about: "A receiver of notices, as one replica has found it.",
    fields: &[
        field("name", "Its name in the configuration.", Schema::Text),
        field(
            "waiting",
            "Notices that wait for it here, or are on their way.",
            Schema::Count,
        ),
        field(
            "sent",
            "When it last took one from this replica, by the clock of that; `null` before the first.",
            Schema::OrNull(&Schema::Time),
        ),
        field(
            "failing",
            "Since when it takes none; `null` when it took the last one that was tried.",
            Schema::OrNull(&Schema::Time),
        ),
    ],
};

static RELOAD: Named = Named {
    name: "Reload",
    about: "What became of a reload.",
    fields: &[
        field("at", "When.", Schema::Time),
        field(
            "ok",
            "Whether the configuration that was read is in effect; nothing has changed otherwise.",
            Schema::Flag,
        ),
        field(
            "error",
            "The first fault, and how many there are; with the token alone.",
            Schema::OrNull(&Schema::Text),
        ),
        field(
            "needs_restart",
            "Keys that were changed and need a restart to take effect.",
            Schema::List(&Schema::Text),
        ),
    ],
};

pub(super) static DRAINED: Named = Named {
    name: "Drained",
    about: "What became of the order to drain.",
    fields: &[
        field("replica", "The id of the replica.", Schema::Text),
        field("name", "Its name.", Schema::Text),
        field(
            "heard",
            "It has said that it drains, or has gone.",
            Schema::Flag,
        ),
        field("gone", "It is not heard of any more.", Schema::Flag),
    ],
};

pub(super) async fn list(ask: Ask) -> Result<Response, Problem> {
    let replicas = ask.shared.fleet(ask.seen).await.replicas;
    let draining = ask.asked.flag("draining");
    let rows = replicas.into_iter();
    let rows = rows.filter(|replica| draining.is_none_or(|is| replica.draining == is));
    // Two may have one name.
    let rows = rows.map(|replica| (format!("{} {}", replica.name, replica.id), replica));
    Ok(ask.page(rows.collect()))
}

pub(super) async fn drain(ask: Ask) -> Result<Response, Problem> {
    let WhyWords { reason } = ask.words()?;
    let replica = ask.asked.needed("replica").to_owned();
    give(&ask, reason, What::Drain(replica)).await
}
