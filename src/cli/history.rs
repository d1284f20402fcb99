//! `history`: the last runs of a job, as the store tells them. Reads only.

use std::time::Duration;

use jiff::{Timestamp, Unit};

use super::{
    ask::{Limits, ask, load, nobody_was_here, place, refuse_nowhere},
    failure::Failure,
    output::print_as,
    table::Table,
};
use crate::{
    Worker,
    fleet::{history::RunRecord, refuse_unknown, status::FleetStatus},
    human::{At, Brief},
    job::shard::{shard_of, spec_of},
};

/// How it is shown.
pub(super) struct Shown {
    pub(super) json: bool,
    pub(super) limit: usize,
    pub(super) output: bool,
}

/// Characters of a reason in a line.
const DETAIL: usize = 80;

const HEADER: &str = "STARTED | TICK | ATTEMPT | OUTCOME | TOOK | REPLICA | DETAIL";

/// The same of several shards.
const OF_SHARDS: &str = "SHARD | STARTED | TICK | ATTEMPT | OUTCOME | TOOK | REPLICA | DETAIL";

pub(super) fn history(worker: &Worker, job: &str, shown: &Shown) -> Result<(), Failure> {
    let config = load(worker)?.config;
    if nobody_was_here(&config) {
        let nobody = FleetStatus::default();
        if spec_of(&config.jobs, job).is_none() {
            refuse_unknown(job, &nobody, config.jobs.keys()).map_err(Failure::of)?;
        }
        refuse_nowhere(&config, shown.json, &Vec::<RunRecord>::new())?;
    }
    let runs = ask(&config, Limits::VIEW, |fleet| async move {
        fleet.history(job, shown.limit).await
    })?;
    print_as(shown.json, &runs, || match runs.is_empty() {
        true => format!("no run of {job} in {}", place(&config)),
        false => show(&runs, shown.output),
    })
}

pub(super) fn show(runs: &[RunRecord], output: bool) -> String {
    let table = match runs.iter().any(|run| run.job != runs[0].job) {
        true => {
            let number = |run: &RunRecord| shard_of(&run.job).map(|(_, number)| number.to_string());
            let rows = runs.iter().map(|run| {
                let shard = number(run).unwrap_or_default();
                let [started, tick, attempt, outcome, took, replica, detail] = row(run);
                [
                    shard, started, tick, attempt, outcome, took, replica, detail,
                ]
            });
            Table::text(OF_SHARDS, rows)
        }
        false => Table::text(HEADER, runs.iter().map(row)),
    };
    if !output {
        return table;
    }
    let mut lines = table.lines();
    let mut text = format!("{}\n", lines.next().unwrap_or_default());
    for (line, run) in lines.zip(runs) {
        text += &format!("{line}\n");
        for line in run.output.as_deref().unwrap_or_default().lines() {
            text += &format!("    {line}\n");
        }
    }
    text
}

fn row(run: &RunRecord) -> [String; 7] {
    let took = run
        .took_ms
        .map(|ms| Brief(Duration::from_millis(ms)).to_string());
    [
        run.started.map(to_millis).unwrap_or_default(),
        match run.batch_words().is_empty() {
            true => At(run.tick).to_string(),
            // Batches have no ticks.
            false => String::new(),
        },
        run.attempt.to_string(),
        run.outcome.clone(),
        took.unwrap_or_default(),
        run.replica_name.clone(),
        one_line(&note(run)),
    ]
}

/// What is worth knowing besides: where it began, what it was given, why it ended.
fn note(run: &RunRecord) -> String {
    let resumed = run.resumed.as_ref();
    let resumed = resumed.map(|from| format!("resumed from {} bytes", from.bytes));
    let params = (!run.params.is_empty()).then(|| format!("with {}", run.params.join(", ")));
    let detail = Some(run.detail.clone()).filter(|detail| !detail.is_empty());
    let told = run.progress.as_ref().map(ToString::to_string);
    let batches = Some(run.batch_words()).filter(|words| !words.is_empty());
    let said = batches.into_iter().chain(told);
    let said = said.chain(resumed).chain(params).chain(detail);
    let said: Vec<String> = said.collect();
    said.join("; ")
}

fn to_millis(at: Timestamp) -> String {
    let shown = at.round(Unit::Millisecond).unwrap_or(at);
    format!("{shown:.3}")
}

/// A line that fits beside the others.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(DETAIL) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> RunRecord {
        RunRecord {
            tick: Timestamp::from_second(1_800_000_000).unwrap(),
            started: Timestamp::from_millisecond(1_800_000_000_012).ok(),
            attempt: 2,
            outcome: "failed".to_owned(),
            took_ms: Some(1250),
            replica_name: "a".to_owned(),
            detail: "first line\nsecond\u{1b}[31m line".to_owned(),
            output: Some("one\n\u{1b}[2Jtwo\n".to_owned()),
            ..RunRecord::default()
        }
    }

    #[test]
    fn a_run_is_one_line() {
        let text = show(&[run()], false);
        let line = text.lines().nth(1).unwrap();
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>().join(" "),
            "2027-01-15T08:00:00.012Z 2027-01-15T08:00:00Z 2 failed 1s 250ms a first line second\\u001b[31m line"
        );
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn a_run_shows_where_it_resumed_and_what_it_was_given() {
        let run = RunRecord {
            params: vec!["day".to_owned()],
            resumed: Some(crate::fleet::history::Resumed {
                bytes: 24,
                saved: None,
            }),
            detail: "no disk".to_owned(),
            ..run()
        };
        assert_eq!(note(&run), "resumed from 24 bytes; with day; no disk");
    }

    #[test]
    fn batches_are_counted_in_their_line() {
        let run = RunRecord {
            outcome: "failed".to_owned(),
            batches: Some(crate::fleet::history::BatchCounts {
                done: 12,
                skipped: 0,
                failed: 2,
            }),
            items: [("sent".to_owned(), 600), ("dead".to_owned(), 3)].into(),
            detail: "t/50/3 timeout: ".to_owned(),
            ..run()
        };
        let cells = row(&run);
        assert_eq!(cells[1], "", "no tick");
        assert_eq!(
            cells[6],
            "batches: 12 done, 2 failed; items: 3 dead, 600 sent; t/50/3 timeout:"
        );
    }

    #[test]
    fn output_stands_under_its_run_and_commands_no_terminal() {
        let text = show(&[run(), run()], true);
        let text = crate::terminal::lines(&text);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 7);
        assert_eq!(lines[2..4], ["    one", "    \\u001b[2Jtwo"]);
        assert_eq!(lines[5], "    one");
    }

    #[test]
    fn a_long_reason_is_cut() {
        assert_eq!(one_line(&"ü".repeat(80)), "ü".repeat(80));
        assert_eq!(one_line(&"ü".repeat(81)), format!("{}…", "ü".repeat(80)));
    }
}
