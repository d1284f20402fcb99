//! What became of the runs of a job, or of all jobs, the newest first.

use axum::response::Response;

use super::super::{
    ask::Ask,
    problem::{Kind, Problem},
    schema::{Named, Schema, field, maybe},
    source::RecentAsked,
};
use crate::fleet::RunFilter;

/// How a run can end, and that it has not.
pub(super) const OUTCOMES: &[&str] = &[
    "running",
    "done",
    "skipped",
    "retry",
    "failed",
    "timeout",
    "cancelled",
    "panicked",
    "interrupted",
];

pub(super) static RUN: Named = Named {
    name: "Run",
    about: "One attempt at one run; or one batch, or the batches of up to a minute.",
    fields: &[
        field(
            "run_id",
            "Unique and sortable; empty when its replica died before it could tell.",
            Schema::Text,
        ),
        field("job", "The job.", Schema::Text),
        field("tick", "The scheduled instant.", Schema::Time),
        field("attempt", "1 for the first.", Schema::Count),
        field(
            "token",
            "The fencing token that it ran under; `null` for a job without a lock.",
            Schema::OrNull(&Schema::Count),
        ),
        field(
            "replica",
            "The id of the replica that ran it.",
            Schema::Text,
        ),
        field("replica_name", "The name of that replica.", Schema::Text),
        field(
            "outcome",
            "`running`, then `done`, `skipped`, `retry`, `failed`, `timeout`, `cancelled`, `panicked` or `interrupted`.",
            Schema::Text,
        ),
        field(
            "detail",
            "Why; empty when there is nothing to say.",
            Schema::Text,
        ),
        field("started", "When it started.", Schema::OrNull(&Schema::Time)),
        field(
            "ended",
            "When it ended, or was found interrupted; `null` while it runs.",
            Schema::OrNull(&Schema::Time),
        ),
        field(
            "took_ms",
            "How long it took; `null` while it runs, and when it was interrupted.",
            Schema::OrNull(&Schema::Count),
        ),
        field(
            "output",
            "What it left to read, and while it runs what it has left so far; `null` when nothing.",
            Schema::OrNull(&Schema::Text),
        ),
        field(
            "output_bytes",
            "Bytes that it left to read; 0 while it runs.",
            Schema::Count,
        ),
        field(
            "params",
            "Names of the parameters that its trigger gave it.",
            Schema::List(&Schema::Text),
        ),
        field(
            "resumed",
            "The checkpoint of an earlier attempt that it went on from.",
            Schema::OrNull(&Schema::Named(&RESUMED)),
        ),
        field(
            "progress",
            "How far it is; `null` when it does not run any more, or tells nothing.",
            Schema::OrNull(&Schema::Named(&PROGRESS)),
        ),
        field(
            "seq",
            "Its number among the runs of its job.",
            Schema::Count,
        ),
        maybe(
            "batch",
            "The batch, where this is a single one.",
            Schema::Text,
        ),
        maybe(
            "batches",
            "How many batches these were, where this is the work of up to a minute.",
            Schema::Named(&BATCHES),
        ),
        maybe(
            "items",
            "Items of these batches by what became of them.",
            Schema::Map(&Schema::Count),
        ),
        maybe(
            "trace_id",
            "The id of the trace that it is a part of, where traces are sent and this one is kept.",
            Schema::Text,
        ),
    ],
};

static RESUMED: Named = Named {
    name: "Resumed",
    about: "A checkpoint that an attempt began with.",
    fields: &[
        field("bytes", "Its size as JSON.", Schema::Count),
        field("saved", "When it was left.", Schema::OrNull(&Schema::Time)),
    ],
};

static PROGRESS: Named = Named {
    name: "Progress",
    about: "How far a run is.",
    fields: &[
        field("done", "Items done.", Schema::OrNull(&Schema::Count)),
        field("total", "Items in all.", Schema::OrNull(&Schema::Count)),
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
            "What it is at, in the words of the job.",
            Schema::OrNull(&Schema::Text),
        ),
    ],
};

static BATCHES: Named = Named {
    name: "BatchCounts",
    about: "Batches that are told together.",
    fields: &[
        field("done", "Done.", Schema::Count),
        field(
            "skipped",
            "Found to have nothing to do, or to belong to another holder.",
            Schema::Count,
        ),
        field(
            "failed",
            "Failed, stopped or to be tried again.",
            Schema::Count,
        ),
    ],
};

pub(super) async fn list(ask: Ask) -> Result<Response, Problem> {
    let asked = &ask.asked;
    let own = |name: &str| asked.text(name).map(str::to_owned);
    let outcomes = asked.text("outcome").map(|words| words.split(','));
    let filter = RunFilter {
        since: asked.time("since"),
        until: asked.time("until"),
        outcomes: outcomes.into_iter().flatten().map(str::to_owned).collect(),
        replica: own("replica"),
        before: own("after"),
    };
    // One more than are shown: whether there is another page.
    let limit = asked.number("limit") + 1;
    // Closed never: the semaphore lives as long as the router.
    let _turn = ask.shared.store.acquire().await;
    let source = &ask.shared.admin.source;
    let Some(job) = asked.text("job") else {
        let recent = RecentAsked {
            job_has: own("name").unwrap_or_default(),
            filter,
            most: limit,
            outputs: true,
        };
        let found = source.recent(recent).await;
        let found = found.map_err(|why| Problem::new(Kind::Unavailable, why))?;
        let rows = found.runs.into_iter().map(|run| (run.place(), run));
        return Ok(ask.first_of_some(&rows.collect::<Vec<_>>(), found.unread));
    };
    if own("name").is_some() {
        return Err(Problem::parameter("name", "either this or job"));
    }
    match source.some_runs(job, &filter, limit).await {
        Ok(Some(runs)) => {
            let rows = runs.into_iter().map(|run| (run.place(), run));
            Ok(ask.page_from_the_end(rows.collect()))
        }
        Ok(None) => Err(Problem::new(
            Kind::Unknown,
            format!("no such job: no replica knows {job:?}, and there is no history of it"),
        )),
        Err(why) => Err(Problem::new(Kind::Unavailable, why)),
    }
}
