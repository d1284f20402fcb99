//! Keys without effect, and jobs that cannot do what they say.

use std::{future::pending, sync::Arc};

use futures_util::future::BoxFuture;
use jiff::Timestamp;

use super::*;
use crate::clock::{Clock, Moment, TimeSource};

/// A clock that shows one time.
struct Stopped(Timestamp);

impl TimeSource for Stopped {
    fn now(&self) -> Moment {
        Moment::ZERO
    }
    fn wall(&self) -> Timestamp {
        self.0
    }
    fn sleep_until(&self, _: Moment) -> BoxFuture<'static, ()> {
        Box::pin(pending())
    }
}

impl Setup {
    fn at(mut self, time: &str) -> Self {
        self.options.clock = Some(Clock::new(Stopped(time.parse().unwrap())));
        self
    }

    fn work(mut self, work: WorkFacts) -> Self {
        self.options.work_of = Some(Arc::new(move |_: &str, _: &Spec| Some(work)));
        self
    }
}

/// A job of a stock kind; these lines begin with the third one.
fn job(lines: &str) -> Setup {
    Setup::file(&format!("[jobs.a]\nkind = \"heartbeat\"\n{lines}"))
}

/// The one warning; the configuration loads.
#[track_caller]
fn warned(setup: &Setup) -> String {
    let line = setup.problem();
    assert!(line.contains("warning: "), "{line}");
    setup.loaded();
    line
}

const FAILOVER: &str = "\n[worker]\nmode = \"failover\"";

#[test]
fn keys_about_ticks_of_a_job_without_ticks_have_no_effect() {
    for schedule in ["manual", "continuous"] {
        for (key, value) in [
            ("starting", "\"2026-12-01\""),
            ("until", "\"2026-12-01\""),
            ("except", "[\"Sun\"]"),
            ("jitter", "\"30s\""),
            ("dialect", "\"quartz\""),
            ("zone", "\"Europe/Rome\""),
            ("misfire", "\"skip\""),
            ("misfire_limit", "3"),
            ("misfire_window", "\"1h\""),
        ] {
            let line = warned(&job(&format!("schedule = \"{schedule}\"\n{key} = {value}")));
            let end = format!(
                "warning: jobs.a.{key}: it has no effect: {schedule} has no ticks; leave {key} out"
            );
            assert!(line.starts_with("watchkeeper.toml:4:"), "{line}");
            assert!(line.ends_with(&end), "{line}");
        }
    }
    // These matter to triggers and services, too.
    let lines = "retry = 5\ninterrupted = \"skip\"\ntimeout = \"1m\"";
    for schedule in ["manual", "continuous"] {
        let setup = job(&format!("schedule = \"{schedule}\"\n{lines}"));
        assert_eq!(setup.lines(), [""; 0]);
    }
}

#[test]
fn what_no_rule_for_late_ticks_asks_for_is_told() {
    for (lines, expected) in [
        (
            "misfire = \"skip\"\nmisfire_window = \"1h\"",
            "5:18: warning: jobs.a.misfire_window: it has no effect: with misfire = \"skip\" no late tick runs; \
             leave misfire_window out, or write",
        ),
        (
            "misfire = \"skip\"\nmisfire_limit = 3",
            "5:17: warning: jobs.a.misfire_limit: it has no effect: with misfire = \"skip\" no late tick runs",
        ),
        (
            "misfire_limit = 3",
            "4:17: warning: jobs.a.misfire_limit: it has no effect: with misfire = \"once\" one tick runs for all \
             late ones; leave misfire_limit out, or write misfire = \"all\"",
        ),
    ] {
        let line = warned(&job(&format!("schedule = \"@daily\"\n{lines}")));
        assert!(line.contains(expected), "{line}");
    }
    for lines in [
        "misfire_window = \"1h\"",
        "misfire = \"all\"\nmisfire_limit = 3\nmisfire_window = \"1h\"",
        // What fell due behind a dead run goes by them whatever misfire says.
        "overlap = \"queue\"\nmisfire = \"skip\"\nmisfire_limit = 3\nmisfire_window = \"1h\"",
        // A replica remembers its ticks for as long as it lives.
        "coordination = \"everywhere\"\nmisfire = \"all\"\nmisfire_limit = 3\ninterrupted = \"skip\"",
    ] {
        let setup = job(&format!("schedule = \"@daily\"\n{lines}"));
        assert_eq!(setup.lines(), [""; 0], "{lines}");
    }
}

