//! What ran: the runs of one job as its history has them, or the last ones of all jobs, what runs now, and how each ended last.

use super::{
    super::{html::Html, source::RecentAsked},
    address::{Address, MOST_ROWS, Takes},
    block::{Block, Live, Page, Part, cell},
    flying,
    layout::{choices, pager, pager_of_a_part},
    times::{fading, measured, millis, or_dash},
    view::View,
};
use crate::fleet::{
    client::{
        recent::{MOST_FOR_A_PAGE, RecentRuns},
        runs::RunFilter,
    },
    history::{RUNNING, RunRecord},
    status::JobStatus,
};

/// What can be chosen among runs.
pub(in crate::admin) const TAKES: Takes = Takes {
    states: &[
        "running",
        "done",
        "skipped",
        "retry",
        "failed",
        "timeout",
        "cancelled",
        "panicked",
        "interrupted",
    ],
    sorts: &["started", "took"],
    texts: &["job", "replica", "since", "until"],
    labels: &[],
};

const FIELDS: [(&str, &str); 5] = [
    ("q", "Search"),
    ("job", "Job"),
    ("replica", "Replica"),
    ("since", "Began since"),
    ("until", "Began before"),
];
/// Those of one job have one name.
const FIELDS_OF_JOB: [(&str, &str); 4] = [
    ("job", "Job"),
    ("replica", "Replica"),
    ("since", "Began since"),
    ("until", "Began before"),
];

const COLUMNS_OF_ALL: &str = "Job | Run | Outcome | Replica | Started | Took | Late | Detail";
const COLUMNS: &str = "Run | Outcome | Replica | Started | Took | Late | Detail";
const LAST: &str = "Job | Outcome | Ended | Last tick";

/// The page of one job, with its runs, the oldest first; why they cannot be read.
pub(in crate::admin) fn of_job(view: &View<'_>, history: Result<&[RunRecord], &str>) -> Page {
    let mut blocks = begun(view, &FIELDS_OF_JOB);
    match history {
        Ok(runs) => blocks.push(Block::Rows(part(view, runs))),
        Err(why) => blocks.push(Block::Plain(unread(why))),
    }
    page(blocks)
}

/// The page of all jobs, with their last runs, the newest first; why they cannot be read.
pub(in crate::admin) fn of_all(view: &View<'_>, recent: &Result<RecentRuns, String>) -> Page {
    let mut blocks = begun(view, &FIELDS);
    match recent {
        Ok(recent) => blocks.push(Block::Rows(last_of_all(view, recent))),
        Err(why) => blocks.push(Block::Plain(unread(why))),
    }
    // The other table is at another page of its own, or at its first one. It goes by no replica or time.
    let of_others = ["replica", "since", "until"];
    let is_told = of_others
        .iter()
        .all(|name| view.address.get(name).is_empty());
    if is_told && (view.address.page() == 1 || recent.is_err()) {
        blocks.push(Block::Rows(last_of_each(view)));
    }
    page(blocks)
}

fn page(blocks: Vec<Block>) -> Page {
    Page {
        title: "Runs".to_owned(),
        live: Live::Poll,
        blocks,
    }
}

fn begun(view: &View<'_>, fields: &[(&'static str, &'static str)]) -> Vec<Block> {
    vec![
        Block::Plain(choices(view.address, &TAKES, fields)),
        Block::Rows(in_flight(view)),
    ]
}

fn unread(why: &str) -> Html {
    let mut h = Html::default();
    h.markup("<p class=\"bad\">").text(why).markup("</p>");
    h
}

/// Which runs of all jobs the address asks for.
pub(in crate::admin) fn asked(address: &Address) -> RecentAsked {
    let given = |name: &str| Some(address.get(name).to_owned()).filter(|said| !said.is_empty());
    // Which of them took longest is known when all of them are.
    let most = match address.sort() {
        ("", _) => (address.shown_before() + address.size() + 1).min(MOST_FOR_A_PAGE),
        _ => MOST_FOR_A_PAGE,
    };
    RecentAsked {
        job_has: address.get("q").to_owned(),
        filter: RunFilter {
            outcomes: given("state").into_iter().collect(),
            replica: given("replica"),
            since: address.moment("since"),
            until: address.moment("until"),
            before: None,
        },
        most,
        outputs: false,
    }
}

