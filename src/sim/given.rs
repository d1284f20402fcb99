//! Triggers with parameters, and runs that go on where the last attempt stopped, over whole replicas.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::Deserialize;
use serde_json::json;

use super::acts::{Act, leader, ms};
use crate::{
    config::LoadOptions,
    fleet::client::runs,
    intent::{TriggerParams, TriggerState},
    job::{Job, JobError, Outcome, Run, Spec},
    status::RunRecord,
    testing::cluster::Cluster,
    worker::Worker,
};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Params {
    pages: u64,
    title: String,
}

type Seen = Arc<Mutex<Vec<(u32, Params)>>>;

fn given(pairs: &[&str]) -> TriggerParams {
    let pairs: Vec<String> = pairs.iter().map(|pair| (*pair).to_owned()).collect();
    TriggerParams::read(None, &pairs).unwrap()
}

/// Notes its parameters; its first attempt fails.
fn reads(seen: &Seen) -> impl Job + use<> {
    let seen = seen.clone();
    Act(move |run: Run| {
        let seen = seen.clone();
        Box::pin(async move {
            seen.lock().unwrap().push((run.attempt(), run.params()?));
            match run.attempt() {
                1 => Err(JobError::retry("not yet")),
                _ => Ok(Outcome::Done),
            }
        }) as _
    })
}

fn spec() -> Spec {
    Spec::every(Duration::from_secs(36_000))
        .retry(5)
        .params(json!({"pages": 1, "title": "report"}))
}

#[tokio::test(start_paused = true)]
async fn parameters_of_a_trigger_reach_its_retries_on_other_replicas() {
    let fleet = Cluster::new(3);
    let seen = Seen::default();
    let a = fleet.join("a", reads(&seen), spec());
    leader(&fleet, &[&a]).await;
    let client = a.client();
    let with = given(&["pages=7"]);
    client.ask_for_run("job", with).await.unwrap();
    while seen.lock().unwrap().is_empty() {
        fleet.sleep(ms(10)).await;
    }
    // The retry waits in the ledger, with what it was given.
    fleet.sleep(ms(100)).await;
    a.tasks.crash();
    let b = fleet.join("b", reads(&seen), spec());
    while !b.ended_as("done") {
        fleet.sleep(ms(50)).await;
    }
    let wanted = Params {
        pages: 7,
        title: "report".to_owned(),
    };
    assert_eq!(*seen.lock().unwrap(), [(1, wanted.clone()), (2, wanted)]);
    fleet.sleep(SECOND * 3).await;
    let runs = runs::last(&b.ctx.locks, "job", 10).await.unwrap();
    assert!(
        runs.len() == 2 && runs.iter().all(|run| run.params == ["pages"]),
        "{runs:?}"
    );
    // Nothing of it is left behind, and the next trigger gets what is configured.
    let client = b.client();
    let trigger = client.ask_for_one("job").await.unwrap();
    client
        .follow(trigger, TriggerState::Ended, SECOND * 60)
        .await;
    assert_eq!(seen.lock().unwrap().last().unwrap().1.pages, 1);
}

#[tokio::test(start_paused = true)]
async fn parameters_that_do_not_fit_end_the_run_for_good_and_are_not_told() {
    let fleet = Cluster::new(3);
    let seen = Seen::default();
    let a = fleet.join("a", reads(&seen), spec());
    leader(&fleet, &[&a]).await;
    let client = a.client();
    let trigger = client
        .ask_for_run("job", given(&["pages=hunter2"]))
        .await
        .unwrap();
    let ended = client
        .follow(trigger, TriggerState::Ended, SECOND * 60)
        .await;
    assert_eq!(ended.outcome, "failed");
    assert_eq!(ended.detail, "params.pages: expected u64");
    assert!(ended.given.is_empty(), "no longer kept");
    fleet.sleep(SECOND * 30).await;
    assert!(seen.lock().unwrap().is_empty(), "nor is it tried again");
    let runs = runs::last(&a.ctx.locks, "job", 10).await.unwrap();
    assert_eq!(runs.len(), 1);
    let records = serde_json::to_string(&runs).unwrap();
    assert!(!records.contains("hunter2"), "{records}");
    assert!(!format!("{:?}", a.told.lock().unwrap()).contains("hunter2"));
}

