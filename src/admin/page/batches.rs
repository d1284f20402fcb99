//! Work that comes in batches: what is still to be done, how fast it goes, and what waits for a person.

use super::{
    super::html::Html,
    address::Takes,
    block::{Block, Live, Page, Part, cell},
    flying,
    layout::{choices, pager},
    times::or_dash,
    view::View,
};
use crate::fleet::status::{HeldItems, JobStatus, Rate};

/// What can be chosen among batches.
pub(in crate::admin) const TAKES: Takes = Takes {
    states: &["backlog", "retry", "doubt", "dead", "parked", "trouble"],
    sorts: &["name", "backlog", "dead"],
    texts: &[],
};

const FIELDS: [(&str, &str); 1] = [("q", "Job has")];

const COLUMNS: &str =
    "Job | Backlog | In flight | Oldest in flight | Rate | Sent again | In doubt | Dead | Parked";

/// The page.
pub(in crate::admin) fn page(view: &View<'_>) -> Page {
    let mut blocks = vec![Block::Plain(choices(view.address, &TAKES, &FIELDS))];
    blocks.extend(parts(view).into_iter().map(Block::Rows));
    let mut h = Html::default();
    h.markup(
        "<p class=\"note\">Items stand in the table of the job, which the lock nodes do not know: \
         <code>watchkeeper notify dead JOB</code> lists them one by one, <code>notify retry</code> has them sent again, \
         <code>notify park</code> puts them aside.</p>\n",
    );
    blocks.push(Block::Plain(h));
    Page {
        title: "Batches".to_owned(),
        live: Live::Stream,
        blocks,
    }
}

fn parts(view: &View<'_>) -> Vec<Part> {
    let address = view.address;
    let state = address.get("state");
    let wanted = |job: &&JobStatus| {
        is_of_items(job) && address.finds(&job.name) && (state.is_empty() || is(job, state))
    };
    let mut jobs: Vec<&JobStatus> = view.fleet.jobs.iter().filter(wanted).collect();
    match address.sort() {
        ("backlog", _) => jobs.sort_by_key(|job| std::cmp::Reverse(job.backlog)),
        ("dead", _) => jobs.sort_by_key(|job| std::cmp::Reverse(held(job).dead)),
        _ => {}
    }
    if let (_, true) = address.sort() {
        jobs.reverse();
    }
    let (first, shown) = address.part(&jobs);
    let key = |job: &&&JobStatus| job.name.clone();
    let name = ("batches", "Batches by job");
    let part = Part::of(name, COLUMNS, shown, key, |h, job| cells(h, view, job))
        .or_none("no job works in batches, or none fits")
        .footed(pager(address, (first, shown.len(), jobs.len())));
    let running = flying::of(shown.iter().copied()).take(super::address::MOST_ROWS);
    vec![part, flying::part(view, running)]
}

/// Whether it tells of items: by its nature, or because some are left.
fn is_of_items(job: &JobStatus) -> bool {
    job.coordination == "batch" || job.backlog.is_some() || job.held.is_some()
}

fn held(job: &JobStatus) -> HeldItems {
    job.held.unwrap_or_default()
}

fn is(job: &JobStatus, state: &str) -> bool {
    let held = held(job);
    match state {
        "backlog" => job.backlog.is_some_and(|backlog| backlog > 0),
        "retry" => held.retry > 0,
        "doubt" => held.in_doubt > 0,
        "dead" => held.dead > 0,
        "parked" => held.parked > 0,
        _ => job.trouble.is_some(),
    }
}

fn cells(h: &mut Html, view: &View<'_>, job: &JobStatus) {
    cell(h, "Job").link(&view.address.to_job(&job.name), &job.name);
    cell(h, "Backlog").text(or_dash(job.backlog));
    if let Some(trouble) = &job.trouble {
        h.bad(trouble);
    }
    cell(h, "In flight").text(job.running.len());
    cell(h, "Oldest in flight");
    match job.running_since() {
        Some(since) => view.times.since(h, since),
        None => _ = h.markup("–"),
    }
    cell(h, "Rate");
    let rates = job.running.iter().filter_map(|run| run.per_second);
    let rate: f64 = rates.map(Rate::per_second).sum();
    match rate > 0.0 {
        true => h.text(Rate::new(rate)),
        false => h.markup("–"),
    };
    let held = held(job);
    for (label, count, bad) in [
        ("Sent again", held.retry, false),
        ("In doubt", held.in_doubt, true),
        ("Dead", held.dead, true),
        ("Parked", held.parked, true),
    ] {
        cell(h, label);
        match (count, bad) {
            (0, _) => h.markup("–"),
            (count, false) => h.text(count),
            (count, true) => h
                .markup("<strong class=\"bad\">")
                .text(count)
                .markup("</strong>"),
        };
    }
}
