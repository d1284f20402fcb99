//! The status page: who leads what, until when, who else is there, and what runs.

use jiff::Timestamp;

use super::html::Html;
use crate::fleet::status::{FleetStatus, JobStatus, ReplicaStatus, Role, RunStatus};

/// What the page shows.
pub(super) struct View<'a> {
    pub(super) fleet: &'a FleetStatus,
    /// The id of the replica that answers.
    pub(super) replica: &'a str,
    /// Whether the token was said: what runs say of themselves is shown then.
    pub(super) signed_in: bool,
    /// The job whose shards are shown one by one.
    pub(super) shards: Option<&'a str>,
    pub(super) ready: Result<(), String>,
    pub(super) now: Timestamp,
}

const HEAD: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"color-scheme\" content=\"light dark\">
<meta http-equiv=\"refresh\" content=\"2\">
<title>Watchkeeper</title><link rel=\"stylesheet\" href=\"/style.css\"></head><body>
";

/// The page as HTML.
pub(super) fn render(view: &View<'_>) -> String {
    let mut h = Html::default();
    h.markup(HEAD);
    strip(&mut h, view);
    jobs(&mut h, view, "Jobs", &view.fleet.jobs);
    if let Some(job) = view.shards.and_then(|job| view.fleet.job(job)) {
        jobs(&mut h, view, "Shards", &job.by_shard);
    }
    runs(&mut h, view);
    replicas(&mut h, view);
    nodes(&mut h, view.fleet);
    h.markup("</body></html>\n");
    h.into_string()
}

// === sections ===

fn strip(h: &mut Html, view: &View<'_>) {
    h.markup("<header><h1>Watchkeeper</h1><p>");
    match view.fleet.replica(view.replica) {
        Some(me) => {
            h.markup("seen by <b>").text(&me.name);
            h.markup("</b>, version ").text(&me.version);
            h.markup(", up ").text(between(me.started, view.now));
        }
        None => {
            h.markup("seen by <b>").text(view.replica).markup("</b>");
        }
    }
    h.markup("</p><p>");
    match &view.ready {
        Ok(()) => h.markup("<span class=\"good\">ready</span>"),
        Err(why) => h
            .markup("<span class=\"bad\">not ready: ")
            .text(why)
            .markup("</span>"),
    };
    margin(h, view.fleet);
    h.markup(" · ").text(time(view.now));
    h.markup(" · <a href=\"/metrics\">metrics</a> · <a href=\"/api/v1/fleet\">JSON</a>");
    if !view.signed_in {
        h.markup(" · <a href=\"/login\">sign in</a>");
    }
    h.markup("</p></header>\n");
}

fn margin(h: &mut Html, fleet: &FleetStatus) {
    let Some(margin) = fleet.node_margin() else {
        return;
    };
    let up = fleet.nodes.iter().filter(|node| node.up).count();
    let mute = fleet.nodes.iter().filter(|node| node.up && !node.votes);
    let mute = mute.count();
    h.markup(" · ").text(up).markup(" of ");
    h.text(fleet.nodes.len()).markup(" nodes up, ");
    if mute > 0 {
        h.text(mute).markup(" without a vote yet, ");
    }
    match margin {
        m if m < 0 => h.markup("<strong class=\"bad\">no majority</strong>"),
        0 => h.markup("may lose none"),
        m => h.markup("may lose ").text(m),
    };
}

fn jobs(h: &mut Html, view: &View<'_>, title: &'static str, rows: &[JobStatus]) {
    let columns =
        "Job | Leader | Token | Since | Remaining | Schedule | Last tick | Next tick | Backlog";
    table(h, title, columns, rows, |h, job| {
        cell(h, "Job").text(&job.name);
        paused(h, job, view.now);
        leader(h, job);
        let leader = job.leader.as_ref();
        cell(h, "Token").text(or_dash(leader.map(|l| l.token)));
        cell(h, "Since");
        moment(h, leader.and_then(|l| l.since), view.now);
        cell(h, "Remaining").text(or_dash(leader.and_then(|l| l.remaining_ms).map(span)));
        if let Some(margin) = leader.and_then(|l| l.margin) {
            h.small(format_args!("margin {margin}"));
        }
        cell(h, "Schedule").text(&job.schedule);
        if let Some(zone) = &job.zone {
            h.small(zone);
        }
        for line in job.disagreement() {
            h.bad(line);
        }
        cell(h, "Last tick");
        moment(h, job.last_tick, view.now);
        last_run(h, job, view.now);
        cell(h, "Next tick");
        moment(h, job.next_tick, view.now);
        cell(h, "Backlog").text(or_dash(job.backlog));
        if let Some(trouble) = &job.trouble {
            h.bad(trouble);
        }
        if let Some(held) = &job.held {
            h.bad(held);
        }
    });
}

