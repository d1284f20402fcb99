//! Jobs as rows: who leads each, until when, when it is due, how it fares.

use super::{
    super::html::Html,
    address::{Address, Takes},
    block::{Part, cell},
    layout::is_of_job,
    runs,
    times::{grouped, left, or_dash, span},
    view::View,
};
use crate::fleet::status::{JobStatus, LeaderStatus};

/// What can be chosen among jobs.
pub(in crate::admin) const TAKES: Takes = Takes {
    states: &[
        "unled",
        "unknown",
        "failing",
        "paused",
        "running",
        "trouble",
        "differing",
    ],
    sorts: &["name", "next", "last", "backlog"],
    texts: &["leader", "shards"],
    labels: &[],
};

const COLUMNS: &str = "Job | State | Leader | Schedule | Last tick | Next tick | Backlog";

/// The jobs that are looked for, in the order that is asked for: those in trouble first, and by their names otherwise.
pub(in crate::admin) fn chosen(jobs: &[JobStatus], address: &Address) -> Vec<usize> {
    let (state, leader) = (address.get("state"), address.get("leader"));
    let wanted = |(_, job): &(usize, &JobStatus)| {
        address.finds(&job.name) && is(job, state) && (leader.is_empty() || is_led_by(job, leader))
    };
    let mut chosen: Vec<(usize, &JobStatus)> = jobs.iter().enumerate().filter(wanted).collect();
    // They come in the order of their names, which stays where nothing else decides.
    match address.sort() {
        ("next", _) => chosen.sort_by_key(|(_, job)| (job.next_tick.is_none(), job.next_tick)),
        ("last", _) => chosen.sort_by_key(|(_, job)| std::cmp::Reverse(job.last_ended)),
        ("backlog", _) => chosen.sort_by_key(|(_, job)| std::cmp::Reverse(job.backlog)),
        ("name", _) => {}
        _ => chosen.sort_by_key(|(_, job)| trouble(job)),
    }
    if let (_, true) = address.sort() {
        chosen.reverse();
    }
    chosen.into_iter().map(|(place, _)| place).collect()
}

/// Whether a job is in this state; every job is where none is named.
pub(super) fn is(job: &JobStatus, state: &str) -> bool {
    match state {
        "unled" => is_unled(job),
        "unknown" => !job.leader_known,
        "failing" => is_failing(job),
        "paused" => job.paused || job.shards_paused > 0,
        "running" => !job.running.is_empty(),
        "trouble" => job.trouble.is_some() || job.held.is_some(),
        "differing" => !job.definitions.is_empty(),
        _ => true,
    }
}

/// Whether a replica of this name or id leads it, or a shard of it.
fn is_led_by(job: &JobStatus, leader: &str) -> bool {
    let mut all = [job].into_iter().chain(&job.by_shard);
    all.any(|job| {
        let led = job.leader.as_ref();
        led.is_some_and(|led| led.name == leader || led.replica == leader)
    })
}

fn is_unled(job: &JobStatus) -> bool {
    match job.shards {
        Some(shards) => job.leader_known && job.coordination == "leader" && job.shards_led < shards,
        None => job.leader_known && job.leader.is_none() && job.wants_leader(),
    }
}

fn is_failing(job: &JobStatus) -> bool {
    let outcome = job.last_outcome.as_deref();
    job.shards_failing > 0
        || outcome.is_some_and(|outcome| !matches!(outcome, "done" | "skipped" | "running"))
}

/// The smaller, the sooner it is to be looked at.
fn trouble(job: &JobStatus) -> u8 {
    match job {
        job if is_unled(job) => 0,
        job if !job.leader_known => 1,
        job if job.trouble.is_some() || !job.definitions.is_empty() => 2,
        job if is_failing(job) || job.held.is_some() => 3,
        job if job.paused => 4,
        _ => 5,
    }
}

/// These jobs as a table.
pub(super) fn part<'a>(
    view: &View<'_>,
    name: (&'static str, &'static str),
    jobs: impl IntoIterator<Item = &'a JobStatus>,
) -> Part {
    let key = |job: &&JobStatus| job.name.clone();
    Part::of(name, COLUMNS, jobs, key, |h, job| cells(h, view, job))
}

