//! The fleet at a glance: what is wrong first, then jobs, what runs, replicas and nodes.

use super::{
    super::{html::Html, source::ALL_JOBS},
    address::{MOST_ROWS, Takes},
    all::{Looked, Totals},
    block::{Block, Live, Page, Part, Piece},
    flying, jobs,
    layout::{TITLE_OF_FLEET, choices, pager},
    nodes, replicas,
    view::View,
};
use crate::fleet::status::{FleetStatus, JobStatus};

const FIELDS: [(&str, &str); 2] = [("q", "Search"), ("leader", "Leader")];

/// What the form chooses: the states are links, with their numbers.
const FORM: Takes = Takes {
    states: &[],
    ..jobs::TAKES
};

/// Runs and replicas that are shown here; their own pages have all of them.
const FEW: usize = 20;

/// Jobs by state: the state that chooses them, the words for it, and whether something is wrong with them.
const STATES: [(&str, &str, bool); 8] = [
    ("", "All", false),
    ("unled", "No leader", true),
    ("unknown", "Leader unknown", true),
    ("failing", "Failing", true),
    ("trouble", "Needs a person", true),
    ("differing", "Definitions differ", false),
    ("paused", "Paused", false),
    ("running", "Running", false),
];

/// The page.
pub(in crate::admin) fn page(view: &View<'_>) -> Page {
    let mut bar = Html::default();
    bar.markup("<div class=\"bar\">");
    bar.append(&choices(view.address, &FORM, &FIELDS));
    if view.orders && view.totals.jobs > 0 {
        bar.append(&orders(view));
    }
    bar.markup("</div>\n");
    let mut blocks = vec![
        Block::Piece(tiles(view)),
        Block::Piece(states(view)),
        Block::Plain(bar),
    ];
    let (chosen, shown) = (view.chosen, view.shown());
    let foot = pager(view.address, (chosen.first, shown.len(), chosen.total));
    let part = jobs::part(view, ("jobs", "Jobs"), shown);
    blocks.push(Block::Rows(part.footed(foot).or_none(none(view))));
    blocks.extend(shards(view).map(Block::Rows));
    blocks.push(Block::Rows(in_flight(view)));
    let all = view.fleet.replicas.len();
    let part = replicas::part(view, view.fleet.replicas.iter().take(FEW));
    blocks.push(Block::Rows(some(part, FEW, all)));
    blocks.push(Block::Rows(nodes::part(view.fleet, view.spreads)));
    Page {
        title: TITLE_OF_FLEET.to_owned(),
        live: Live::Stream,
        blocks,
    }
}

