//! `history`: the last runs of a job, or of all jobs together, as the store tells them. Reads only.

use std::time::Duration;

use clap::Args;
use jiff::{Timestamp, Unit};

use super::{
    ask::{Limits, ask, load, nobody_was_here, place, refuse_nowhere},
    colours,
    failure::Failure,
    moment::moment_or_age,
    output::{note, print_painted},
    table::Table,
};
use crate::{
    Worker,
    clock::Clock,
    config::Config,
    fleet::{
        client::{
            recent::{JobPattern, MOST_READ, RecentRuns},
            runs::RunFilter,
        },
        history::RunRecord,
        refuse_unknown,
        status::FleetStatus,
    },
    human::{At, Brief},
    job::shard::{shard_of, spec_of},
    terminal::{self, Ink, Paint},
};

/// Characters of a reason in a line.
const DETAIL: usize = 80;

/// Columns of a run.
const HEADER: &str = "STARTED | TICK | ATTEMPT | OUTCOME | TOOK | REPLICA | DETAIL";
/// Where among them it says how the run ended.
const OUTCOME: usize = 3;

/// How a run may have ended, or that it has not.
const OUTCOMES: [&str; 9] = [
    "running",
    "done",
    "skipped",
    "retry",
    "failed",
    "timeout",
    "cancelled",
    "panicked",
    "interrupted",
];

/// `watchkeeper history`
#[derive(Clone, Debug, Default, Args)]
pub struct HistoryArgs {
    /// The job [default: all of them]
    #[arg(value_name = "JOB")]
    pub job: Option<String>,
    /// Without JOB: only jobs with such a name; * stands for any characters, ? for one
    #[arg(long = "job", value_name = "GLOB", conflicts_with = "job")]
    pub jobs: Option<String>,
    /// Only runs that began then or later: 2026-05-04T08:00:00Z, 2026-05-04T08:00 or 2026-05-04 for this machine's time zone,
    /// or how long ago, such as 2h
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only runs that began before then
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Only runs with this outcome; repeat it for more, or write them with commas
    #[arg(long, value_name = "OUTCOME", value_delimiter = ',', value_parser = OUTCOMES)]
    pub outcome: Vec<String>,
    /// Only runs on this replica, by name or id
    #[arg(long, value_name = "REPLICA")]
    pub replica: Option<String>,
    /// Show this many runs
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    pub limit: u16,
    /// Print what each run has left to read under its line
    #[arg(long)]
    pub output: bool,
    /// Go on: a line for each run that begins or ends, how far it is, until Ctrl-C. How far a command is says its last line; with
    /// --output what it prints is shown a few seconds after it was printed
    #[arg(long, short, requires = "job", conflicts_with = "until")]
    pub follow: bool,
    /// Print JSON; with --follow a line of it for each run that begins or ends
    #[arg(long)]
    pub json: bool,
}

pub(super) fn history(worker: &Worker, args: &HistoryArgs) -> Result<(), Failure> {
    let filter = args.filter(Clock::system().wall())?;
    let config = load(worker)?.config;
    if nobody_was_here(&config) {
        if let Some(job) = &args.job {
            known(&config, job)?;
        }
        refuse_nowhere(&config, args.json, &Vec::<RunRecord>::new())?;
    }
    match &args.job {
        Some(job) => of_one(&config, job, &filter, args),
        None => of_all(&config, &filter, args),
    }
}

/// Refuses a job of which the configuration knows nothing, where no store tells of others.
fn known(config: &Config, job: &str) -> Result<(), Failure> {
    if spec_of(&config.jobs, job).is_some() {
        return Ok(());
    }
    let nobody = FleetStatus::default();
    refuse_unknown(job, &nobody, config.jobs.keys()).map_err(Failure::of)
}

fn of_one(
    config: &Config,
    job: &str,
    filter: &RunFilter,
    args: &HistoryArgs,
) -> Result<(), Failure> {
    let runs = ask(config, Limits::VIEW, |fleet| async move {
        fleet.history_of(job, filter, args.most()).await
    })?;
    print_painted(args.json, &runs, |paint| match runs.is_empty() {
        true => none(&format!("{} of {job}", args.what()), config),
        false => show(&runs, args.output, paint),
    })
}

fn of_all(config: &Config, filter: &RunFilter, args: &HistoryArgs) -> Result<(), Failure> {
    let jobs = JobPattern::new(args.jobs.as_deref());
    let (jobs, outputs) = (&jobs, args.output || args.json);
    let found = ask(config, Limits::VIEW, |fleet| async move {
        fleet
            .recent(jobs, filter, args.most(), MOST_READ, outputs)
            .await
    })?;
    let RecentRuns { runs, unread } = found;
    print_painted(args.json, &runs, |paint| match runs.is_empty() {
        true => none(args.what(), config),
        false => show_all(&runs, args.output, paint),
    })?;
    if unread > 0 {
        note(&format!(
            "{unread} more jobs may have had such runs, and were not looked at: name some of them with --job, or say --since"
        ));
    }
    Ok(())
}

fn none(what: &str, config: &Config) -> String {
    terminal::sentence(&format!("no {what} in {}", place(config)))
}

// === impl HistoryArgs ===