/// The last runs of all jobs.
fn last_of_all(view: &View<'_>, recent: &RecentRuns) -> Part {
    let address = view.address;
    let key = |run: &&RunRecord| format!("{}/{}/{}", run.job, run.replica, run.seq);
    let mut runs: Vec<&RunRecord> = recent.runs.iter().collect();
    order(&mut runs, address);
    let (first, shown) = address.part(&runs);
    // One more was asked for than is shown.
    let is_all = asked(address).most > runs.len() || runs.len() == MOST_FOR_A_PAGE;
    let name = ("runs", "Last runs");
    let part = Part::of(
        name,
        COLUMNS_OF_ALL,
        shown.iter().copied(),
        key,
        |h, run| {
            let history = address.to("/runs", &[("job", run.job.as_str())]);
            cell(h, "Job").link(&history, &run.job);
            cells(h, view, run);
        },
    );
    let note = match recent.unread {
        0 => String::new(),
        jobs => format!("{jobs} jobs that may have such runs were not read: choose by name"),
    };
    let part_of_all = (first, shown.len(), runs.len());
    part.noted(note)
        .or_none("no run is remembered that fits: a job that has never run has none")
        .footed(match is_all {
            true => pager(address, part_of_all),
            false => pager_of_a_part(address, part_of_all),
        })
}

fn in_flight(view: &View<'_>) -> Part {
    let address = view.address;
    let (job, replica) = (address.get("job"), address.get("replica"));
    let wanted = |job_name: &str| address.finds(job_name) && (job.is_empty() || job == job_name);
    let jobs = view.all.jobs.iter().filter(|job| wanted(&job.name));
    let of_replica =
        |run_on: &str| replica.is_empty() || replica == run_on || replica == view.name_of(run_on);
    let runs: Vec<_> = flying::of(jobs)
        .filter(|(_, run)| of_replica(&run.replica))
        .take(MOST_ROWS + 1)
        .collect();
    let note = match runs.len() > MOST_ROWS {
        true => "the first ones",
        false => "",
    };
    let shown = runs.into_iter().take(MOST_ROWS);
    flying::part(view, shown).noted(note)
}

/// How each job ended last, the latest first.
fn last_of_each(view: &View<'_>) -> Part {
    let address = view.address;
    let state = address.get("state");
    let wanted = |job: &&JobStatus| {
        let outcome = job.last_outcome.as_deref();
        address.finds(&job.name)
            && outcome.is_some_and(|outcome| state.is_empty() || outcome == state)
    };
    let mut jobs: Vec<&JobStatus> = view.all.jobs.iter().filter(wanted).collect();
    jobs.sort_by_key(|job| std::cmp::Reverse(job.last_ended));
    let (first, shown) = address.part(&jobs);
    let name = ("ended", "Last run of each job");
    let key = |job: &&&JobStatus| job.name.clone();
    let part = Part::of(name, LAST, shown, key, |h, job| {
        let history = address.to("/runs", &[("job", job.name.as_str())]);
        cell(h, "Job").link(&history, &job.name);
        cell(h, "Outcome");
        outcome(h, job.last_outcome.as_deref().unwrap_or_default());
        cell(h, "Ended");
        view.times.moment(h, job.last_ended);
        cell(h, "Last tick");
        view.times.moment(h, job.last_tick);
    });
    part.noted("earlier ones are shown with their job")
        .footed(pager(address, (first, shown.len(), jobs.len())))
}

/// The runs that are looked for, the latest first.
pub(super) fn chosen<'a>(runs: &'a [RunRecord], address: &Address) -> Vec<&'a RunRecord> {
    let filter = asked(address).filter;
    let wanted = |run: &&RunRecord| filter.wants(run);
    let mut chosen: Vec<&RunRecord> = runs.iter().rev().filter(wanted).collect();
    order(&mut chosen, address);
    chosen
}

/// Puts runs, of which the latest come first, in the order that is asked for.
fn order(runs: &mut [&RunRecord], address: &Address) {
    if let ("took", _) = address.sort() {
        runs.sort_by_key(|run| std::cmp::Reverse(run.took_ms));
    }
    if let (_, true) = address.sort() {
        runs.reverse();
    }
}

/// The runs of a job that are looked for, as a table.
pub(super) fn part(view: &View<'_>, runs: &[RunRecord]) -> Part {
    let chosen = chosen(runs, view.address);
    let (first, shown) = view.address.part(&chosen);
    part_of(view, ("runs", "Runs"), shown.iter().copied())
        .or_none("no run is remembered that fits: a job that has never run has none")
        .footed(pager(view.address, (first, shown.len(), chosen.len())))
}

/// These runs of a job as a table.
pub(super) fn part_of<'a>(
    view: &View<'_>,
    name: (&'static str, &'static str),
    runs: impl IntoIterator<Item = &'a RunRecord>,
) -> Part {
    let key = |run: &&RunRecord| format!("{}/{}/{}", run.job, run.replica, run.seq);
    Part::of(name, COLUMNS, runs, key, |h, run| cells(h, view, run))
}

