//! `jobs`: what is configured and when it is due next; `jobs next`: the next ticks of one job. Asks no store.

use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Serialize;

use super::{
    failure::Failure,
    hints,
    moment::moment,
    output::{note, print_as},
    table::Table,
};
use crate::{
    Worker,
    clock::Clock,
    config::{Config, Spec},
    human::At,
    job::shard::{names_of, shard, shard_of, spec_of},
    schedule::Schedule,
};

/// `watchkeeper jobs`
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct JobsArgs {
    /// What to show of one job.
    #[command(subcommand)]
    pub command: Option<JobsCommand>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What to show of one job.
#[derive(Clone, Debug, Subcommand)]
pub enum JobsCommand {
    /// Show when a job is due next, in its zone and in UTC, and what clock changes do to it
    Next {
        /// The job
        #[arg(value_name = "JOB")]
        job: String,
        /// Show this many ticks
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
        count: u16,
        /// Show the ticks after this time instead of now: 2027-03-27T00:00:00Z, or 2027-03-27T00:00 or 2027-03-27 for this
        /// machine's time zone
        #[arg(long, value_name = "TIME")]
        after: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// One job, as `--json` shows it.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    name: String,
    kind: Option<String>,
    schedule: String,
    zone: Option<String>,
    coordination: String,
    shards: Option<usize>,
    enabled: bool,
    next_tick: Option<Timestamp>,
    next_local: Option<String>,
}

/// One tick, as `--json` shows it.
#[derive(Debug, Serialize)]
struct Upcoming {
    tick: Timestamp,
    local: String,
    /// When its run starts: later than the tick by the job's jitter.
    starts: Timestamp,
    note: Option<String>,
}

pub(super) fn jobs(worker: &Worker, args: JobsArgs) -> Result<(), Failure> {
    let loaded = worker.load()?;
    if loaded.file.is_none() && !loaded.looked_at.is_empty() {
        note(&loaded.no_file());
    }
    let config = loaded.config;
    let now = Clock::system().wall();
    match args.command {
        None => list(&config, now, args.json),
        Some(JobsCommand::Next {
            job,
            count,
            after,
            json,
        }) => {
            let after = after.as_deref().map_or(Ok(now), moment)?;
            let schedule = find(&config, &job)?;
            let ticks = upcoming(&schedule, after, usize::from(count));
            print_as(json, &ticks, || show_next(&job, &schedule, &ticks))
        }
    }
}

fn list(config: &Config, now: Timestamp, json: bool) -> Result<(), Failure> {
    let rows: Vec<Row> = config.jobs.iter().map(|(n, s)| row(n, s, now)).collect();
    print_as(json, &rows, || {
        let hints = hints::hints(config, now).into_iter();
        let hints = hints.map(|hint| format!("hint: {hint}\n"));
        show(&rows) + &hints.collect::<String>()
    })
}

fn find(config: &Config, job: &str) -> Result<Schedule, Failure> {
    let Some(spec) = spec_of(&config.jobs, job) else {
        let known: Vec<&str> = config.jobs.keys().map(String::as_str).collect();
        let remedy = match known.is_empty() {
            true => "no job is configured".to_owned(),
            false => format!("known jobs: {}", known.join(", ")),
        };
        return Err(Failure::Failed(format!(
            "there is no job {job:?}; {remedy}"
        )));
    };
    // Of the first shard, where none is named: others may be due elsewhere.
    let first = spec
        .shards
        .filter(|_| shard_of(job).is_none())
        .map(|_| shard(job, 0));
    // It was checked when it was loaded.
    spec.schedule_of(first.as_deref().unwrap_or(job))
        .map_err(Failure::of)
}

pub(super) fn row(name: &str, spec: &Spec, now: Timestamp) -> Row {
    let schedule = spec.parse_schedule().ok();
    // Where shards have ticks of their own: that of the first to be due.
    let of = |name: String| {
        let own = schedule.clone()?.of_job(&name, Duration::ZERO);
        own.next_after(now)
    };
    let next_tick = match schedule.as_ref().is_some_and(Schedule::depends_on_name) {
        true => names_of(name, spec).into_iter().filter_map(of).min(),
        false => of(name.to_owned()),
    };
    let next_tick = next_tick.filter(|_| spec.enabled);
    Row {
        name: name.to_owned(),
        kind: spec.kind.clone(),
        schedule: spec.schedule.clone().unwrap_or_default().to_string(),
        zone: schedule.as_ref().and_then(|s| s.zone().map(str::to_owned)),
        coordination: spec.coordination.to_string(),
        shards: spec.shards,
        enabled: spec.enabled,
        next_local: next_tick
            .zip(schedule.as_ref())
            .map(|(tick, s)| s.local(tick)),
        next_tick,
    }
}

/// `exec, 64 shards`
pub(super) fn kind(kind: Option<&str>, shards: Option<usize>) -> String {
    let kind = kind.unwrap_or("code");
    match shards {
        Some(shards) => format!("{kind}, {shards} shards"),
        None => kind.to_owned(),
    }
}

pub(super) fn show(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "no jobs\n".to_owned();
    }
    let mut table = Table::new("JOB | KIND | SCHEDULE | ZONE | NEXT | NEXT IN UTC");
    for row in rows {
        let next = match row.enabled {
            true => row.next_local.clone().unwrap_or_default(),
            false => "disabled".to_owned(),
        };
        table.row([
            row.name.clone(),
            kind(row.kind.as_deref(), row.shards),
            row.schedule.clone(),
            row.zone.clone().unwrap_or_default(),
            next,
            row.next_tick.map(|t| At(t).to_string()).unwrap_or_default(),
        ]);
    }
    table.to_string()
}

fn upcoming(schedule: &Schedule, after: Timestamp, count: usize) -> Vec<Upcoming> {
    let ticks = schedule.between(after, Timestamp::MAX, count);
    ticks
        .into_iter()
        .map(|tick| Upcoming {
            tick,
            local: schedule.local(tick),
            starts: schedule.starts(tick),
            note: schedule.oddity(tick).map(|odd| odd.to_string()),
        })
        .collect()
}

fn show_next(job: &str, schedule: &Schedule, ticks: &[Upcoming]) -> String {
    if !schedule.has_ticks() {
        return format!("{job} is {schedule}: it has no ticks");
    }
    if ticks.is_empty() {
        return format!("{job} ({schedule}) has no more ticks");
    }
    let zone = schedule.zone().unwrap_or("UTC");
    let delayed = ticks.iter().any(|tick| tick.starts != tick.tick);
    // In UTC they are the same, and once is enough.
    let civil = zone != "UTC";
    let mut header = Vec::from_iter(civil.then_some(zone));
    header.push("UTC");
    header.extend(delayed.then_some("STARTS"));
    header.push("NOTE");
    let mut table = Table::new(&header.join(" | "));
    for tick in ticks {
        let starts = delayed.then(|| {
            let after = tick.starts.duration_since(tick.tick);
            format!("{:.3} s later", after.as_secs_f64())
        });
        let note = tick.note.clone().unwrap_or_default();
        let local = civil.then(|| tick.local.clone());
        let cells = local.into_iter().chain([At(tick.tick).to_string()]);
        table.row(cells.chain(starts).chain([note]));
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn lines(text: &str) -> Vec<String> {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        text.lines().map(words).collect()
    }

    fn config(jobs: impl IntoIterator<Item = (String, Spec)>) -> Config {
        let mut config = Config::default();
        config.jobs.extend(jobs);
        config
    }

    #[test]
    fn jobs_are_listed_with_zone_and_next_tick() {
        let now = at("2026-11-22T00:20:00Z");
        let jobs = [
            (
                "report",
                Spec::cron(["0 8 * * Mon-Fri", "0 10 * * Sun"]).zone("Europe/Berlin"),
            ),
            ("often", Spec::on("@every 1m")),
            ("service", Spec::continuous()),
            ("never", Spec::on("@daily").enabled(false)),
        ];
        let rows = jobs.map(|(name, spec)| row(name, &spec, now));
        assert_eq!(
            lines(&show(&rows)),
            [
                "JOB KIND SCHEDULE ZONE NEXT NEXT IN UTC",
                "report code 0 8 * * Mon-Fri; 0 10 * * Sun Europe/Berlin Sun 2026-11-22 10:00:00 +01:00 2026-11-22T09:00:00Z",
                "often code @every 1m - Sun 2026-11-22 00:21:00 +00:00 2026-11-22T00:21:00Z",
                "service code continuous - - -",
                "never code @daily UTC disabled -",
            ]
        );
    }

    #[test]
    fn the_next_ticks_say_what_clock_changes_do() {
        let spec = Spec::cron("30 2 * * *").zone("Europe/Berlin");
        let schedule = spec.schedule_of("report").unwrap();
        let ticks = upcoming(&schedule, at("2027-03-27T00:00:00Z"), 3);
        assert_eq!(
            lines(&show_next("report", &schedule, &ticks)),
            [
                "Europe/Berlin UTC NOTE",
                "Sat 2027-03-27 02:30:00 +01:00 2027-03-27T01:30:00Z -",
                "Sun 2027-03-28 03:00:00 +02:00 2027-03-28T01:00:00Z \
                 02:30 does not exist on 2027-03-28: fires at 03:00",
                "Mon 2027-03-29 02:30:00 +02:00 2027-03-29T00:30:00Z -",
            ]
        );
        let ticks = upcoming(&schedule, at("2026-10-24T12:00:00Z"), 1);
        assert_eq!(
            ticks[0].note.as_deref(),
            Some("02:30 comes twice on 2026-10-25: fires the first time only")
        );
    }

    #[test]
    fn a_job_in_utc_shows_each_tick_once() {
        let schedule = Spec::on("@daily").schedule_of("report").unwrap();
        let ticks = upcoming(&schedule, at("2026-11-22T00:00:00Z"), 1);
        assert_eq!(
            lines(&show_next("report", &schedule, &ticks)),
            ["UTC NOTE", "2026-11-23T00:00:00Z -"]
        );
    }

    #[test]
    fn the_next_ticks_show_the_delay_of_their_starts() {
        let spec = Spec::on("@daily").jitter(Duration::from_secs(600));
        let schedule = spec.schedule_of("report").unwrap();
        let ticks = upcoming(&schedule, at("2026-11-22T00:00:00Z"), 2);
        assert_eq!(ticks[0].starts, schedule.starts(ticks[0].tick));
        let text = show_next("report", &schedule, &ticks);
        assert!(
            text.contains("STARTS") && text.contains(" s later"),
            "{text}"
        );
    }

    #[test]
    fn a_job_without_ticks_says_so() {
        let service = Spec::continuous().schedule_of("a").unwrap();
        let said = show_next("a", &service, &upcoming(&service, Timestamp::UNIX_EPOCH, 3));
        assert_eq!(said, "a is continuous: it has no ticks");
        let past = Spec::on("at 2020-01-01").schedule_of("a").unwrap();
        let said = show_next("a", &past, &upcoming(&past, at("2026-11-22T00:00:00Z"), 3));
        assert_eq!(said, "a (at 2020-01-01) has no more ticks");
    }

    #[test]
    fn many_jobs_at_the_same_minute_are_a_hint_that_jitter_ends() {
        let now = at("2026-11-21T12:00:00Z");
        let crowd = |spec: &Spec| {
            let jobs = (0..14).map(|n| (format!("job-{n:02}"), spec.clone()));
            hints::hints(&config(jobs), now)
        };
        assert_eq!(
            crowd(&Spec::on("@daily")),
            [
                "14 jobs at 00:00 UTC on 2026-11-22 (job-00, job-01, job-02 and 11 more): \
                 write jitter = \"5m\" for some of them, or other minutes"
            ]
        );
        assert!(crowd(&Spec::on("@daily").jitter(Duration::from_secs(1800))).is_empty());
        assert!(crowd(&Spec::on("@daily").enabled(false)).is_empty());
    }
}