fn none(view: &View<'_>) -> &'static str {
    match view.totals.jobs {
        0 => "no replica has a job",
        _ => "no job fits what is chosen",
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
    h.markup("<p class=\"orders\">");
    for (path, word) in [
        ("/orders/pause_all", "pause all jobs"),
        ("/orders/resume_all", "resume all jobs"),
    ] {
        h.link(&view.address.to(path, &[("all", ALL_JOBS)]), word);
        h.markup(" ");
    }
    h.markup("</p>\n");
    h
}

/// How many there are of what has a page of its own.
fn tiles(view: &View<'_>) -> Piece {
    let (fleet, totals) = (view.fleet, view.totals);
    let (replicas, nodes) = (fleet.replicas.len(), fleet.nodes.len());
    let paused = format!("{} paused", totals.paused);
    let all = "runs and batches".to_owned();
    let tiles = [
        ("/", "Jobs", totals.jobs, Note::Fine(paused)),
        ("/runs", "In flight", totals.in_flight, Note::Fine(all)),
        ("/replicas", "Replicas", replicas, note_of_replicas(fleet)),
        ("/nodes", "Lock nodes", nodes, note_of_nodes(fleet)),
    ];
    let mut h = Html::default();
    h.markup("<ul class=\"tiles\" data-piece=\"tiles\">");
    for (path, name, count, note) in tiles {
        h.markup("<li><a href=\"").text(view.address.to(path, &[]));
        h.markup("\"><span>").markup(name).markup("</span><b>");
        h.text(count).markup("</b>");
        match &note {
            Note::Fine(note) => h.small(note),
            Note::Warns(note) => h.markup("<strong class=\"warn\">").text(note),
            Note::Alarms(note) => h.markup("<strong class=\"bad\">").text(note),
        };
        h.markup(match note {
            Note::Fine(_) => "</a></li>",
            Note::Warns(_) | Note::Alarms(_) => "</strong></a></li>",
        });
    }
    h.markup("</ul>\n");
    Piece {
        name: "tiles",
        html: h,
    }
}

/// What stands beside a number.
enum Note {
    Fine(String),
    Warns(String),
    Alarms(String),
}

fn note_of_replicas(fleet: &FleetStatus) -> Note {
    let all = fleet.replicas.iter();
    let unfit = all.filter(|replica| replica.unfit.is_some() || replica.is_silent());
    match unfit.count() {
        0 => Note::Fine(format!("{} fit", fleet.replicas.len())),
        unfit => Note::Alarms(format!("{unfit} not fit")),
    }
}

fn note_of_nodes(fleet: &FleetStatus) -> Note {
    let down = fleet.nodes.iter().filter(|node| !node.up).count();
    let mute = fleet.nodes.iter().filter(|node| node.up && !node.votes);
    match (down, mute.count()) {
        (0, 0) => Note::Fine(format!("{} up", fleet.nodes.len())),
        (0, mute) => Note::Warns(format!("{mute} without a vote")),
        (down, _) => Note::Alarms(format!("{down} down")),
    }
}

/// How many jobs are in each state, each with the way to them, and how old that is.
fn states(view: &View<'_>) -> Piece {
    let mut h = Html::default();
    h.markup("<div class=\"states\" data-piece=\"states\"><nav aria-label=\"Jobs by state\"><ul>");
    let mut wrong = 0;
    for (state, words, is_wrong) in STATES {
        let count = match state {
            "" => view.totals.jobs,
            state => view.totals.in_state(state),
        };
        // What one replica knows by itself is too little for an alarm.
        let alarms = is_wrong && count > 0 && view.looked != Looked::NotYet;
        wrong += usize::from(alarms);
        h.markup(match (alarms, count) {
            (true, _) => "<li><a class=\"bad\" href=\"",
            (_, 0) => "<li><a class=\"zero\" href=\"",
            _ => "<li><a href=\"",
        });
        h.text(view.address.with(&[("state", state)]));
        h.markup(match view.address.get("state") == state {
            true => "\" aria-current=\"true\">",
            false => "\">",
        });
        h.markup(words).markup(" <b>").text(count);
        h.markup("</b></a></li>");
    }
    h.markup("</ul></nav>");
    match view.looked {
        Looked::NotYet => {
            h.markup("<p class=\"warn\">all jobs are being looked at: until then this is what the replica knows by itself</p>");
        }
        // What is wrong with the ground that they stand on is said above.
        _ if wrong == 0 && is_sound(view.fleet) => {
            h.markup("<p class=\"good\">nothing is known to be wrong with a job</p>");
        }
        _ => {}
    }
    if let Looked::At(at) = view.looked {
        h.markup("<p class=\"note\">all jobs as they were ");
        view.times.relative(&mut h, at);
        if view.is_fresh {
            h.markup("; those in the table as they are now");
        }
        h.markup("</p>");
    }
    h.markup("</div>\n");
    Piece {
        name: "states",
        html: h,
    }
}

/// Whether all replicas and nodes do their part.
fn is_sound(fleet: &FleetStatus) -> bool {
    let notes = [note_of_replicas(fleet), note_of_nodes(fleet)];
    notes.iter().all(|note| matches!(note, Note::Fine(_)))
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
