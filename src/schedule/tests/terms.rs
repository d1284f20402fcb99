//! Several expressions, beginning and end, excluded days, delays.

use super::*;

fn of<'a>(
    expressions: &[&str],
    change: impl FnOnce(&mut Definition<'a>),
) -> Result<Schedule, String> {
    let mut definition = Definition {
        expressions: days(expressions).leak(),
        zone: Some("Europe/Berlin"),
        ..Definition::default()
    };
    change(&mut definition);
    definition.parse().map_err(|error| error.to_string())
}

fn days(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

/// The next ticks, as the zone writes them.
fn next(s: &Schedule, after: &str, count: usize) -> Vec<String> {
    let ticks = s.between(at(after), Timestamp::MAX, count);
    ticks.into_iter().map(|t| s.local(t)).collect()
}

#[test]
fn an_instant_that_two_expressions_name_is_one_tick() {
    let s = of(
        &["0 8 * * Mon-Fri", "0 10 * * Sat,Sun", "0 */4 * * Fri"],
        |_| {},
    );
    let s = s.unwrap();
    assert_eq!(
        s.to_string(),
        "0 8 * * Mon-Fri; 0 10 * * Sat,Sun; 0 */4 * * Fri"
    );
    assert_eq!(
        next(&s, "2026-11-19T12:00:00Z", 8),
        [
            "Fri 2026-11-20 00:00:00 +01:00",
            "Fri 2026-11-20 04:00:00 +01:00",
            "Fri 2026-11-20 08:00:00 +01:00",
            "Fri 2026-11-20 12:00:00 +01:00",
            "Fri 2026-11-20 16:00:00 +01:00",
            "Fri 2026-11-20 20:00:00 +01:00",
            "Sat 2026-11-21 10:00:00 +01:00",
            "Sun 2026-11-22 10:00:00 +01:00",
        ]
    );
}

#[test]
fn every_and_cron_go_together_and_words_without_ticks_stand_alone() {
    let s = of(&["@every 6h", "30 0 * * *"], |_| {}).unwrap();
    assert_eq!(
        next(&s, "2026-11-19T22:59:00Z", 3),
        [
            "Fri 2026-11-20 00:30:00 +01:00",
            "Fri 2026-11-20 01:00:00 +01:00",
            "Fri 2026-11-20 07:00:00 +01:00"
        ]
    );
    let mixed = of(&["@daily", "continuous"], |_| {}).unwrap_err();
    assert!(mixed.contains("\"continuous\" has no ticks"), "{mixed}");
    assert_eq!(of(&[], |_| {}).unwrap_err(), "the schedule is empty");
    let broken = of(&["@daily", "61 * * * *"], |_| {}).unwrap_err();
    assert!(broken.contains("minute \"61\""), "{broken}");
}

#[test]
fn months_and_weekdays_have_names_in_both_dialects() {
    let t = at("2026-11-18T00:00:00Z");
    for dialect in [Dialect::Crontab, Dialect::Quartz] {
        let first = |expr| {
            let s = Schedule::parse(expr, Some(dialect), None).unwrap();
            s.next_after(t).unwrap().to_string()
        };
        assert_eq!(first("0 8 * Jan-Mar,december Mon"), "2026-12-07T08:00:00Z");
        assert_eq!(first("0 8 * FEB *"), "2027-02-01T08:00:00Z");
        assert_eq!(first("0 0 8 ? Dec sunday 2026"), "2026-12-06T08:00:00Z");
        assert_eq!(first("0 8 * * Sat-Sun"), "2026-11-21T08:00:00Z");
    }
}

#[test]
fn one_tick_at_an_instant() {
    for (text, tick) in [
        ("at 2026-12-24T18:00", "2026-12-24T17:00:00Z"),
        (
            "at 2026-12-24T18:00[America/New_York]",
            "2026-12-24T23:00:00Z",
        ),
        ("at 2026-12-24T18:00:00Z", "2026-12-24T18:00:00Z"),
        ("at 2026-12-24T18:00:00+09:00", "2026-12-24T09:00:00Z"),
        // It does not exist: right after the gap.
        ("at 2027-03-28T02:30", "2027-03-28T01:00:00Z"),
        // It comes twice: the first time.
        ("at 2026-10-25T02:30", "2026-10-25T00:30:00Z"),
    ] {
        let s = of(&[text], |_| {}).unwrap();
        assert_eq!(
            s.next_after(at("2026-01-01T00:00:00Z")),
            Some(at(tick)),
            "{text}"
        );
        assert_eq!(s.next_after(at(tick)), None);
    }
    let wrong = of(&["at noon"], |_| {}).unwrap_err();
    assert!(
        wrong.contains("at \"noon\": write \"2026-12-24T18:00:00Z\""),
        "{wrong}"
    );
}

#[test]
fn a_manual_job_has_no_ticks() {
    let s = of(&["manual"], |_| {}).unwrap();
    assert_eq!(s.next_after(at("2026-01-01T00:00:00Z")), None);
    assert!(!s.has_ticks() && !s.is_continuous());
}

#[test]
fn ticks_lie_between_starting_and_until_both_ends_included() {
    let s = of(&["0 8 * * *"], |d| {
        d.starting = Some("2026-12-24T08:00");
        d.until = Some("2026-12-26T07:00:00Z");
    });
    let all = next(&s.unwrap(), "1970-01-01T00:00:00Z", 9);
    assert_eq!(all.len(), 3, "{all:?}");
    assert_eq!(all[0], "Thu 2026-12-24 08:00:00 +01:00");
    assert_eq!(all[2], "Sat 2026-12-26 08:00:00 +01:00");
}

#[test]
fn a_date_alone_means_its_whole_day() {
    let s = of(&["0 */12 * * *"], |d| {
        d.starting = Some("2026-12-24");
        d.until = Some("2026-12-24");
    });
    assert_eq!(
        next(&s.unwrap(), "1970-01-01T00:00:00Z", 9),
        [
            "Thu 2026-12-24 00:00:00 +01:00",
            "Thu 2026-12-24 12:00:00 +01:00"
        ]
    );
}

#[test]
fn until_before_starting_is_refused() {
    let error = of(&["@daily"], |d| {
        d.starting = Some("2027-01-01");
        d.until = Some("2026-12-24");
    });
    assert!(
        error
            .unwrap_err()
            .contains("\"2026-12-24\" comes before starting (\"2027-01-01\")")
    );
    let error = of(&["@daily"], |d| d.until = Some("soon"));
    assert!(error.unwrap_err().contains("\"soon\" is no time"));
}

#[test]
fn a_schedule_of_which_nothing_is_left_is_refused() {
    let error = of(&["0 0 1 * *"], |d| {
        d.starting = Some("2027-01-02");
        d.until = Some("2027-01-31");
    });
    assert!(
        error
            .unwrap_err()
            .contains("never fires: starting, until and except")
    );
    let week = days(&["Mon-Sun"]);
    let error = of(&["@every 1h"], |d| d.except = &week);
    assert!(error.unwrap_err().contains("never fires"));
}

#[test]
fn excluded_days_are_days_of_the_zone() {
    let except = days(&["2026-12-28", "12-24", "Sat-Sun", "friday"]);
    let s = of(&["30 0 * * *"], |d| d.except = &except).unwrap();
    // 00:30 in Berlin is still the day before in UTC.
    assert_eq!(
        next(&s, "2026-12-22T12:00:00Z", 3),
        [
            "Wed 2026-12-23 00:30:00 +01:00",
            "Tue 2026-12-29 00:30:00 +01:00",
            "Wed 2026-12-30 00:30:00 +01:00"
        ]
    );
    let s = of(&["@every 6h"], |d| d.except = &except).unwrap();
    assert_eq!(s.zone(), Some("Europe/Berlin"));
    assert_eq!(
        next(&s, "2026-12-23T19:00:00Z", 1),
        ["Tue 2026-12-29 01:00:00 +01:00"]
    );
    for wrong in ["Christmas", "12-32", "2026-02-30", "1-1", ""] {
        let except = days(&[wrong]);
        let error = of(&["@daily"], |d| d.except = &except).unwrap_err();
        assert!(
            error.contains("is no day: write a date"),
            "{wrong}: {error}"
        );
    }
}

#[test]
fn an_excluded_day_of_two_midnights_is_left_once() {
    // Havana goes back from 01:00 to 00:00 on 2026-11-01, Azores from 01:00 to 00:00 on 2026-10-25.
    for (zone, day) in [
        ("America/Havana", "2026-11-01"),
        ("Atlantic/Azores", "2026-10-25"),
    ] {
        let except = days(&[day]);
        let s = of(&["*/30 * * * *"], |d| {
            d.zone = Some(zone);
            d.except = &except;
        });
        let s = s.unwrap();
        let from = at(&format!("{day}T00:00:00Z")).as_second() - 86_400;
        let ticks = s.between(
            Timestamp::from_second(from).unwrap(),
            Timestamp::from_second(from + 4 * 86_400).unwrap(),
            usize::MAX,
        );
        assert_eq!(ticks.len(), 4 * 48 - 50, "{zone}: a day of 25 hours");
        assert!(ticks.iter().all(|t| !s.local(*t).contains(day)));
    }
}

#[test]
fn the_latest_tick_is_found_among_excluded_days() {
    let except = days(&["Sat-Sun", "12-24"]);
    let s = of(&["0 8 * * *", "@every 5h"], |d| {
        d.except = &except;
        d.until = Some("2026-12-30");
    });
    let s = s.unwrap();
    let (from, upto) = (at("2026-12-01T00:00:00Z"), at("2027-02-01T00:00:00Z"));
    let all = s.between(from, upto, usize::MAX);
    assert_eq!(s.latest_upto(from, upto), all.last().copied());
    assert_eq!(s.count(from, upto, u64::MAX), all.len() as u64);
    assert_eq!(s.latest(from, upto, 5), &all[all.len() - 5..]);
}

// === delays ===

#[test]
fn a_delay_is_the_same_everywhere_and_differs_from_job_to_job() {
    let delay = |job: &str, tick: &str| {
        let s = schedule("@daily", "UTC").of_job(job, Duration::from_secs(30));
        s.delay(at(tick))
    };
    let (one, other) = ("2026-11-22T00:00:00Z", "2026-11-23T00:00:00Z");
    // Written down: it must not change with a version of this program, or replicas of two versions would differ.
    assert_eq!(delay("report", one).as_millis(), WRITTEN.0);
    assert_eq!(delay("report", other).as_millis(), WRITTEN.1);
    assert_eq!(delay("mail", one).as_millis(), WRITTEN.2);
    let all: Vec<_> = (0..200)
        .map(|n| delay(&format!("job-{n}"), one).as_millis())
        .collect();
    for (from, upto) in [(0, 10_000), (10_000, 20_000), (20_000, 30_000)] {
        let some = all.iter().filter(|d| (from..upto).contains(*d)).count();
        assert!((45..90).contains(&some), "{some} of 200 in a third");
    }
    assert_eq!(schedule("@daily", "UTC").delay(at(one)), Duration::ZERO);
}

const WRITTEN: (u128, u128, u128) = (28_546, 18_538, 21_615);

#[test]
fn a_tick_is_not_due_before_its_delay_has_passed() {
    let s = schedule("@daily", "UTC").of_job("report", Duration::from_secs(3600));
    let tick = at("2026-11-22T00:00:00Z");
    let starts = s.starts(tick);
    assert!(starts > tick);
    assert!(s.due_upto(before(starts).unwrap()) < tick);
    assert_eq!(s.due_upto(starts), starts);
    assert_eq!(s.due_upto(before(tick).unwrap()), before(tick).unwrap());
    // The tick itself is where it was.
    assert_eq!(s.next_after(before(tick).unwrap()), Some(tick));
}

#[test]
fn the_shortest_interval_is_that_of_all_expressions() {
    let s = of(&["0 8 * * *", "15 8 * * Mon"], |_| {}).unwrap();
    let from = at("2026-01-01T00:00:00Z");
    assert_eq!(
        s.shortest_interval(from, 100),
        Some(Duration::from_secs(900))
    );
    assert_eq!(
        of(&["at 2027-01-01"], |_| {})
            .unwrap()
            .shortest_interval(from, 100),
        None
    );
}
