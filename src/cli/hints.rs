//! Hints about jobs that are no faults: many of them at the same minute or second, and what that costs.

use std::{collections::HashMap, time::Duration};

use jiff::Timestamp;

use crate::{
    config::{Config, Spec},
    human::Span,
    job::{Coordination, shard::names_of},
    schedule::{BusyMinute, Dialect, Herd, Member, Schedule, Timetable},
};

/// So many crowded minutes are told, and so many schedules that many jobs share.
const TOLD: usize = 5;

/// So many starts in one second are worth a word on what they cost, and so many jobs of one schedule are better spread.
const HERD: usize = 200;

/// What a node needs for one write of a ledger, as `benches/README.md` has it, and how many go in one call.
const WRITE: Duration = Duration::from_micros(60);
const IN_A_CALL: usize = 250;

/// Writes of one run: its start and its end.
const WRITES: usize = 2;

/// So many starts a second are no burst.
const CALM: usize = 50;

/// Delays that are proposed, in seconds.
const DELAYS: [u64; 6] = [30, 60, 300, 900, 1800, 3600];

/// What makes ticks, as it is written.
type Written<'a> = (
    &'a [String],
    Option<Dialect>,
    &'a str,
    Option<&'a str>,
    Option<&'a str>,
    &'a [String],
);

/// A sentence each.
pub(super) fn hints(config: &Config, now: Timestamp) -> Vec<String> {
    let herds = herds(config);
    let times = Timetable::of(&herds, now);
    let worst = times.worst_second().filter(|busy| busy.count >= HERD);
    let mut hints: Vec<String> = worst.iter().map(cost).collect();
    let mut large: Vec<&Herd> = herds.iter().filter(|herd| herd.together() > HERD).collect();
    large.sort_by_key(|herd| std::cmp::Reverse(herd.together()));
    hints.extend(large.iter().take(TOLD).map(|herd| spread(herd, now)));
    // What was told of its worst second is not told again.
    let told = |busy: &BusyMinute<'_>| {
        let worst = worst.as_ref().map(|worst| worst.at.as_second());
        worst.is_some_and(|worst| worst.div_euclid(60) * 60 == busy.at.as_second())
    };
    let minutes: Vec<BusyMinute<'_>> = times.minutes().into_iter().filter(|c| !told(c)).collect();
    hints.extend(minutes.iter().take(TOLD).map(|busy| {
        format!(
            "{} jobs at {} ({}): write jitter = \"5m\" for some of them, or other minutes",
            busy.count,
            busy.at.strftime("%H:%M UTC on %Y-%m-%d"),
            named(busy)
        )
    }));
    if minutes.len() > TOLD {
        let more = minutes.len() - TOLD;
        hints.push(format!("{more} more minutes of the next day are crowded"));
    }
    hints
}

/// The jobs that will run, those together that are written alike. What has no schedule is a problem of the configuration, and
/// not of ours.
fn herds(config: &Config) -> Vec<Herd> {
    let mut places: HashMap<Written<'_>, Option<usize>> = HashMap::new();
    let mut herds: Vec<Herd> = Vec::new();
    for (name, spec) in config.jobs.iter().filter(|(_, spec)| spec.enabled) {
        let place = *places.entry(written(spec)).or_insert_with(|| {
            // Each is read once: of a hundred thousand that would take seconds.
            let schedule = spec.parse_schedule().ok()?;
            let jobs = Vec::new();
            herds.push(Herd { schedule, jobs });
            Some(herds.len() - 1)
        });
        let Some(place) = place else { continue };
        let (led, tick) = (Coordination::Leader, Coordination::Tick);
        let writes = spec.coordination == led || spec.coordination == tick;
        let jitter = spec.jitter.unwrap_or_default();
        herds[place]
            .jobs
            .extend(names_of(name, spec).into_iter().map(|name| Member {
                name,
                jitter,
                writes,
            }));
    }
    herds
}

fn written(spec: &Spec) -> Written<'_> {
    (
        spec.schedule.as_ref().map_or(&[], |s| s.as_slice()),
        spec.dialect,
        &spec.zone,
        spec.starting.as_deref(),
        spec.until.as_deref(),
        &spec.except,
    )
}