fn leader(h: &mut Html, job: &JobStatus) {
    cell(h, "Leader");
    if let Some(shards) = job.in_shards() {
        let unled = job.leader_known && job.coordination == "leader";
        let bad = unled && Some(job.shards_led) < job.shards || job.shards_failing > 0;
        h.markup("<a href=\"/?shards=")
            .text(&job.name)
            .markup("\">");
        h.markup(if bad { "<strong class=\"bad\">" } else { "<b>" });
        h.text(shards);
        h.markup(if bad { "</strong></a>" } else { "</b></a>" });
        return;
    }
    match &job.leader {
        Some(leader) => {
            h.markup("<b>").text(leader.shown()).markup("</b>");
            if !leader.replica.is_empty() {
                h.markup("<small>").text(&leader.host);
                h.markup(" · pid ").text(leader.pid).markup("</small>");
            }
        }
        None if !job.leader_known => {
            h.markup("<strong class=\"warn\">unknown</strong>");
            if let Some(last) = &job.last_seen {
                h.markup("<small>last seen ").text(&last.name).markup(" ");
                h.text(span(last.ms_ago)).markup(" ago</small>");
            }
        }
        None if job.wants_leader() => {
            h.markup("<strong class=\"bad\">NO LEADER</strong>");
        }
        None => {
            h.small(&job.coordination);
        }
    }
}

fn paused(h: &mut Html, job: &JobStatus, now: Timestamp) {
    if !job.paused {
        return;
    }
    h.markup(" <strong class=\"warn\">paused</strong>");
    if let Some(by) = &job.paused_by {
        h.markup("<small>by ").text(by);
        if let Some(since) = job.paused_since {
            h.markup(", ").text(between(since, now)).markup(" ago");
        }
        h.markup("</small>");
    }
    if let Some(why) = job.paused_why.as_ref().filter(|why| !why.is_empty()) {
        h.small(why);
    }
}

/// What runs, and apart from it how the last run ended.
fn last_run(h: &mut Html, job: &JobStatus, now: Timestamp) {
    let running = job.running_since();
    if let Some(since) = running {
        h.small(format_args!("running for {}", between(since, now)));
    }
    if let Some(outcome) = &job.last_outcome {
        let before = if running.is_some() { "before: " } else { "" };
        let ended = job
            .last_ended
            .map(|at| format!(" {} ago", between(at, now)));
        let text = format!("{before}{outcome}{}", ended.unwrap_or_default());
        match outcome.as_str() {
            "done" | "skipped" => h.small(text),
            _ => h.bad(text),
        };
    }
}

fn runs(h: &mut Html, view: &View<'_>) {
    let columns = "Job | Run | On | Token | Started | Progress";
    let running: Vec<(&JobStatus, &RunStatus)> = view
        .fleet
        .jobs
        .iter()
        .flat_map(|job| job.running.iter().map(move |run| (job, run)))
        .collect();
    let title = "Runs and batches in flight";
    table(h, title, columns, &running, |h, (job, run)| {
        cell(h, "Job").text(&job.name);
        cell(h, "Run");
        match &run.batch {
            Some(batch) => h.markup("batch ").text(batch),
            None => h.text(time(run.tick)),
        };
        h.small(format_args!("attempt {}", run.attempt));
        let replica = view.fleet.replica(&run.replica);
        cell(h, "On").text(replica.map_or(&run.replica, |r| &r.name));
        cell(h, "Token").text(or_dash(run.token));
        cell(h, "Started");
        moment(h, Some(run.started), view.now);
        cell(h, "Progress");
        progress(h, run);
    });
}

fn progress(h: &mut Html, run: &RunStatus) {
    counted(h, run);
    let told = run.progress();
    for line in [told.pace(), told.message.unwrap_or_default()] {
        if !line.is_empty() {
            h.small(line);
        }
    }
}

fn counted(h: &mut Html, run: &RunStatus) {
    match (run.done, run.total) {
        (Some(done), Some(total)) => {
            h.markup("<progress value=\"").text(done.min(total));
            h.markup("\" max=\"").text(total.max(1));
            h.markup("\"></progress><small>").text(done);
            h.markup(" of ").text(total).markup("</small>");
        }
        (Some(done), None) => {
            h.text(done).markup(" done");
        }
        _ => {
            h.markup("–");
        }
    }
}

