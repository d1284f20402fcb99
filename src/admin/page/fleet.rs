//! The fleet at a glance: what is wrong first, then jobs, what runs, replicas and nodes.

use super::{
    super::{html::Html, source::ALL_JOBS},
    address::MOST_ROWS,
    all::{Looked, Totals},
    block::{Block, Live, Page, Part, Piece},
    flying, jobs,
    layout::{TITLE_OF_FLEET, choices, pager},
    nodes, replicas,
    view::View,
};
use crate::fleet::status::JobStatus;

const FIELDS: [(&str, &str); 1] = [("q", "Job has")];

/// Runs and replicas that are shown here; their own pages have all of them.
const FEW: usize = 20;

/// What can be wrong with jobs: the state that chooses them, and the words for one and for several.
const ALARMS: [(&str, &str, &str); 4] = [
    ("unled", "job has no leader", "jobs have no leader"),
    (
        "unknown",
        "job has an unknown leader",
        "jobs have unknown leaders",
    ),
    ("failing", "job fails", "jobs fail"),
    (
        "trouble",
        "job has work that waits",
        "jobs have work that waits",
    ),
];

/// The page.
pub(in crate::admin) fn page(view: &View<'_>) -> Page {
    let mut blocks = vec![Block::Piece(tiles(view)), Block::Piece(alarms(view))];
    if view.orders && view.totals.jobs > 0 {
        blocks.push(Block::Plain(orders(view)));
    }
    blocks.push(Block::Plain(choices(view.address, &jobs::TAKES, &FIELDS)));
    let (chosen, shown) = (view.chosen, view.shown());
    let foot = pager(view.address, (chosen.first, shown.len(), chosen.total));
    let part = jobs::part(view, ("jobs", "Jobs"), shown);
    blocks.push(Block::Rows(
        part.footed(foot)
            .or_none("no replica has a job, or none fits"),
    ));
    blocks.extend(shards(view).map(Block::Rows));
    blocks.push(Block::Rows(in_flight(view)));
    let all = view.fleet.replicas.len();
    let part = replicas::part(view, view.fleet.replicas.iter().take(FEW));
    blocks.push(Block::Rows(some(part, FEW, all)));
    blocks.push(Block::Rows(nodes::part(view.fleet)));
    Page {
        title: TITLE_OF_FLEET.to_owned(),
        live: Live::Stream,
        blocks,
    }
}

/// What all jobs come to.
pub(in crate::admin) fn totals(all: &[JobStatus]) -> Totals {
    let count = |state: &str| all.iter().filter(|job| jobs::is(job, state)).count();
    let states = jobs::TAKES.states.iter().copied();
    Totals {
        jobs: all.len(),
        paused: all.iter().filter(|job| job.paused).count(),
        in_flight: flying::of(all).count(),
        in_state: states.map(|state| (state, count(state))).collect(),
    }
}

/// What can be asked of all jobs.
fn orders(view: &View<'_>) -> Html {
    let mut h = Html::default();
    h.markup("<p class=\"orders\">Orders:");
    for (path, word) in [
        ("/orders/pause_all", "pause all jobs"),
        ("/orders/resume_all", "resume all jobs"),
    ] {
        h.markup(" ");
        h.link(&view.address.to(path, &[("all", ALL_JOBS)]), word);
    }
    h.markup("</p>\n");
    h
}

/// How many there are of what has a page of its own.
fn tiles(view: &View<'_>) -> Piece {
    let (fleet, totals) = (view.fleet, view.totals);
    let fit = fleet
        .replicas
        .iter()
        .filter(|replica| replica.unfit.is_none() && !replica.is_silent());
    let up = fleet.nodes.iter().filter(|node| node.up).count();
    let tiles = [
        (
            "/",
            "Jobs",
            totals.jobs,
            format!("{} paused", totals.paused),
        ),
        (
            "/runs",
            "In flight",
            totals.in_flight,
            "runs and batches".to_owned(),
        ),
        (
            "/replicas",
            "Replicas",
            fleet.replicas.len(),
            format!("{} fit", fit.count()),
        ),
        (
            "/nodes",
            "Lock nodes",
            fleet.nodes.len(),
            format!("{up} up"),
        ),
    ];
    let mut h = Html::default();
    h.markup("<ul class=\"tiles\" data-piece=\"tiles\">");
    for (path, name, count, note) in tiles {
        h.markup("<li><a href=\"").text(view.address.to(path, &[]));
        h.markup("\"><span>").markup(name).markup("</span><b>");
        h.text(count).markup("</b><small>").text(note);
        h.markup("</small></a></li>");
    }
    h.markup("</ul>\n");
    Piece {
        name: "tiles",
        html: h,
    }
}

/// How many jobs are in each kind of trouble, each with the way to them.
fn alarms(view: &View<'_>) -> Piece {
    let mut h = Html::default();
    h.markup("<p class=\"alarms\" data-piece=\"alarms\">");
    let mut any = false;
    for (state, one, several) in ALARMS {
        let count = view.totals.in_state(state);
        // What one replica knows by itself is too little for an alarm.
        if count == 0 || view.looked == Looked::NotYet {
            continue;
        }
        any = true;
        h.markup("<strong class=\"bad\"><a href=\"");
        h.text(view.address.to("/", &[("state", state)]));
        h.markup("\">").text(count).markup(" ");
        h.markup(if count == 1 { one } else { several });
        h.markup("</a></strong> ");
    }
    match view.looked {
        Looked::NotYet => {
            h.markup("<span class=\"warn\">all jobs are being looked at: until then this is what the replica knows by itself</span>");
        }
        _ if !any => {
            h.markup("<span class=\"good\">nothing is known to be wrong with a job</span>");
        }
        _ => {}
    }
    if let Looked::At(at) = view.looked {
        h.markup(" <small>all jobs as they were ");
        view.times.relative(&mut h, at);
        if view.is_fresh {
            h.markup("; those in the table as they are now");
        }
        h.markup("</small>");
    }
    h.markup("</p>\n");
    Piece {
        name: "alarms",
        html: h,
    }
}

/// The shards of the job that the address names.
fn shards(view: &View<'_>) -> Option<Part> {
    let name = Some(view.address.get("shards")).filter(|name| !name.is_empty());
    let job = view.job(name?)?;
    let shown = job.by_shard.iter().take(MOST_ROWS);
    let part = jobs::part(view, ("shards", "Shards"), shown);
    Some(some(part, MOST_ROWS, job.by_shard.len()))
}

fn in_flight(view: &View<'_>) -> Part {
    let runs: Vec<_> = flying::of(&view.all.jobs).take(FEW + 1).collect();
    let more = runs.len() > FEW;
    let part = flying::part(view, runs.into_iter().take(FEW));
    match more {
        true => part.footed(way(view, "/runs", "more runs")),
        false => part,
    }
}

/// Where there are more than are shown.
fn some(part: Part, shown: usize, all: usize) -> Part {
    match all > shown {
        true => part.noted(format!("{shown} of {all}")),
        false => part,
    }
}

fn way(view: &View<'_>, path: &str, word: &str) -> Html {
    let mut h = Html::default();
    h.markup("<p>").link(&view.address.to(path, &[]), word);
    h.markup("</p>");
    h
}