/// What so many starts in one second cost the nodes, and the last of those jobs. Computed: on this machine nothing was tried.
fn cost(busy: &BusyMinute<'_>) -> String {
    let writes = busy.count * WRITES;
    let node = WRITE * u32::try_from(writes).unwrap_or(u32::MAX);
    // A worker is about as long at a write as a node.
    let late = node * 2;
    format!(
        "{} jobs start in the same second, at {} ({}): by computation, not measured, their {writes} ledger writes at {} us each \
         keep every lock node busy for {:.1} s in {} calls of {IN_A_CALL}, and the last one starts about {:.1} s late",
        busy.count,
        busy.at.strftime("%H:%M:%S UTC on %Y-%m-%d"),
        named(busy),
        WRITE.as_micros(),
        node.as_secs_f64(),
        writes.div_ceil(IN_A_CALL),
        late.as_secs_f64(),
    )
}

/// What spreads the jobs of this schedule.
fn spread(herd: &Herd, now: Timestamp) -> String {
    let (count, schedule) = (herd.together(), &herd.schedule);
    let written = schedule.to_string();
    let period = written.split(" offset").next();
    let period = period.filter(|period| period.starts_with("@every") && !period.contains(';'));
    let remedy = match period {
        Some(period) => format!("\"{period} offset auto\" gives each a place of its own"),
        None => match delay(count, schedule, now) {
            Some(delay) => format!(
                "jitter = \"{}\" delays each by its own part of that",
                Span(delay)
            ),
            None => "other instants for some of them would spread the work".to_owned(),
        },
    };
    format!("{count} jobs have the schedule \"{written}\": {remedy}")
}

/// The shortest delay that makes a calm time of so many starts, or the longest that fits.
fn delay(count: usize, schedule: &Schedule, now: Timestamp) -> Option<Duration> {
    let room = schedule
        .shortest_interval(now, 100)
        .unwrap_or(Duration::MAX);
    let fitting = DELAYS.iter().map(|secs| Duration::from_secs(*secs));
    let mut fitting = fitting.filter(|delay| *delay < room);
    let starts = |delay: &Duration| count as u64 / delay.as_secs().max(1);
    let calm = fitting.clone().find(|delay| starts(delay) <= CALM as u64);
    calm.or_else(|| fitting.next_back())
}

/// `a, b, c and 7 more`
fn named(busy: &BusyMinute<'_>) -> String {
    let named = busy.named.join(", ");
    match busy.count.saturating_sub(busy.named.len()) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(of: &[(&str, usize, Option<u64>)]) -> Config {
        let mut config = Config::default();
        for (schedule, count, jitter) in of {
            for n in 0..*count {
                let mut spec = Spec::on(*schedule);
                spec.jitter = jitter.map(Duration::from_secs);
                config
                    .jobs
                    .insert(format!("{}-{n:05}", config.jobs.len() / 100_000), spec);
            }
        }
        config
    }

    fn now() -> Timestamp {
        "2026-11-22T12:00:30Z".parse().unwrap()
    }

    #[test]
    fn a_crowd_in_one_second_is_told_with_what_it_costs_and_what_spreads_it() {
        let said = hints(&config(&[("0 0 * * *", 10_000, None)]), now());
        assert_eq!(
            said,
            [
                "10000 jobs start in the same second, at 00:00:00 UTC on 2026-11-23 (0-00000, 0-00001, 0-00002 and 9997 more): \
                 by computation, not measured, their 20000 ledger writes at 60 us each keep every lock node busy for 1.2 s \
                 in 80 calls of 250, and the last one starts about 2.4 s late",
                "10000 jobs have the schedule \"0 0 * * *\": jitter = \"5m\" delays each by its own part of that",
            ]
        );
        let said = hints(&config(&[("@every 1m", 300, None)]), now());
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[1].ends_with("\"@every 1m offset auto\" gives each a place of its own"),
            "{}",
            said[1]
        );
    }

    #[test]
    fn jobs_that_are_spread_or_few_cost_nothing_worth_a_word() {
        for of in [
            ("@every 1m offset auto", 2_000, None),
            ("0 * * * *", 2_000, Some(3_000)),
            ("@every 1m", 199, None),
            ("manual", 1_000, None),
        ] {
            let said = hints(&config(&[of]), now());
            assert!(
                !said.iter().any(|said| said.contains("second")),
                "{of:?}: {said:?}"
            );
            assert!(said.len() <= TOLD + 1, "{of:?}: {said:?}");
        }
    }

    #[test]
    fn a_short_interval_gets_no_delay_that_is_longer() {
        let said = hints(&config(&[("*/20 * * * * *", 300, None)]), now());
        assert!(said[1].contains("other instants"), "{said:?}");
        let said = hints(&config(&[("* * * * *", 5_000, None)]), now());
        assert!(said[1].contains("jitter = \"30s\""), "{said:?}");
    }
}
