//! What is sent, marked and listed when nobody dies; the same on every database.

use std::time::Duration;

use serde_json::{Value, json};
use watchkeeper::{
    batch::BatchJob,
    clock::Clock,
    event::{Event, Events},
    job::{FailureKind, Outcome},
};
use watchkeeper_jobs::{
    Notifications,
    notifications::{ItemId, State},
    receiver::Faults,
};

use crate::{
    scene::Scene,
    sender::{listed, run, send},
};

pub(crate) async fn a_table_is_sent_cell_by_cell_and_marked() {
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
    assert_eq!(scene.unsent(), 0);
    assert_eq!(job.backlog().await.unwrap(), 0);
    assert_eq!(
        scene.number("SELECT count(*) FROM watchkeeper_delivery_intent"),
        0
    );
    let mut sent = 0;
    let mut backlog = None;
    // The backlog is counted beside the work.
    let clock = Clock::system();
    while sent < 120 || backlog.is_none() {
        let event = clock.timeout(Duration::from_secs(20), seen.recv());
        match event.await.expect("all is told").unwrap() {
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
}

pub(crate) async fn a_row_committed_late_into_a_finished_cell_is_sent() {
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
    assert_eq!(scene.unsent(), 0);
}

pub(crate) async fn an_item_refused_for_good_is_dead_with_its_reason() {
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
    assert_eq!((scene.tally().accepted, scene.unsent()), (2, 1));
    assert!(job.pending(10).await.unwrap().is_empty());
}

pub(crate) async fn a_refused_item_comes_back_after_its_pause() {
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

/// How many rows wait, and since when the oldest of them could go, in Unix seconds, as a job with these columns tells it.
pub(crate) async fn oldest(scene: &Scene, columns: &Value) -> (u64, Option<i64>) {
    let events = Events::default();
    let mut seen = events.observe();
    let job = Notifications::new(scene.params(json!({ "columns": columns })), Some(events));
    job.named("mail");
    job.pending(1).await.unwrap();
    loop {
        // It is counted beside the look.
        if let Event::Backlog { items, since, .. } = seen.recv().await.unwrap() {
            return (items, since.map(|since| since.as_second()));
        }
    }
}

pub(crate) async fn the_oldest_row_that_waits_is_told_by_its_time() {
    let scene = Scene::with_rows(4).await;
    for column in ["born", "due"] {
        scene.sql(&format!(
            "ALTER TABLE notifications ADD COLUMN {column} bigint"
        ));
    }
    scene.sql("UPDATE notifications SET born = 5000 WHERE id = 1");
    scene.sql("UPDATE notifications SET born = 3000 WHERE id = 2");
    scene.sql("UPDATE notifications SET born = 1000, due = 7000 WHERE id = 3");
    let born = json!({"payload": "body", "created_at": "born"});
    let both = json!({"payload": "body", "created_at": "born", "send_after": "due"});
    assert_eq!(oldest(&scene, &json!({"payload": "body"})).await, (4, None));
    // The fourth row does not say.
    assert_eq!(oldest(&scene, &born).await, (4, Some(1_000)));
    // The third could not go before its time.
    assert_eq!(oldest(&scene, &both).await, (4, Some(3_000)));
    let mut person = scene.operator(true).await;
    person.park(&[ItemId::Int(2)]).await.unwrap();
    drop(person);
    assert_eq!(oldest(&scene, &both).await, (3, Some(5_000)));
    scene.sql("UPDATE notifications SET sent_at = '2026-05-04T08:00:00Z' WHERE id <> 4");
    assert_eq!(oldest(&scene, &both).await, (1, None));
}

pub(crate) async fn rows_are_sent_not_before_one_time_and_not_after_another() {
    let scene = Scene::with_rows(5).await;
    for column in ["due", "until"] {
        scene.sql(&format!(
            "ALTER TABLE notifications ADD COLUMN {column} bigint"
        ));
    }
    let far = 9_000_000_000_i64;
    scene.sql("UPDATE notifications SET due = 1 WHERE id = 1");
    scene.sql(&format!(
        "UPDATE notifications SET due = {far} WHERE id = 2"
    ));
    scene.sql("UPDATE notifications SET until = 1 WHERE id = 3");
    scene.sql(&format!(
        "UPDATE notifications SET until = {far} WHERE id = 4"
    ));
    let columns = json!({ "payload": "body", "send_after": "due", "expires_at": "until" });
    let job = scene.job(json!({ "columns": columns }));
    send(&job, 1, "notifications/50/0").await;
    let tally = scene.tally();
    let lost: Vec<i64> = (1..=5)
        .filter(|id| tally.lost("notifications", [*id]) > 0)
        .collect();
    assert_eq!((tally.accepted, lost), (3, vec![2, 3]));
    let dead = listed(&job).await;
    assert_eq!(dead.counts.dead, 1);
    assert_eq!(
        dead.items[0].exception.reason,
        "its deadline 1970-01-01T00:00:01Z has passed"
    );
    assert!(job.pending(10).await.unwrap().is_empty(), "nothing is due");
    scene.sql("UPDATE notifications SET due = 1 WHERE id = 2");
    assert_eq!(job.pending(10).await.unwrap(), ["notifications/50/0"]);
    send(&job, 2, "notifications/50/0").await;
    assert_eq!(scene.tally().accepted, 4);
}

pub(crate) async fn rows_may_be_sent_to_a_file() {
    let scene = Scene::with_rows(10).await;
    let file = scene.folder.path().join("sent.jsonl");
    let job = scene.job(json!({"sink": format!("file://{}", file.display())}));
    send(&job, 7, "notifications/50/0").await;
    let text = std::fs::read_to_string(file).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!((lines.len(), scene.unsent()), (10, 0));
    assert!(
        lines
            .iter()
            .all(|l| l["token"] == 7 && l["recipient"].is_string())
    );
}

pub(crate) async fn items_given_up_after_their_attempts_are_dead() {
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

pub(crate) async fn a_tenant_at_its_limit_holds_up_no_other_however_many_rows_it_has() {
    let scene = Scene::with_rows(301).await;
    scene.sql("UPDATE notifications SET recipient = CASE WHEN id < 301 THEN 'a' ELSE 'b' END");
    let rate = json!([{"limit": 2, "per": "1m", "by": "${recipient}"}]);
    let job = scene.job(json!({"batch_size": 1, "rate": rate}));
    // A look sees 256 of the cells.
    let mut token = 0;
    for _ in 0..2 {
        for batch in job.pending(256).await.unwrap() {
            token += 1;
            assert_eq!(send(&job, token, &batch).await, Outcome::Done);
        }
    }
    assert_eq!(scene.tally().lost("notifications", [301]), 0);
    assert_eq!((scene.tally().accepted, scene.unsent()), (2, 299));
    assert!(job.pending(256).await.unwrap().is_empty());
    let waiting = listed(&job).await;
    assert_eq!(waiting.counts.retry, 299);
    for item in &waiting.items {
        let (attempts, reason) = (item.exception.attempts, &item.exception.reason);
        assert_eq!((attempts, reason.as_str()), (0, "waits for its limit"));
    }
    // They come back one after the other, and none waits for long.
    scene.advance(Duration::from_secs(31));
    assert_eq!(job.pending(256).await.unwrap().len(), 1);
    scene.advance(Duration::from_secs(300));
    assert_eq!(job.pending(400).await.unwrap().len(), 299);
}

pub(crate) async fn rows_that_are_not_sent_use_no_turn() {
    let scene = Scene::with_rows(46).await;
    for column in ["until bigint", "message text"] {
        scene.sql(&format!("ALTER TABLE notifications ADD COLUMN {column}"));
    }
    scene.sql("UPDATE notifications SET recipient = 'late', until = 1 WHERE id < 40");
    scene.sql("UPDATE notifications SET recipient = 'late' WHERE id = 40");
    scene.sql("UPDATE notifications SET recipient = 'again', message = 'm' WHERE id > 40");
    let job = scene.job(json!({
        "columns": {"expires_at": "until"},
        "dedupe": {"column": "message", "within": "1h"},
        "rate": [{"limit": 1, "per": "10m", "by": "${recipient}"}],
        "buckets": 1,
    }));
    for batch in job.pending(9).await.unwrap() {
        assert_eq!(send(&job, 1, &batch).await, Outcome::Done);
    }
    // The row behind those that come too late has the turn; so has the first of those that are one message.
    assert_eq!(scene.tally().lost("notifications", [40, 41]), 0);
    assert_eq!((scene.tally().accepted, scene.unsent()), (2, 39));
    let counts = listed(&job).await.counts;
    assert_eq!((counts.dead, counts.retry), (39, 0));
}

pub(crate) async fn a_table_that_appears_later_is_served() {
    let scene = Scene::with_rows(1).await;
    let job = scene.job(json!({"table": "letters"}));
    assert!(job.pending(1).await.is_err());
    scene.sql("CREATE TABLE letters (id INTEGER PRIMARY KEY, sent_at TEXT); INSERT INTO letters VALUES (1, NULL)");
    assert_eq!(job.pending(1).await.unwrap(), ["letters/50/0"]);
}

pub(crate) async fn a_run_without_a_claim_is_refused() {
    let scene = Scene::with_rows(1).await;
    let error = scene
        .job(json!({}))
        .process("notifications/50/0", run())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), FailureKind::Fatal);
    assert_eq!(scene.tally().requests, 0);
}

pub(crate) async fn no_secret_reaches_the_side_table_or_an_error() {
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

pub(crate) async fn several_replicas_and_a_writer_share_one_database() {
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
    assert_eq!(scene.unsent(), 0);
}