fn cells(h: &mut Html, view: &View<'_>, run: &RunRecord) {
    let times = &view.times;
    cell(h, "Run");
    let what = match run.batch_words() {
        words if words.is_empty() => times.short(run.tick),
        words => words,
    };
    match run.run_id.is_empty() {
        true => h.text(what),
        false => {
            let path = super::address::job_path(&run.job);
            h.link(
                &view.address.to(&path, &[("run", run.run_id.as_str())]),
                what,
            )
        }
    };
    if run.attempt > 1 {
        h.small(format_args!("attempt {}", run.attempt));
    }
    cell(h, "Outcome");
    outcome(h, &run.outcome);
    cell(h, "Replica").text(match run.replica_name.as_str() {
        "" => "a replica that died before it could tell",
        name => name,
    });
    if let Some(token) = run.token {
        h.small(format_args!("token {token}"));
    }
    cell(h, "Started");
    times.moment(h, run.started);
    cell(h, "Took");
    match (run.took_ms, run.started) {
        (Some(ms), _) => _ = h.text(measured(ms)),
        (None, Some(at)) if run.outcome == RUNNING => times.since(h, at),
        _ => _ = h.markup("–"),
    }
    cell(h, "Late").text(or_dash(late_ms(run).map(measured)));
    cell(h, "Detail");
    match (run.detail.as_str(), view.signed_in) {
        ("", _) => h.markup("–"),
        (detail, true) => h.text(detail),
        (_, false) => h.markup("<small>sign in to see why</small>"),
    };
    if let Some(done) = run.progress.as_ref().and_then(|told| told.done) {
        fading(h, format_args!(" {done} done"));
    }
}

/// An outcome in its colour, which is never all that tells it.
pub(super) fn outcome(h: &mut Html, word: &str) {
    h.markup("<span class=\"").markup(match word {
        RUNNING => "now",
        word => class(word),
    });
    h.markup("\">").text(word).markup("</span>");
}

/// The class of an outcome, or of what else became of a tick.
pub(super) fn class(outcome: &str) -> &'static str {
    match outcome {
        "done" => "good",
        "skipped" | "running" | "waiting" | "queued" | "undecided" | "forgotten"
        | "first-sight" | "unseen" => "soft",
        "failed" | "timeout" | "panicked" | "interrupted" | "unknown" => "bad",
        _ => "warn",
    }
}

/// How late a run started that was not tried before; nothing for batches.
pub(super) fn late_ms(run: &RunRecord) -> Option<u64> {
    let first = run.attempt == 1 && run.batch.is_none() && run.batches.is_none();
    run.started.filter(|_| first).map(|at| millis(run.tick, at))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;

    use super::*;

    fn run(seq: u64, outcome: &str, took_ms: u64) -> RunRecord {
        RunRecord {
            seq,
            outcome: outcome.to_owned(),
            took_ms: Some(took_ms),
            replica_name: "a".to_owned(),
            ..RunRecord::default()
        }
    }

    fn numbers(runs: &[RunRecord], query: &[(&str, &str)]) -> Vec<u64> {
        let query = query.iter();
        let query: BTreeMap<String, String> = query
            .map(|(name, said)| ((*name).to_owned(), (*said).to_owned()))
            .collect();
        let address = Address::read("/runs", &TAKES, &query).unwrap();
        chosen(runs, &address).iter().map(|run| run.seq).collect()
    }

    #[test]
    fn runs_are_chosen_by_outcome_and_replica_and_put_in_order() {
        let runs = [run(1, "done", 50), run(2, "failed", 70), run(3, "done", 10)];
        assert_eq!(numbers(&runs, &[]), [3, 2, 1]);
        assert_eq!(numbers(&runs, &[("state", "failed")]), [2]);
        assert_eq!(numbers(&runs, &[("sort", "took")]), [2, 1, 3]);
        assert_eq!(numbers(&runs, &[("sort", "-started")]), [1, 2, 3]);
        assert!(numbers(&runs, &[("replica", "b")]).is_empty());
        let mut runs = runs;
        runs[1].started = "2026-05-04T08:00:00Z".parse().ok();
        assert_eq!(numbers(&runs, &[("since", "2026-05-04 08:00")]), [2]);
        let rome = ("tz", "Europe/Rome");
        assert_eq!(
            numbers(&runs, &[("until", "2026-05-04 10:00"), rome]),
            [3, 1]
        );
    }

    #[test]
    fn only_a_first_attempt_is_late() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut late = run(1, "done", 5);
        (late.tick, late.started, late.attempt) = (at(100), Some(at(103)), 1);
        assert_eq!(late_ms(&late), Some(3000));
        late.attempt = 2;
        assert_eq!(late_ms(&late), None);
    }
}
