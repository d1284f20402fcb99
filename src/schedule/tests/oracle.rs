//! A second opinion: `croner`, another implementation, asked about the same expressions and instants.
//!
//! Where we differ we say so, and each rule has a test of its own:
//!
//! | rule | here | croner | test |
//! | --- | --- | --- | --- |
//! | lists in the overlap | fixed times are fixed also when they are a list or range (`0,30 2 * * *`): once | in both passes | `o1_…` |
//! | repeating times in the gap | a skipped time fires right after the gap (`30 * * * *`) | left out | `o2_…` |
//! | a step in a day field | starts with `*`, so both day fields must match, as in crontab(5) of Debian | either | `o3_…` |
//!
//! Costs about ten seconds. `WATCHKEEPER_SCHEDULE_SEED=17` repeats a run, `WATCHKEEPER_SCHEDULE_CASES=1000000` tries more.

use croner::{
    Cron,
    parser::{CronParser, Seconds},
};
use jiff::tz::{AmbiguousOffset, TimeZone};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;

const ZONES: [&str; 8] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Asia/Kolkata",
    "Africa/Cairo",
    "Pacific/Chatham",
];

/// Instants asked about per schedule.
const ASKED: u64 = 10;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn croner(expr: &str, dialect: Dialect) -> Cron {
    let quartz = dialect == Dialect::Quartz;
    let parser = CronParser::builder()
        .seconds(Seconds::Optional)
        .dom_and_dow(quartz)
        .alternative_weekdays(quartz)
        .build();
    parser.parse(expr).unwrap_or_else(|e| panic!("{expr}: {e}"))
}

fn second_opinion(cron: &Cron, zone: &TimeZone, t: Timestamp) -> Option<Timestamp> {
    let next = cron.find_next_occurrence(&t.to_zoned(zone.clone()), false);
    next.ok().map(|next| next.timestamp())
}

/// One field: `*`, a step, a value, a range, a list, names where there are any.
fn any_field(rng: &mut StdRng, min: u32, max: u32, names: &[&str]) -> String {
    let value = |rng: &mut StdRng| {
        let n = rng.random_range(min..=max);
        match names.get((n - min) as usize) {
            Some(name) if rng.random_bool(0.4) => (*name).to_owned(),
            _ => n.to_string(),
        }
    };
    match rng.random_range(0..10) {
        0..4 => "*".to_owned(),
        4 => format!("*/{}", rng.random_range(1..=(max / 2).max(2))),
        5 => {
            let (a, b) = (rng.random_range(min..=max), rng.random_range(min..=max));
            let step = rng.random_range(1..4);
            format!("{}-{}/{step}", a.min(b), a.max(b))
        }
        6 => {
            let (a, b) = (rng.random_range(min..=max), rng.random_range(min..=max));
            format!("{}-{}", a.min(b), a.max(b))
        }
        7 => {
            let list: Vec<String> = (0..rng.random_range(2..5)).map(|_| value(rng)).collect();
            list.join(",")
        }
        _ => value(rng),
    }
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

fn any_expression(rng: &mut StdRng, dialect: Dialect) -> String {
    let mut fields = Vec::new();
    if rng.random_bool(0.2) {
        fields.push(any_field(rng, 0, 59, &[]));
    }
    fields.push(any_field(rng, 0, 59, &[]));
    // Most of them in the hours in which clocks change.
    fields.push(match rng.random_bool(0.5) {
        true => any_field(rng, 0, 3, &[]),
        false => any_field(rng, 0, 23, &[]),
    });
    // Few days are restricted twice: those seldom fire.
    fields.push(any_field(rng, 1, 28, &[]));
    fields.push(any_field(rng, 1, 12, &MONTHS));
    let first = u32::from(dialect == Dialect::Quartz);
    let names = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    fields.push(any_field(rng, first, first + 6, &names));
    fields.join(" ")
}

/// An instant of some decades, half of the time within hours of a change of the clocks.
fn any_instant(rng: &mut StdRng, zone: &TimeZone) -> Timestamp {
    let any = Timestamp::from_second(rng.random_range(946_684_800..2_208_988_800)).unwrap();
    match zone.following(any).next() {
        Some(change) if rng.random_bool(0.5) => {
            let near = rng.random_range(-14_400..10_800);
            Timestamp::from_second(change.timestamp().as_second() + near).unwrap()
        }
        _ => any,
    }
}

/// By which rule we answer `ours` where the other says `theirs`.
fn rule(
    s: &Schedule,
    zone: &TimeZone,
    ours: Option<Timestamp>,
    theirs: Option<Timestamp>,
) -> Option<&'static str> {
    let [Kind::Cron(civil)] = &s.kinds[..] else {
        return None;
    };
    let at_gap = |t: Timestamp| {
        let before = zone.to_offset(Timestamp::from_second(t.as_second() - 1).unwrap());
        before < zone.to_offset(t)
    };
    let second_pass = |t: Timestamp| {
        let time = zone.to_datetime(t);
        match zone.to_ambiguous_timestamp(time).offset() {
            AmbiguousOffset::Fold { after, .. } => zone.to_offset(t) == after,
            _ => false,
        }
    };
    match (ours, theirs) {
        (ours, Some(theirs))
            if !civil.repeats() && ours.is_none_or(|t| theirs < t) && second_pass(theirs) =>
        {
            Some("o1: lists in the overlap")
        }
        (Some(ours), theirs) if at_gap(ours) && theirs.is_none_or(|t| ours < t) => {
            Some("o2: skipped times fire after the gap")
        }
        _ => None,
    }
}

