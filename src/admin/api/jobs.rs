//! Jobs, and what can be asked of one.

use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    super::{
        ask::Ask,
        problem::{Kind, Problem},
        schema::{Field, Named, Schema, field, maybe},
        source::{Order, What},
    },
    orders::{NEEDED_REASON, REASON, WhyWords, give},
};
use crate::fleet::{TriggerParams, status::JobStatus};

pub(super) static JOB: Named = Named {
    name: "Job",
    about: "One job. Of a job with shards what is said is said of all of them together.",
    fields: &[
        field("name", "Its name.", Schema::Text),
        field(
            "coordination",
            "`leader`, `tick`, `batch` or `everywhere`.",
            Schema::Text,
        ),
        field("schedule", "The schedule as written.", Schema::Text),
        field("zone", "Its time zone.", Schema::OrNull(&Schema::Text)),
        field(
            "definitions",
            "Its definitions, where the replicas disagree on them; empty where they agree.",
            Schema::List(&Schema::Named(&DEFINITION)),
        ),
        field(
            "leader",
            "Who leads it, by its lock; `null` when no replica does, or when that is not known.",
            Schema::OrNull(&Schema::Named(&LEADER)),
        ),
        field(
            "leader_known",
            "Whether `leader` is known: a majority of the lock nodes has answered.",
            Schema::Flag,
        ),
        field(
            "last_seen",
            "While the leader is not known: who was last seen to lead, where that is remembered.",
            Schema::OrNull(&Schema::Named(&LAST_SEEN)),
        ),
        field(
            "last_tick",
            "The last tick that was decided.",
            Schema::OrNull(&Schema::Time),
        ),
        field("next_tick", "The next tick.", Schema::OrNull(&Schema::Time)),
        field(
            "last_outcome",
            "How the last run ended.",
            Schema::OrNull(&Schema::Text),
        ),
        field(
            "last_ended",
            "When it ended.",
            Schema::OrNull(&Schema::Time),
        ),
        field(
            "paused",
            "Nothing of it starts until it is resumed.",
            Schema::Flag,
        ),
        field(
            "paused_why",
            "Why it is paused.",
            Schema::OrNull(&Schema::Text),
        ),
        field("paused_by", "Who paused it.", Schema::OrNull(&Schema::Text)),
        field(
            "paused_since",
            "Since when it is paused.",
            Schema::OrNull(&Schema::Time),
        ),
        field(
            "backlog",
            "Items still to be done, as last seen.",
            Schema::OrNull(&Schema::Count),
        ),
        field(
            "backlog_since",
            "Since when the oldest of them could go; `null` where that is not known.",
            Schema::OrNull(&Schema::Time),
        ),
        field(
            "held",
            "Items that do not go by themselves, or not at once; `null` when there are none.",
            Schema::OrNull(&Schema::Named(&HELD)),
        ),
        field(
            "trouble",
            "Why its work cannot be looked for, and on which replicas.",
            Schema::OrNull(&Schema::Named(&TROUBLE)),
        ),
        field(
            "running",
            "Runs in flight, on all replicas.",
            Schema::List(&Schema::Named(&RUNNING)),
        ),
        field(
            "shards",
            "How many shards it has; `null` for a job without.",
            Schema::OrNull(&Schema::Count),
        ),
        field(
            "shards_led",
            "How many of them a replica is known to lead.",
            Schema::Count,
        ),
        field(
            "shards_failing",
            "How many of them have ended their last run neither `done` nor `skipped`.",
            Schema::Count,
        ),
        field(
            "shards_paused",
            "How many of them are paused.",
            Schema::Count,
        ),
        maybe(
            "by_shard",
            "Each of its shards, in order, with `shards=true`; absent for a job without.",
            Schema::List(&Schema::Named(&JOB)),
        ),
    ],
};

static DEFINITION: Named = Named {
    name: "Definition",
    about: "One of several definitions of a job.",
    fields: &[
        field("definition", "A hash of what it means.", Schema::Text),
        field(
            "replicas",
            "Names of the replicas that have it.",
            Schema::List(&Schema::Text),
        ),
        field(
            "loaded",
            "When the last of them loaded it.",
            Schema::OrNull(&Schema::Time),
        ),
        field(
            "leads",
            "Whether the job is led under it now.",
            Schema::Flag,
        ),
        field(
            "stands_back",
            "Why replicas that have it stand back from the job; `null` when they do not.",
            Schema::OrNull(&Schema::Text),
        ),
    ],
};

static LEADER: Named = Named {
    name: "Leader",
    about: "Who leads a job.",
    fields: &[
        field(
            "replica",
            "The id of the replica; empty while it has not been heard of, and for foreign clients.",
            Schema::Text,
        ),
        field("name", "The name of the replica.", Schema::Text),
        field("host", "The machine.", Schema::Text),
        field("pid", "The process.", Schema::Count),
        field("token", "The fencing token of the term.", Schema::Count),
        field(
            "since",
            "Since when; `null` until its replica has told.",
            Schema::OrNull(&Schema::Time),
        ),
        field(
            "remaining_ms",
            "What remains of the lease unless it is extended.",
            Schema::OrNull(&Schema::Count),
        ),
        field(
            "margin",
            "Nodes that hold the lease beyond the majority that it needs.",
            Schema::OrNull(&Schema::Integer),
        ),
    ],
};