impl HistoryArgs {
    /// Which runs it wants, at `now`.
    pub(super) fn filter(&self, now: Timestamp) -> Result<RunFilter, Failure> {
        let at = |text: &String| moment_or_age(text, now);
        Ok(RunFilter {
            since: self.since.as_ref().map(at).transpose()?,
            until: self.until.as_ref().map(at).transpose()?,
            outcomes: self.outcome.clone(),
            replica: self.replica.clone(),
            ..RunFilter::default()
        })
    }

    pub(super) fn most(&self) -> usize {
        usize::from(self.limit)
    }

    fn what(&self) -> &'static str {
        let wants = self.since.is_some() || self.until.is_some() || self.replica.is_some();
        match wants || !self.outcome.is_empty() || self.jobs.is_some() {
            true => "such run",
            false => "run",
        }
    }
}

/// The runs of one job. Those of its shards have a column with their number.
pub(super) fn show(runs: &[RunRecord], output: bool, paint: Paint) -> String {
    let whole = runs.iter().all(|run| run.job == runs[0].job);
    let number = |run: &RunRecord| shard_of(&run.job).map(|(_, number)| number.to_string());
    match whole {
        true => table(runs, None, output, paint),
        false => table(runs, Some(("SHARD", &number)), output, paint),
    }
}

/// The runs of several jobs, each with its name.
pub(super) fn show_all(runs: &[RunRecord], output: bool, paint: Paint) -> String {
    let name = |run: &RunRecord| Some(run.job.clone());
    table(runs, Some(("JOB", &name)), output, paint)
}

/// A column before all others: its name, and what stands there.
type First<'a> = (&'a str, &'a dyn Fn(&RunRecord) -> Option<String>);

fn table(runs: &[RunRecord], first: Option<First<'_>>, output: bool, paint: Paint) -> String {
    let header = match first {
        Some((name, _)) => format!("{name} | {HEADER}"),
        None => HEADER.to_owned(),
    };
    let mut table = Table::new(&header);
    for run in runs {
        let first = first.map(|(_, cell)| (cell(run).unwrap_or_default(), Ink::Plain));
        let mut ink = [Ink::Plain; 7];
        ink[OUTCOME] = colours::outcome(&run.outcome);
        let cells = row(run).into_iter().zip(ink);
        table.inked_row(first.into_iter().chain(cells));
    }
    let table = table.painted(paint);
    if !output {
        return table;
    }
    let mut lines = table.lines();
    let mut text = format!("{}\n", lines.next().unwrap_or_default());
    for (line, run) in lines.zip(runs) {
        text += &format!("{line}\n{}", left_to_read(run));
    }
    text
}

/// What a run has left to read, under its line.
pub(super) fn left_to_read(run: &RunRecord) -> String {
    let output = run.output.as_deref().unwrap_or_default();
    // Escaped here: a colour of the run's would pass as ours.
    let output = terminal::lines(output);
    let lines = output.lines().map(|line| format!("    {line}\n"));
    lines.collect()
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
        one_line(&words(run)),
    ]
}

/// What is worth knowing besides: where it began, what it was given, why it ended.
pub(super) fn words(run: &RunRecord) -> String {
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

pub(super) fn to_millis(at: Timestamp) -> String {
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
        let text = show(&[run()], false, Paint::PLAIN);
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
        assert_eq!(words(&run), "resumed from 24 bytes; with day; no disk");
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
        let text = show(&[run(), run()], true, Paint::PLAIN);
        let text = crate::terminal::lines(&text);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 7);
        assert_eq!(lines[2..4], ["    one", "    \\u001b[2Jtwo"]);
        assert_eq!(lines[5], "    one");
    }

    #[test]
    fn the_colour_of_a_run_passes_and_that_of_its_output_does_not() {
        let run = RunRecord {
            output: Some("\u{1b}[31mred\tand more".to_owned()),
            ..run()
        };
        let text = show(&[run], true, Paint::COLOURED);
        let shown = terminal::painted(&text, true);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[1].contains("\u{1b}[31mfailed\u{1b}[0m"), "{shown:?}");
        assert_eq!(lines[2], "    \\u001b[31mred\tand more");
    }

    #[test]
    fn runs_of_all_jobs_name_theirs_and_runs_of_shards_their_numbers() {
        let of = |job: &str| RunRecord {
            job: job.to_owned(),
            ..run()
        };
        let text = show_all(&[of("mail.3"), of("report")], false, Paint::PLAIN);
        let firsts: Vec<&str> = text.lines().filter_map(|l| l.split(' ').next()).collect();
        assert_eq!(firsts, ["JOB", "mail.3", "report"]);
        let text = show(&[of("mail.3"), of("mail.10")], false, Paint::PLAIN);
        let firsts: Vec<&str> = text.lines().filter_map(|l| l.split(' ').next()).collect();
        assert_eq!(firsts, ["SHARD", "3", "10"]);
    }

    #[test]
    fn a_long_reason_is_cut() {
        assert_eq!(one_line(&"ü".repeat(80)), "ü".repeat(80));
        assert_eq!(one_line(&"ü".repeat(81)), format!("{}…", "ü".repeat(80)));
    }
}
