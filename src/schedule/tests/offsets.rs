//! `@every 1m offset 20s`, and an offset of the job's own.

use std::collections::BTreeMap;

use super::*;

fn first(job: &str, expr: &str) -> String {
    let next = schedule_of(job, expr, "UTC").next_after(at("2026-11-18T10:20:00Z"));
    next.unwrap().to_string()
}

#[test]
fn an_offset_moves_every_tick_by_as_much() {
    let s = schedule("@every 1m offset 20s", "UTC");
    let t = at("2026-11-18T10:20:00Z");
    assert_eq!(s.next_after(t), Some(at("2026-11-18T10:20:20Z")));
    assert_eq!(
        s.next_after(at("2026-11-18T10:20:20Z")),
        Some(at("2026-11-18T10:21:20Z"))
    );
    let (after, upto) = (t, at("2026-11-18T11:20:19.999Z"));
    assert_eq!(s.count(after, upto, 1000), 60);
    assert_eq!(s.latest_upto(after, upto), Some(at("2026-11-18T11:19:20Z")));
    assert_eq!(s.latest_upto(after, at("2026-11-18T10:20:19Z")), None);
    // Before the epoch as after it.
    let early = at("1969-12-31T23:59:50Z");
    assert_eq!(s.next_after(early), Some(at("1970-01-01T00:00:20Z")));
    assert_eq!(
        s.latest_upto(Timestamp::MIN, early),
        Some(at("1969-12-31T23:59:20Z"))
    );
    assert_eq!(s.to_string(), "@every 1m offset 20s");
    let written_otherwise = schedule("@every PT1M offset 0.5s", "UTC");
    assert_eq!(
        written_otherwise.next_after(t),
        Some(at("2026-11-18T10:20:00.5Z"))
    );
    let spaced = schedule("@every  1m 30s   offset  1m 1s ", "UTC");
    assert_eq!(
        spaced.next_after(Timestamp::UNIX_EPOCH),
        Some(at("1970-01-01T00:01:01Z"))
    );
}

#[test]
fn an_automatic_offset_is_a_function_of_the_name_and_the_period() {
    // These instants must never change: ledgers are decided up to them.
    assert_eq!(
        first("report", "@every 1m offset auto"),
        "2026-11-18T10:20:27.205Z"
    );
    assert_eq!(
        first("report-2", "@every 1m offset auto"),
        "2026-11-18T10:20:12.456Z"
    );
    assert_eq!(
        first("report", "@every 1h offset auto"),
        "2026-11-18T10:29:02.792Z"
    );
    let rome = schedule_of("report", "@every 1m offset auto", "Europe/Rome");
    let t = at("2026-11-18T10:20:00Z");
    assert_eq!(
        rome.next_after(t).unwrap().to_string(),
        first("report", "@every 1m offset auto")
    );
    // Asked again it stays, and a job has one place.
    let again = rome.clone().of_job("other", Duration::ZERO);
    assert_eq!(again.next_after(t), rome.next_after(t));
}

#[test]
fn automatic_offsets_fill_the_period_evenly() {
    let mut seconds: BTreeMap<i64, usize> = BTreeMap::new();
    for n in 0..6_000 {
        let s = schedule_of(&format!("job-{n}"), "@every 1m offset auto", "UTC");
        let tick = s.next_after(Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(tick.subsec_nanosecond() % 1_000_000, 0, "{tick}");
        *seconds.entry(tick.as_second() % 60).or_default() += 1;
    }
    assert_eq!(seconds.len(), 60);
    let (least, most) = (seconds.values().min(), seconds.values().max());
    assert!(least > Some(&60) && most < Some(&150), "{seconds:?}");
}

#[test]
fn jitter_delays_what_an_offset_has_moved_and_keeps_its_order() {
    let s = schedule_of("report", "@every 1m offset auto", "UTC");
    let delayed = s.clone().of_job("report", Duration::from_secs(59));
    for tick in delayed.between(Timestamp::UNIX_EPOCH, at("1970-01-01T01:00:00Z"), 100) {
        assert!(delayed.starts(tick) >= tick);
        assert!(delayed.starts(tick) < delayed.next_after(tick).unwrap());
        assert_eq!(
            s.next_after(before(tick).unwrap()),
            Some(tick),
            "its name stays"
        );
    }
}

#[test]
fn bounds_cut_off_ticks_with_an_offset() {
    let definition = Definition {
        expressions: &["@every 1h offset 30m".to_owned()],
        starting: Some("2026-11-18T10:00:00Z"),
        until: Some("2026-11-18T11:29:59Z"),
        ..Definition::default()
    };
    let s = definition.parse().unwrap();
    let all = s.between(Timestamp::UNIX_EPOCH, Timestamp::MAX, 9);
    assert_eq!(all, [at("2026-11-18T10:30:00Z")]);
}

#[test]
fn an_offset_that_is_none_is_refused_with_its_remedy() {
    for (expr, said) in [
        (
            "@every 1m offset",
            "write \"offset auto\" for one of the job's own",
        ),
        (
            "@every 1m offset 1m",
            "an offset is shorter than the time between two ticks",
        ),
        (
            "@every 1m offset 2h",
            "an offset is shorter than the time between two ticks",
        ),
        ("@every 1m offset -5s", "is not a duration such as"),
        (
            "@every 1m offset 5s offset auto",
            "is not a duration such as",
        ),
        ("@every 1m offset AUTO", "is not a duration such as"),
        (
            "@every 1m offset 99999999999999999999s",
            "is not a duration such as",
        ),
        ("@every offset auto", "is not a duration such as"),
        ("@every 1m auto", "is not a duration such as"),
        (
            "@every 50ms offset auto",
            "allowed are durations from 100ms",
        ),
        (
            "@every 1m offset auto",
            "an automatic offset is that of a job, by its name",
        ),
    ] {
        let error = error(expr);
        assert!(error.contains(said), "{expr}: {error}");
    }
}
