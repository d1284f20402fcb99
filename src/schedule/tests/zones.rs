//! The rules of gap and overlap at real transitions of zones that differ: half an hour, at midnight, over midnight, south
//! of the equator, and a day that does not exist.

use super::*;

/// Where the clocks go forward: zone, a minute before the change, a fixed time in the gap, when it fires.
const GAPS: [(&str, &str, &str, &str); 8] = [
    (
        "Europe/Berlin",
        "2027-03-28T00:59:00Z",
        "30 2",
        "Sun 2027-03-28 03:00:00 +02:00",
    ),
    (
        "America/New_York",
        "2027-03-14T06:59:00Z",
        "30 2",
        "Sun 2027-03-14 03:00:00 -04:00",
    ),
    (
        "Australia/Lord_Howe",
        "2026-10-03T15:29:00Z",
        "15 2",
        "Sun 2026-10-04 02:30:00 +11:00",
    ),
    (
        "Australia/Sydney",
        "2026-10-03T15:59:00Z",
        "59 2",
        "Sun 2026-10-04 03:00:00 +11:00",
    ),
    (
        "America/Santiago",
        "2026-09-06T03:59:00Z",
        "0 0",
        "Sun 2026-09-06 01:00:00 -03:00",
    ),
    (
        "Africa/Cairo",
        "2026-04-23T21:59:00Z",
        "30 0",
        "Fri 2026-04-24 01:00:00 +03:00",
    ),
    (
        "Pacific/Chatham",
        "2026-09-26T13:59:00Z",
        "0 3",
        "Sun 2026-09-27 03:45:00 +13:45",
    ),
    // Samoa left 30 December 2011 out.
    (
        "Pacific/Apia",
        "2011-12-30T09:59:00Z",
        "0 12",
        "Sat 2011-12-31 00:00:00 +14:00",
    ),
];

/// Where they go back: zone, a minute before the change, a fixed time in the overlap, its first pass.
const OVERLAPS: [(&str, &str, &str, &str); 7] = [
    (
        "Europe/Berlin",
        "2026-10-25T00:59:00Z",
        "30 2",
        "Sun 2026-10-25 02:30:00 +02:00",
    ),
    (
        "America/New_York",
        "2026-11-01T05:59:00Z",
        "30 1",
        "Sun 2026-11-01 01:30:00 -04:00",
    ),
    (
        "Australia/Lord_Howe",
        "2026-04-04T14:59:00Z",
        "45 1",
        "Sun 2026-04-05 01:45:00 +11:00",
    ),
    (
        "Australia/Sydney",
        "2026-04-04T15:59:00Z",
        "0 2",
        "Sun 2026-04-05 02:00:00 +11:00",
    ),
    // Back over midnight: the day before comes again.
    (
        "America/Santiago",
        "2026-04-05T02:59:00Z",
        "30 23",
        "Sat 2026-04-04 23:30:00 -03:00",
    ),
    (
        "Africa/Cairo",
        "2026-10-29T20:59:00Z",
        "15 23",
        "Thu 2026-10-29 23:15:00 +03:00",
    ),
    (
        "Pacific/Chatham",
        "2026-04-04T13:59:00Z",
        "0 3",
        "Sun 2026-04-05 03:00:00 +13:45",
    ),
];

fn shifted(t: &str, minutes: i64) -> Timestamp {
    Timestamp::from_second(at(t).as_second() + minutes * 60).unwrap()
}

#[test]
fn a_time_in_any_gap_fires_once_right_after_it() {
    for (zone, before, time, fires) in GAPS {
        let s = schedule(&format!("{time} * * *"), zone);
        let tick = s.next_after(at(before)).unwrap();
        assert_eq!(tick, shifted(before, 1), "{zone}: at the change");
        assert_eq!(s.local(tick), fires, "{zone}");
        // Once: the next one is on the next day.
        let hours = (s.next_after(tick).unwrap().as_second() - tick.as_second()) / 3600;
        assert!((11..=25).contains(&hours), "{zone}: {hours} hours later");
        // Also for a replica that asks from long before, or has just taken over.
        let day = s.between(shifted(before, -600), shifted(before, 60), 9);
        assert_eq!(day.last(), Some(&tick), "{zone}");
    }
}

#[test]
fn a_fixed_time_in_any_overlap_fires_once() {
    for (zone, before, time, first) in OVERLAPS {
        let s = schedule(&format!("{time} * * *"), zone);
        let ticks = s.between(shifted(before, -180), shifted(before, 180), 9);
        let ticks: Vec<_> = ticks.into_iter().map(|t| s.local(t)).collect();
        assert_eq!(ticks, [first], "{zone}");
    }
}

