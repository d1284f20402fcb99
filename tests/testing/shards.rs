//! One definition, many jobs: shards.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use watchkeeper::{DurationExt, Job, JobError, Outcome, Run, Spec, testing::Sim};

const SHARDS: usize = 6;

/// Which shards of each tick were done.
#[derive(Clone, Default)]
struct Parts(Arc<Mutex<BTreeMap<String, Vec<usize>>>>);

#[async_trait::async_trait]
impl Job for Parts {
    async fn run(&self, run: Run) -> Result<Outcome, JobError> {
        let facts = run.facts();
        assert_eq!(
            (facts.shards, facts.job.clone()),
            (SHARDS, format!("reminders.{}", facts.shard))
        );
        tokio::time::sleep(200.millis()).await;
        let mut parts = self.0.lock().unwrap();
        parts
            .entry(run.tick().to_string())
            .or_default()
            .push(facts.shard);
        Ok(Outcome::Done)
    }
}

fn sim(parts: &Parts) -> Sim {
    let parts = parts.clone();
    let spec = Spec::every(10.secs()).shards(SHARDS);
    Sim::new().job("reminders", move |_| parts.clone(), spec)
}

fn shard(number: usize) -> String {
    format!("reminders.{number}")
}

#[test]
fn every_shard_does_its_part_of_each_tick_once_also_when_a_replica_dies() {
    let parts = Parts::default();
    sim(&parts).run(|fleet| async move {
        fleet.advance(65.secs()).await;
        fleet.kill(fleet.leader(&shard(0)).unwrap());
        fleet.advance(2.mins()).await;
        fleet.assert_once_per_tick("reminders");
        fleet.assert_once_per_tick("reminders.3");
        let parts = parts.0.lock().unwrap().clone();
        let whole = |shards: &&Vec<usize>| shards.iter().collect::<BTreeSet<_>>().len() == SHARDS;
        assert!(
            parts.values().all(|shards| shards.len() <= SHARDS),
            "{parts:?}"
        );
        // All but those around the death, which are made up for by one.
        assert!(parts.values().filter(whole).count() >= 15, "{parts:?}");
    });
}

#[test]
fn shards_are_commanded_together_by_their_jobs_name_and_alone_by_their_own() {
    let parts = Parts::default();
    sim(&parts).run(|fleet| async move {
        fleet.advance(25.secs()).await;
        let runs = |job: &str| fleet.runs(job).len();
        fleet.pause("reminders").await;
        let before = runs("reminders");
        fleet.advance(30.secs()).await;
        assert_eq!(runs("reminders"), before, "all are paused");
        let trigger = fleet.trigger("reminders").await;
        let done = fleet.triggered(&trigger, 20.secs()).await;
        assert_eq!(done.outcome, "done", "{done:?}");
        assert_eq!(
            runs("reminders"),
            before + SHARDS,
            "a person asked for one of each"
        );
        fleet.resume("reminders").await;
        fleet.pause("reminders.2").await;
        let (all, one) = (runs("reminders"), runs("reminders.2"));
        fleet.advance(30.secs()).await;
        assert_eq!(runs("reminders.2"), one);
        assert_eq!(runs("reminders"), all + 3 * (SHARDS - 1));
        fleet.resume("reminders").await;
        fleet.advance(10.secs()).await;
        assert!(
            runs("reminders.2") > one,
            "the pause of one ends with that of all"
        );
        fleet.assert_once_per_tick("reminders");
    });
}

#[test]
fn shards_with_automatic_offsets_are_due_one_after_another() {
    let parts = Parts::default();
    let of = parts.clone();
    let spec = Spec::on("@every 10s offset auto").shards(SHARDS);
    let sim = Sim::new().job("reminders", move |_| of.clone(), spec);
    sim.run(|fleet| async move {
        fleet.advance(60.secs()).await;
        assert!(
            parts
                .0
                .lock()
                .unwrap()
                .values()
                .all(|shards| shards.len() == 1)
        );
        fleet.assert_once_per_tick("reminders");
    });
}
