//! A job as users write them, through what happens to fleets.

use std::sync::{Arc, Mutex};

use watchkeeper::{
    DurationExt, Job, JobError, Outcome, Run, Spec,
    fleet::TriggerState,
    testing::{Fleet, Replica, Sim},
};

/// Writes pages, ten seconds each, and goes on where the last attempt has stopped.
struct Report {
    written: Archive,
}

/// Where the pages go: it outlives the processes.
#[derive(Clone, Default)]
struct Archive(Arc<Mutex<Vec<(u64, u64)>>>);

impl Archive {
    fn pages(&self) -> Vec<u64> {
        self.0
            .lock()
            .unwrap()
            .iter()
            .map(|(page, _)| *page)
            .collect()
    }
}

#[async_trait::async_trait]
impl Job for Report {
    async fn run(&self, run: Run) -> Result<Outcome, JobError> {
        let done = run.checkpoint().and_then(|last| last["done"].as_u64());
        for page in done.unwrap_or(0)..6 {
            run.check()?;
            tokio::time::sleep(10.secs()).await;
            self.written.0.lock().unwrap().push((page, run.token().0));
            run.save_checkpoint(serde_json::json!({ "done": page + 1 }))
                .await?;
            run.progress(page + 1, 6);
        }
        run.keep_output("six pages");
        Ok(Outcome::Done)
    }
}

fn workdays() -> Spec {
    Spec::cron("0 8 * * Mon-Fri").zone("Europe/Rome")
}

fn reports(archive: &Archive) -> Sim {
    let written = archive.clone();
    let make = move |_: Replica| Report {
        written: written.clone(),
    };
    Sim::new()
        .starting("2026-03-27T07:59:00[Europe/Rome]")
        .job("report", make, workdays())
}

fn leader(fleet: &Fleet) -> Replica {
    fleet.leader("report").expect("somebody leads")
}

#[test]
fn a_killed_run_is_interrupted_and_the_next_attempt_finds_its_checkpoint() {
    let archive = Archive::default();
    reports(&archive).run(|fleet| async move {
        fleet
            .advance_until(|fleet| fleet.is_running("report"), 2.mins())
            .await;
        fleet.advance(25.secs()).await;
        let first = leader(&fleet);
        fleet.kill(first);
        assert!(!fleet.is_running("report"));
        fleet.advance(5.mins()).await;
        fleet.assert_runs("report", &["2026-03-27T08:00:00+01:00"]);
        let runs = fleet.runs("report");
        assert_eq!(runs.len(), 2, "{runs:?}");
        assert_eq!(
            (runs[0].attempt, runs[0].outcome.as_str()),
            (1, "interrupted")
        );
        assert_eq!((runs[1].attempt, runs[1].outcome.as_str()), (2, "done"));
        assert_eq!(runs[1].output.as_deref(), Some("six pages"));
        assert!(
            runs[1].token > runs[0].token,
            "a later holder has a larger token"
        );
        assert_ne!(runs[1].replica_name, first.to_string());
        // Its page in flight was lost, the two before it were not written again.
        assert_eq!(archive.pages(), [0, 1, 2, 3, 4, 5]);
        fleet.start(first);
        fleet.advance(1.mins()).await;
        assert!(fleet.is_up(first));
    });
}

#[test]
fn a_tick_keeps_its_hour_when_clocks_change() {
    // The night to Sunday 29 March has no hour from two to three.
    let archive = Archive::default();
    let make = move |_: Replica| Report {
        written: archive.clone(),
    };
    Sim::new()
        .starting("2026-03-28T07:59:00[Europe/Rome]")
        // Long leases make a long story cheap.
        .ttl(1.mins())
        .job("report", make, Spec::cron("0 8 * * *").zone("Europe/Rome"))
        .run(|fleet| async move {
            fleet.advance(24.hours()).await;
            fleet.assert_runs(
                "report",
                &[
                    "2026-03-28T08:00:00+01:00",
                    "2026-03-29T08:00:00[Europe/Rome]",
                ],
            );
        });
}

#[test]
fn a_leader_that_stops_lets_its_run_end_and_hands_over() {
    reports(&Archive::default())
        .drain_timeout(2.mins())
        .run(|fleet| async move {
            fleet
                .advance_until(|fleet| fleet.is_running("report"), 2.mins())
                .await;
            let first = leader(&fleet);
            fleet.stop(first);
            fleet
                .advance_until(|fleet| !fleet.is_up(first), 2.mins())
                .await;
            fleet.assert_runs("report", &["2026-03-27T08:00:00+01:00"]);
            fleet
                .advance_until(|fleet| fleet.leader("report").is_some(), 5.secs())
                .await;
            assert_ne!(leader(&fleet), first);
        });
}

