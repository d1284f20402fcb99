//! Hooks around the runs of whole replicas.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;

use super::acts::{Act, deaf, leader, ms};
use crate::{
    batch::{BatchJob, BatchLimits},
    event::Event,
    fleet::client::runs,
    job::{Hooks, JobError, Outcome, Run, RunEnd, RunHook, Spec},
    testing::cluster::Cluster,
    worker::ready::Body,
};

/// Begun and ended calls, and the last outcome.
type Calls = (u32, u32, &'static str);

/// Counts the calls for each run.
#[derive(Clone, Default)]
struct Count(Arc<Mutex<BTreeMap<String, Calls>>>);

#[async_trait]
impl RunHook for Count {
    async fn before(&self, run: &Run) -> Result<(), JobError> {
        let mut counted = self.0.lock().unwrap();
        counted.entry(run.id().to_owned()).or_default().0 += 1;
        Ok(())
    }

    async fn after(&self, run: &Run, end: &RunEnd) {
        let mut counted = self.0.lock().unwrap();
        let counted = counted.entry(run.id().to_owned()).or_default();
        counted.1 += 1;
        counted.2 = end.outcome;
    }
}

/// Never ends what it begins after a run.
struct Hangs;

#[async_trait]
impl RunHook for Hangs {
    async fn after(&self, _: &Run, _: &RunEnd) {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_hangs_is_dropped_in_time() {
    let mut fleet = Cluster::new(3);
    let count = Count::default();
    fleet.hooks = Hooks::new([Arc::new(count.clone()) as Arc<dyn RunHook>, Arc::new(Hangs)]);
    // A grace that alone would outlive the lease.
    let member = fleet.join(
        "a",
        deaf(),
        Spec::continuous().grace(Duration::from_secs(60)),
    );
    leader(&fleet, &[&member]).await;
    let (_, lease) = member.ctx.local_status.leases().remove(0);
    fleet.sleep(ms(50)).await;
    assert_eq!(lease.work_in_flight(), 1);
    fleet.nodes.iter().for_each(|n| n.faults().freeze());
    while lease.is_held() && lease.work_in_flight() > 0 {
        fleet.sleep(ms(1)).await;
    }
    assert!(lease.is_held(), "dropped before the lease has ended");
    assert_eq!(*member.aborts.lock().unwrap(), 0);
    let counted = count.0.lock().unwrap();
    let of_run = counted.values().next().unwrap();
    assert_eq!(*of_run, (1, 1, "cancelled"), "called all the same");
}

#[tokio::test(start_paused = true)]
async fn every_run_that_begins_is_seen_to_end_by_the_hooks() {
    let mut fleet = Cluster::new(3);
    let count = Count::default();
    fleet.hooks = Hooks::new([Arc::new(count.clone()) as Arc<dyn RunHook>]);
    let job = Act(|run: Run| {
        Box::pin(async move {
            match run.tick().as_second() % 4 {
                0 => panic!("a panic"),
                1 => Err(JobError::retry("a failure")),
                2 => {
                    run.cancelled().await;
                    Err(JobError::retry("stopped"))
                }
                _ => Ok(Outcome::Done),
            }
        }) as _
    });
    let spec = Spec::every(Duration::from_secs(1)).timeout(ms(300));
    let member = fleet.join("a", job, spec.retry(1));
    fleet.sleep(Duration::from_secs(20)).await;
    member.drain();
    member.ended().await;
    let counted = count.0.lock().unwrap();
    assert!(counted.len() >= 12, "{counted:?}");
    for (run, (before, after, outcome)) in &*counted {
        assert_eq!((*before, *after), (1, 1), "{run}: {outcome}");
    }
    for word in ["done", "failed", "panicked", "timeout"] {
        assert!(
            counted.values().any(|(.., outcome)| *outcome == word),
            "{word}: {counted:?}"
        );
    }
}

struct Cells(Mutex<Vec<String>>);

#[async_trait]
impl BatchJob for Cells {
    async fn pending(&self, _: usize) -> Result<Vec<String>, JobError> {
        Ok(self.0.lock().unwrap().clone())
    }

    async fn process(&self, batch: &str, _: Run) -> Result<Outcome, JobError> {
        self.0.lock().unwrap().retain(|cell| cell != batch);
        Ok(Outcome::Done)
    }

    fn limits(&self) -> BatchLimits {
        BatchLimits::default()
    }
}

#[tokio::test(start_paused = true)]
async fn batches_have_hooks_as_runs_have() {
    let mut fleet = Cluster::new(3);
    let count = Count::default();
    fleet.hooks = Hooks::new([Arc::new(count.clone()) as Arc<dyn RunHook>]);
    let cells = (0..10).map(|n| format!("cell-{n}")).collect();
    let body = Body::Batch(Arc::new(Cells(Mutex::new(cells))));
    let _member = fleet.join_with("a", vec![("cells", body, Spec::continuous())], false);
    fleet.sleep(Duration::from_secs(10)).await;
    let counted = count.0.lock().unwrap();
    assert_eq!(counted.len(), 10, "{counted:?}");
    assert!(
        counted.values().all(|counted| *counted == (1, 1, "done")),
        "{counted:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_wish_for_another_attempt_after_the_last_one_is_a_failure_in_the_history() {
    let fleet = Cluster::new(3);
    let job = Act(|_: Run| Box::pin(async { Ok(Outcome::RetryAfter(ms(100))) }) as _);
    let member = fleet.join("a", job, Spec::every(Duration::from_secs(30)).retry(2));
    let last = |e: &Event| matches!(e, Event::RunEnded { attempt: 2, .. });
    while !member.heard(last) {
        fleet.sleep(ms(20)).await;
    }
    fleet.sleep(Duration::from_secs(2)).await;
    let runs = runs::last(&member.ctx.locks, "job", 10).await.unwrap();
    let words: Vec<_> = runs.iter().map(|run| run.outcome.as_str()).collect();
    assert_eq!(words, ["retry", "failed"]);
    assert!(
        runs[1].detail.contains("the last one"),
        "{}",
        runs[1].detail
    );
    assert!(member.heard(|e| matches!(
        e,
        Event::RunEnded {
            outcome: "failed",
            attempt: 2,
            ..
        }
    )));
}
