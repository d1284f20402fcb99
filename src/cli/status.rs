//! `status`: what the store tells of the fleet. Reads only: no candidate, no presence, no lock.

use std::time::Duration;

use jiff::{Timestamp, Unit};

use super::{
    ask::{Limits, ask, load, place, refuse_nowhere},
    colours,
    failure::Failure,
    output::print_painted,
    table::Table,
};
use crate::{
    Worker,
    config::Config,
    fleet::{
        FleetError,
        status::{
            FleetStatus, JobStatus, NodeStatus, NoticeStatus, ReplicaStatus, Role, RunStatus,
        },
    },
    human::At,
    terminal::{self, Ink, Paint},
};

pub(super) fn status(worker: &Worker, shards: bool, json: bool) -> Result<(), Failure> {
    let config = load(worker)?.config;
    refuse_nowhere(&config, json, &FleetStatus::default())?;
    // Ages go by the clock by which everything here is dated.
    let (mut fleet, now) = ask(&config, Limits::VIEW, |fleet| async move {
        Ok::<_, FleetError>((fleet.status().await?, fleet.now()))
    })?;
    if !shards {
        fleet.forget_shards();
    }
    print_painted(json, &fleet, |paint| show(&fleet, &config, now, paint))
}

pub(super) fn show(fleet: &FleetStatus, config: &Config, now: Timestamp, paint: Paint) -> String {
    let mut text = String::new();
    if fleet.replicas.is_empty() {
        let place = place(config);
        text += &format!("no replica runs in {}\n", terminal::line(&place));
    } else {
        let mut table = Table::new("REPLICA | ROLE | HOST | PID | UP | STATUS PAGE | NOTE");
        for one in &fleet.replicas {
            table.inked_row(replica_row(one, now).into_iter().zip(replica_inks(one)));
        }
        text += &table.painted(paint);
        for one in &fleet.replicas {
            for trouble in one.notices.iter().filter_map(NoticeStatus::trouble) {
                let (name, line) = (terminal::cell(&one.name), terminal::sentence(&trouble));
                text += &format!("{name}: {line}\n");
            }
        }
    }
    if !fleet.jobs.is_empty() {
        let mut table =
            Table::new("JOB | COORDINATION | LEADER | TOKEN | LAST TICK | NEXT TICK | LAST RUN");
        for job in fleet.jobs.iter().flat_map(with_shards) {
            table.inked_row(job_row(job, now).into_iter().zip(job_inks(job)));
        }
        text += &format!("\n{}", table.painted(paint));
        for job in &fleet.jobs {
            let backlog = job.backlog.unwrap_or(0);
            let held = |held| format!("{backlog} items to be sent; {held}");
            let lines = paused(job).into_iter().chain(job.disagreement());
            let lines = lines.chain(job.trouble.as_ref().map(ToString::to_string));
            for line in lines.chain(job.held.as_ref().map(held)) {
                let (name, line) = (terminal::cell(&job.name), terminal::sentence(&line));
                text += &format!("{name}: {line}\n");
            }
        }
    }
    let running: Vec<_> = running(fleet).collect();
    if !running.is_empty() {
        let mut table = Table::new("RUNNING | TICK | ATTEMPT | ON | FOR | PROGRESS");
        for (job, run) in running {
            table.row(run_row(fleet, job, run, now));
        }
        text += &format!("\n{}", table.painted(paint));
    }
    if !fleet.nodes.is_empty() {
        let mut table = Table::new("NODE | ROUND TRIP | CLOCK | STATE");
        for node in &fleet.nodes {
            table.inked_row(node_row(node).into_iter().zip(node_inks(node)));
        }
        text += &format!("\n{}", table.painted(paint));
    }
    text
}

/// How long it is since then, in whole seconds.
pub(super) fn age(at: Timestamp, now: Timestamp) -> String {
    let secs = now.duration_since(at).as_secs().max(0);
    humantime::format_duration(Duration::from_secs(secs.unsigned_abs())).to_string()
}