#[test]
fn a_term_is_nothing_to_a_job_that_nobody_leads_for_long() {
    for key in ["min_term", "max_term"] {
        // Too short for a leader as well: that is not the point here.
        for (lines, why) in [
            (
                "schedule = \"@daily\"\ncoordination = \"tick\"",
                "a tick's work takes",
            ),
            (
                "schedule = \"@daily\"\ncoordination = \"everywhere\"",
                "this job has no sole leader",
            ),
            (
                "schedule = \"continuous\"\ncoordination = \"batch\"",
                "this job has no sole leader",
            ),
        ] {
            let line = warned(&job(&format!("{lines}\n{key} = \"2s\"")));
            let start = format!("watchkeeper.toml:5:12: warning: jobs.a.{key}: it has no effect");
            assert!(line.starts_with(&start) && line.contains(why), "{line}");
        }
        let failover = job(&format!("schedule = \"@daily\"\n{key} = \"2s\"{FAILOVER}"));
        assert!(warned(&failover).contains("it has no effect"));
    }
    let led = job("schedule = \"@daily\"\nmin_term = \"2m\"\nmax_term = \"1h\"");
    assert_eq!(led.lines(), [""; 0]);
}

#[test]
fn attempts_and_pauses_that_nobody_counts_are_told() {
    let batch = "schedule = \"continuous\"\ncoordination = \"batch\"";
    let line = warned(&job(&format!("{batch}\nretry = 7")));
    assert!(
        line.contains("5:9: warning: jobs.a.retry.attempts: it has no effect: a batch that fails"),
        "{line}"
    );
    let line = warned(&job(&format!("{batch}\ninterrupted = \"skip\"")));
    assert!(line.contains("claimed by another one"), "{line}");
    let pauses = job(&format!(
        "{batch}\nretry = {{ backoff = \"2s\", max_backoff = \"5m\" }}"
    ));
    assert_eq!(pauses.lines(), [""; 0]);
    let once = job("schedule = \"@daily\"\nretry = { attempts = 1, backoff = \"2s\" }");
    let line = warned(&once);
    assert!(
        line.contains("jobs.a.retry.backoff: it has no effect: with one attempt"),
        "{line}"
    );
}

#[test]
fn a_deadline_for_progress_wants_a_job_that_tells_some() {
    let silent = WorkFacts {
        tells_nothing: true,
        ..WorkFacts::default()
    };
    let setup = || job("schedule = \"@daily\"\nprogress_deadline = \"5m\"");
    for mode in ["", FAILOVER] {
        let line = warned(
            &job(&format!(
                "schedule = \"@daily\"\nprogress_deadline = \"5m\"{mode}"
            ))
            .work(silent),
        );
        assert!(
            line.contains("4:21: warning: jobs.a.progress_deadline: jobs of the kind \"heartbeat\" tell no progress")
                && line.ends_with("; write timeout instead"),
            "{line}"
        );
    }
    assert_eq!(setup().work(WorkFacts::default()).lines(), [""; 0]);
    assert_eq!(setup().lines(), [""; 0], "it is unknown");
    let line = warned(&job(
        "schedule = \"@daily\"\nprogress_deadline = \"5m\"\ntimeout = \"5m\"",
    ));
    assert!(
        line.contains("it has no effect: a run is over after its timeout (5m)"),
        "{line}"
    );
    let longer = job("schedule = \"@daily\"\nprogress_deadline = \"5m\"\ntimeout = \"6m\"");
    assert_eq!(longer.lines(), [""; 0]);
}

#[test]
fn ways_to_read_what_is_not_written_have_no_effect() {
    for (lines, expected) in [
        (
            "schedule = \"@daily\"\ndialect = \"quartz\"",
            "4:11: warning: jobs.a.dialect: it has no effect: no weekday is given by its number here",
        ),
        (
            "schedule = \"@every 24h\"\nzone = \"Europe/Rome\"",
            "4:8: warning: jobs.a.zone: it moves no tick: \"@every\" counts from 1970 in UTC",
        ),
    ] {
        let line = warned(&job(lines));
        assert!(line.contains(expected), "{line}");
    }
    for lines in [
        "schedule = [\"@daily\", \"0 8 * * 1\"]\ndialect = \"quartz\"",
        "schedule = \"@daily\"\nzone = \"Europe/Rome\"",
        "schedule = \"@every 1h\"\nzone = \"Europe/Rome\"\nexcept = [\"Sun\"]",
    ] {
        assert_eq!(job(lines).lines(), [""; 0], "{lines}");
    }
}

