//! A second opinion: `croner`, another implementation, asked about the same expressions and instants.
//!
//! Where we differ we say by which rule, and our answer must be the one and only that the rules give, stated anew for
//! single instants ([`Stated`]); so it must be near every change of the clocks. Each rule has a test of its own:
//!
//! | rule | here | croner | test |
//! | --- | --- | --- | --- |
//! | lists in the overlap | fixed times are fixed also when they are a list or range (`0,30 2 * * *`): once | in both passes | `o1_…` |
//! | repeating times in the gap | a skipped time fires right after the gap (`30 * * * *`) | left out | `o2_…` |
//! | a step in a day field | starts with `*`, so both day fields must match, as in crontab(5) of Debian | either | `o3_…` |
//!
//! Costs half a minute of one core. `WATCHKEEPER_SCHEDULE_SEED=17` repeats a run,
//! `WATCHKEEPER_SCHEDULE_CASES=1000000` tries more.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

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

/// Where looking for a tick ends.
static LAST: LazyLock<Timestamp> = LazyLock::new(|| at("2099-01-01T00:00:00Z"));

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn croner(expr: &str, dialect: Dialect) -> Cron {
    croner_with(expr, dialect, dialect == Dialect::Quartz)
}

/// The same with `both` day fields to match, or either.
fn croner_with(expr: &str, dialect: Dialect, both: bool) -> Cron {
    let parser = CronParser::builder()
        .seconds(Seconds::Optional)
        .dom_and_dow(both)
        .alternative_weekdays(dialect == Dialect::Quartz)
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

/// Whether times of this minute or hour repeat.
fn repeats(field: &str) -> bool {
    field.contains(['*', '/'])
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

fn any_expression(rng: &mut StdRng, dialect: Dialect) -> String {
    let mut fields = Vec::new();
    if rng.random_bool(0.2) {
        fields.push(any_field(rng, 0, 59, &[]));
    }
    // Most of them in the hours in which clocks change, and some at fixed times.
    let last = if rng.random_bool(0.5) { 3 } else { 23 };
    let fixed = rng.random_bool(0.2);
    for last in [59, last] {
        let field = (0..).map(|_| any_field(rng, 0, last, &[]));
        fields.extend(field.filter(|f| !fixed || !repeats(f)).take(1));
    }
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

/// The tables of the schedules' documentation, stated of single instants. It knows the text of the expression, the
/// other crate's calendar (asked in UTC, where no time is skipped or comes twice) and the zone; of our code it asks
/// nothing.
struct Stated {
    calendar: Cron,
    /// `*` or a step in the minute or hour field.
    repeats: bool,
    zone: TimeZone,
}

impl Stated {
    fn new(expr: &str, dialect: Dialect, zone: &TimeZone) -> Self {
        let fields: Vec<&str> = expr.split(' ').collect();
        let [.., minute, hour, month_day, _, week_day] = fields[..] else {
            panic!("{expr}")
        };
        let open = |field: &str| field.starts_with('*');
        let both = dialect == Dialect::Quartz || open(month_day) || open(week_day);
        Self {
            calendar: croner_with(expr, dialect, both),
            repeats: repeats(minute) || repeats(hour),
            zone: zone.clone(),
        }
    }

    /// The first tick after `t` and up to `upto`. Whatever may be one is judged: the changes of the clocks, and under
    /// each offset of that time the instants whose civil time matches.
    fn first(&self, t: Timestamp, upto: Timestamp) -> Option<Timestamp> {
        let (from, last) = (t.as_second(), upto.as_second());
        let changes = self.zone.following(t).map(|c| c.timestamp().as_second());
        let changes: Vec<i64> = changes.take_while(|at| *at <= last).collect();
        let offsets: BTreeSet<i64> = changes
            .iter()
            .chain([&from])
            .map(|at| self.offset(*at))
            .collect();
        let at_change = changes.iter().copied().find(|at| self.is_tick(*at));
        let under = |offset: &i64| {
            let matching = |civil: &i64| self.next(civil + 1).filter(|c| *c <= last + offset);
            std::iter::successors(matching(&(from + offset)), matching)
                .map(|civil| civil - offset)
                .find(|at| self.is_tick(*at))
        };
        let first = offsets.iter().filter_map(under).chain(at_change).min();
        first.map(|at| Timestamp::from_second(at).unwrap())
    }

    /// Whether the clocks have changed in the hours before, or do up to the next tick.
    fn changes(&self, t: Timestamp, next: Option<Timestamp>) -> bool {
        let from = Timestamp::from_second(t.as_second() - 3 * 3600).unwrap();
        let change = self.zone.following(from).next();
        change.is_some_and(|change| next.is_none_or(|next| change.timestamp() <= next))
    }

    fn is_tick(&self, at: i64) -> bool {
        let (old, new) = (self.offset(at - 1), self.offset(at));
        if old < new {
            // The end of a gap, for whatever it has skipped, and for the time that it is.
            return self.next(at + old).is_some_and(|civil| civil <= at + new);
        }
        self.next(at + new) == Some(at + new) && (self.repeats || !self.comes_again(at))
    }

    /// Whether the clocks have shown the civil time of this instant before.
    fn comes_again(&self, at: i64) -> bool {
        let time = self.zone.to_datetime(Timestamp::from_second(at).unwrap());
        match self.zone.to_ambiguous_timestamp(time).offset() {
            AmbiguousOffset::Fold { after, .. } => self.offset(at) == i64::from(after.seconds()),
            _ => false,
        }
    }

    /// The first matching civil time from this one on, in seconds as if it were UTC.
    fn next(&self, civil: i64) -> Option<i64> {
        let from = Timestamp::from_second(civil).unwrap();
        let next = self
            .calendar
            .find_next_occurrence(&from.to_zoned(TimeZone::UTC), true);
        next.ok().map(|next| next.timestamp().as_second())
    }

    fn offset(&self, at: i64) -> i64 {
        let at = Timestamp::from_second(at).unwrap();
        i64::from(self.zone.to_offset(at).seconds())
    }

    /// By which rule we answer `ours` where the other says `theirs`. That it is the right answer is another question.
    fn rule(
        &self,
        expr: &str,
        ours: Option<Timestamp>,
        theirs: Option<Timestamp>,
    ) -> Option<&'static str> {
        let at_gap = |t: Timestamp| self.offset(t.as_second() - 1) < self.offset(t.as_second());
        match (ours, theirs) {
            _ if is_o3(expr) => Some("o3: a step in a day field"),
            (Some(ours), Some(theirs))
                if !self.repeats && theirs < ours && self.comes_again(theirs.as_second()) =>
            {
                Some("o1: lists in the overlap")
            }
            (Some(ours), theirs) if at_gap(ours) && theirs.is_none_or(|t| ours < t) => {
                Some("o2: skipped times fire after the gap")
            }
            _ => None,
        }
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
fn another_implementation_finds_the_same_ticks_and_each_is_that_of_the_stated_rules() {
    let seed = number("WATCHKEEPER_SCHEDULE_SEED").unwrap_or(20_261_122);
    let long = std::env::var_os("WATCHKEEPER_LONG").is_some();
    let usual = if long { 100_000 } else { 8_000 };
    let cases = number("WATCHKEEPER_SCHEDULE_CASES").unwrap_or(usual);
    println!("WATCHKEEPER_SCHEDULE_SEED={seed} WATCHKEEPER_SCHEDULE_CASES={cases}");
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut compared, mut judged) = (0, 0);
    let mut by_rule = BTreeMap::<_, u64>::new();
    while compared < cases {
        let dialect = match rng.random_bool(0.5) {
            true => Dialect::Crontab,
            false => Dialect::Quartz,
        };
        let expr = any_expression(&mut rng, dialect);
        let zone_name = ZONES[rng.random_range(0..ZONES.len())];
        let zone = TimeZone::get(zone_name).unwrap();
        let Ok(s) = Schedule::parse(&expr, Some(dialect), Some(zone_name)) else {
            // Such as a 31st of months without one.
            continue;
        };
        let cron = croner(&expr, dialect);
        let stated = Stated::new(&expr, dialect, &zone);
        for _ in 0..ASKED {
            let t = any_instant(&mut rng, &zone);
            let (ours, theirs) = (s.next_after(t), second_opinion(&cron, &zone, t));
            let case = || format!("{expr:?} ({dialect}, {zone_name}) after {t}; seed {seed}");
            compared += 1;
            // Near a change of the clocks also where both say the same: they may be wrong together.
            if ours != theirs || stated.changes(t, ours) {
                let first = stated.first(t, ours.unwrap_or(*LAST));
                assert_eq!(ours, first, "here, and by the rules: {}", case());
                judged += 1;
            }
            if ours == theirs {
                continue;
            }
            let why = stated.rule(&expr, ours, theirs);
            let why = why.unwrap_or_else(|| panic!("{ours:?}, {theirs:?} there: {}", case()));
            *by_rule.entry(why).or_default() += 1;
        }
    }
    println!("{compared} compared, {judged} judged, different by rule: {by_rule:?}");
    assert_eq!(by_rule.len(), 3, "each rule has been met: {by_rule:?}");
    assert!(
        by_rule.values().all(|different| different * 10 < compared),
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