static LAST_SEEN: Named = Named {
    name: "LastSeen",
    about: "The replica that was last seen to lead.",
    fields: &[
        field("replica", "The id of the replica.", Schema::Text),
        field("name", "The name of the replica.", Schema::Text),
        field("host", "The machine.", Schema::Text),
        field("pid", "The process.", Schema::Count),
        field("token", "The fencing token of its term.", Schema::Count),
        field("at", "When it said so, by its clock.", Schema::Time),
        field("ms_ago", "How long ago that was.", Schema::Count),
    ],
};

static HELD: Named = Named {
    name: "HeldItems",
    about: "Items of a job that are neither sent nor simply still to be sent.",
    fields: HELD_FIELDS,
};

/// How many there are of each, also where an event tells of them.
pub(super) const HELD_FIELDS: &[Field] = &[
    field(
        "retry",
        "To be sent again when their time has come.",
        Schema::Count,
    ),
    field("dead", "Given up.", Schema::Count),
    field(
        "in_doubt",
        "May have been received, and are repeated.",
        Schema::Count,
    ),
    field("parked", "Left to a person.", Schema::Count),
];

static TROUBLE: Named = Named {
    name: "Trouble",
    about: "Why the work of a job cannot be looked for.",
    fields: &[
        field(
            "replicas",
            "Names of the replicas that say so.",
            Schema::List(&Schema::Text),
        ),
        field(
            "why",
            "What the first of them says; with the token alone.",
            Schema::Text,
        ),
    ],
};

static RUNNING: Named = Named {
    name: "RunInFlight",
    about: "A run in flight.",
    fields: &[
        field("run_id", "The run.", Schema::Text),
        field("replica", "The id of the replica.", Schema::Text),
        field("tick", "The scheduled instant.", Schema::Time),
        field("attempt", "1 for the first.", Schema::Count),
        field(
            "token",
            "The fencing token that it acts under.",
            Schema::OrNull(&Schema::Count),
        ),
        field("started", "When it started.", Schema::Time),
        field(
            "batch",
            "The batch, for jobs that work in batches.",
            Schema::OrNull(&Schema::Text),
        ),
        field(
            "done",
            "Items done, when the job tells.",
            Schema::OrNull(&Schema::Count),
        ),
        field(
            "total",
            "Items in all, when the job tells.",
            Schema::OrNull(&Schema::Count),
        ),
        field(
            "per_second",
            "Items per second in the recent past.",
            Schema::OrNull(&Schema::Number),
        ),
        field(
            "left_ms",
            "Time until all are done, at this pace.",
            Schema::OrNull(&Schema::Count),
        ),
        field(
            "message",
            "What it is at, in the words of the job; with the token alone.",
            Schema::OrNull(&Schema::Text),
        ),
    ],
};

pub(super) static TRIGGER: Named = Named {
    name: "Trigger",
    about: "What a run is given, and why.",
    fields: &[
        maybe(
            "params",
            "Parameters that are laid over those of the job: 4,096 bytes as JSON at most.",
            Schema::Any,
        ),
        REASON,
    ],
};

pub(super) static RESIGN: Named = Named {
    name: "Resign",
    about: "To which replica a job is handed over, and why.",
    fields: &[
        maybe(
            "to",
            "The name or the id of a replica; any candidate without it.",
            Schema::OrNull(&Schema::Text),
        ),
        REASON,
    ],
};

pub(super) static PAUSED: Named = Named {
    name: "Paused",
    about: "What became of a pause, or of its end.",
    fields: &[
        field("job", "The job.", Schema::Text),
        field("paused", "Whether it is paused now.", Schema::Flag),
        field("changed", "It was not so before.", Schema::Flag),
        field("reason", "Why it is paused; may be empty.", Schema::Text),
        field(
            "heard_by",
            "Names of the replicas that have said that they know.",
            Schema::List(&Schema::Text),
        ),
        field(
            "unheard_by",
            "Names of those that have not, yet.",
            Schema::List(&Schema::Text),
        ),
    ],
};

/// What is said with an order about all jobs.
pub(super) static ALL: Named = Named {
    name: "AllJobs",
    about: "That all jobs are meant, and why. `reason` and `sure` are needed, as in the form of the page.",
    fields: &[
        field(
            "sure",
            "`true`: it cannot be taken back, and it is meant.",
            Schema::Flag,
        ),
        NEEDED_REASON,
    ],
};

pub(super) static ALL_PAUSED: Named = Named {
    name: "AllPaused",
    about: "What became of a pause of all jobs, or of the end of all pauses.",
    fields: &[
        field("paused", "Whether they are paused, or go on.", Schema::Flag),
        field(
            "changed",
            "Pauses that were written, or ended.",
            Schema::Count,
        ),
        field("unchanged", "Jobs that were paused before.", Schema::Count),
        field(
            "left",
            "Pauses that could not be written, or ended, in time: give the order again.",
            Schema::Count,
        ),
        field(
            "why",
            "Why the first of them could not; `null` where there is none.",
            Schema::OrNull(&Schema::Text),
        ),
        field(
            "heard_by",
            "Names of the replicas that have said of all these jobs that they know.",
            Schema::List(&Schema::Text),
        ),
        field(
            "unheard_by",
            "Names of those that have not, yet.",
            Schema::List(&Schema::Text),
        ),
        field("said", "All of it in a sentence.", Schema::Text),
    ],
};