#[test]
fn what_runs_everywhere_runs_on_the_active_replica_alone_in_failover_mode() {
    let everywhere = "schedule = \"@daily\"\ncoordination = \"everywhere\"";
    assert_eq!(job(everywhere).lines(), [""; 0]);
    let line = warned(&job(&format!("{everywhere}{FAILOVER}")));
    assert!(
        line.contains(
            "4:16: warning: jobs.a.coordination: in failover mode the active replica alone"
        ),
        "{line}"
    );
}

#[test]
fn a_job_that_nothing_can_start_is_an_error() {
    let line = job("schedule = \"manual\"\ncoordination = \"everywhere\"").problem();
    assert!(
        line.contains("3:12: jobs.a.schedule: nothing would ever start it")
            && line.contains("; write a schedule with ticks, or coordination = \"leader\""),
        "{line}"
    );
    assert_eq!(
        job("schedule = \"manual\"\ncoordination = \"tick\"").lines(),
        [""; 0]
    );
}

#[test]
fn work_that_does_not_fit_its_coordination_is_an_error() {
    let batches = |batches| WorkFacts {
        batches,
        ..WorkFacts::default()
    };
    let led = job("schedule = \"continuous\"").work(batches(true));
    let line = led.problem();
    assert!(
        line.contains("2:8: jobs.a.coordination: its work comes in batches")
            && line.contains("write coordination = \"batch\""),
        "{line}"
    );
    let claimed = || job("schedule = \"continuous\"\ncoordination = \"batch\"");
    let line = claimed().work(batches(false)).problem();
    assert!(
        line.contains("4:16: jobs.a.coordination: its work does not come in batches"),
        "{line}"
    );
    assert_eq!(claimed().work(batches(true)).lines(), [""; 0]);
    assert_eq!(claimed().lines(), [""; 0], "it is unknown");
}

#[test]
fn a_job_without_a_tick_ahead_is_told_with_the_date() {
    let now = "2026-11-22T06:00:00Z";
    for (lines, expected) in [
        (
            "schedule = \"at 2026-11-21T18:00\"\nzone = \"Europe/Rome\"",
            "3:12: warning: jobs.a.schedule: it has passed: no tick lies ahead, the last one was \
             Sat 2026-11-21 18:00:00 +01:00; write a later time, \"manual\" to keep the job for triggers, or enabled = false",
        ),
        (
            "schedule = \"0 0 8 * * Mon 2025\"",
            "jobs.a.schedule: it has passed: no tick lies ahead, the last one was Mon 2025-12-29 08:00:00 +00:00",
        ),
        (
            "schedule = \"@daily\"\nuntil = \"2026-11-20\"",
            "4:9: warning: jobs.a.until: \"2026-11-20\" has passed: no tick lies ahead, the last one was \
             Fri 2026-11-20 00:00:00 +00:00; write a later time, or enabled = false",
        ),
        (
            "schedule = \"at 2026-11-01\"\nuntil = \"2026-11-20\"",
            "3:12: warning: jobs.a.schedule: it has passed",
        ),
    ] {
        let line = warned(&job(lines).at(now));
        assert!(line.contains(expected), "{line}");
    }
    for lines in [
        "schedule = [\"at 2026-11-01\", \"at 2027-01-01\"]",
        "schedule = \"@daily\"\nuntil = \"2026-11-23\"",
        "schedule = \"@daily\"\nstarting = \"2020-01-01\"",
        "schedule = \"at 2026-11-01\"\nenabled = false",
    ] {
        assert_eq!(job(lines).at(now).lines(), [""; 0], "{lines}");
    }
    // Its start is still ahead.
    let delayed = job("schedule = \"at 2026-11-22T06:00\"\njitter = \"9h\"");
    assert_eq!(delayed.at(now).lines(), [""; 0]);
    // What time it is is not known.
    assert_eq!(job("schedule = \"at 2020-01-01\"").lines(), [""; 0]);
}