/// A job, and each of its shards where they are shown.
fn with_shards(job: &JobStatus) -> impl Iterator<Item = &JobStatus> {
    std::iter::once(job).chain(&job.by_shard)
}

fn replica_row(replica: &ReplicaStatus, now: Timestamp) -> [String; 7] {
    let role = match replica.role {
        Role::Leader => "leader",
        Role::Standby => "standby",
        Role::Observer => "observer",
    };
    let note = match &replica.unfit {
        Some(why) => format!("unfit: {why}"),
        None if replica.draining => "draining".to_owned(),
        None if replica.is_silent() => {
            format!("last heard of {} s ago", replica.seen_ms_ago / 1000)
        }
        None => reload_note(replica),
    };
    let page = replica.admin.as_ref().map(|at| format!("http://{at}/"));
    [
        replica.name.clone(),
        role.to_owned(),
        replica.host.clone(),
        replica.pid.to_string(),
        age(replica.started, now),
        page.unwrap_or_default(),
        note,
    ]
}

fn replica_inks(replica: &ReplicaStatus) -> [Ink; 7] {
    let note = match replica.unfit {
        Some(_) => Ink::Bad,
        None => Ink::Care,
    };
    last_in(note)
}

/// The last cell alone is in ink.
fn last_in<const N: usize>(ink: Ink) -> [Ink; N] {
    let mut inks = [Ink::Plain; N];
    if let Some(last) = inks.last_mut() {
        *last = ink;
    }
    inks
}

/// What is wrong with its last reload.
fn reload_note(replica: &ReplicaStatus) -> String {
    let told = replica.reload.as_ref();
    let told = told.filter(|reload| !reload.ok || !reload.needs_restart.is_empty());
    told.map(ToString::to_string).unwrap_or_default()
}

fn node_row(node: &NodeStatus) -> [String; 4] {
    let state = match (node.up, node.votes) {
        (true, true) => "up",
        (true, false) => "up, no vote",
        (false, _) => "down",
    };
    [
        node.name.clone(),
        node.rtt_us
            .map(|us| format!("{}.{} ms", us / 1000, us % 1000 / 100))
            .unwrap_or_default(),
        node.offset_ms
            .map(|ms| format!("{ms:+} ms"))
            .unwrap_or_default(),
        match &node.error {
            Some(why) => format!("{state}: {why}"),
            None => state.to_owned(),
        },
    ]
}

fn node_inks(node: &NodeStatus) -> [Ink; 4] {
    last_in(match (node.up, node.votes) {
        (true, true) => Ink::Good,
        (true, false) => Ink::Care,
        (false, _) => Ink::Bad,
    })
}

/// Who paused the job, since when, and why.
fn paused(job: &JobStatus) -> Option<String> {
    let by = job.paused_by.as_ref().filter(|_| job.paused)?;
    let since = job
        .paused_since
        .map(|at| format!(" since {}", at.round(Unit::Millisecond).unwrap_or(at)));
    let why = job.paused_why.as_ref().filter(|why| !why.is_empty());
    let why = why.map(|why| format!(": {why}"));
    Some(format!(
        "paused by {by}{}{}",
        since.unwrap_or_default(),
        why.unwrap_or_default()
    ))
}

/// What runs, and apart from it how the last run ended.
fn last_run(job: &JobStatus, now: Timestamp) -> String {
    let ago = |at: Timestamp| age(at, now);
    let ended = job
        .last_outcome
        .as_ref()
        .map(|outcome| match job.last_ended {
            Some(at) => format!("{outcome} {} ago", ago(at)),
            None => outcome.clone(),
        });
    let running = job
        .running_since()
        .map(|at| format!("running for {}", ago(at)));
    match (job.paused, running, ended) {
        (true, None, _) => "paused".to_owned(),
        (true, Some(running), _) => format!("paused, {running}"),
        (false, Some(running), Some(ended)) => format!("{running}; before: {ended}"),
        (false, running, ended) => running.or(ended).unwrap_or_default(),
    }
}

