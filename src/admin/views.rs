//! Pages: what was chosen in the address is checked, what a page needs besides the fleet is read, and the page is made.

use std::collections::BTreeMap;

use axum::{
    Extension,
    extract::{Query, State, rejection::QueryRejection},
    http::StatusCode,
    response::Response,
};

use super::{
    page::{
        address::{Address, Takes, job_path},
        audit, batches, fleet, job, jobs, locks, nodes, replicas, runs,
    },
    problem::{Kind, Problem},
    readings::Facts,
    rights::Seen,
    shared::Shared,
    snapshot::{Named, Shows, Snapshot, misfit, named},
    source::OrderError,
};
use crate::fleet::JobFacts;

/// What is said in the address of a page.
type Said = Result<Query<BTreeMap<String, String>>, QueryRejection>;

type Answer = Result<Response, Problem>;

pub(super) fn chosen(path: &str, takes: &Takes, said: Said) -> Result<Address, Problem> {
    let Query(said) = said.map_err(|error| Problem::parameter("query", &error.body_text()))?;
    Address::read(path, takes, &said).map_err(|wrong| misfit(&wrong))
}

// === what the fleet tells ===

pub(super) async fn home(
    State(shared): State<Shared>,
    Extension(seen): Extension<Seen>,
    said: Said,
) -> Answer {
    let address = chosen("/", &jobs::TAKES, said)?;
    let snapshot = Snapshot::of(&shared, seen, &address, Shows::Chosen(jobs::chosen)).await;
    Ok(snapshot.answer(StatusCode::OK, &address, fleet::page))
}

pub(super) async fn of_batches(
    State(shared): State<Shared>,
    Extension(seen): Extension<Seen>,
    said: Said,
) -> Answer {
    let address = chosen("/batches", &batches::TAKES, said)?;
    let found = match batches::asked(&address) {
        // They and their reasons come from the job.
        Some((job, asked)) if seen.token => Some(shared.readings.items(job, asked).await),
        _ => None,
    };
    let items = found.as_deref();
    let items = items.map(|found| found.as_ref().map_err(OrderError::why));
    let snapshot = Snapshot::of(&shared, seen, &address, Shows::Chosen(batches::chosen)).await;
    Ok(snapshot.answer(StatusCode::OK, &address, |view| {
        batches::with_items(view, items)
    }))
}

pub(super) async fn of_replicas(
    State(shared): State<Shared>,
    Extension(seen): Extension<Seen>,
    said: Said,
) -> Answer {
    let address = chosen("/replicas", &replicas::TAKES, said)?;
    let snapshot = Snapshot::of(&shared, seen, &address, Shows::Any).await;
    Ok(snapshot.answer(StatusCode::OK, &address, replicas::page))
}

pub(super) async fn of_nodes(
    State(shared): State<Shared>,
    Extension(seen): Extension<Seen>,
    said: Said,
) -> Answer {
    let address = chosen("/nodes", &nodes::TAKES, said)?;
    let snapshot = Snapshot::of(&shared, seen, &address, Shows::Any).await;
    Ok(snapshot.answer(StatusCode::OK, &address, nodes::page))
}

// === what is read besides ===

pub(super) async fn of_runs(
    State(shared): State<Shared>,
    Extension(seen): Extension<Seen>,
    said: Said,
) -> Answer {
    let address = chosen("/runs", &runs::TAKES, said)?;
    let job = address.get("job");
    if job.is_empty() {
        let found = shared.readings.recent(runs::asked(&address)).await;
        let snapshot = Snapshot::of(&shared, seen, &address, Shows::Any).await;
        let page = snapshot.answer(StatusCode::OK, &address, |view| runs::of_all(view, &found));
        return Ok(page);
    }
    let found = shared.readings.facts(job).await;
    let history = known(&found, job)?.map(|facts| &facts.runs[..]);
    let snapshot = Snapshot::of(&shared, seen, &address, Shows::Any).await;
    Ok(snapshot.answer(StatusCode::OK, &address, |view| runs::of_job(view, history)))
}

pub(super) async fn of_job(
    State(shared): State<Shared>,
    Extension(seen): Extension<Seen>,
    name: Named,
    said: Said,
) -> Answer {
    let name = named(name)?;
    let address = chosen(&job_path(&name), &job::TAKES, said)?;
    let found = shared.readings.facts(&name).await;
    let facts = known(&found, &name)?;
    let run = match (address.get("run"), seen.token) {
        ("", _) | (_, false) => None,
        (run, true) => {
            let _turn = shared.store.acquire().await;
            shared.admin.source.run(&name, run).await.ok().flatten()
        }
    };
    // Of a run that is asked for without the token its record is shown, and not what it said.
    let told = facts.ok().and_then(|facts| {
        let mut runs = facts.runs.iter();
        runs.find(|run| !run.run_id.is_empty() && run.run_id == address.get("run"))
    });
    let snapshot = Snapshot::of(&shared, seen, &address, Shows::Job(&name)).await;
    let data = job::JobData {
        name: &name,
        facts,
        notices: shared.admin.source.told_of(&name),
        rules: shared.admin.source.rules_of(&name),
        trace_link: shared.admin.source.trace_link(),
        run: run.as_ref().or(told),
    };
    Ok(snapshot.answer(StatusCode::OK, &address, |view| job::page(view, &data)))
}

/// What the store tells of a job; why it does not. A job of which nothing is known has no page.
fn known<'a>(found: &'a Facts, job: &str) -> Result<Result<&'a JobFacts, &'a str>, Problem> {
    match found {
        Ok(Some(facts)) => Ok(Ok(facts)),
        Ok(None) => Err(Problem::new(
            Kind::Unknown,
            format!("there is no job {job:?}"),
        )),
        Err(why) => Ok(Err(why.as_str())),
    }
}

pub(super) async fn of_locks(
    State(shared): State<Shared>,
    Extension(seen): Extension<Seen>,
    said: Said,
) -> Answer {
    let address = chosen("/locks", &locks::TAKES, said)?;
    let all = shared.readings.locks().await;
    let one = match address.get("key") {
        "" => None,
        key => {
            let _turn = shared.store.acquire().await;
            Some(shared.admin.source.lock(key).await)
        }
    };
    let snapshot = Snapshot::of(&shared, seen, &address, Shows::Any).await;
    let page = snapshot.answer(StatusCode::OK, &address, |view| {
        locks::page(view, &all, one.as_ref())
    });
    Ok(page)
}

pub(super) async fn of_audit(
    State(shared): State<Shared>,
    Extension(seen): Extension<Seen>,
    said: Said,
) -> Answer {
    let address = chosen("/audit", &audit::TAKES, said)?;
    let told = shared.readings.orders().await;
    let snapshot = Snapshot::of(&shared, seen, &address, Shows::Any).await;
    Ok(snapshot.answer(StatusCode::OK, &address, |view| audit::page(view, &told)))
}
