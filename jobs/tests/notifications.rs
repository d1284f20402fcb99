//! Sending a table end to end: a real database file, a real web service, faults on the way.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use rusqlite::Connection;
use serde_json::{Value, json};
use watchkeeper::{
    batch::BatchJob,
    clock::{Clock, Moment, TimeSource},
    event::{Event, Events},
    job::{FailureKind, Outcome, Run, RunFacts},
    node::Token,
    spawn::Spawn,
};
use watchkeeper_jobs::{
    Notifications, NotificationsParams,
    demo_table::{create_demo_table, unsent},
    notifications::{cell::ItemId, delivery::State, source::Exceptions},
    receiver::{Faults, Receiver, Tally},
};

/// A table of `n` rows, a receiver, and a clock whose calendar can be moved on.
struct Scene {
    folder: tempfile::TempDir,
    receiver: Receiver,
    later_ms: Arc<AtomicI64>,
}

struct Shifted {
    real: Clock,
    later_ms: Arc<AtomicI64>,
}

impl TimeSource for Shifted {
    fn now(&self) -> Moment {
        self.real.now()
    }
    fn wall(&self) -> Timestamp {
        self.real.wall() + SignedDuration::from_millis(self.later_ms.load(Ordering::SeqCst))
    }
    fn sleep_until(&self, deadline: Moment) -> BoxFuture<'static, ()> {
        let real = self.real.clone();
        Box::pin(async move { real.sleep_until(deadline).await })
    }
}

impl Scene {
    async fn with_rows(n: usize) -> Self {
        let scene = Self {
            folder: tempfile::tempdir().unwrap(),
            receiver: Receiver::start(&Spawn::system()).await.unwrap(),
            later_ms: Arc::default(),
        };
        create_demo_table(&scene.db(), n).unwrap();
        scene
    }

    fn db(&self) -> PathBuf {
        self.folder.path().join("app.db")
    }

    fn sql(&self, sql: &str) {
        let db = Connection::open(self.db()).unwrap();
        db.busy_timeout(Duration::from_secs(5)).unwrap();
        db.execute_batch(sql).unwrap();
    }