#[tokio::test(start_paused = true)]
async fn a_job_of_a_kind_is_made_anew_from_what_its_trigger_gives() {
    struct Pages(Params, Seen);
    #[async_trait::async_trait]
    impl Job for Pages {
        async fn run(&self, run: Run) -> Result<Outcome, JobError> {
            let seen = (run.attempt(), self.0.clone());
            self.1.lock().unwrap().push(seen);
            Ok(Outcome::Done)
        }
    }
    let seen = Seen::default();
    let notes = seen.clone();
    let worker = Worker::with(LoadOptions::default())
        .kind("pages", move |params| Pages(params, notes.clone()))
        .fixed_params("pages", &["title"]);
    let mut spec = spec();
    spec.kind = Some("pages".to_owned());
    let body = worker.registry.body("job", &spec).unwrap();
    let fleet = Cluster::new(3);
    let a = fleet.join_with("a", vec![("job", body, spec)], false);
    leader(&fleet, &[&a]).await;
    let client = a.client();
    for (with, outcome) in [
        ("pages=7", "done"),
        ("title=other", "failed"),
        ("pages=x", "failed"),
    ] {
        let trigger = client.ask_for_run("job", given(&[with])).await.unwrap();
        let ended = client
            .follow(trigger, TriggerState::Ended, SECOND * 60)
            .await;
        assert_eq!(ended.outcome, outcome, "{with}");
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!((seen[0].1.pages, seen[0].1.title.as_str()), (7, "report"));
}

#[tokio::test(start_paused = true)]
async fn a_run_resumes_at_the_last_checkpoint_of_a_killed_replica() {
    let fleet = Cluster::new(3);
    let pages: Arc<Mutex<Vec<(u32, u64)>>> = Arc::default();
    let book = || {
        let pages = pages.clone();
        Act(move |run: Run| {
            let pages = pages.clone();
            Box::pin(async move {
                let clock = run.lease().ok_or("no lease")?.clock().clone();
                let last = run.checkpoint().and_then(|last| last["done"].as_u64());
                assert_eq!(run.checkpoint_at().is_some(), last.is_some());
                for page in last.unwrap_or(0)..20 {
                    run.check()?;
                    pages.lock().unwrap().push((run.attempt(), page));
                    clock.sleep(ms(100)).await;
                    run.save_checkpoint(json!({ "done": page + 1 })).await?;
                }
                Ok(Outcome::Done)
            }) as _
        })
    };
    let spec = || Spec::every(Duration::from_secs(60));
    let a = fleet.join("a", book(), spec());
    while pages.lock().unwrap().len() < 9 {
        fleet.sleep(ms(10)).await;
    }
    a.tasks.crash();
    let before = pages.lock().unwrap().len();
    let b = fleet.join("b", book(), spec());
    while !b.ended_as("done") {
        fleet.sleep(ms(50)).await;
    }
    let pages = pages.lock().unwrap().clone();
    let (first, second) = pages.split_at(before);
    // The page that was under way is written again, and none before it.
    assert_eq!(second[0], (2, first[before - 1].1));
    assert_eq!(second.last(), Some(&(2, 19)));
    fleet.sleep(SECOND * 3).await;
    let runs: Vec<RunRecord> = runs::last(&b.ctx.locks, "job", 10).await.unwrap();
    let resumed: Vec<_> = runs.iter().map(|run| &run.resumed).collect();
    assert_eq!(resumed.len(), 2, "{runs:?}");
    assert!(resumed[0].is_none(), "{runs:?}");
    let resumed = resumed[1].as_ref().unwrap();
    assert_eq!(resumed.bytes, r#"{"done":8}"#.len() as u64);
    let saved = resumed.saved.unwrap();
    assert!(runs[0].started.unwrap() < saved && saved < runs[1].started.unwrap());
}

#[tokio::test(start_paused = true)]
async fn every_replica_can_show_how_far_a_run_is() {
    let fleet = Cluster::new(3);
    let counts = Act(|run: Run| {
        Box::pin(async move {
            let clock = run.lease().ok_or("no lease")?.clock().clone();
            for done in 0..1000 {
                clock.sleep(ms(500)).await;
                run.progress_with(done, Some(1000), "counting");
            }
            Ok(Outcome::Done)
        }) as _
    });
    let a = fleet.join("a", counts, Spec::continuous());
    leader(&fleet, &[&a]).await;
    a.publish();
    fleet.sleep(SECOND * 30).await;
    let b = fleet.join("b", super::acts::patient(), Spec::continuous());
    fleet.sleep(SECOND).await;
    let seen = b.client().each().await.unwrap();
    let run = &seen.job("job").unwrap().running[0];
    assert_eq!(
        (run.total, run.message.as_deref()),
        (Some(1000), Some("counting"))
    );
    let rate = run.per_second.unwrap().per_second();
    assert!((1.8..2.2).contains(&rate), "{rate}");
    let left = run.left_ms.unwrap() / 1000;
    assert!((420..520).contains(&left), "{left} s");
    let mut runs = runs::last(&b.ctx.locks, "job", 1).await.unwrap();
    RunRecord::add_progress(&mut runs, &seen);
    assert_eq!(runs[0].progress.as_ref().unwrap().total, Some(1000));
}
