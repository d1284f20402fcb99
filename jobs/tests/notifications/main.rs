//! Sending a table end to end: a real database file, a real web service, faults on the way.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot be set up has failed"
)]

#[path = "../shared/command.rs"]
mod command;
mod commands;
mod doubt;
#[cfg(feature = "smtp")]
mod mail_server;
#[cfg(feature = "smtp")]
mod mails;
mod rough;
mod scene;
mod sinks;

use std::time::Duration;

use serde_json::{Value, json};
use watchkeeper::{
    batch::BatchJob,
    event::{Event, Events},
    job::{FailureKind, Outcome},
};
use watchkeeper_jobs::{
    Notifications,
    demo_table::unsent,
    notifications::{ItemId, State},
    receiver::Faults,
};

use crate::scene::{Scene, listed, run, send};

/// As after a restore from a backup: a connection to the old file goes on without an error, and sees nothing.
#[tokio::test]
async fn a_database_that_was_replaced_is_read_from_then_on() {
    let scene = Scene::with_rows(1).await;
    let job = Notifications::new(scene.params(json!({})), None);
    assert_eq!(job.backlog().await.unwrap(), 1);
    let other = Scene::with_rows(3).await;
    let (here, there) = (scene.db(), other.db());
    std::fs::rename(there, &here).unwrap();
    assert_eq!(job.backlog().await.unwrap(), 3);
    std::fs::remove_file(here).unwrap();
    let gone = job.pending(10).await.unwrap_err();
    assert!(gone.to_string().contains("no database"), "{gone}");
}

#[tokio::test]
async fn a_table_is_sent_cell_by_cell_and_marked() {
    let scene = Scene::with_rows(120).await;
    let events = Events::default();
    let mut seen = events.observe();
    let job = Notifications::new(scene.params(json!({})), Some(events));
    let batches = job.pending(10).await.unwrap();
    assert_eq!(
        batches,
        [
            "notifications/50/0",
            "notifications/50/1",
            "notifications/50/2"
        ]
    );
    assert_eq!(job.pending(2).await.unwrap().len(), 2);
    for (i, batch) in (1..).zip(&batches) {
        assert_eq!(send(&job, i, batch).await, Outcome::Done);
    }
    assert_eq!(job.pending(10).await.unwrap(), Vec::<String>::new());
    let tally = scene.tally();
    assert_eq!((tally.requests, tally.accepted), (120, 120));
    assert_eq!(tally.lost("notifications", 1..=120), 0);
    assert_eq!(unsent(&scene.db()).unwrap(), 0);
    assert_eq!(job.backlog().await.unwrap(), 0);
    assert_eq!(
        scene.number("SELECT count(*) FROM watchkeeper_delivery_intent"),
        0
    );
    let mut sent = 0;
    let mut backlog = None;
    while let Ok(event) = seen.try_recv() {
        match event {
            Event::Items {
                job,
                outcome,
                count,
            } => {
                assert_eq!((job.as_str(), outcome), ("mail", "sent"));
                sent += count;
            }
            Event::Backlog { items, .. } => backlog = Some(items),
            _ => {}
        }
    }
    assert_eq!(sent, 120);
    assert!(backlog.is_some());
}

#[tokio::test]
async fn a_row_committed_late_into_a_finished_cell_is_sent() {
    let scene = Scene::with_rows(10).await;
    let job = scene.job(json!({}));
    // Another process took an id early and commits it late.
    scene.sql("DELETE FROM notifications WHERE id = 4");
    send(&job, 1, "notifications/50/0").await;
    assert!(job.pending(10).await.unwrap().is_empty());
    scene.sql("INSERT INTO notifications (id, recipient, body) VALUES (4, 'late', 'late')");
    assert_eq!(job.pending(10).await.unwrap(), ["notifications/50/0"]);
    send(&job, 2, "notifications/50/0").await;
    assert_eq!(scene.tally().accepted, 10);
    assert_eq!(unsent(&scene.db()).unwrap(), 0);
}

