//! Rows of one recipient that go as one message; the same on every database.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
    time::Duration,
};

use serde_json::json;
use watchkeeper::{batch::BatchJob, node::Token};
use watchkeeper_jobs::{
    Notifications,
    notifications::{Did, Exceptions, ItemId, State, operator},
};

use crate::{
    rough::{Does, Request, Rough},
    scene::Scene,
    sender::{listed, run, send},
};

const HOUR: Duration = Duration::from_secs(3600);

/// Rows from now on, for two recipients in turn.
async fn scene(rows: usize) -> Scene {
    let scene = Scene::with_rows(rows).await;
    scene.sql("ALTER TABLE notifications ADD COLUMN born bigint");
    scene.sql("UPDATE notifications SET recipient = 'r' || (id % 2)");
    born(&scene, "1 = 1");
    scene
}

fn born(scene: &Scene, rows: &str) {
    let now = scene.clock().wall().as_second();
    scene.sql(&format!(
        "UPDATE notifications SET born = {now} WHERE {rows}"
    ));
}

fn add(scene: &Scene, id: u64, recipient: &str) {
    scene.sql(&format!(
        "INSERT INTO notifications (id, recipient, body) VALUES ({id}, '{recipient}', 'later')"
    ));
    born(scene, &format!("id = {id}"));
}

fn digests(scene: &Scene, receiver: &Rough, at_most: u32) -> Notifications {
    scene.job(json!({
        "sink": receiver.url(""),
        "columns": {"recipient": "recipient"},
        "digest": {"every": "1h", "at_most": at_most, "since": "born"},
        "buckets": 2,
        "timeout": "2s",
    }))
}

async fn send_what_goes(job: &Notifications, mut token: u64) -> u64 {
    for batch in job.pending(10).await.unwrap() {
        send(job, token, &batch).await;
        token += 1;
    }
    token
}