fn cells(h: &mut Html, view: &View<'_>, job: &JobStatus) {
    let times = &view.times;
    cell(h, "Job").link(&view.address.to_job(&job.name), &job.name);
    cell(h, "State");
    state(h, view, job);
    leader(h, view, job);
    cell(h, "Schedule").text(&job.schedule);
    if let Some(zone) = &job.zone {
        h.small(zone);
    }
    for line in job.disagreement() {
        h.bad(line);
    }
    cell(h, "Last tick");
    times.moment(h, job.last_tick);
    cell(h, "Next tick");
    times.moment(h, job.next_tick);
    cell(h, "Backlog").text(or_dash(job.backlog.map(grouped)));
    if let Some(trouble) = &job.trouble {
        h.bad(trouble);
    }
    if let Some(held) = &job.held {
        let items = [("job", job.name.as_str())];
        h.markup("<small class=\"bad\">");
        h.link(&view.address.to("/batches", &items), held);
        h.markup("</small>");
    }
}

fn leader(h: &mut Html, view: &View<'_>, job: &JobStatus) {
    cell(h, "Leader");
    if let Some(shards) = job.in_shards() {
        let bad = is_unled(job) || job.shards_failing > 0;
        h.markup("<a href=\"");
        h.text(view.address.to("/", &[("shards", job.name.as_str())]));
        h.markup("\">");
        h.markup(if bad { "<strong class=\"bad\">" } else { "<b>" });
        h.text(shards);
        h.markup(if bad { "</strong></a>" } else { "</b></a>" });
        return;
    }
    match &job.leader {
        Some(leader) => {
            h.markup("<b>").text(leader.shown()).markup("</b>");
            term(h, view, job, leader);
        }
        None if !job.leader_known => {
            h.markup("<strong class=\"warn\">unknown</strong>");
            if let Some(last) = &job.last_seen {
                h.markup("<small>last seen ").text(&last.name).markup(" ");
                h.text(span(last.ms_ago));
                h.markup(" ago</small>");
            }
        }
        None if job.wants_leader() => {
            h.markup("<strong class=\"bad\">NO LEADER</strong>");
            if is_of_job(view.address) {
                h.markup("<small>why: <code>watchkeeper explain ")
                    .text(&job.name);
                h.markup("</code>, <code>watchkeeper doctor</code></small>");
            }
        }
        None => {
            h.small(&job.coordination);
        }
    }
}

/// Its term: how long it lasts yet, since when it leads, under which token, and where that is.
fn term(h: &mut Html, view: &View<'_>, job: &JobStatus, leader: &LeaderStatus) {
    if let Some(ms) = leader.remaining_ms {
        h.markup(" <span class=\"note\">");
        left(h, ms);
        h.markup(" left</span>");
    }
    h.markup("<small>token ");
    match is_of_job(view.address) {
        true => {
            let key = format!("job/{}", job.name);
            let lock = view.address.to("/locks", &[("key", key.as_str())]);
            h.link(&lock, leader.token)
        }
        false => h.text(leader.token),
    };
    if let Some(since) = leader.since {
        h.markup(" · <span title=\"leads since ");
        h.text(view.times.at(since)).markup("\">for ");
        view.times.since(h, since);
        h.markup("</span>");
    }
    if let Some(margin) = leader.margin {
        h.text(format_args!(" · margin {margin}"));
    }
    h.markup("</small>");
    // Where there are many, the table of replicas has it.
    if is_of_job(view.address) && !leader.replica.is_empty() {
        h.markup("<small>").text(&leader.host);
        h.markup(" · pid ").text(leader.pid).markup("</small>");
    }
}

/// Whether it is paused, what runs, and how the last run ended: what is wrong first.
fn state(h: &mut Html, view: &View<'_>, job: &JobStatus) {
    paused(h, view, job);
    let running = job.running_since();
    let before = |h: &mut Html| last_run(h, view, job, running.is_some());
    if is_failing(job) {
        before(h);
    }
    if let Some(since) = running {
        h.markup("<span class=\"now\">running</span> <span class=\"note\">for ");
        view.times.since(h, since);
        h.markup("</span>");
    }
    if !is_failing(job) {
        before(h);
    }
    if !job.paused && running.is_none() && job.last_outcome.is_none() && job.shards_failing == 0 {
        h.markup("–");
    }
}

