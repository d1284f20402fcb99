//! The API: what the fleet is, and what can be asked of it, as JSON.
//!
//! [`ROUTES`] is the table of all there is. What a request says is compared with its line before the handler sees it; the same
//! line is what `/api/v1/openapi.json` and the book tell.
//!
//! # Invariants
//! - A16 What is answered is described, and what is described is answered.
//!   (every_route_is_answered_as_it_is_described, every_answer_fits_its_schema)
//! - A17 No parameter that is unknown, said twice or out of its bounds is passed over.   (hostile_parameters_are_refused_by_name)

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::{Query, Request},
    http::{HeaderValue, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use futures_util::StreamExt;

use super::{
    ask::Ask,
    listener::Stay,
    parameter::{Asked, Location, Parameter, Takes},
    pattern,
    problem::{Kind, Problem},
    rights::{Seen, Want},
    route::{Answer, Content, Handler, Route, Verb},
    schema::Schema,
    shared::Shared,
};

mod audit;
mod description;
mod events;
mod fleet;
mod items;
mod jobs;
mod locks;
mod nodes;
mod orders;
mod replicas;
mod runs;
#[cfg(test)]
mod tests;
mod triggers;

use orders::NAME;

/// Bytes of a body: more than any order needs.
const BODY: usize = 16 * 1024;

const JOB: Parameter = Parameter::of_path("job", "The name of a job, or of a shard of one.", NAME);

const OF_JOB: Parameter = Parameter::of_query("job", "The name of a job.", Takes::Text(NAME));

const SHARDS: Parameter = Parameter::of_query(
    "shards",
    "Whether a job with shards has each of them in `by_shard`.",
    Takes::Flag,
);

/// How many items a list shows: as many as it usually does, and at most.
const LIMIT: Parameter = Parameter::limit(100, 500);

const HEARD: &str = "It was heard by the replicas that it concerns.";
const DONE: &str = "It is done, as far as it could be.";
const WRITTEN: &str = "It is written, and not every replica that it concerns has heard of it yet.";

const fn accepted(schema: Schema) -> Answer {
    Answer {
        status: 202,
        about: WRITTEN,
        content: Content::Json(schema),
    }
}

/// All of it, as it stands in the book.
pub(super) static ROUTES: &[Route] = &[
    Route {
        method: Verb::Get,
        path: "/api/v1/openapi.json",
        want: Want::Health,
        about: "The API, described for programs",
        parameters: &[],
        body: None,
        answers: &[Answer::json("This document.", Schema::Any)],
        problems: &[],
        handler: Handler::Api(|ask| Box::pin(description::show(ask))),
    },
    Route {
        method: Verb::Get,
        path: "/api/v1/fleet",
        want: Want::Lists,
        about: "Replicas, jobs and lock nodes in one document",
        parameters: &[SHARDS],
        body: None,
        answers: &[Answer::json("The fleet.", Schema::Named(&fleet::FLEET))],
        problems: &[Kind::Busy],
        handler: Handler::Api(|ask| Box::pin(fleet::show(ask))),
    },
    Route {
        method: Verb::Get,
        path: "/api/v1/jobs",
        want: Want::Lists,
        about: "Jobs, by name",
        parameters: &[
            LIMIT,
            Parameter::AFTER,
            SHARDS,
            Parameter::of_query(
                "name",
                "Only jobs with this text in their name.",
                Takes::Text(NAME),
            ),
            Parameter::of_query(
                "coordination",
                "Only jobs of this coordination.",
                Takes::Word(&["leader", "tick", "batch", "everywhere"]),
            ),
            Parameter::of_query(
                "paused",
                "Only jobs that are paused, or are not.",
                Takes::Flag,
            ),
            Parameter::of_query(
                "leader",
                "Only jobs that the replica of this name or id leads.",
                Takes::Text(NAME),
            ),
            Parameter::of_query(
                "outcome",
                "Only jobs whose last run ended so.",
                Takes::Word(runs::OUTCOMES),
            ),
        ],
        body: None,
        answers: &[Answer::json(
            "Jobs.",
            Schema::Page(&Schema::Named(&jobs::JOB)),
        )],
        problems: &[],
        handler: Handler::Api(|ask| Box::pin(jobs::list(ask))),
    },
    Route {
        method: Verb::Get,
        path: "/api/v1/jobs/{job}",
        want: Want::Lists,
        about: "One job, or one shard of a job",
        parameters: &[JOB, SHARDS],
        body: None,
        answers: &[Answer::json("The job.", Schema::Named(&jobs::JOB))],
        problems: &[Kind::Unknown],
        handler: Handler::Api(|ask| Box::pin(jobs::show(ask))),
    },
    Route {
        method: Verb::Post,
        path: "/api/v1/jobs/{job}/pause",
        want: Want::Change,
        about: "Pause a job: nothing of it starts",
        parameters: &[JOB],
        body: Some(&orders::WHY),
        answers: &[
            Answer::json(HEARD, Schema::Named(&jobs::PAUSED)),
            accepted(Schema::Named(&jobs::PAUSED)),
        ],
        problems: ORDERS,
        handler: Handler::Api(|ask| Box::pin(jobs::pause(ask))),
    },
    Route {
        method: Verb::Post,
        path: "/api/v1/jobs/{job}/resume",
        want: Want::Change,
        about: "End the pause of a job",
        parameters: &[JOB],
        body: Some(&orders::WHY),
        answers: &[
            Answer::json(HEARD, Schema::Named(&jobs::PAUSED)),
            accepted(Schema::Named(&jobs::PAUSED)),
        ],
        problems: ORDERS,
        handler: Handler::Api(|ask| Box::pin(jobs::resume(ask))),
    },
    Route {
        method: Verb::Post,
        path: "/api/v1/pause",
        want: Want::Change,
        about: "Pause all jobs: nothing of them starts",
        parameters: &[],
        body: Some(&jobs::ALL),
        answers: &[
            Answer::json(HEARD, Schema::Named(&jobs::ALL_PAUSED)),
            accepted(Schema::Named(&jobs::ALL_PAUSED)),
        ],
        problems: &[Kind::Unavailable, Kind::NotKnown, Kind::Busy],
        handler: Handler::Api(|ask| Box::pin(jobs::pause_all(ask))),
    },
    Route {
        method: Verb::Post,
        path: "/api/v1/resume",
        want: Want::Change,
        about: "End all pauses",
        parameters: &[],
        body: Some(&jobs::ALL),
        answers: &[
            Answer::json(HEARD, Schema::Named(&jobs::ALL_PAUSED)),
            accepted(Schema::Named(&jobs::ALL_PAUSED)),
        ],
        problems: &[Kind::Unavailable, Kind::NotKnown, Kind::Busy],
        handler: Handler::Api(|ask| Box::pin(jobs::resume_all(ask))),
    },
    Route {
        method: Verb::Post,
        path: "/api/v1/jobs/{job}/trigger",
        want: Want::Change,
        about: "Run a job once, now",
        parameters: &[JOB],
        body: Some(&jobs::TRIGGER),
        answers: &[
            Answer::json(HEARD, Schema::Named(&triggers::TRIGGERED)),
            accepted(Schema::Named(&triggers::TRIGGERED)),
        ],
        problems: &[
            Kind::Misfit,
            Kind::Unknown,
            Kind::NotPossible,
            Kind::TooMany,
            Kind::Unavailable,
            Kind::NotKnown,
            Kind::Busy,
        ],
        handler: Handler::Api(|ask| Box::pin(jobs::trigger(ask))),
    },
    Route {
        method: Verb::Post,
        path: "/api/v1/jobs/{job}/resign",
        want: Want::Change,
        about: "Hand a job over to another replica",
        parameters: &[JOB],
        body: Some(&jobs::RESIGN),
        answers: &[
            Answer::json("Another replica leads it.", Schema::Named(&jobs::RESIGNED)),
            accepted(Schema::Named(&jobs::RESIGNED)),
        ],
        problems: ORDERS,
        handler: Handler::Api(|ask| Box::pin(jobs::resign(ask))),
    },
    Route {
        method: Verb::Get,
        path: "/api/v1/jobs/{job}/items",
        want: Want::Outputs,
        about: "Items of a job that do not go by themselves, in the order of their ids",
        parameters: &[
            JOB,
            Parameter::limit(50, 100),
            Parameter::AFTER,
            Parameter::of_query(
                "state",
                "Only items in one of these states; dead, in doubt or parked where nothing is said.",
                Takes::Words(items::STATES),
            ),
        ],
        body: None,
        answers: &[Answer::json(
            "Items.",
            Schema::Page(&Schema::Named(&items::ITEM)),
        )],
        problems: &[
            Kind::Unknown,
            Kind::NotPossible,
            Kind::Unavailable,
            Kind::NoItems,
        ],
        handler: Handler::Api(|ask| Box::pin(items::list(ask))),
    },
    Route {
        method: Verb::Post,
        path: "/api/v1/jobs/{job}/items/retry",
        want: Want::Change,
        about: "Items of a job are sent again",
        parameters: &[JOB],
        body: Some(&items::RETRY),
        answers: &[Answer::json(DONE, Schema::Named(&items::CHANGED))],
        problems: OF_ITEMS,
        handler: Handler::Api(|ask| Box::pin(items::retry(ask))),
    },
    Route {
        method: Verb::Post,
        path: "/api/v1/jobs/{job}/items/park",
        want: Want::Change,
        about: "Items of a job are put aside",
        parameters: &[JOB],
        body: Some(&items::PARK),
        answers: &[Answer::json(DONE, Schema::Named(&items::CHANGED))],
        problems: OF_ITEMS,
        handler: Handler::Api(|ask| Box::pin(items::park(ask))),
    },
    Route {
        method: Verb::Post,
        path: "/api/v1/jobs/{job}/items/discard",
        want: Want::Change,
        about: "Items of a job are discarded",
        parameters: &[JOB],
        body: Some(&items::DISCARD),
        answers: &[Answer::json(DONE, Schema::Named(&items::CHANGED))],
        problems: OF_ITEMS,
        handler: Handler::Api(|ask| Box::pin(items::discard(ask))),
    },
    Route {
        method: Verb::Get,
        path: "/api/v1/replicas",
        want: Want::Lists,
        about: "Replicas, by name",
        parameters: &[
            LIMIT,
            Parameter::AFTER,
            Parameter::of_query(
                "draining",
                "Only replicas that drain, or do not.",
                Takes::Flag,
            ),
        ],
        body: None,
        answers: &[Answer::json(
            "Replicas.",
            Schema::Page(&Schema::Named(&replicas::REPLICA)),
        )],
        problems: &[],
        handler: Handler::Api(|ask| Box::pin(replicas::list(ask))),
    },
    Route {
        method: Verb::Post,
        path: "/api/v1/replicas/{replica}/drain",
        want: Want::Change,
        about: "A replica ends its work, hands over what it leads, and goes",
        parameters: &[Parameter::of_path(
            "replica",
            "The name or the id of a replica.",
            NAME,
        )],
        body: Some(&orders::WHY),
        answers: &[
            Answer::json(HEARD, Schema::Named(&replicas::DRAINED)),
            accepted(Schema::Named(&replicas::DRAINED)),
        ],
        problems: ORDERS,
        handler: Handler::Api(|ask| Box::pin(replicas::drain(ask))),
    },
    Route {
        method: Verb::Get,
        path: "/api/v1/nodes",
        want: Want::Lists,
        about: "Lock nodes, in the order of the configuration",
        parameters: &[
            LIMIT,
            Parameter::AFTER,
            Parameter::of_query("up", "Only nodes that answer, or do not.", Takes::Flag),
        ],
        body: None,
        answers: &[Answer::json(
            "Lock nodes.",
            Schema::Page(&Schema::Named(&nodes::NODE)),
        )],
        problems: &[],
        handler: Handler::Api(|ask| Box::pin(nodes::list(ask))),
    },
    Route {
        method: Verb::Get,
        path: "/api/v1/locks",
        want: Want::Lists,
        about: "Locks, by key",
        parameters: &[
            LIMIT,
            Parameter::AFTER,
            Parameter::of_query(
                "prefix",
                "Only locks whose keys begin with this.",
                Takes::Text(NAME),
            ),
            Parameter::of_query("held", "Only locks that are held, or are not.", Takes::Flag),
        ],
        body: None,
        answers: &[Answer::json(
            "Locks.",
            Schema::Page(&Schema::Named(&locks::LOCK)),
        )],
        problems: &[Kind::Unavailable],
        handler: Handler::Api(|ask| Box::pin(locks::list(ask))),
    },
    Route {
        method: Verb::Post,
        path: "/api/v1/locks/{key}/break",
        want: Want::Change,
        about: "A lease ends by force; its body says why, and that it is meant",
        parameters: &[Parameter::of_path(
            "key",
            "The key of a lock, encoded as one word of the path.",
            NAME,
        )],
        body: Some(&locks::BREAK),
        answers: &[Answer::json(
            "A majority of the nodes refuses that holder from now on.",
            Schema::Named(&locks::BROKEN),
        )],
        problems: &[
            Kind::NotPossible,
            Kind::Unavailable,
            Kind::NotKnown,
            Kind::Busy,
        ],
        handler: Handler::Api(|ask| Box::pin(locks::break_lease(ask))),
    },
    Route {
        method: Verb::Get,
        path: "/api/v1/runs",
        want: Want::Outputs,
        about: "What became of the runs of a job, or of all jobs, the newest first",
        parameters: &[
            OF_JOB,
            Parameter::of_query(
                "name",
                "Without `job`: only runs of jobs whose names have this.",
                Takes::Text(NAME),
            ),
            Parameter::limit(20, 100),
            Parameter::AFTER,
            Parameter::of_query(
                "outcome",
                "Only runs with one of these outcomes.",
                Takes::Words(runs::OUTCOMES),
            ),
            Parameter::of_query(
                "replica",
                "Only runs on the replica of this name or id.",
                Takes::Text(NAME),
            ),
            Parameter::of_query("since", "Only runs that began then or later.", Takes::Time),
            Parameter::of_query("until", "Only runs that began before.", Takes::Time),
        ],
        body: None,
        answers: &[Answer::json(
            "Runs. Of all jobs with `unread`: how many may have such runs and were not looked at.",
            Schema::PageOfSome(&Schema::Named(&runs::RUN)),
        )],
        problems: &[Kind::Unknown, Kind::Unavailable],
        handler: Handler::Api(|ask| Box::pin(runs::list(ask))),
    },
    Route {
        method: Verb::Get,
        path: "/api/v1/triggers",
        want: Want::Outputs,
        about: "Triggers that have not ended, in the order in which they were asked for",
        parameters: &[LIMIT, Parameter::AFTER, OF_JOB],
        body: None,
        answers: &[Answer::json(
            "Triggers.",
            Schema::Page(&Schema::Named(&triggers::WAITING)),
        )],
        problems: &[Kind::Unavailable],
        handler: Handler::Api(|ask| Box::pin(triggers::list(ask))),
    },
    Route {
        method: Verb::Post,
        path: "/api/v1/triggers/{id}/withdraw",
        want: Want::Change,
        about: "A trigger that has not started does not start",
        parameters: &[Parameter::of_path("id", "The id of a trigger.", NAME)],
        body: Some(&orders::WHY),
        answers: &[
            Answer::json("It will not start.", Schema::Named(&triggers::TRIGGERED)),
            accepted(Schema::Named(&triggers::TRIGGERED)),
        ],
        problems: ORDERS,
        handler: Handler::Api(|ask| Box::pin(triggers::withdraw(ask))),
    },
    Route {
        method: Verb::Get,
        path: "/api/v1/audit",
        want: Want::Outputs,
        about: "Orders that were given over HTTP, the latest first",
        parameters: &[
            LIMIT,
            Parameter::AFTER,
            Parameter::of_query("order", "Only these orders.", Takes::Word(audit::ORDERS)),
            Parameter::of_query(
                "of",
                "Only orders about this job, replica, trigger or lock.",
                Takes::Text(NAME),
            ),
            Parameter::of_query("who", "Only orders of this person.", Takes::Text(NAME)),
        ],
        body: None,
        answers: &[Answer::json(
            "Orders.",
            Schema::Page(&Schema::Named(&audit::ENTRY)),
        )],
        problems: &[Kind::Unavailable],
        handler: Handler::Api(|ask| Box::pin(audit::list(ask))),
    },
    Route {
        method: Verb::Get,
        path: "/api/v1/events",
        want: Want::Outputs,
        about: "What happens in this replica, as server-sent events",
        parameters: &[
            Parameter::of_query(
                "type",
                "Only events of these types; gaps are always told.",
                Takes::Words(events::TYPES),
            ),
            Parameter::of_query(
                "job",
                "Only events of this job and its shards.",
                Takes::Text(NAME),
            ),
            Parameter::of_query(
                "after",
                "Goes on behind the event with this id, where `Last-Event-ID` does not say it.",
                Takes::Text(1024),
            ),
            Parameter {
                name: "Last-Event-ID",
                location: Location::Header,
                about: "The id of the last event that the client has got. What came after it is told first; where it is not \
                        kept any more, an event of the type `gap` comes before the oldest that is.",
                takes: Takes::Text(1024),
                needed: false,
            },
        ],
        body: None,
        answers: &[Answer {
            status: 200,
            about: "Events, until the client or the replica goes; for an hour at most, then the client comes back.",
            content: Content::Events(events::EVENT),
        }],
        problems: &[Kind::TooManyStreams],
        handler: Handler::Api(|ask| Box::pin(events::follow(ask))),
    },
];

/// What is known of the client.
pub(super) struct Client {
    /// What it may see.
    pub(super) seen: Seen,
    /// Who it is, as far as that is known.
    pub(super) who: String,
    /// What lets its answer go on.
    pub(super) stay: Stay,
}

/// Why an order may not be given.
const ORDERS: &[Kind] = &[
    Kind::Unknown,
    Kind::NotPossible,
    Kind::Unavailable,
    Kind::NotKnown,
    Kind::Busy,
];

/// The same of one about items.
const OF_ITEMS: &[Kind] = &[
    Kind::Unknown,
    Kind::NotPossible,
    Kind::Unavailable,
    Kind::NoItems,
    Kind::NotKnown,
    Kind::Busy,
];

/// The answer to a request that may be asked.
pub(super) async fn answer(shared: Shared, client: Client, request: Request) -> Response {
    let is_head = request.method() == Method::HEAD;
    let answered = routed(shared, client, request).await;
    let mut answer = answered.unwrap_or_else(IntoResponse::into_response);
    if is_head {
        let length = answer.body().size_hint().exact();
        *answer.body_mut() = Body::empty();
        if let Some(length) = length {
            let length = HeaderValue::from(length);
            answer.headers_mut().insert(header::CONTENT_LENGTH, length);
        }
    }
    answer
}

async fn routed(shared: Shared, client: Client, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let here: Vec<&'static Route> = ROUTES
        .iter()
        .filter(|route| pattern::fits(route.path, &path))
        .collect();
    if here.is_empty() {
        let why = format!("there is no path {path}");
        return Err(Problem::new(Kind::NoSuchPath, why));
    }
    let verb = match head.method {
        Method::GET | Method::HEAD => Some(Verb::Get),
        Method::POST => Some(Verb::Post),
        _ => None,
    };
    let route = here.iter().find(|route| Some(route.method) == verb);
    let Some(route) = route.copied() else {
        return Ok(other_method(&here, &head.method));
    };
    let Handler::Api(handler) = route.handler else {
        let why = format!("{path} is a page");
        return Err(Problem::new(Kind::NoSuchPath, why));
    };
    let asked = asked(route, &path, &head.uri)?;
    let body = match route.body {
        Some(_) => read(body).await?,
        None => Bytes::new(),
    };
    let ask = Ask {
        shared,
        seen: client.seen,
        want: route.want,
        who: client.who,
        stay: client.stay,
        asked,
        headers: head.headers,
        path,
        body,
    };
    handler(ask).await
}

/// What a path answers to other methods than it takes: which it does.
fn other_method(here: &[&Route], method: &Method) -> Response {
    let mut allowed = Vec::new();
    for route in here {
        match route.method {
            Verb::Get => allowed.extend(["GET", "HEAD"]),
            Verb::Post => allowed.push("POST"),
        }
    }
    allowed.push("OPTIONS");
    let allowed = allowed.join(", ");
    let mut answer = match *method {
        Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        _ => {
            let why = format!("the path takes {allowed}");
            Problem::new(Kind::NoSuchMethod, why).into_response()
        }
    };
    if let Ok(allowed) = HeaderValue::try_from(allowed) {
        answer.headers_mut().insert(header::ALLOW, allowed);
    }
    answer
}

/// What the request says in its address, compared with the line of its route.
fn asked(route: &'static Route, path: &str, uri: &Uri) -> Result<Asked, Problem> {
    let names = route.path.split('/').filter_map(|word| {
        let name = word.strip_prefix('{')?;
        name.strip_suffix('}').map(str::to_owned)
    });
    let values = pattern::values(route.path, path).unwrap_or_default();
    let in_path = names.zip(values).collect();
    let query = Query::<Vec<(String, String)>>::try_from_uri(uri);
    let Query(query) = query.map_err(|error| Problem::parameter("query", &error.body_text()))?;
    Asked::read(route.parameters, in_path, query)
}

/// The body, as far as it may be as large.
async fn read(body: Body) -> Result<Bytes, Problem> {
    let mut parts = body.into_data_stream();
    let mut read = Vec::new();
    while let Some(part) = parts.next().await {
        let part =
            part.map_err(|error| Problem::new(Kind::BadBody, format!("the body: {error}")))?;
        if read.len() + part.len() > BODY {
            let why = format!("the body: {BODY} bytes are allowed");
            return Err(Problem::new(Kind::TooLarge, why));
        }
        read.extend_from_slice(&part);
    }
    Ok(read.into())
}
