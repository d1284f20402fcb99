//! What a day costs.

use watchkeeper::{DurationExt, Job, JobError, Outcome, Run, Spec, testing::Sim};

struct Quick;

#[async_trait::async_trait]
impl Job for Quick {
    async fn run(&self, _: Run) -> Result<Outcome, JobError> {
        tokio::time::sleep(200.millis()).await;
        Ok(Outcome::Done)
    }
}

#[test]
fn a_day_of_a_minute_job_is_over_in_seconds() {
    let began = std::time::Instant::now();
    let ran = Sim::new()
        .job("minute", |_| Quick, Spec::cron("* * * * *"))
        .run(|fleet| async move {
            fleet.advance(10.secs()).await;
            fleet.advance(24.hours()).await;
            fleet.assert_once_per_tick("minute");
            fleet.runs("minute").len()
        });
    eprintln!("a day in {:?}", began.elapsed());
    assert_eq!(ran, 1440);
}
