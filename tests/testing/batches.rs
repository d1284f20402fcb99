//! Batches, failover pairs and single nodes.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use watchkeeper::{
    BatchJob, DurationExt, Job, JobError, Outcome, Run, Spec,
    testing::{self, Sim},
};

/// Letters that wait, for all replicas the same.
#[derive(Clone, Default)]
struct Letters(Arc<Mutex<BTreeSet<String>>>);

#[async_trait::async_trait]
impl BatchJob for Letters {
    async fn pending(&self, limit: usize) -> Result<Vec<String>, JobError> {
        let waiting = self.0.lock().unwrap();
        Ok(waiting.iter().take(limit).cloned().collect())
    }

    async fn process(&self, batch: &str, run: Run) -> Result<Outcome, JobError> {
        tokio::select! {
            biased;
            () = run.cancelled() => Err("stopped".into()),
            () = tokio::time::sleep(20.secs()) => {
                self.0.lock().unwrap().remove(batch);
                Ok(Outcome::Done)
            }
        }
    }
}

#[test]
fn batches_of_a_dead_replica_are_claimed_by_the_others() {
    let letters = Letters::default();
    letters
        .0
        .lock()
        .unwrap()
        .extend((0..9).map(|n| format!("letter-{n}")));
    let left = letters.clone();
    Sim::new()
        .batch_job("mail", move |_| letters.clone(), Spec::continuous())
        .run(|fleet| async move {
            fleet
                .advance_until(|fleet| fleet.is_running("mail"), 10.secs())
                .await;
            fleet.advance(5.secs()).await;
            let begun = fleet.batches("mail");
            let dead = begun[0].replica;
            fleet.kill(dead);
            fleet.advance(3.mins()).await;
            assert!(left.0.lock().unwrap().is_empty());
            let batches = fleet.batches("mail");
            let done = batches.iter().filter(|batch| batch.outcome == "done");
            assert_eq!(done.count(), 9, "{batches:?}");
            let again = batches.iter().find(|batch| batch.outcome == "interrupted");
            assert_eq!(again.expect("one died").replica, dead);
            fleet.assert_no_two_at_once("mail");
        });
}

#[tokio::test(start_paused = true)]
async fn one_batch_alone() {
    let letters = Letters::default();
    letters.0.lock().unwrap().insert("letter-1".to_owned());
    let ran = testing::batch(letters.clone(), "letter-1").call().await;
    assert_eq!(ran.outcome.unwrap(), Outcome::Done);
    assert!(letters.0.lock().unwrap().is_empty());
}

struct Quick;

#[async_trait::async_trait]
impl Job for Quick {
    async fn run(&self, _: Run) -> Result<Outcome, JobError> {
        Ok(Outcome::Done)
    }
}

#[test]
fn one_of_a_failover_pair_leads_every_job_over_a_single_node() {
    Sim::new()
        .replicas(2)
        .nodes(1)
        .failover()
        .job("a", |_| Quick, Spec::every(10.secs()))
        .job("b", |_| Quick, Spec::every(10.secs()))
        .run(|fleet| async move {
            fleet.advance(35.secs()).await;
            let first = fleet.leader("a").expect("a leader");
            assert_eq!(fleet.leader("b"), Some(first));
            fleet.kill(first);
            fleet.advance(1.mins()).await;
            let second = fleet.leader("a").expect("a leader");
            assert!(second != first && fleet.leader("b") == Some(second));
            fleet.assert_once_per_tick("a");
            fleet.assert_once_per_tick("b");
        });
}