#[test]
fn a_frozen_leader_is_replaced_and_a_partitioned_one_stops() {
    reports(&Archive::default()).run(|fleet| async move {
        fleet.advance(5.secs()).await;
        let first = leader(&fleet);
        fleet.freeze(first, 1.mins());
        fleet
            .advance_until(
                |fleet| fleet.leader("report").is_some_and(|it| it != first),
                30.secs(),
            )
            .await;
        let second = leader(&fleet);
        fleet
            .advance_until(|fleet| fleet.is_running("report"), 2.mins())
            .await;
        fleet.partition(second);
        fleet
            .advance_until(
                |fleet| fleet.leader("report").is_some_and(|it| it != second),
                30.secs(),
            )
            .await;
        fleet.advance(2.mins()).await;
        fleet.heal(second);
        fleet.advance(10.secs()).await;
        fleet.assert_runs("report", &["2026-03-27T08:00:00+01:00"]);
        fleet.assert_no_two_at_once("report");
        assert_eq!(fleet.runs("report").len(), 2);
    });
}

#[test]
fn a_wrong_wall_clock_and_a_lost_node_change_nothing() {
    for nodes in [3, 5] {
        reports(&Archive::default())
            .nodes(nodes)
            .run(|fleet| async move {
                for replica in fleet.replicas() {
                    fleet.clock_ahead(replica, 2.hours());
                }
                fleet.lose_node(1);
                fleet.advance(50.secs()).await;
                assert!(
                    fleet.runs("report").is_empty(),
                    "by the nodes it is not eight yet"
                );
                fleet.restart_node_empty(1);
                fleet.advance(2.mins()).await;
                fleet.assert_runs("report", &["2026-03-27T08:00:00+01:00"]);
            });
    }
}

#[test]
fn a_trigger_runs_once_and_a_paused_job_not_at_all() {
    reports(&Archive::default()).run(|fleet| async move {
        fleet.pause("report").await;
        fleet.advance(10.mins()).await;
        fleet.assert_runs("report", &[]);
        fleet.resume("report").await;
        let trigger = fleet.trigger("report").await;
        let ended = fleet.triggered(&trigger, 5.mins()).await;
        assert_eq!(
            (ended.state, ended.outcome.as_str()),
            (TriggerState::Ended, "done")
        );
        let runs = fleet.runs("report");
        assert_eq!(runs.len(), 1);
        assert_eq!(runs[0].run_id, ended.run_id);
        let first = leader(&fleet);
        let next = fleet.resign("report", None).await.expect("a successor");
        assert_ne!(first, next);
    });
}

#[test]
fn a_seed_tells_the_same_story_again() {
    let story = |seed| {
        reports(&Archive::default())
            .seed(seed)
            .run(|fleet| async move {
                fleet.advance(90.secs()).await;
                fleet.kill(leader(&fleet));
                fleet.advance(1.mins()).await;
                format!("{:?}", fleet.events())
            })
    };
    assert_eq!(story(3), story(3));
    assert_ne!(story(3), story(4));
}

#[test]
fn a_fleet_that_was_stopped_for_a_weekend_makes_up_for_the_last_tick() {
    let archive = Archive::default();
    let written = archive.clone();
    let make = move |_: Replica| Report {
        written: written.clone(),
    };
    let nightly = Spec::cron("30 2 * * *").zone("Europe/Rome");
    let sim = Sim::new().starting("2026-04-03T12:00:00[Europe/Rome]");
    sim.job("report", make, nightly).run(|fleet| async move {
        // It is known, and nothing of it has ever run.
        fleet.advance(1.mins()).await;
        for replica in fleet.replicas() {
            fleet.stop(replica);
        }
        // Longer than what a lock remembers of its last holder.
        fleet.advance(72.hours()).await;
        for replica in fleet.replicas() {
            fleet.start(replica);
        }
        fleet.advance(5.mins()).await;
        fleet.assert_runs("report", &["2026-04-06T02:30:00+02:00"]);
    });
}

/// Takes longer than the time between two ticks.
struct Slow;

#[async_trait::async_trait]
impl Job for Slow {
    async fn run(&self, _: Run) -> Result<Outcome, JobError> {
        tokio::time::sleep(90.secs()).await;
        Ok(Outcome::Done)
    }
}

#[test]
fn runs_that_may_go_on_beside_each_other_are_no_fault() {
    let twice = Spec::cron("* * * * *").concurrency(2);
    let sim = Sim::new().job("slow", |_| Slow, twice);
    sim.run(|fleet| async move {
        fleet.advance(10.mins()).await;
        fleet.assert_no_two_at_once("slow");
        fleet.assert_once_per_tick("slow");
        assert!(fleet.runs("slow").len() >= 8, "every tick has a place");
    });
}
