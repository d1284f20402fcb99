use super::*;

mod offsets;
mod oracle;
mod properties;
mod terms;
mod timetable;
mod zones;

fn schedule(expr: &str, zone: &str) -> Schedule {
    Schedule::parse(expr, None, Some(zone)).unwrap()
}

/// Also one that depends on whose it is.
fn schedule_of(job: &str, expr: &str, zone: &str) -> Schedule {
    let definition = Definition {
        expressions: &[expr.to_owned()],
        zone: Some(zone),
        ..Definition::default()
    };
    definition.parse().unwrap().of_job(job, Duration::ZERO)
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The ticks in (`after`, `upto`], written in the zone's own time.
fn ticks(expr: &str, zone: &str, after: &str, upto: &str) -> Vec<String> {
    let tz = jiff::tz::TimeZone::get(zone).unwrap();
    let ticks = schedule(expr, zone).between(at(after), at(upto), 1000);
    ticks
        .into_iter()
        .map(|t| t.to_zoned(tz.clone()).strftime("%d %H:%M %:z").to_string())
        .collect()
}

fn error(expr: &str) -> String {
    Schedule::parse(expr, None, None).unwrap_err().to_string()
}

// === reading ===

#[test]
fn five_fields_start_with_the_minute_and_six_with_the_second() {
    let t = at("2026-03-01T00:00:00Z");
    let five = schedule("5 8 * * *", "UTC");
    assert_eq!(five.next_after(t), Some(at("2026-03-01T08:05:00Z")));
    let six = schedule("5 8 * * * *", "UTC");
    assert_eq!(six.next_after(t), Some(at("2026-03-01T00:08:05Z")));
    let seven = schedule("0 0 0 1 1 * 2030", "UTC");
    assert_eq!(seven.next_after(t), Some(at("2030-01-01T00:00:00Z")));
    assert_eq!(seven.next_after(at("2030-01-01T00:00:00Z")), None);
}

#[test]
fn names_of_schedules_mean_what_they_mean_in_crontab() {
    let t = at("2026-11-18T10:20:00Z"); // a Wednesday
    for (expr, next) in [
        ("@yearly", "2027-01-01T00:00:00Z"),
        ("@annually", "2027-01-01T00:00:00Z"),
        ("@monthly", "2026-12-01T00:00:00Z"),
        ("@weekly", "2026-11-22T00:00:00Z"),
        ("@daily", "2026-11-19T00:00:00Z"),
        ("@midnight", "2026-11-19T00:00:00Z"),
        ("@hourly", "2026-11-18T11:00:00Z"),
        ("@every 1h", "2026-11-18T11:00:00Z"),
        ("@every 90m", "2026-11-18T10:30:00Z"),
        ("@every 250ms", "2026-11-18T10:20:00.25Z"),
    ] {
        let schedule = schedule(expr, "UTC");
        assert_eq!(schedule.next_after(t), Some(at(next)), "{expr}");
        assert_eq!(schedule.to_string(), expr);
    }
    assert_eq!(schedule("continuous", "UTC").next_after(t), None);
    assert!(schedule("continuous", "UTC").is_continuous());
}

#[test]
fn crontab_takes_either_day_field_and_quartz_takes_both() {
    let t = at("2026-11-18T00:00:00Z");
    let next = |dialect| {
        let s = Schedule::parse("0 9 1 * Mon", Some(dialect), None).unwrap();
        s.next_after(t).unwrap().to_string()
    };
    assert_eq!(next(Dialect::Crontab), "2026-11-23T09:00:00Z");
    assert_eq!(next(Dialect::Quartz), "2027-02-01T09:00:00Z");
    // A field that starts with `*` restricts nothing by itself: both must match.
    let odd = schedule("0 9 */2 * Mon", "UTC");
    assert_eq!(odd.between(t, at("2026-12-08T00:00:00Z"), 9).len(), 2); // 23 and 7, not 30
}

#[test]
fn weekdays_are_counted_by_the_dialect() {
    let t = at("2026-11-18T00:00:00Z"); // a Wednesday
    let day = |expr, dialect| {
        let next = Schedule::parse(expr, dialect, None)
            .unwrap()
            .next_after(t)
            .unwrap();
        next.to_zoned(jiff::tz::TimeZone::UTC)
            .strftime("%a")
            .to_string()
    };
    assert_eq!(day("0 0 * * 0", None), "Sun");
    assert_eq!(day("0 0 * * 7", None), "Sun");
    assert_eq!(day("0 0 * * 2", None), "Tue");
    assert_eq!(day("0 0 0 * * 2", Some(Dialect::Crontab)), "Tue");
    assert_eq!(day("0 0 0 * * 2", Some(Dialect::Quartz)), "Mon");
    assert_eq!(day("0 0 * * tuesday", Some(Dialect::Quartz)), "Tue");
    // Ranges of names go round the week: Fri, Sat, Sun, Mon.
    for dialect in [Dialect::Crontab, Dialect::Quartz] {
        let s = Schedule::parse("0 0 * * Fri-Mon", Some(dialect), None).unwrap();
        assert_eq!(s.count(t, at("2026-11-25T00:00:00Z"), 99), 4);
    }
    let stepped = schedule("0 0 * * 5-7", "UTC");
    assert_eq!(stepped.count(t, at("2026-11-25T00:00:00Z"), 99), 3);
}

#[test]
fn a_weekday_number_beside_seconds_needs_the_dialect() {
    assert_eq!(
        error("0 0 8 * * 2"),
        "day of week \"2\": 2 means Tuesday in crontab, Monday in quartz; set dialect = \"crontab\" or \"quartz\", \
         or write the day's name"
    );
    assert!(error("0 0 8 * * 1-5 2027").contains("1 means Monday in crontab, Sunday in quartz"));
    assert!(error("0 0 8 * * 0").contains("0 means Sunday in crontab, nothing in quartz"));
    for fine in [
        "0 0 8 * * Mon-Fri",
        "0 0 8 * * *",
        "0 0 8 ? * */2",
        "0 8 * * 2",
    ] {
        assert!(Schedule::parse(fine, None, None).is_ok(), "{fine}");
    }
}

#[test]
fn errors_name_the_field_the_value_and_what_is_allowed() {
    for (expr, words) in [
        ("", "the schedule is empty"),
        ("61 * * * *", "minute \"61\": allowed are 0-59"),
        ("* 24 * * *", "hour \"24\": allowed are 0-23"),
        ("* * 0 * *", "day of month \"0\": allowed are 1-31"),
        ("* * * Foo *", "month \"Foo\": allowed are 1-12 or Jan-Dec"),
        (
            "* * * * 8",
            "day of week \"8\": allowed are 0-7 (0 and 7 are Sunday) or Mon-Sun",
        ),
        ("99 * * * * *", "second \"99\": allowed are 0-59"),
        ("0 0 0 1 1 * 1969", "year \"1969\": allowed are 1970-2100"),
        (
            "5-1 * * * *",
            "minute \"5-1\": a range runs from the smaller",
        ),
        (
            "*/90 * * * *",
            "minute \"*/90\": a step is a number from 1 to 59",
        ),
        ("1,,2 * * * *", "minute \"\": is empty"),
        (
            "0 0 L * *",
            "the extensions L, W, LW and # are not supported",
        ),
        (
            "0 0 * * 2#1",
            "the extensions L, W, LW and # are not supported",
        ),
        (
            "* * * *",
            "4 fields in \"* * * *\": a cron expression has 5",
        ),
        ("*", "1 field in"),
        ("hourly", "unknown schedule \"hourly\": known are @yearly"),
        ("@reboot", "unknown schedule \"@reboot\""),
        ("@daily 5", "unknown schedule \"@daily 5\""),
        ("@every", "@every \"\": "),
        (
            "@every 10ms",
            "allowed are durations from 100ms to 366 days",
        ),
        ("@every 5 bananas", "is not a duration such as"),
        ("0 0 30 2 *", "never matches"),
        ("0 0 31 4,6,9,11 *", "never matches"),
    ] {
        assert!(error(expr).contains(words), "{expr}: {}", error(expr));
    }
}

#[test]
fn an_unknown_zone_suggests_the_nearest() {
    let suggestion = |zone| match Schedule::parse("@daily", None, Some(zone)) {
        Err(ScheduleError::UnknownZone { suggestion, .. }) => suggestion.unwrap_or_default(),
        other => panic!("{other:?}"),
    };
    assert_eq!(suggestion("Europe/Berln"), "Europe/Berlin");
    assert_eq!(suggestion("Rome"), "Europe/Rome");
    assert_eq!(suggestion("New York"), "America/New_York");
    assert_eq!(suggestion("Middle-earth/Shire"), "");
}

// === where the clocks change ===

#[test]
fn a_time_in_the_gap_fires_once_right_after_it() {
    // Berlin, 29 March 2026: 02:00 +01 -> 03:00 +02.
    assert_eq!(
        ticks(
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T00:00:00Z",
            "2026-03-30T12:00:00Z"
        ),
        ["28 02:30 +01:00", "29 03:00 +02:00", "30 02:30 +02:00"]
    );
    assert_eq!(
        ticks(
            "0,20,40 2,3 * * *",
            "Europe/Berlin",
            "2026-03-29T00:00:00Z",
            "2026-03-29T02:00:00Z"
        ),
        ["29 03:00 +02:00", "29 03:20 +02:00", "29 03:40 +02:00"]
    );
    assert_eq!(
        ticks(
            "30 * * * *",
            "Europe/Berlin",
            "2026-03-29T00:00:00Z",
            "2026-03-29T01:59:00Z"
        ),
        ["29 01:30 +01:00", "29 03:00 +02:00", "29 03:30 +02:00"]
    );
    // New York, 8 March 2026: 02:00 -05 -> 03:00 -04. Lord Howe, 4 October 2026: 02:00 +10:30 -> 02:30 +11.
    assert_eq!(
        ticks(
            "0 2 * * *",
            "America/New_York",
            "2026-03-08T05:00:00Z",
            "2026-03-09T05:00:00Z"
        ),
        ["08 03:00 -04:00"]
    );
    assert_eq!(
        ticks(
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T00:00:00Z",
            "2026-10-05T00:00:00Z"
        ),
        ["04 02:30 +11:00", "05 02:15 +11:00"]
    );
}

#[test]
fn a_fixed_time_in_the_overlap_fires_in_the_first_pass_only() {
    // Berlin, 25 October 2026: 03:00 +02 -> 02:00 +01.
    assert_eq!(
        ticks(
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            "2026-10-26T12:00:00Z"
        ),
        ["25 02:30 +02:00", "26 02:30 +01:00"]
    );
    // Asked from within the second pass.
    assert_eq!(
        ticks(
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-25T01:10:00Z",
            "2026-10-25T12:00:00Z"
        ),
        Vec::<String>::new()
    );
    assert_eq!(
        ticks(
            "30 1 * * *",
            "America/New_York",
            "2026-11-01T00:00:00Z",
            "2026-11-02T12:00:00Z"
        ),
        ["01 01:30 -04:00", "02 01:30 -05:00"]
    );
    // Lord Howe, 5 April 2026: 02:00 +11 -> 01:30 +10:30.
    assert_eq!(
        ticks(
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2026-04-04T00:00:00Z",
            "2026-04-06T00:00:00Z"
        ),
        ["05 01:45 +11:00", "06 01:45 +10:30"]
    );
}

#[test]
fn repeating_times_keep_their_interval_through_the_overlap() {
    assert_eq!(
        ticks(
            "*/20 1-3 * * *",
            "Europe/Berlin",
            "2026-10-24T23:30:00Z",
            "2026-10-25T02:10:00Z"
        ),
        [
            "25 01:40 +02:00",
            "25 02:00 +02:00",
            "25 02:20 +02:00",
            "25 02:40 +02:00",
            "25 02:00 +01:00",
            "25 02:20 +01:00",
            "25 02:40 +01:00",
            "25 03:00 +01:00"
        ]
    );
    assert_eq!(
        ticks(
            "0 * * * *",
            "Australia/Lord_Howe",
            "2026-04-04T13:30:00Z",
            "2026-04-04T16:00:00Z"
        ),
        ["05 01:00 +11:00", "05 02:00 +10:30"]
    );
    // Hourly, by elapsed time, through both changes of the year.
    for (from, upto) in [
        ("2026-03-28T00:00:00Z", "2026-03-30T00:00:00Z"),
        ("2026-10-24T00:00:00Z", "2026-10-26T00:00:00Z"),
    ] {
        for zone in ["Europe/Berlin", "America/New_York", "UTC"] {
            assert_eq!(
                schedule("@hourly", zone).count(at(from), at(upto), 1000),
                48,
                "{zone}"
            );
        }
    }
}

#[test]
fn a_month_of_seconds_is_not_walked_through() {
    let s = schedule("* * * * * *", "Europe/Berlin");
    let (from, upto) = (at("2026-03-01T00:00:00Z"), at("2026-04-01T00:00:00.5Z"));
    assert_eq!(s.latest_upto(from, upto), Some(at("2026-04-01T00:00:00Z")));
    assert_eq!(s.latest(from, upto, 2)[0], at("2026-03-31T23:59:59Z"));
    assert_eq!(s.count(from, upto, 500), 500);
}