fn job_row(job: &JobStatus, now: Timestamp) -> [String; 7] {
    let leader = match (&job.leader, &job.last_seen) {
        _ if job.shards.is_some() => job.in_shards().unwrap_or_default(),
        (Some(leader), _) => leader.shown().to_owned(),
        (None, Some(last)) if !job.leader_known => {
            format!(
                "unknown, last seen {} {} s ago",
                last.name,
                last.ms_ago / 1000
            )
        }
        (None, _) if !job.leader_known => "unknown".to_owned(),
        (None, _) if job.wants_leader() => "none".to_owned(),
        (None, _) => String::new(),
    };
    let token = job.leader.as_ref().map(|leader| leader.token.0.to_string());
    let tick = |at: Option<Timestamp>| at.map(|at| At(at).to_string()).unwrap_or_default();
    [
        job.name.clone(),
        job.coordination.clone(),
        leader,
        token.unwrap_or_default(),
        tick(job.last_tick),
        tick(job.next_tick),
        last_run(job, now),
    ]
}

fn job_inks(job: &JobStatus) -> [Ink; 7] {
    let last = match (job.paused, &job.last_outcome) {
        (true, _) => Ink::Care,
        (false, Some(outcome)) => colours::outcome(outcome),
        (false, None) => Ink::Plain,
    };
    let mut all = last_in(last);
    all[2] = match job.leader {
        Some(_) => Ink::Plain,
        None if !job.leader_known => Ink::Care,
        // Where it wants none the cell says so, or is empty.
        None if job.wants_leader() => Ink::Bad,
        None => Ink::Plain,
    };
    all
}

/// Every run and batch in flight, with its job.
fn running(fleet: &FleetStatus) -> impl Iterator<Item = (&JobStatus, &RunStatus)> {
    let jobs = fleet.jobs.iter();
    jobs.flat_map(|job| job.running.iter().map(move |run| (job, run)))
}

