//! What a failed simulation prints.

use std::fmt::Write;

use jiff::{Timestamp, tz::TimeZone};

use super::{
    Fleet,
    recorder::{Entry, Told},
};
use crate::{event::Event, status::RunRecord};

/// Lines of the story that are shown: the last ones.
const LINES: usize = 60;
/// Runs that are shown per job: the last ones.
const RUNS: usize = 40;

/// Everything that is worth printing.
pub(super) fn story(fleet: &Fleet) -> String {
    let mut text = String::new();
    let utc = TimeZone::UTC;
    let now = fleet.now();
    let _ = writeln!(text, "--- the simulation stood at {now}");
    for (job, zone) in fleet.zones() {
        text += &runs(&job, &fleet.runs(&job), &zone);
    }
    let story = fleet.recorder().read().story.clone();
    let worth = story.iter().filter_map(|entry| told(entry, &utc));
    let lines: Vec<String> = worth.collect();
    let left = lines.len().saturating_sub(LINES);
    match left {
        0 => text += "what happened (UTC):\n",
        left => {
            let _ = writeln!(text, "what happened (UTC), {left} earlier lines left out:");
        }
    }
    for line in &lines[left..] {
        let _ = writeln!(text, "  {line}");
    }
    text
}

/// The runs of one job, as a table.
pub(super) fn runs(job: &str, runs: &[RunRecord], zone: &TimeZone) -> String {
    let mut text = format!("runs of {job}");
    let left = runs.len().saturating_sub(RUNS);
    match (runs.len(), left) {
        (0, _) => text += ": none\n",
        (_, 0) => text += ":\n",
        (all, _) => {
            let _ = writeln!(text, ", the last {RUNS} of {all}:");
        }
    }
    for run in &runs[left..] {
        let token = run
            .token
            .map_or_else(|| "-".to_owned(), |token| token.to_string());
        let started = run.started.map(|at| written(at, zone)).unwrap_or_default();
        let detail = match run.detail.as_str() {
            "" => String::new(),
            why => format!(": {why}"),
        };
        let _ = writeln!(
            text,
            "  tick {}  attempt {}  {}  token {token}  started {started}  {}{detail}",
            written(run.tick, zone),
            run.attempt,
            run.replica_name,
            run.outcome,
        );
    }
    text
}

/// An instant as the test would write it.
pub(super) fn written(at: Timestamp, zone: &TimeZone) -> String {
    let zoned = at.to_zoned(zone.clone());
    match at.subsec_nanosecond() {
        0 => zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        _ => zoned.strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string(),
    }
}

fn told(entry: &Entry, zone: &TimeZone) -> Option<String> {
    let time = |at: Timestamp| {
        let zoned = at.to_zoned(zone.clone());
        zoned.strftime("%d %H:%M:%S%.3f").to_string()
    };
    match entry {
        Entry::Did(at, what) => Some(format!("{}  the test: {what}", time(*at))),
        Entry::Told(Told { at, replica, event }) => {
            let what = words(event)?;
            Some(format!("{}  {replica} {what}", time(*at)))
        }
    }
}

/// An event in words; `None` for those that happen all the time.
fn words(event: &Event) -> Option<String> {
    Some(match event {
        Event::Acquire { .. }
        | Event::Renewed { ok: true, .. }
        | Event::Backlog { .. }
        | Event::HeldItems { .. } => return None,
        Event::Leading { job, token, .. } => format!("leads {job} under token {token}"),
        Event::StandingBy { job, why } => format!("leads {job} no longer: {why}"),
        Event::RunStarted {
            job, tick, attempt, ..
        } => format!("starts {job}, tick {tick}, attempt {attempt}"),
        Event::RunEnded {
            job,
            tick,
            attempt,
            outcome,
            detail,
            ..
        } => {
            let why = match detail.as_str() {
                "" => String::new(),
                why => format!(": {why}"),
            };
            format!("ends {job}, tick {tick}, attempt {attempt}: {outcome}{why}")
        }
        Event::TicksSkipped {
            job,
            first,
            last,
            count,
            why,
        } => format!("skips {count} ticks of {job} ({first} to {last}): {why}"),
        Event::NodeUp { node, up: true, .. } => format!("reaches {node}"),
        Event::NodeUp { node, cause, .. } => format!("does not reach {node}: {cause}"),
        Event::NodeDamaged { node, what } => format!("finds {node} damaged: {what}"),
        Event::Draining => "drains".to_owned(),
        other => format!("{other:?}"),
    })
}
