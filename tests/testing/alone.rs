//! One run without a fleet.

use watchkeeper::{DurationExt, Job, JobError, Outcome, Run, testing};

/// Copies as many rows as its parameters say, and goes on where the last attempt has stopped.
struct Copy;

#[async_trait::async_trait]
impl Job for Copy {
    async fn run(&self, run: Run) -> Result<Outcome, JobError> {
        let rows: u64 = run.params()?;
        let done = run.checkpoint().and_then(serde_json::Value::as_u64);
        for row in done.unwrap_or(0)..rows {
            run.check()?;
            tokio::time::sleep(1.secs()).await;
            run.save_checkpoint((row + 1).into()).await?;
            run.progress(row + 1, rows);
        }
        run.verify().await?;
        run.keep_output(format!("attempt {} for {}", run.attempt(), run.tick()));
        Ok(Outcome::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_alone_gets_what_the_test_gives_and_shows_what_it_left() {
    let ran = testing::run(Copy)
        .params(5.into())
        .attempt(2)
        .checkpoint(3.into())
        .tick("2026-03-27T08:00:00[Europe/Rome]")
        .call()
        .await;
    assert_eq!(ran.outcome.unwrap(), Outcome::Done);
    assert_eq!(ran.checkpoints, [4, 5]);
    assert_eq!(ran.progress, Some((5, 5)));
    assert_eq!(
        ran.output.as_deref(),
        Some("attempt 2 for 2026-03-27T07:00:00Z")
    );
    assert!(
        ran.took >= 2.secs() && ran.took < 3.secs(),
        "{:?}",
        ran.took
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_alone_can_be_told_to_stop() {
    let ran = testing::run(Copy)
        .params(60.into())
        .cancel_after(5500.millis())
        .call()
        .await;
    assert_eq!(
        ran.outcome.unwrap_err().to_string(),
        "stopped: the test stops it"
    );
    assert_eq!(ran.checkpoints.last(), Some(&6.into()));
    let ran = testing::run(Copy)
        .params(60.into())
        .timeout(3.secs())
        .without_lock()
        .call()
        .await;
    assert!(ran.stopped.contains("time limit"), "{}", ran.stopped);
}

struct Deaf;

#[async_trait::async_trait]
impl Job for Deaf {
    async fn run(&self, _: Run) -> Result<Outcome, JobError> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_alone_that_does_not_end_is_dropped_after_its_grace() {
    let ran = testing::run(Deaf)
        .cancel_after(1.mins())
        .grace(5.secs())
        .call()
        .await;
    let said = ran.outcome.unwrap_err().to_string();
    assert_eq!(
        said,
        "dropped: told to stop, it did not end within its grace of 5s"
    );
    assert!(ran.took >= 65.secs(), "{:?}", ran.took);
}