pub(super) static RESIGNED: Named = Named {
    name: "Resigned",
    about: "What became of a resignation.",
    fields: &[
        field("job", "The job.", Schema::Text),
        field(
            "from",
            "The name of the replica that was asked to resign.",
            Schema::Text,
        ),
        field("token", "The fencing token of its term.", Schema::Count),
        field(
            "leader",
            "The name of the replica that leads in a later term; `null` when there is none yet.",
            Schema::OrNull(&Schema::Text),
        ),
        field(
            "leader_token",
            "The fencing token of that term.",
            Schema::OrNull(&Schema::Count),
        ),
    ],
};

/// What the body of a trigger may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TriggerWords {
    params: Map<String, Value>,
    reason: String,
}

/// What the body of a resignation may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ResignWords {
    to: Option<String>,
    reason: String,
}

// === looking ===

pub(super) async fn list(ask: Ask) -> Result<Response, Problem> {
    let mut fleet = ask.shared.fleet(ask.seen).await;
    if ask.asked.flag("shards") != Some(true) {
        fleet.forget_shards();
    }
    let rows = fleet.jobs.into_iter().filter(|job| is_wanted(&ask, job));
    let rows = rows.map(|job| (job.name.clone(), job));
    Ok(ask.page(rows.collect()))
}

fn is_wanted(ask: &Ask, job: &JobStatus) -> bool {
    let asked = &ask.asked;
    let of_leader = |wanted: &str| {
        let leader = job.leader.as_ref();
        leader.is_some_and(|leader| leader.replica == wanted || leader.name == wanted)
    };
    asked
        .text("name")
        .is_none_or(|part| job.name.contains(part))
        && asked
            .text("coordination")
            .is_none_or(|is| job.coordination == is)
        && asked.flag("paused").is_none_or(|is| job.paused == is)
        && asked.text("leader").is_none_or(of_leader)
        && asked
            .text("outcome")
            .is_none_or(|is| job.last_outcome.as_deref() == Some(is))
}

pub(super) async fn show(ask: Ask) -> Result<Response, Problem> {
    let fleet = ask.shared.fleet(ask.seen).await;
    let name = ask.asked.needed("job");
    let Some(mut job) = fleet.job(name).cloned() else {
        return Err(Problem::new(
            Kind::Unknown,
            format!("no replica knows the job {name:?}"),
        ));
    };
    if ask.asked.flag("shards") != Some(true) {
        job.by_shard.clear();
    }
    Ok(ask.document(&job))
}

// === orders ===

pub(super) async fn pause(ask: Ask) -> Result<Response, Problem> {
    let WhyWords { reason } = ask.words()?;
    let order = Order::Pause {
        reason: reason.clone(),
    };
    of_job(&ask, reason, order).await
}

pub(super) async fn resume(ask: Ask) -> Result<Response, Problem> {
    let WhyWords { reason } = ask.words()?;
    of_job(&ask, reason, Order::Resume).await
}

/// What the body of an order about all jobs may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AllWords {
    sure: bool,
    reason: String,
}

pub(super) async fn pause_all(ask: Ask) -> Result<Response, Problem> {
    let reason = of_all(&ask)?;
    let what = What::PauseAll {
        reason: reason.clone(),
    };
    give(&ask, reason, what).await
}

pub(super) async fn resume_all(ask: Ask) -> Result<Response, Problem> {
    let reason = of_all(&ask)?;
    give(&ask, reason, What::ResumeAll).await
}

/// Why, where it is meant.
fn of_all(ask: &Ask) -> Result<String, Problem> {
    let AllWords { sure, reason } = ask.words()?;
    let bad = |why: &str| Problem::new(Kind::BadBody, format!("the body: {why}"));
    if reason.trim().is_empty() {
        return Err(bad("reason: say why, it is shown to all who ask later"));
    }
    match sure {
        true => Ok(reason),
        false => Err(bad("sure: say true, it cannot be taken back")),
    }
}

pub(super) async fn trigger(ask: Ask) -> Result<Response, Problem> {
    let TriggerWords { params, reason } = ask.words()?;
    let given = TriggerParams::new(params);
    let given = given.map_err(|error| Problem::new(Kind::BadBody, error.to_string()))?;
    of_job(&ask, reason, Order::Trigger { given }).await
}

pub(super) async fn resign(ask: Ask) -> Result<Response, Problem> {
    let ResignWords { to, reason } = ask.words()?;
    of_job(&ask, reason, Order::Resign { to }).await
}

async fn of_job(ask: &Ask, reason: String, order: Order) -> Result<Response, Problem> {
    let job = ask.asked.needed("job").to_owned();
    give(ask, reason, What::Job(job, order)).await
}