#[test]
fn an_interval_keeps_elapsed_time_through_every_change() {
    let changes = GAPS.map(|(zone, before, ..)| (zone, before));
    let changes = changes
        .into_iter()
        .chain(OVERLAPS.map(|(zone, before, ..)| (zone, before)));
    for (zone, before) in changes {
        for (expr, minutes) in [("*/15 * * * *", 15), ("@every 20m", 20), ("*/5 * * * *", 5)] {
            let s = schedule(expr, zone);
            let ticks = s.between(shifted(before, -239), shifted(before, 241), usize::MAX);
            assert_eq!(ticks.len(), 480 / minutes, "{expr} in {zone}");
            let even = |pair: &[Timestamp]| {
                pair[1].as_second() - pair[0].as_second() == minutes as i64 * 60
            };
            assert!(ticks.windows(2).all(even), "{expr} in {zone}: {ticks:?}");
        }
    }
}

#[test]
fn what_is_odd_is_said_in_words() {
    let said = |expr: &str, zone: &str, after: &str| {
        let s = schedule(expr, zone);
        let tick = s.next_after(at(after)).unwrap();
        s.oddity(tick)
            .map(|odd| odd.to_string())
            .unwrap_or_default()
    };
    let berlin = |expr, after| said(expr, "Europe/Berlin", after);
    let (spring, autumn) = ("2027-03-28T00:59:00Z", "2026-10-25T00:10:00Z");
    assert_eq!(
        berlin("30 2 * * *", spring),
        "02:30 does not exist on 2027-03-28: fires at 03:00"
    );
    assert_eq!(
        berlin("15 30 2 * * *", spring),
        "02:30:15 does not exist on 2027-03-28: fires at 03:00"
    );
    assert_eq!(
        berlin("30 2 * * *", autumn),
        "02:30 comes twice on 2026-10-25: fires the first time only"
    );
    assert_eq!(
        berlin("*/30 * * * *", autumn),
        "02:30 comes twice on 2026-10-25: fires both times"
    );
    assert_eq!(
        said("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T15:29:00Z"),
        "02:15 does not exist on 2026-10-04: fires at 02:30"
    );
    // An interval goes on as it is; elsewhere nothing is odd.
    assert_eq!(berlin("*/30 * * * *", spring), "");
    assert_eq!(berlin("30 2 * * *", "2026-11-25T00:10:00Z"), "");
    assert_eq!(said("30 2 * * *", "UTC", spring), "");
    assert_eq!(berlin("@every 30m", autumn), "");
}

#[test]
fn a_tick_that_another_expression_names_as_it_is_is_not_odd() {
    let both = Definition {
        expressions: &["30 2 * * *".to_owned(), "*/30 * * * *".to_owned()],
        zone: Some("Europe/Berlin"),
        ..Definition::default()
    };
    let s = both.parse().unwrap();
    let tick = s.next_after(at("2027-03-28T00:59:00Z")).unwrap();
    assert_eq!(s.oddity(tick), None);
}

// === what users of other schedulers ran into ===

#[test]
fn a_change_of_the_clocks_neither_panics_nor_shifts_the_days_after_it() {
    // Elsewhere: a panic in the gap, or every run an hour off until a restart.
    for (zone, before, ..) in GAPS {
        let s = schedule("0 9 * * *", zone);
        let ticks = s.between(shifted(before, -3 * 1440), shifted(before, 5 * 1440), 99);
        assert!(ticks.len() >= 7, "{zone}");
        assert!(
            ticks
                .iter()
                .all(|t| s.local(*t).contains(" 09:00:00 ") || zone == "Pacific/Apia")
        );
    }
}

#[test]
fn a_job_that_fell_behind_goes_on_with_the_next_tick_from_now() {
    // Elsewhere: a repeated job stops for ever when its next tick lies in the past.
    let s = schedule("*/10 * * * * *", "Europe/Berlin");
    let late = at("2026-10-25T05:00:03.5Z");
    assert_eq!(s.next_after(late), Some(at("2026-10-25T05:00:10Z")));
    let last = at("2026-03-01T00:00:00Z");
    assert_eq!(s.latest_upto(last, late), Some(at("2026-10-25T05:00:00Z")));
}

#[test]
fn an_interval_has_the_same_ticks_whenever_a_replica_was_started() {
    // Elsewhere: intervals count from the start of each process, so that replicas never agree on a tick.
    let s = schedule("@every 7m", "UTC");
    let tick = at("2026-11-22T10:01:00Z");
    let all = (0..420).map(|secs| Timestamp::from_second(tick.as_second() - 1 - secs).unwrap());
    let next: std::collections::BTreeSet<_> = all.map(|t| s.next_after(t).unwrap()).collect();
    assert!(next.len() <= 2, "{next:?}");
    assert!(next.iter().all(|t| t.as_second() % 420 == 0));
}

#[test]
fn two_times_of_the_same_name_are_two_ticks_with_names_of_their_own() {
    // Elsewhere: a tick is named by local time, which comes twice when the clocks go back.
    let s = schedule("*/30 * * * *", "Europe/Berlin");
    let ticks = s.between(at("2026-10-24T23:59:00Z"), at("2026-10-25T01:59:00Z"), 9);
    let names: std::collections::BTreeSet<_> = ticks.iter().map(ToString::to_string).collect();
    assert_eq!((ticks.len(), names.len()), (4, 4));
}
