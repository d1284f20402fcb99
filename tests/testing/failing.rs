//! How failures read.

use std::panic::{AssertUnwindSafe, catch_unwind};

use watchkeeper::{
    DurationExt, Job, JobError, Outcome, Run, Spec,
    testing::{Fleet, Sim},
};

struct Fails;

#[async_trait::async_trait]
impl Job for Fails {
    async fn run(&self, run: Run) -> Result<Outcome, JobError> {
        match run.attempt() {
            1 => Err("the printer is out of paper".into()),
            _ => Ok(Outcome::Done),
        }
    }
}

/// What the simulation panics with.
fn said<F: Future<Output = ()>>(test: impl FnOnce(Fleet) -> F) -> String {
    let sim = Sim::new()
        .starting("2026-03-27T07:59:00[Europe/Rome]")
        .seed(17)
        .job(
            "report",
            |_| Fails,
            Spec::cron("0 8 * * *").zone("Europe/Rome").retry(2),
        );
    let failed = catch_unwind(AssertUnwindSafe(|| sim.run(test)));
    *failed
        .expect_err("it fails")
        .downcast::<String>()
        .expect("a text")
}

#[test]
fn a_failed_assertion_shows_the_difference_the_runs_and_how_to_repeat_it() {
    let text = said(|fleet| async move {
        fleet.advance(2.mins()).await;
        fleet.assert_runs("report", &["2026-03-27T09:00:00+01:00"]);
    });
    for expected in [
        "report was not run for the expected ticks\n",
        "  missing: 2026-03-27T09:00:00+01:00\n",
        "  too much: 2026-03-27T08:00:00+01:00\n",
        "tick 2026-03-27T08:00:00+01:00  attempt 1  r",
        "failed: the printer is out of paper\n",
        "tick 2026-03-27T08:00:00+01:00  attempt 2  r",
        "--- the simulation stood at 2026-03-27T07:01:00Z\n",
        " leads report under token ",
        "starts report, tick 2026-03-27T07:00:00Z, attempt 1\n",
        "seed 17; the same again: WATCHKEEPER_SIM_SEED=17 cargo test NAME_OF_THE_TEST\n",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in:\n{text}");
    }
}

#[test]
fn a_condition_that_does_not_come_names_its_place_and_its_limit() {
    let text = said(|fleet| async move {
        fleet
            .advance_until(|fleet| fleet.runs("report").len() > 9, 1.hours())
            .await;
    });
    assert!(text.contains("failing.rs:"), "{text}");
    assert!(
        text.contains("what was waited for has not come within 1h"),
        "{text}"
    );
}

#[test]
fn a_job_that_is_not_there_is_named() {
    let text = said(|fleet| async move {
        fleet.assert_once_per_tick("rapport");
    });
    assert!(
        text.contains("the fleet has no job \"rapport\"; its jobs: report"),
        "{text}"
    );
}