    fn number(&self, sql: &str) -> i64 {
        let db = Connection::open(self.db()).unwrap();
        db.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    fn params(&self, changes: Value) -> NotificationsParams {
        let mut params = json!({
            "source": format!("sqlite://{}", self.db().display()),
            "table": "notifications",
            "sink": self.receiver.url(),
            "backoff": "10s",
        });
        let changes = changes.as_object().unwrap().clone();
        params.as_object_mut().unwrap().extend(changes);
        serde_json::from_value(params).unwrap()
    }

    fn job(&self, changes: Value) -> Notifications {
        Notifications::new(self.params(changes), None).on_clock(self.clock())
    }

    fn clock(&self) -> Clock {
        Clock::new(Shifted {
            real: Clock::system(),
            later_ms: Arc::clone(&self.later_ms),
        })
    }

    fn advance(&self, by: Duration) {
        let ms = i64::try_from(by.as_millis()).unwrap();
        self.later_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Sends `batch` and kills the sender once the receiver has seen `n` requests in all.
    async fn kill_after(&self, n: u64, job: &Notifications, token: u64, batch: &str) {
        let mut tally = self.receiver.watch();
        let run = run();
        tokio::select! {
            _ = job.process_under(Token(token), batch, &run) => panic!("ended by itself"),
            seen = tally.wait_for(|t| t.requests >= n) => drop(seen.unwrap()),
        }
    }

    fn tally(&self) -> Tally {
        self.receiver.tally()
    }
}

fn run() -> Run {
    let facts = RunFacts {
        job: "mail".to_owned(),
        id: "r-1".to_owned(),
        tick: Timestamp::UNIX_EPOCH,
        attempt: 1,
        replica: "a".to_owned(),
        batch: None,
        params: Value::Null,
        checkpoint: None,
    };
    Run::new(facts, Clock::system(), None, Duration::ZERO, Moment::NEVER)
}

async fn send(job: &Notifications, token: u64, batch: &str) -> Outcome {
    job.process_under(Token(token), batch, &run())
        .await
        .unwrap()
}

async fn listed(job: &Notifications) -> Exceptions {
    job.exceptions().await.unwrap()
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
async fn items_of_a_killed_sender_are_listed_then_repeated_with_the_same_key() {
    let scene = Scene::with_rows(20).await;
    let hang = Faults {
        hang_next: 3,
        ..Faults::default()
    };
    scene.receiver.behave(hang);
    let batch = "notifications/50/0";
    scene.kill_after(3, &scene.job(json!({})), 1, batch).await;
    assert_eq!(unsent(&scene.db()).unwrap(), 20);
    let seen = scene.tally().requests;

    // The next holder is another process; it lists before it repeats.
    let heir = scene.job(json!({}));
    assert_eq!(heir.pending(10).await.unwrap(), [batch]);
    scene.receiver.behave(Faults {
        hang_next: 20,
        ..Faults::default()
    });
    scene.kill_after(seen + 1, &heir, 2, batch).await;
    let in_doubt = listed(&heir).await;
    assert_eq!((in_doubt.in_doubt, in_doubt.doubted_ever), (20, 20));
    assert_eq!(in_doubt.ids(State::InDoubt).len(), 20);

    scene.receiver.behave(Faults::default());
    send(&heir, 3, batch).await;
    let tally = scene.tally();
    assert_eq!((tally.accepted, tally.accepted_twice), (20, 0));
    assert!(tally.repeats_recognised >= 1);
    let end = listed(&heir).await;
    assert!(tally.repeats_recognised <= end.doubted_ever);
    assert_eq!((end.in_doubt, end.items.len()), (0, 0));
    assert_eq!(unsent(&scene.db()).unwrap(), 0);
}

#[tokio::test]
async fn items_in_doubt_are_parked_when_told_so() {
    let scene = Scene::with_rows(5).await;
    scene.receiver.behave(Faults {
        hang_next: 9,
        ..Faults::default()
    });
    let job = scene.job(json!({"in_doubt": "park"}));
    let batch = "notifications/50/0";
    scene.kill_after(5, &job, 1, batch).await;
    let outcome = send(&job, 2, batch).await;
    assert!(matches!(outcome, Outcome::Skip(_)), "{outcome:?}");
    assert_eq!(listed(&job).await.parked, 5);
    assert!(job.pending(10).await.unwrap().is_empty());
    assert_eq!(
        (scene.tally().requests, job.backlog().await.unwrap()),
        (5, 0)
    );
}

#[tokio::test]
async fn a_stale_holder_marks_and_removes_nothing() {
    let scene = Scene::with_rows(8).await;
    let delay = Faults {
        delay: Duration::from_millis(300),
        ..Faults::default()
    };
    scene.receiver.behave(delay);
    let batch = "notifications/50/0";
    let (stale, heir) = (scene.job(json!({})), scene.job(json!({})));
    let mut tally = scene.receiver.watch();
    let stale_run = run();
    let first = stale.process_under(Token(1), batch, &stale_run);
    let second = async {
        drop(tally.wait_for(|t| t.accepted == 8).await.unwrap());
        // The heir is killed in its turn, after it has begun.
        scene.kill_after(9, &heir, 5, batch).await;
    };
    let (outcome, ()) = tokio::join!(first, second);
    assert_eq!(
        outcome.unwrap(),
        Outcome::Skip("lost to a later holder".to_owned())
    );
    assert_eq!(unsent(&scene.db()).unwrap(), 8);
    assert_eq!(
        scene.number("SELECT token FROM watchkeeper_delivery_intent"),
        5
    );
    assert_eq!(listed(&heir).await.in_doubt, 8);
    // Nor can it begin again.
    let before = scene.tally().requests;
    let again = send(&stale, 4, batch).await;
    assert_eq!(again, Outcome::Skip("lost to a later holder".to_owned()));
    assert_eq!(scene.tally().requests, before);
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
    assert_eq!((waiting.retry, waiting.doubted_ever), (3, 0));
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
async fn an_item_without_an_answer_is_in_doubt_and_repeated_with_the_same_key() {
    let scene = Scene::with_rows(3).await;
    scene.receiver.behave(Faults {
        hang_next: 1,
        ..Faults::default()
    });
    let job = scene.job(json!({"timeout": "200ms"}));
    send(&job, 1, "notifications/50/0").await;
    let doubt = listed(&job).await;
    assert_eq!((doubt.in_doubt, doubt.doubted_ever), (1, 1));
    assert!(
        doubt.items[0]
            .exception
            .reason
            .starts_with("no answer in time")
    );
    scene.advance(Duration::from_secs(20));
    send(&job, 2, "notifications/50/0").await;
    let tally = scene.tally();
    assert_eq!(
        (
            tally.accepted,
            tally.repeats_recognised,
            tally.accepted_twice
        ),
        (3, 1, 0)
    );
    assert_eq!(unsent(&scene.db()).unwrap(), 0);
}

#[tokio::test]
async fn a_stopped_batch_marks_what_was_sent_and_lists_what_was_under_way() {
    let scene = Scene::with_rows(40).await;
    scene.receiver.behave(Faults {
        hang_next: 2,
        ..Faults::default()
    });
    let job = scene.job(json!({"rate": 100.0}));
    let mut tally = scene.receiver.watch();
    let run = run();
    let stop = async {
        // Eight may be under way, so six are answered for sure.
        drop(tally.wait_for(|t| t.accepted >= 14).await.unwrap());
        run.stop("the worker drains");
    };
    let (outcome, ()) = tokio::join!(
        job.process_under(Token(1), "notifications/50/0", &run),
        stop
    );
    assert!(outcome.is_err(), "a stopped run is not done");
    let (tally, left) = (scene.tally(), unsent(&scene.db()).unwrap());
    let doubt = listed(&job).await;
    assert!(tally.requests < 40, "it went on after it was stopped");
    assert!(left < 40 && doubt.in_doubt >= 2, "{left} {doubt:?}");
    // Whatever was taken is either marked or in doubt.
    assert!(tally.accepted <= 40 - left + doubt.in_doubt);
    assert!(
        doubt.items[0]
            .exception
            .reason
            .contains("the worker drains")
    );
    assert_eq!(
        scene.number("SELECT count(*) FROM watchkeeper_delivery_intent"),
        0
    );
    send(&job, 2, "notifications/50/0").await;
    let tally = scene.tally();
    assert_eq!((tally.accepted, tally.accepted_twice), (40, 0));
    assert!(tally.repeats_recognised <= doubt.in_doubt);
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
async fn another_cell_size_waits_for_open_intents() {
    let scene = Scene::with_rows(60).await;
    scene.receiver.behave(Faults {
        hang_next: 99,
        ..Faults::default()
    });
    let old = scene.job(json!({"batch_size": 50}));
    old.pending(10).await.unwrap();
    scene.kill_after(1, &old, 1, "notifications/50/0").await;
    scene.receiver.behave(Faults::default());

    // As long as somebody may be sending by the old cells, everybody goes by them.
    let new = scene.job(json!({"batch_size": 20}));
    assert_eq!(
        new.pending(10).await.unwrap(),
        ["notifications/50/0", "notifications/50/1"]
    );
    let early = send(&new, 1, "notifications/20/0").await;
    assert_eq!(early, Outcome::Skip("cells of 50 are in force".to_owned()));
    send(&new, 2, "notifications/50/0").await;

    // Nobody is: the new size comes into force, and the old batches do not begin.
    assert_eq!(
        new.pending(10).await.unwrap(),
        ["notifications/20/2", "notifications/20/3"]
    );
    let late = send(&old, 3, "notifications/50/1").await;
    assert_eq!(late, Outcome::Skip("cells of 20 are in force".to_owned()));
    send(&new, 3, "notifications/20/2").await;
    send(&new, 4, "notifications/20/3").await;
    let tally = scene.tally();
    assert_eq!((tally.accepted, tally.accepted_twice), (60, 0));
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
    assert_eq!(dead.dead, 1);
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
            "`table` must be a plain name",
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
        (waiting.retry, waiting.doubted_ever),
        (2, 0),
        "nothing has left: no doubt"
    );
    let text = format!("{waiting:?} {job:?}");
    assert!(
        !text.contains("hunter2") && !text.contains("s3cret"),
        "{text}"
    );
}