fn run_row(fleet: &FleetStatus, job: &JobStatus, run: &RunStatus, now: Timestamp) -> [String; 6] {
    let on = fleet.replica(&run.replica);
    [
        job.name.clone(),
        match &run.batch {
            Some(batch) => format!("batch {batch}"),
            None => At(run.tick).to_string(),
        },
        run.attempt.to_string(),
        on.map_or(&run.replica, |replica| &replica.name).clone(),
        age(run.started, now),
        run.progress().to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::status::{LastSeen, Rate};

    #[test]
    fn a_job_shows_what_is_known_of_it_and_what_is_not() {
        let at = |text: &str| text.parse::<Timestamp>().ok();
        let now = at("2026-05-04T08:10:00Z").unwrap();
        let mut job = JobStatus {
            coordination: "leader".to_owned(),
            leader_known: true,
            last_outcome: Some("done".to_owned()),
            last_ended: at("2026-05-04T08:00:00Z"),
            ..JobStatus::default()
        };
        let row = |job: &JobStatus| job_row(job, now);
        assert_eq!(row(&job)[2], "none");
        assert_eq!(row(&job)[6], "done 10m ago");
        job.running.push(RunStatus {
            started: at("2026-05-04T08:09:30Z").unwrap(),
            ..RunStatus::default()
        });
        assert_eq!(row(&job)[6], "running for 30s; before: done 10m ago");
        job.leader_known = false;
        assert_eq!(row(&job)[2], "unknown");
        job.last_seen = Some(LastSeen {
            name: "w1".to_owned(),
            ms_ago: 12_300,
            ..LastSeen::default()
        });
        assert_eq!(row(&job)[2], "unknown, last seen w1 12 s ago");
        assert_eq!(paused(&job), None);
        job.paused = true;
        job.paused_by = Some("root@h".to_owned());
        job.paused_why = Some("the masters move".to_owned());
        job.paused_since = at("2026-05-04T08:05:00Z");
        let said = "paused by root@h since 2026-05-04T08:05:00Z: the masters move";
        assert_eq!(paused(&job).as_deref(), Some(said));
        assert_eq!(row(&job)[6], "paused, running for 30s");
    }

    #[test]
    fn shards_are_one_line_and_a_line_each_where_that_is_asked_for() {
        let shard = |n: usize| JobStatus {
            name: format!("mail.{n}"),
            coordination: "leader".to_owned(),
            leader_known: true,
            ..JobStatus::default()
        };
        let fleet = FleetStatus {
            jobs: (0..2).map(shard).collect(),
            ..FleetStatus::default()
        };
        let mut fleet = fleet.gathered();
        let (config, now) = (Config::default(), Timestamp::UNIX_EPOCH);
        let text = show(&fleet, &config, now, Paint::PLAIN);
        assert!(
            text.contains("2 shards, 0 led") && text.contains("mail.1"),
            "{text}"
        );
        fleet.forget_shards();
        let text = show(&fleet, &config, now, Paint::PLAIN);
        assert!(
            text.contains("2 shards, 0 led") && !text.contains("mail.1"),
            "{text}"
        );
    }

    #[test]
    fn what_needs_a_look_is_coloured_and_says_the_same() {
        let job = JobStatus {
            name: "report".to_owned(),
            coordination: "leader".to_owned(),
            leader_known: true,
            last_outcome: Some("failed".to_owned()),
            ..JobStatus::default()
        };
        let node = NodeStatus {
            name: "n1".to_owned(),
            up: true,
            ..NodeStatus::default()
        };
        let fleet = FleetStatus {
            jobs: vec![job],
            nodes: vec![node],
            ..FleetStatus::default()
        };
        let show = |paint| show(&fleet, &Config::default(), Timestamp::UNIX_EPOCH, paint);
        let coloured = show(Paint::COLOURED);
        for (ink, word) in [
            (Ink::Bad, "none"),
            (Ink::Bad, "failed"),
            (Ink::Care, "up, no vote"),
        ] {
            let word = Paint::COLOURED.ink(ink, word);
            assert!(coloured.contains(&word), "{coloured:?}");
        }
        let marks = ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[31m", "\u{1b}[33m"];
        let bare = marks
            .iter()
            .fold(coloured, |text, mark| text.replace(mark, ""));
        assert_eq!(bare, show(Paint::PLAIN));
    }

    #[test]
    fn a_node_without_a_vote_is_up() {
        let node = NodeStatus {
            up: true,
            error: Some("votes again in 12s at most".to_owned()),
            rtt_us: Some(1_240),
            offset_ms: Some(-7),
            ..NodeStatus::default()
        };
        let row = node_row(&node);
        assert_eq!(
            row[1..],
            ["1.2 ms", "-7 ms", "up, no vote: votes again in 12s at most"]
        );
    }

    #[test]
    fn a_run_in_flight_shows_how_far_it_is_and_commands_no_terminal() {
        let now: Timestamp = "2026-05-04T08:01:30Z".parse().unwrap();
        let run = RunStatus {
            replica: "host-1-a".to_owned(),
            tick: "2026-05-04T08:00:00Z".parse().unwrap(),
            started: "2026-05-04T08:00:00Z".parse().unwrap(),
            attempt: 2,
            done: Some(30),
            total: Some(120),
            per_second: Some(Rate::new(0.5)),
            left_ms: Some(180_000),
            message: Some("page\u{1b}[2J".to_owned()),
            ..RunStatus::default()
        };
        let job = JobStatus {
            name: "report".to_owned(),
            running: vec![run],
            ..JobStatus::default()
        };
        let fleet = FleetStatus {
            jobs: vec![job],
            ..FleetStatus::default()
        };
        let rows: Vec<_> = running(&fleet)
            .map(|(job, run)| {
                run_row(&fleet, job, run, now)
                    .map(|c| terminal::cell(&c))
                    .join(" | ")
            })
            .collect();
        assert_eq!(
            rows,
            ["report | 2026-05-04T08:00:00Z | 2 | host-1-a | 1m 30s | \
              30 of 120 (25 %), 30/min, about 3m left: page\\u001b[2J"]
        );
    }
}