pub(super) fn paused(h: &mut Html, view: &View<'_>, job: &JobStatus) {
    if !job.paused {
        return;
    }
    h.markup("<strong class=\"warn\">paused</strong> ");
    if let Some(by) = &job.paused_by {
        h.markup("<span class=\"note\">by ").text(by);
        if let Some(since) = job.paused_since {
            h.markup(", ");
            view.times.relative(h, since);
        }
        h.markup("</span>");
    }
    if let Some(why) = job.paused_why.as_ref().filter(|why| !why.is_empty()) {
        h.small(why);
    }
}

/// How the last run ended; in small letters where that is well and another one is under way.
fn last_run(h: &mut Html, view: &View<'_>, job: &JobStatus, is_running: bool) {
    let failing = job.shards_failing;
    if failing > 0 {
        h.markup("<strong class=\"bad\">").text(failing);
        h.markup(if failing == 1 {
            " shard fails</strong>"
        } else {
            " shards fail</strong>"
        });
    }
    let Some(word) = &job.last_outcome else {
        return;
    };
    let is_small = is_running && !is_failing(job);
    match is_small {
        true => _ = h.markup("<small>before: ").text(word),
        false => runs::outcome(h, word),
    }
    h.markup(" <span class=\"note\">");
    if let Some(at) = job.last_ended {
        view.times.relative(h, at);
    }
    h.markup(if is_small {
        "</span></small>"
    } else {
        "</span> "
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::fleet::status::RunStatus;

    fn job(name: &str) -> JobStatus {
        JobStatus {
            name: name.to_owned(),
            coordination: "leader".to_owned(),
            leader: Some(LeaderStatus::default()),
            leader_known: true,
            ..JobStatus::default()
        }
    }

    fn names(jobs: &[JobStatus], query: &[(&str, &str)]) -> Vec<String> {
        let query = query.iter();
        let query: BTreeMap<String, String> = query
            .map(|(name, said)| ((*name).to_owned(), (*said).to_owned()))
            .collect();
        let address = Address::read("/", &TAKES, &query).unwrap();
        let chosen = chosen(jobs, &address).into_iter();
        chosen.map(|place| jobs[place].name.clone()).collect()
    }

    #[test]
    fn what_is_to_be_looked_at_comes_first_and_states_choose() {
        let mut jobs = ["a", "b", "c", "d", "e"].map(job);
        jobs[1].last_outcome = Some("failed".to_owned());
        jobs[2].leader = None;
        jobs[3].leader_known = false;
        jobs[4].paused = true;
        jobs[4].running.push(RunStatus::default());
        assert_eq!(names(&jobs, &[]), ["c", "d", "b", "e", "a"]);
        assert_eq!(
            names(&jobs, &[("sort", "-name")]),
            ["e", "d", "c", "b", "a"]
        );
        for (state, found) in [
            ("unled", "c"),
            ("unknown", "d"),
            ("failing", "b"),
            ("paused", "e"),
            ("running", "e"),
        ] {
            assert_eq!(names(&jobs, &[("state", state)]), [found], "{state}");
        }
        assert_eq!(names(&jobs, &[("q", "B")]), ["b"]);
        let mut led = job("a");
        led.by_shard.push(job("a.1"));
        led.by_shard[0].leader = Some(LeaderStatus {
            replica: "h-1-x".to_owned(),
            name: "alpha".to_owned(),
            ..LeaderStatus::default()
        });
        let led = [led, job("b")];
        for leader in ["alpha", "h-1-x"] {
            assert_eq!(names(&led, &[("leader", leader)]), ["a"], "a shard of it");
        }
        assert!(names(&led, &[("leader", "beta")]).is_empty());
        assert!(names(&jobs, &[("q", "x")]).is_empty());
    }
}