/// A day field that starts with `*` but is a step, beside another that is restricted.
fn is_o3(expr: &str) -> bool {
    let fields: Vec<&str> = expr.split(' ').collect();
    let n = fields.len();
    let (month_day, week_day) = (fields[n - 3], fields[n - 1]);
    month_day != "*"
        && week_day != "*"
        && (month_day.starts_with("*/") || week_day.starts_with("*/"))
}

#[test]
fn another_implementation_finds_the_same_ticks() {
    let seed = number("WATCHKEEPER_SCHEDULE_SEED").unwrap_or(20_261_122);
    let cases = number("WATCHKEEPER_SCHEDULE_CASES").unwrap_or(100_000);
    println!("WATCHKEEPER_SCHEDULE_SEED={seed} WATCHKEEPER_SCHEDULE_CASES={cases}");
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut compared, mut by_rule) = (0, std::collections::BTreeMap::<_, u64>::new());
    while compared < cases {
        let dialect = match rng.random_bool(0.5) {
            true => Dialect::Crontab,
            false => Dialect::Quartz,
        };
        let expr = any_expression(&mut rng, dialect);
        let zone_name = ZONES[rng.random_range(0..ZONES.len())];
        let zone = TimeZone::get(zone_name).unwrap();
        if dialect == Dialect::Crontab && is_o3(&expr) {
            continue;
        }
        let Ok(s) = Schedule::parse(&expr, Some(dialect), Some(zone_name)) else {
            // Such as a 31st of months without one.
            continue;
        };
        let cron = croner(&expr, dialect);
        for _ in 0..ASKED {
            let t = any_instant(&mut rng, &zone);
            let (ours, theirs) = (s.next_after(t), second_opinion(&cron, &zone, t));
            compared += 1;
            if ours == theirs {
                continue;
            }
            let why = rule(&s, &zone, ours, theirs);
            let why = why.unwrap_or_else(|| {
                panic!(
                    "{expr:?} ({dialect}, {zone_name}) after {t}: {ours:?} here, {theirs:?} there; seed {seed}"
                )
            });
            *by_rule.entry(why).or_default() += 1;
        }
    }
    println!("{compared} compared, different by rule: {by_rule:?}");
    let different: u64 = by_rule.values().sum();
    assert!(
        different * 20 < compared,
        "rules explain too much: {by_rule:?}"
    );
}

// === where we differ ===

fn both(expr: &str, after: &str) -> (String, String) {
    let zone = TimeZone::get("Europe/Berlin").unwrap();
    let (s, cron) = (
        schedule(expr, "Europe/Berlin"),
        croner(expr, Dialect::Crontab),
    );
    let shown = |t: Option<Timestamp>| s.local(t.unwrap());
    let after = at(after);
    (
        shown(s.next_after(after)),
        shown(second_opinion(&cron, &zone, after)),
    )
}

#[test]
fn o1_fixed_times_in_the_overlap_fire_once_also_as_a_list() {
    let (ours, theirs) = both("0,30 2 * * *", "2026-10-25T00:45:00Z");
    assert_eq!(ours, "Mon 2026-10-26 02:00:00 +01:00");
    assert_eq!(theirs, "Sun 2026-10-25 02:00:00 +01:00");
}

#[test]
fn o2_a_repeating_time_in_the_gap_fires_right_after_it() {
    let (ours, theirs) = both("30 * * * *", "2026-03-29T00:45:00Z");
    assert_eq!(ours, "Sun 2026-03-29 03:00:00 +02:00");
    assert_eq!(theirs, "Sun 2026-03-29 03:30:00 +02:00");
}

#[test]
fn o3_a_day_field_with_a_step_restricts_nothing_by_itself() {
    let (ours, theirs) = both("0 9 */2 * Mon", "2026-11-18T00:00:00Z");
    assert_eq!(ours, "Mon 2026-11-23 09:00:00 +01:00");
    assert_eq!(theirs, "Thu 2026-11-19 09:00:00 +01:00");
}