#[tokio::test]
async fn an_item_refused_for_good_is_dead_with_its_reason() {
    let scene = Scene::with_rows(3).await;
    scene.receiver.behave(Faults {
        never: ["2".to_owned()].into(),
        ..Faults::default()
    });
    let job = scene.job(json!({}));
    send(&job, 1, "notifications/50/0").await;
    let dead = listed(&job).await;
    assert_eq!(dead.ids(State::Dead), [ItemId::Int(2)]);
    assert_eq!(dead.items[0].exception.reason, "answered 422");
    assert_eq!(
        (scene.tally().accepted, unsent(&scene.db()).unwrap()),
        (2, 1)
    );
    assert!(job.pending(10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_refused_item_comes_back_after_its_pause() {
    let scene = Scene::with_rows(3).await;
    scene.receiver.behave(Faults {
        refuse_next: 3,
        retry_after: Some(60),
        ..Faults::default()
    });
    let job = scene.job(json!({}));
    send(&job, 1, "notifications/50/0").await;
    let waiting = listed(&job).await;
    assert_eq!((waiting.counts.retry, waiting.doubted_ever), (3, 0));
    assert_eq!(job.backlog().await.unwrap(), 3);
    scene.advance(Duration::from_secs(30));
    assert!(
        job.pending(10).await.unwrap().is_empty(),
        "Retry-After is not over"
    );
    scene.advance(Duration::from_secs(31));
    assert_eq!(job.pending(10).await.unwrap(), ["notifications/50/0"]);
    send(&job, 2, "notifications/50/0").await;
    assert_eq!(
        (scene.tally().accepted, scene.tally().repeats_recognised),
        (3, 0)
    );
    assert!(listed(&job).await.items.is_empty());
}

#[tokio::test]
async fn text_ids_are_sent_by_buckets() {
    let scene = Scene::with_rows(0).await;
    scene.sql(
        "CREATE TABLE letters (uid TEXT PRIMARY KEY, data TEXT, mailed INTEGER);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
         INSERT INTO letters SELECT 'ü/' || i, '{\"to\": \"x\", \"id\": \"forged\"}', NULL FROM n;",
    );
    let job = scene.job(json!({
        "table": "letters", "buckets": 4, "batch_size": 10,
        "columns": {"id": "uid", "sent_at": "mailed", "payload": "data"},
    }));
    let mut token = 0;
    loop {
        let batches = job.pending(10).await.unwrap();
        if batches.is_empty() {
            break;
        }
        assert!(
            batches.iter().all(|b| b.starts_with("letters.mailed/h4/")),
            "{batches:?}"
        );
        for batch in batches {
            token += 1;
            send(&job, token, &batch).await;
        }
        assert!(token < 40, "does not come to an end");
    }
    let tally = scene.tally();
    assert_eq!((tally.accepted, tally.requests), (100, 100));
    assert!(
        tally.items.contains_key("letters/ü/7"),
        "a payload cannot forge an id"
    );
    // An integer column receives Unix seconds.
    assert_eq!(
        scene.number("SELECT count(*) FROM letters WHERE mailed > 1600000000"),
        100
    );
}

#[tokio::test]
async fn rows_may_be_sent_to_a_file() {
    let scene = Scene::with_rows(10).await;
    let file = scene.folder.path().join("sent.jsonl");
    let job = scene.job(json!({"sink": format!("file://{}", file.display())}));
    send(&job, 7, "notifications/50/0").await;
    let text = std::fs::read_to_string(file).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!((lines.len(), unsent(&scene.db()).unwrap()), (10, 0));
    assert!(
        lines
            .iter()
            .all(|l| l["token"] == 7 && l["recipient"].is_string())
    );
}

#[tokio::test]
async fn items_given_up_after_their_attempts_are_dead() {
    let scene = Scene::with_rows(1).await;
    scene.receiver.behave(Faults {
        refuse_next: 99,
        ..Faults::default()
    });
    let job = scene.job(json!({"attempts": 2}));
    send(&job, 1, "notifications/50/0").await;
    scene.advance(Duration::from_secs(15));
    send(&job, 2, "notifications/50/0").await;
    let dead = listed(&job).await;
    assert_eq!(dead.counts.dead, 1);
    assert!(dead.items[0].exception.reason.contains("after 2 attempts"));
}

#[tokio::test]
async fn what_is_wrong_with_the_table_is_said_and_fatal() {
    let scene = Scene::with_rows(1).await;
    for (changes, text) in [
        (json!({"table": "notification"}), "there are: notifications"),
        (json!({"columns": {"id": "key"}}), "no column `key`"),
        (
            json!({"source": "sqlite:///nowhere/app.db"}),
            "no database at /nowhere/app.db",
        ),
        (
            json!({"table": "x\"; DROP TABLE notifications; --"}),
            "params.table must be a plain name",
        ),
    ] {
        let error = scene.job(changes).pending(1).await.unwrap_err();
        assert_eq!(error.kind(), FailureKind::Fatal);
        assert!(error.to_string().contains(text), "{error}");
    }
    assert_eq!(unsent(&scene.db()).unwrap(), 1);
}

#[tokio::test]
async fn a_table_that_appears_later_is_served() {
    let scene = Scene::with_rows(1).await;
    let job = scene.job(json!({"table": "letters"}));
    assert!(job.pending(1).await.is_err());
    scene.sql("CREATE TABLE letters (id INTEGER PRIMARY KEY, sent_at TEXT); INSERT INTO letters VALUES (1, NULL)");
    assert_eq!(job.pending(1).await.unwrap(), ["letters/50/0"]);
}

#[tokio::test]
async fn a_run_without_a_claim_is_refused() {
    let scene = Scene::with_rows(1).await;
    let error = scene
        .job(json!({}))
        .process("notifications/50/0", run())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), FailureKind::Fatal);
    assert_eq!(scene.tally().requests, 0);
}

#[tokio::test]
async fn no_secret_reaches_the_side_table_or_an_error() {
    let scene = Scene::with_rows(2).await;
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let sink = format!("http://user:hunter2@127.0.0.1:{port}/hook/s3cret?key=s3cret");
    let job = scene.job(json!({"sink": sink}));
    send(&job, 1, "notifications/50/0").await;
    let waiting = listed(&job).await;
    assert_eq!(
        (waiting.counts.retry, waiting.doubted_ever),
        (2, 0),
        "nothing has left: no doubt"
    );
    let text = format!("{waiting:?} {job:?}");
    assert!(
        !text.contains("hunter2") && !text.contains("s3cret"),
        "{text}"
    );
}

#[tokio::test]
async fn several_replicas_and_a_writer_share_one_database() {
    let scene = Scene::with_rows(1000).await;
    let replicas = [
        scene.job(json!({})),
        scene.job(json!({})),
        scene.job(json!({})),
    ];
    let batches = replicas[0].pending(100).await.unwrap();
    assert_eq!(batches.len(), 21);
    let writer = async {
        for i in 0..20 {
            scene.sql(&format!(
                "INSERT INTO notifications (recipient, body) VALUES ('w', '{i}')"
            ));
            tokio::task::yield_now().await;
        }
    };
    let work = (1..).zip(&batches).map(|(token, batch)| {
        let job = &replicas[batch.len() % 3];
        async move { send(job, token, batch).await }
    });
    let (outcomes, ()) = tokio::join!(futures_util::future::join_all(work), writer);
    assert!(outcomes.iter().all(|o| *o == Outcome::Done), "{outcomes:?}");
    // What the writer added in the meantime comes with the next round.
    for (token, batch) in (1000..).zip(replicas[1].pending(100).await.unwrap()) {
        send(&replicas[1], token, &batch).await;
    }
    let tally = scene.tally();
    assert_eq!((tally.accepted, tally.requests), (1020, 1020));
    assert_eq!(unsent(&scene.db()).unwrap(), 0);
}