pub(crate) fn rows(request: &Request) -> Vec<u64> {
    let body = request.json();
    let items = body["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| item["id"].as_u64().unwrap())
        .collect()
}

pub(crate) fn key(request: &Request) -> &str {
    &request.headers["idempotency-key"]
}

pub(crate) async fn a_digest_goes_when_its_oldest_row_is_old_enough() {
    let scene = scene(8).await;
    let receiver = Rough::start(|_| Does::Answers(204)).await;
    let job = digests(&scene, &receiver, 5);
    assert_eq!(job.pending(10).await.unwrap(), [""; 0], "all are fresh");
    scene.advance(HOUR / 2);
    add(&scene, 20, "r0");
    assert_eq!(job.pending(10).await.unwrap().len(), 1, "one has five");
    let token = send_what_goes(&job, 1).await;
    assert_eq!(rows(&receiver.requests()[0]), [2, 4, 6, 8, 20]);
    let body = receiver.requests()[0].json();
    assert_eq!(
        (&body["recipient"], &body["table"]),
        (&json!("r0"), &json!("notifications"))
    );
    add(&scene, 21, "r0");
    scene.advance(HOUR / 2 + Duration::from_secs(1));
    let token = send_what_goes(&job, token).await;
    assert_eq!(
        rows(&receiver.requests()[1]),
        [1, 3, 5, 7],
        "its oldest is an hour old"
    );
    assert_eq!((receiver.requests().len(), scene.unsent()), (2, 1));
    scene.advance(HOUR / 2);
    send_what_goes(&job, token).await;
    assert_eq!(rows(&receiver.requests()[2]), [21]);
    assert_eq!(scene.unsent(), 0);
    let keys: BTreeSet<String> = receiver
        .requests()
        .iter()
        .map(|r| key(r).to_owned())
        .collect();
    assert_eq!(keys.len(), 3);
}

pub(crate) async fn a_digest_in_doubt_goes_again_with_the_same_rows_under_the_same_key() {
    let scene = scene(6).await;
    let times: Mutex<BTreeMap<String, usize>> = Mutex::default();
    let receiver = Rough::start(move |request| {
        let mut times = times.lock().unwrap();
        let recipient = request.json()["recipient"].to_string();
        let times = times.entry(recipient).or_default();
        *times += 1;
        match (request.json()["recipient"].as_str(), *times) {
            (Some("r0"), 1) => Does::Breaks,
            (Some("r1"), 1) => Does::Answers(500),
            (Some("r2"), 1) => Does::Hangs,
            _ => Does::Answers(204),
        }
    })
    .await;
    let job = digests(&scene, &receiver, 5);
    scene.advance(HOUR);
    let token = send_what_goes(&job, 1).await;
    let of = |recipient: &str| -> Vec<Vec<u64>> {
        let requests = receiver.requests();
        let of = requests
            .iter()
            .filter(|r| r.json()["recipient"] == recipient);
        of.map(rows).collect()
    };
    assert_eq!((of("r0"), scene.unsent()), (vec![vec![2, 4, 6]], 6));
    assert_eq!(listed(&job).await.counts.in_doubt, 3);
    // What comes meanwhile, and is old, waits for the next.
    for (id, recipient) in [(7, "r1"), (8, "r0")] {
        add(&scene, id, recipient);
    }
    scene.sql("UPDATE notifications SET born = 1 WHERE id > 6");
    scene.advance(HOUR);
    let mut token = send_what_goes(&job, token).await;
    assert_eq!(of("r0"), [[2, 4, 6], [2, 4, 6]]);
    let requests = receiver.requests();
    let keys: BTreeSet<&str> = requests
        .iter()
        .filter(|r| r.json()["recipient"] == "r0")
        .map(key)
        .collect();
    assert_eq!(keys.len(), 1, "under the same key");
    // What was surely not received goes with what has come since.
    assert_eq!(of("r1").last().unwrap(), &[1, 3, 5, 7]);
    token = send_what_goes(&job, token).await;
    assert_eq!(of("r0").last().unwrap(), &[8]);
    assert_eq!(scene.unsent(), 0);

    // Also when its sender dies.
    for id in [30, 31, 32] {
        add(&scene, id, "r2");
    }
    scene.advance(HOUR);
    let batch = job.pending(10).await.unwrap().remove(0);
    let (before, cut_off) = (receiver.requests().len(), run());
    tokio::select! {
        _ = job.process_under(Token(token), &batch, &cut_off) => panic!("no answer came"),
        () = async {
            while receiver.requests().len() == before {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    add(&scene, 33, "r2");
    scene.sql("UPDATE notifications SET born = 1 WHERE id = 33");
    token = send_what_goes(&job, token + 1).await;
    assert_eq!(of("r2"), [[30, 31, 32], [30, 31, 32]]);
    let requests = receiver.requests();
    let mut again = requests
        .iter()
        .filter(|r| r.json()["recipient"] == "r2")
        .map(key);
    assert_eq!(again.next(), again.next());
    send_what_goes(&job, token).await;
    assert_eq!(of("r2").last().unwrap(), &[33]);
    assert_eq!(scene.unsent(), 0);
}

pub(crate) async fn a_digest_in_doubt_is_read_whole_beside_a_row_that_is_before_it() {
    let scene = scene(6).await;
    scene.sql("UPDATE notifications SET recipient = 'r0'");
    // The first row comes late.
    scene.sql("UPDATE notifications SET sent_at = created_at WHERE id = 1");
    let receiver = Rough::start(|request| match request.before {
        0 => Does::Breaks,
        _ => Does::Answers(204),
    })
    .await;
    let job = digests(&scene, &receiver, 5);
    scene.advance(HOUR);
    let token = send_what_goes(&job, 1).await;
    assert_eq!(listed(&job).await.counts.in_doubt, 5);
    scene.sql("UPDATE notifications SET sent_at = NULL WHERE id = 1");
    scene.advance(HOUR);
    let token = send_what_goes(&job, token).await;
    send_what_goes(&job, token).await;
    let requests = receiver.requests();
    let sent: Vec<Vec<u64>> = requests.iter().map(rows).collect();
    assert_eq!(sent, [&[2, 3, 4, 5, 6][..], &[2, 3, 4, 5, 6], &[1]]);
    assert_eq!(key(&requests[0]), key(&requests[1]));
    assert_eq!(scene.unsent(), 0);

    // What is gone is not waited for.
    let scene = self::scene(6).await;
    scene.sql("UPDATE notifications SET recipient = 'r0'");
    let receiver = Rough::start(|request| match request.before {
        0 => Does::Breaks,
        _ => Does::Answers(204),
    })
    .await;
    let job = digests(&scene, &receiver, 6);
    scene.advance(HOUR);
    let token = send_what_goes(&job, 1).await;
    scene.sql("DELETE FROM notifications WHERE id = 4");
    scene.advance(HOUR);
    send_what_goes(&job, token).await;
    assert_eq!(rows(&receiver.requests()[1]), [1, 2, 3, 5, 6]);
    assert_eq!(scene.unsent(), 0);
}

pub(crate) async fn a_row_that_joins_a_message_has_its_own_attempts() {
    let scene = scene(3).await;
    scene.sql("UPDATE notifications SET recipient = 'r0', born = 1");
    // The first row and the last one come later.
    scene.sql("UPDATE notifications SET sent_at = created_at WHERE id IN (1, 3)");
    let receiver = Rough::start(|_| Does::Answers(500)).await;
    let job = scene.job(json!({
        "sink": receiver.url(""),
        "columns": {"recipient": "recipient"},
        "digest": {"every": "1h", "at_most": 9, "since": "born"},
        "attempts": 3,
    }));
    let mut token = 1;
    for joins in [0, 1, 3] {
        scene.sql(&format!(
            "UPDATE notifications SET sent_at = NULL WHERE id = {joins}"
        ));
        token = send_what_goes(&job, token).await;
        scene.advance(HOUR);
    }
    let sent: Vec<Vec<u64>> = receiver.requests().iter().map(rows).collect();
    assert_eq!(sent, [&[2][..], &[1, 2], &[1, 2, 3]]);
    let of = |left: &Exceptions| -> Vec<(State, u32)> {
        let of = left.items.iter();
        of.map(|item| (item.exception.state, item.exception.attempts))
            .collect()
    };
    let left = listed(&job).await;
    let waits = [(State::Retry, 2), (State::Dead, 3), (State::Retry, 1)];
    assert_eq!(of(&left), waits);
    for _ in 0..2 {
        token = send_what_goes(&job, token).await;
        scene.advance(HOUR);
    }
    let sent: Vec<Vec<u64>> = receiver.requests().iter().map(rows).collect();
    assert_eq!(sent[3..], [&[1, 3][..], &[3]], "they went on together");
    assert_eq!(of(&listed(&job).await), [(State::Dead, 3); 3]);
}

pub(crate) async fn a_row_whose_time_is_none_is_dead_alone() {
    let scene = scene(6).await;
    let receiver = Rough::start(|_| Does::Answers(204)).await;
    scene.sql("UPDATE notifications SET recipient = 'r0'");
    // A time of the database that is none: in SQLite any text, in PostgreSQL one without end.
    scene.sql("ALTER TABLE notifications ADD COLUMN due timestamp");
    scene.sql("UPDATE notifications SET due = '-infinity' WHERE id IN (1, 4)");
    let job = scene.job(json!({
        "sink": receiver.url(""),
        "columns": {"recipient": "recipient", "send_after": "due"},
        "digest": {"every": "1h", "at_most": 6, "since": "born"},
    }));
    send_what_goes(&job, 1).await;
    let sent: Vec<Vec<u64>> = receiver.requests().iter().map(rows).collect();
    assert_eq!(sent, [[2, 3, 5, 6]]);
    let left = listed(&job).await;
    assert_eq!(left.ids(State::Dead), [1, 4].map(ItemId::Int));
    let reason = &left.items[0].exception.reason;
    assert_eq!(reason, "column `due` holds no time");
}

pub(crate) async fn a_text_holds_all_rows_of_a_digest() {
    let scene = scene(4).await;
    scene.sql("UPDATE notifications SET body = 'No ' || id");
    let receiver = Rough::start(|_| Does::Answers(204)).await;
    let job = scene.job(json!({
        "sink": receiver.url(""),
        "columns": {"recipient": "recipient"},
        "digest": {"every": "1h", "since": "born"},
        "body": r#"{"whom": "${recipient}", "second": "${items.1.body}", "all": ${items:json}}"#,
    }));
    scene.advance(HOUR);
    send_what_goes(&job, 1).await;
    let mut sent: Vec<_> = receiver.requests().iter().map(Request::json).collect();
    sent.sort_by_key(|body| body["whom"].to_string());
    assert_eq!((sent.len(), scene.unsent()), (2, 0));
    assert_eq!(
        (&sent[0]["whom"], &sent[0]["second"]),
        (&json!("r0"), &json!("No 4"))
    );
    let bodies: Vec<_> = sent[1]["all"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (&item["id"], &item["body"]))
        .collect();
    assert_eq!(
        bodies,
        [(&json!(1), &json!("No 1")), (&json!(3), &json!("No 3"))]
    );
}

pub(crate) async fn what_a_digest_cannot_go_with_is_said() {
    let scene = Scene::with_rows(1).await;
    let column = |name: &str| json!({ name: "recipient" });
    for (changes, says) in [
        (
            json!({"digest": {"every": "1h"}}),
            "params.digest needs `columns.recipient`",
        ),
        (
            json!({"digest": {"every": "1h", "since": "birth"}, "columns": column("recipient")}),
            "no column `birth`",
        ),
        (
            json!({"digest": {"every": "1h", "at_most": 0}, "columns": column("recipient")}),
            "params.digest.at_most must be from 1 to 1000",
        ),
    ] {
        let error = scene.job(changes).pending(1).await.unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}

/// A person who has all of a state sent again does so in steps, between which senders write.
pub(crate) async fn a_step_through_parked_rows_takes_messages_whole() {
    let scene = scene(8).await;
    let receiver = Rough::start(|request| match request.before {
        0 | 1 => Does::Breaks,
        _ => Does::Answers(204),
    })
    .await;
    let changes = json!({
        "sink": receiver.url(""),
        "columns": {"recipient": "recipient"},
        "digest": {"every": "1h", "at_most": 4, "since": "born"},
        "buckets": 2,
        "timeout": "2s",
        "in_doubt": "park",
    });
    let job = scene.job(changes.clone());
    let token = send_what_goes(&job, 1).await;
    assert_eq!(listed(&job).await.counts.parked, 8);
    let mut person = operator(&scene.params(changes), true).await.unwrap();
    // The first row alone is asked for.
    let step = person.retry_step(State::Parked, None, 1).await.unwrap();
    assert_eq!((step.changed, step.last), (4, Some(ItemId::Int(1))));
    let doubts = listed(&job).await.ids(State::InDoubt);
    assert_eq!(doubts, [1, 3, 5, 7].map(ItemId::Int));
    let token = send_what_goes(&job, token).await;
    // What is in doubt stays in its state: each counts when its turn comes.
    let place = ItemId::Int(1);
    let step = person.retry_step(State::Parked, Some(&place), 9).await;
    assert_eq!(step.unwrap().changed, 4);
    let step = person.retry_step(State::InDoubt, None, 1).await.unwrap();
    assert_eq!((step.changed, step.last), (1, Some(ItemId::Int(2))));
    send_what_goes(&job, token).await;
    let requests = receiver.requests();
    let sent: Vec<Vec<u64>> = requests.iter().map(rows).collect();
    assert_eq!((sent.len(), scene.unsent()), (4, 0), "{sent:?}");
    let keys: BTreeSet<&str> = requests.iter().map(key).collect();
    assert_eq!(keys.len(), 2, "each went again under its key");
}

/// As during a rolling change, or after it.
pub(crate) async fn a_message_in_doubt_waits_for_replicas_that_make_such() {
    let breaks_once = || {
        Rough::start(|request| match request.before {
            0 => Does::Breaks,
            _ => Does::Answers(204),
        })
    };
    let plain = |receiver: &Rough| json!({"sink": receiver.url(""), "columns": {"recipient": "recipient"}, "buckets": 2});
    let scene = scene(4).await;
    scene.sql("UPDATE notifications SET recipient = 'r0'");
    let receiver = breaks_once().await;
    let job = digests(&scene, &receiver, 4);
    let token = send_what_goes(&job, 1).await;
    assert_eq!(listed(&job).await.counts.in_doubt, 4);
    scene.advance(HOUR);
    add(&scene, 20, "r0");
    add(&scene, 21, "r9");
    // One without `digest` leaves them, and what comes behind them; all else goes.
    let other = scene.job(plain(&receiver));
    let token = send_what_goes(&other, token).await;
    assert_eq!(receiver.requests()[1].json()["id"], json!(21));
    assert_eq!(other.pending(10).await.unwrap(), [""; 0]);
    assert_eq!((receiver.requests().len(), scene.unsent()), (2, 5));
    send_what_goes(&job, token).await;
    let requests = receiver.requests();
    assert_eq!(rows(&requests[2]), [1, 2, 3, 4]);
    assert_eq!(key(&requests[0]), key(&requests[2]));
    assert_eq!((requests.len(), scene.unsent()), (3, 1));

    // Where there are no such replicas any more a person has each sent alone.
    let scene = self::scene(2).await;
    scene.sql("UPDATE notifications SET recipient = 'r0'");
    let receiver = breaks_once().await;
    let token = send_what_goes(&digests(&scene, &receiver, 2), 1).await;
    let params = scene.params(plain(&receiver));
    let mut person = operator(&params, true).await.unwrap();
    let both = [1, 2].map(ItemId::Int);
    let did = person.retry(&both).await.unwrap();
    assert_eq!(did, [Did::Changed, Did::Changed]);
    send_what_goes(&scene.job(plain(&receiver)), token).await;
    let requests = receiver.requests();
    let sent: Vec<_> = requests[1..]
        .iter()
        .map(|r| r.json()["id"].clone())
        .collect();
    assert_eq!((sent, scene.unsent()), (vec![json!(1), json!(2)], 0));

    // The other way round: what went alone goes alone.
    let scene = self::scene(2).await;
    scene.sql("UPDATE notifications SET recipient = 'r0', born = 1");
    let receiver = breaks_once().await;
    let token = send_what_goes(&scene.job(plain(&receiver)), 1).await;
    scene.advance(HOUR);
    let job = digests(&scene, &receiver, 2);
    let token = send_what_goes(&job, token).await;
    send_what_goes(&job, token).await;
    let requests = receiver.requests();
    let sent: Vec<Vec<u64>> = requests[1..].iter().map(rows).collect();
    assert_eq!((sent, scene.unsent()), (vec![vec![1], vec![2]], 0));
    assert_eq!(key(&requests[0]), key(&requests[1]), "under its key");
}
