//! The code of the guide "Test your jobs", as it stands there.

use watchkeeper::{DurationExt, Job, JobError, Outcome, Run, Spec, testing, testing::Sim};

/// Writes twelve pages, a minute each.
struct Report;

#[async_trait::async_trait]
impl Job for Report {
    async fn run(&self, run: Run) -> Result<Outcome, JobError> {
        let done = run.checkpoint().and_then(|last| last.as_u64());
        for page in done.unwrap_or(0)..12 {
            run.check()?;
            tokio::time::sleep(1.mins()).await; // virtual: it takes no time
            run.save_checkpoint((page + 1).into()).await?;
        }
        Ok(Outcome::Done)
    }
}

#[test]
fn the_report_survives_its_leader() {
    let every_workday = Spec::cron("0 8 * * Mon-Fri").zone("Europe/Rome");
    Sim::new()
        .replicas(3)
        .starting("2026-03-27T07:59:00[Europe/Rome]")
        .job("report", |_replica| Report, every_workday)
        .run(|fleet| async move {
            fleet
                .advance_until(|fleet| fleet.is_running("report"), 5.mins())
                .await;
            fleet.advance(150.secs()).await;
            fleet.kill(fleet.leader("report").unwrap());
            fleet.advance(1.hours()).await;
            fleet.assert_runs("report", &["2026-03-27T08:00:00+01:00"]);
            assert_eq!(fleet.runs("report")[1].attempt, 2);
        });
}

#[tokio::test(start_paused = true)]
async fn a_second_attempt_goes_on_where_the_first_has_stopped() {
    let ran = testing::run(Report)
        .attempt(2)
        .checkpoint(10.into())
        .call()
        .await;
    assert_eq!(ran.outcome.unwrap(), Outcome::Done);
    assert_eq!(ran.checkpoints, [11, 12]);
}