fn replicas(h: &mut Html, view: &View<'_>) {
    let columns = "Replica | Role | State | Host | Version | Started | Seen";
    let all = &view.fleet.replicas;
    table(h, "Replicas", columns, all, |h, replica| {
        cell(h, "Replica").text(&replica.name);
        if replica.id == view.replica {
            h.markup("<small>this one</small>");
        }
        cell(h, "Role").markup(match replica.role {
            Role::Leader => "<b>leader</b>",
            Role::Standby => "standby",
            Role::Observer => "observer",
        });
        cell(h, "State");
        state(h, replica);
        cell(h, "Host").text(&replica.host);
        h.small(format_args!("pid {}", replica.pid));
        if let Some(admin) = &replica.admin {
            h.small(admin);
        }
        cell(h, "Version").text(&replica.version);
        cell(h, "Started");
        moment(h, Some(replica.started), view.now);
        cell(h, "Seen")
            .text(span(replica.seen_ms_ago))
            .markup(" ago");
    });
}

fn state(h: &mut Html, replica: &ReplicaStatus) {
    match &replica.unfit {
        Some(why) => h.markup("<strong class=\"bad\">unfit</strong>").small(why),
        None if replica.draining => h.markup("<strong class=\"warn\">draining</strong>"),
        None => h.markup("<span class=\"good\">fit</span>"),
    };
    if let Some(reload) = &replica.reload {
        match reload.ok {
            true => h.small(reload),
            false => h.bad(reload),
        };
    }
}

fn nodes(h: &mut Html, fleet: &FleetStatus) {
    let columns = "Node | State | Round trip | Clock";
    table(h, "Lock nodes", columns, &fleet.nodes, |h, node| {
        cell(h, "Node").text(&node.name);
        cell(h, "State");
        h.markup(match (node.up, node.votes) {
            (true, true) => "<span class=\"good\">up</span>",
            (true, false) => "<strong class=\"warn\">up, no vote</strong>",
            (false, _) => "<strong class=\"bad\">down</strong>",
        });
        if let Some(why) = node.error.as_ref().or(node.cause.as_ref()) {
            h.small(why);
        }
        cell(h, "Round trip").text(or_dash(node.rtt_us.map(|us| format!("{us} µs"))));
        cell(h, "Clock").text(or_dash(node.offset_ms.map(|ms| format!("{ms:+} ms"))));
    });
}

// === helpers ===

/// A table; `row` opens its cells with [`cell`]. On a narrow screen each row becomes a card.
fn table<T>(
    h: &mut Html,
    title: &'static str,
    columns: &'static str,
    rows: &[T],
    row: impl Fn(&mut Html, &T),
) {
    h.markup("<section><h2>").markup(title).markup("</h2>");
    if rows.is_empty() {
        h.markup("<p class=\"none\">none</p></section>\n");
        return;
    }
    h.markup("<table><thead><tr>");
    for column in columns.split(" | ") {
        h.markup("<th>").markup(column).markup("</th>");
    }
    h.markup("</tr></thead><tbody>\n");
    for item in rows {
        h.markup("<tr>");
        row(h, item);
        h.markup("</tr>\n");
    }
    h.markup("</tbody></table></section>\n");
}

/// Begins a cell; the one before ends by itself, as HTML has it.
fn cell<'a>(h: &'a mut Html, label: &'static str) -> &'a mut Html {
    h.markup("<td data-label=\"").markup(label).markup("\">")
}

fn moment(h: &mut Html, at: Option<Timestamp>, now: Timestamp) {
    let Some(at) = at else {
        h.markup("–");
        return;
    };
    h.markup("<time datetime=\"").text(at).markup("\">");
    if at > now {
        h.markup("in ").text(between(now, at));
    } else {
        h.text(between(at, now)).markup(" ago");
    }
    h.markup("</time>").small(time(at));
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "–".into(), |value| value.to_string())
}

/// A time for people, to the second, in UTC.
fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// A length of time for people.
fn span(ms: u64) -> String {
    match ms / 1000 {
        0..10 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        s @ 10..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

fn between(earlier: Timestamp, later: Timestamp) -> String {
    span(u64::try_from(later.as_millisecond() - earlier.as_millisecond()).unwrap_or(0))
}
