//! What holds for every schedule, near the changes of the clocks.

use proptest::prelude::*;

use super::*;

/// The ticks in (`after`, `upto`], found the slow way: every matching civil time, sent through the rules one by one.
fn by_the_rules(
    civil: &civil::Civil,
    zone: &str,
    after: Timestamp,
    upto: Timestamp,
) -> Vec<Timestamp> {
    use jiff::{civil::DateTime, tz::AmbiguousOffset};
    let tz = jiff::tz::TimeZone::get(zone).unwrap();
    let day = 24 * 3600;
    let last = upto.as_second() + day;
    let matching = |t: &i64| civil.next_after(*t).filter(|t| *t <= last);
    let first = matching(&(after.as_second() - day));
    let mut ticks = std::collections::BTreeSet::new();
    for second in std::iter::successors(first, matching) {
        let utc = Timestamp::from_second(second).unwrap();
        let time: DateTime = utc.to_zoned(jiff::tz::TimeZone::UTC).datetime();
        match tz.to_ambiguous_timestamp(time).offset() {
            AmbiguousOffset::Unambiguous { offset } => {
                ticks.insert(offset.to_timestamp(time).unwrap());
            }
            AmbiguousOffset::Gap { after, .. } => {
                let mut instant = offset_second(time, after);
                while tz.to_offset(Timestamp::from_second(instant).unwrap()) != after {
                    instant += 1;
                }
                ticks.insert(Timestamp::from_second(instant).unwrap());
            }
            AmbiguousOffset::Fold { before, after } => {
                ticks.insert(before.to_timestamp(time).unwrap());
                if civil.repeats() {
                    ticks.insert(after.to_timestamp(time).unwrap());
                }
            }
        }
    }
    ticks
        .into_iter()
        .filter(|t| after < *t && *t <= upto)
        .collect()
}

fn offset_second(time: jiff::civil::DateTime, offset: jiff::tz::Offset) -> i64 {
    offset.to_timestamp(time).unwrap().as_second()
}

fn any_schedule() -> impl Strategy<Value = Schedule> {
    let expr = prop::sample::select(vec![
        "* * * * *",
        "*/7 * * * *",
        "30 2 * * *",
        "0,30 1-3 * * *",
        "15 */2 * * *",
        "*/10 2 * * Sun",
        "0 3 1 * Sun",
        "59 59 23 * * *",
        "*/20 0 2 * * *",
        "0 0 29 2 *",
        "@every 7m",
        "@every 1700ms",
        "@every 7m offset 3m 1ms",
        "@every 1m offset auto",
        "@weekly",
    ]);
    let zones = [
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "UTC",
    ];
    (expr, prop::sample::select(zones.to_vec()))
        .prop_map(|(expr, zone)| schedule_of("report", expr, zone))
}

/// An instant near one of the changes of 2026, in milliseconds.
fn any_instant() -> impl Strategy<Value = Timestamp> {
    let changes = [
        "2026-03-29T01:00:00Z",
        "2026-10-25T01:00:00Z",
        "2026-03-08T07:00:00Z",
        "2026-11-01T06:00:00Z",
        "2026-10-03T15:30:00Z",
        "2026-04-04T15:00:00Z",
    ];
    (
        prop::sample::select(changes.to_vec()),
        -9_000_000i64..9_000_000,
    )
        .prop_map(|(change, ms)| {
            Timestamp::from_millisecond(at(change).as_millisecond() + ms).unwrap()
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn ticks_are_the_same_from_wherever_one_asks(s in any_schedule(), t in any_instant(), ms in 0..20_000_000i64) {
        let later = Timestamp::from_millisecond(t.as_millisecond() + ms).unwrap();
        let next = s.next_after(t).unwrap();
        prop_assert!(next > t);
        let from_later = s.next_after(later).unwrap();
        prop_assert!(from_later >= next);
        // Stepping through from an earlier instant meets the same tick.
        if next > later {
            prop_assert_eq!(from_later, next);
        } else {
            prop_assert!(s.walk(t, from_later).any(|tick| tick == from_later));
        }
        // Asked from just before a tick, the answer is that tick.
        prop_assert_eq!(s.next_after(before(next).unwrap()), Some(next));
    }

    #[test]
    fn the_latest_tick_is_found_without_stepping(s in any_schedule(), t in any_instant(), ms in 0..20_000_000i64) {
        let upto = Timestamp::from_millisecond(t.as_millisecond() + ms).unwrap();
        let all = s.between(t, upto, usize::MAX);
        prop_assert_eq!(s.latest_upto(t, upto), all.last().copied());
        prop_assert_eq!(s.count(t, upto, u64::MAX), all.len() as u64);
        let last = all.len().saturating_sub(3);
        prop_assert_eq!(s.latest(t, upto, 3), &all[last..]);
    }

    #[test]
    fn ticks_are_those_of_the_stated_rules(s in any_schedule(), t in any_instant(), ms in 0..20_000_000i64) {
        let upto = Timestamp::from_millisecond(t.as_millisecond() + ms).unwrap();
        if let [Kind::Cron(civil)] = &s.kinds[..] {
            let expected = by_the_rules(civil, s.zone().unwrap(), t, upto);
            prop_assert_eq!(s.between(t, upto, usize::MAX), expected);
        }
    }

    #[test]
    fn delayed_ticks_keep_their_order(
        s in any_schedule(),
        t in any_instant(),
        job in "[a-z]{1,8}",
        jitter in 1..2_000_000u64,
    ) {
        let s = s.of_job(&job, Duration::from_millis(jitter));
        let ticks = s.between(t, Timestamp::MAX, 20);
        for pair in ticks.windows(2) {
            prop_assert!(pair[0] <= s.starts(pair[0]) && s.starts(pair[0]) < pair[1]);
            prop_assert!(s.delay(pair[0]) < Duration::from_millis(jitter));
            // Due from its start on, and not before.
            prop_assert!(s.due_upto(s.starts(pair[0])) >= pair[0]);
            prop_assert!(s.due_upto(before(s.starts(pair[0])).unwrap()) < pair[0]);
        }
        let again = s.clone().of_job(&job, Duration::from_millis(jitter));
        prop_assert_eq!(ticks.iter().map(|t| again.delay(*t)).collect::<Vec<_>>(),
            ticks.iter().map(|t| s.delay(*t)).collect::<Vec<_>>());
    }

    #[test]
    fn the_next_tick_depends_on_the_last_one_and_the_definition_only(
        s in any_schedule(),
        t in any_instant(),
        hops in prop::collection::vec(prop_oneof![-90_000..90_000i64, -9_000_000..9_000_000i64], 1..8),
    ) {
        // One replica asks for each tick in turn; another, with the same definition, is asked other things in between.
        let ticks = s.between(t, Timestamp::MAX, 12);
        prop_assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", ticks);
        let other = schedule_of("report", &s.to_string(), s.zone().unwrap_or("UTC"));
        for pair in ticks.windows(2) {
            for hop in &hops {
                let asked = Timestamp::from_millisecond(pair[0].as_millisecond() + hop).unwrap();
                prop_assert!(other.next_after(asked) > Some(asked));
                prop_assert_eq!(other.next_after(pair[0]), Some(pair[1]));
            }
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[-0-9*/,?@ LWa-z#]{0,24}", zone in "[A-Za-z/_]{0,12}") {
        let _ = Schedule::parse(&text, None, None);
        let _ = Schedule::parse("@daily", None, Some(&zone));
    }
}
