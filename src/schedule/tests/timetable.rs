//! Many jobs at the same minute or second.

use super::{
    super::timetable::{BusyMinute, Herd, Member, Timetable},
    *,
};

/// So many jobs of each expression, with this jitter.
fn names(of: &[(&str, usize)]) -> Vec<Vec<String>> {
    let herds = of.iter().enumerate();
    herds
        .map(|(herd, (_, count))| {
            (0..*count)
                .map(|n| format!("job-{herd:02}-{n:06}"))
                .collect()
        })
        .collect()
}

fn herds(of: &[(&str, usize)], names: &[Vec<String>], jitter: Duration) -> Vec<Herd> {
    let herd = |((expr, _), names): (&(&str, usize), &Vec<String>)| {
        let definition = Definition {
            expressions: &[(*expr).to_owned()],
            ..Definition::default()
        };
        let member = |name: &String| Member {
            name: name.clone(),
            jitter,
            writes: true,
        };
        Herd {
            schedule: definition.parse().unwrap(),
            jobs: names.iter().map(member).collect(),
        }
    };
    of.iter().zip(names).map(herd).collect()
}

fn shown(busy: &BusyMinute<'_>) -> (String, usize) {
    (busy.at.to_string(), busy.count)
}

fn minutes(of: &[(&str, usize)], jitter: Duration) -> Vec<(String, usize)> {
    let names = names(of);
    let herds = herds(of, &names, jitter);
    let found = Timetable::of(&herds, at("2026-11-22T12:00:30Z"));
    found.minutes().iter().map(shown).collect()
}

fn worst(of: &[(&str, usize)], jitter: Duration) -> Option<(String, usize)> {
    let names = names(of);
    let herds = herds(of, &names, jitter);
    let found = Timetable::of(&herds, at("2026-11-22T12:00:30Z"));
    found.worst_second().as_ref().map(shown)
}

#[test]
fn many_jobs_at_the_same_minute_are_found() {
    let jobs = [("0 0 * * *", 13), ("30 0 0 * * *", 1), ("0 7 * * *", 9)];
    let found = minutes(&jobs, Duration::ZERO);
    assert_eq!(found, [("2026-11-23T00:00:00Z".to_owned(), 14)]);
}

#[test]
fn a_delay_disperses_a_crowd() {
    let found = minutes(&[("0 0 * * *", 14)], Duration::from_secs(1800));
    assert_eq!(found, []);
}

#[test]
fn the_same_jobs_are_a_crowd_once_and_frequent_ones_are_none() {
    let found = minutes(&[("0 */6 * * *", 12), ("* * * * *", 20)], Duration::ZERO);
    assert_eq!(found, [("2026-11-22T18:00:00Z".to_owned(), 12)]);
}

#[test]
fn the_worst_second_of_a_day_counts_frequent_jobs_too() {
    let jobs = [("0 0 * * *", 300), ("@every 1m", 500), ("@every 7s", 40)];
    // Midnight is a multiple of seven seconds on one day of seven alone.
    let (second, count) = worst(&jobs, Duration::ZERO).unwrap();
    assert_eq!((second.as_str(), count), ("2026-11-23T00:00:00Z", 800));
    assert_eq!(worst(&[("manual", 5)], Duration::ZERO), None);
}

#[test]
fn delays_and_automatic_offsets_thin_the_worst_second_out() {
    let (_, count) = worst(&[("@every 1m", 6_000)], Duration::ZERO).unwrap();
    assert_eq!(count, 6_000);
    let (_, count) = worst(&[("@every 1m offset auto", 6_000)], Duration::ZERO).unwrap();
    assert!(count < 200, "{count}");
    let (_, count) = worst(&[("@every 1m", 6_000)], Duration::from_secs(50)).unwrap();
    assert!(count < 220, "{count}");
}

#[test]
fn a_herd_says_how_many_of_it_nothing_spreads() {
    let together = |expr: &str, jitter| {
        let of = [(expr, 250)];
        let names = names(&of);
        herds(&of, &names, jitter)[0].together()
    };
    assert_eq!(together("@every 1m", Duration::ZERO), 250);
    assert_eq!(together("@every 1m", Duration::from_secs(1)), 0);
    assert_eq!(together("@every 1m offset auto", Duration::ZERO), 0);
    assert_eq!(together("manual", Duration::ZERO), 0);
}

#[test]
fn a_hundred_thousand_jobs_are_looked_through_without_looking_at_each_with_every_other() {
    for (expr, jitter) in [
        ("0 * * * *", Duration::ZERO),
        ("0 * * * *", Duration::from_secs(600)),
        ("@every 1m offset auto", Duration::ZERO),
    ] {
        let of = [(expr, 100_000)];
        let names = names(&of);
        let herds = herds(&of, &names, jitter);
        let found = Timetable::of(&herds, at("2026-11-22T12:00:30Z"));
        assert!(found.worst_second().unwrap().count >= 100, "{expr}");
        let looked_at: usize = found.0.iter().map(|group| group.starts.len()).sum();
        assert!(looked_at <= 100_000 * 25, "{expr}: {looked_at}");
    }
}
