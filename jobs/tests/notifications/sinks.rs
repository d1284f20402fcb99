//! Receivers of every kind of badness, and rows that cannot be sent. Costs about six seconds, if one case runs after the other.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};
use watchkeeper::{batch::BatchJob, job::Outcome};
use watchkeeper_jobs::{
    Notifications,
    demo_table::unsent,
    notifications::{ItemId, State},
};

use crate::{
    rough::{Does, Rough},
    scene::Scene,
    sender::{listed, send},
};

/// Works on whatever is pending, and lets the time of pauses pass, until nothing is left to send.
async fn work_until_done(scene: &Scene, job: &Notifications, rounds: u64) {
    for round in 1..=rounds {
        for batch in job.pending(100).await.unwrap() {
            send(job, round, &batch).await;
        }
        if job.backlog().await.unwrap() == 0 {
            return;
        }
        scene.advance(Duration::from_secs(60));
    }
    panic!(
        "{} left: {:?}",
        job.backlog().await.unwrap(),
        listed(job).await.counts
    );
}

/// A number below `of`, the same in every run.
fn chance(seed: u64, of: u64) -> u64 {
    let n = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((n ^ (n >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) % of
}

#[tokio::test]
async fn a_rough_receiver_gets_every_item_once_or_its_reason() {
    let rough = Rough::start(|request| {
        let id = request.id();
        if id % 100 == 7 {
            return Does::Answers(400);
        }
        // Waves: of a hundred requests twelve meet one.
        if request.before % 100 >= 88 {
            return Does::AsksToWait(429, 3);
        }
        match chance(request.before as u64, 100) {
            0..20 => Does::Answers(500),
            20..25 => Does::AnswersLate(Duration::from_millis(40), 204),
            25..28 => Does::Breaks,
            _ => Does::Answers(204),
        }
    })
    .await;
    let scene = Scene::with_rows(600).await;
    let job = scene.job(json!({"sink": rough.url(""), "backoff": "1s", "attempts": 40}));
    work_until_done(&scene, &job, 400).await;
    let end = listed(&job).await;
    let refused: BTreeSet<ItemId> = (7..600).step_by(100).map(ItemId::Int).collect();
    assert_eq!(
        end.ids(State::Dead).into_iter().collect::<BTreeSet<_>>(),
        refused
    );
    assert!(
        end.items
            .iter()
            .all(|i| i.exception.reason == "answered 400"),
        "{end:?}"
    );
    assert_eq!((end.items.len(), unsent(&scene.db()).unwrap()), (6, 6));
    assert_eq!(rough.taken().len(), 594, "each under one key");
    let requests = rough.requests();
    let keys: BTreeSet<&String> = requests
        .iter()
        .map(|r| &r.headers["idempotency-key"])
        .collect();
    let repeats = requests.len() - keys.len();
    assert!(end.doubted_ever > 0, "no connection broke");
    println!(
        "{} requests, {repeats} of them again, {} in doubt",
        requests.len(),
        end.doubted_ever
    );
}

#[tokio::test]
async fn a_receiver_that_asks_to_wait_is_left_alone_and_its_items_lose_no_attempt() {
    let rough = Rough::start(|request| match request.before {
        0..10 => Does::Answers(204),
        10..30 => Does::AsksToWait(429, 30),
        _ => Does::Answers(204),
    })
    .await;
    let scene = Scene::with_rows(500).await;
    let job = scene.job(json!({"sink": rough.url(""), "attempts": 2}));
    for batch in job.pending(100).await.unwrap() {
        send(&job, 1, &batch).await;
    }
    // Those that were under way when the first refusal came, and no others: not of this cell, nor of the next.
    let asked = rough.requests().len();
    assert!((11..=18).contains(&asked), "{asked}");
    assert!(
        job.pending(100).await.unwrap().is_empty(),
        "nothing is begun while it rests"
    );
    let waiting = listed(&job).await;
    assert!(
        waiting.items.len() <= 8,
        "what was not asked is an unsent row as before: {waiting:?}"
    );
    scene.advance(Duration::from_secs(31));
    // One goes first; while it is refused, the others keep their attempts.
    for round in 2..40 {
        for batch in job.pending(100).await.unwrap() {
            send(&job, round, &batch).await;
        }
        scene.advance(Duration::from_secs(31));
    }
    let end = listed(&job).await;
    assert_eq!(
        unsent(&scene.db()).unwrap(),
        end.ids(State::Dead).len() as u64
    );
    assert!(end.items.len() <= 20, "{}", end.items.len());
}

/// A table in which each row has an address.
async fn customers(rows: &[(&str, usize)]) -> Scene {
    let scene = Scene::with_rows(0).await;
    scene.sql("CREATE TABLE hooks (id INTEGER PRIMARY KEY, url TEXT, secret TEXT, body TEXT, sent_at TEXT)");
    let mut left: Vec<usize> = rows.iter().map(|(_, n)| *n).collect();
    // In turn, so that all are in every cell.
    while left.iter().any(|n| *n > 0) {
        for (i, (url, _)) in rows
            .iter()
            .enumerate()
            .filter(|(i, _)| left[*i] > 0)
            .collect::<Vec<_>>()
        {
            left[i] -= 1;
            scene.sql(&format!(
                "INSERT INTO hooks (url, body) VALUES ('{url}', '{{\"n\": {}}}')",
                left[i]
            ));
        }
    }
    scene
}

fn hooks(scene: &Scene, changes: &Value) -> Notifications {
    let mut params = json!({
        "table": "hooks", "sink": "", "columns": {"url": "url", "payload": "body"}, "allow_private": true, "timeout": "400ms",
    });
    params
        .as_object_mut()
        .unwrap()
        .extend(changes.as_object().unwrap().clone());
    scene.job(params)
}

#[tokio::test]
async fn rows_without_an_address_wait_for_a_sink_that_is_gone() {
    let gone = Rough::start(|request| match request.path.as_str() {
        "all" => Does::Answers(410),
        _ => Does::Answers(200),
    })
    .await;
    let mine = gone.url("mine");
    let scene = customers(&[("", 6), (&mine, 2)]).await;
    let job = hooks(&scene, &json!({"sink": gone.url("all"), "per_host": 1}));
    for (token, batch) in (1..).zip(job.pending(100).await.unwrap()) {
        send(&job, token, &batch).await;
    }
    let end = listed(&job).await;
    assert_eq!((end.counts.dead, end.counts.retry), (1, 5), "{end:?}");
    // One of the sink, and those of the same host that have an address of their own.
    let paths: Vec<String> = gone.requests().into_iter().map(|r| r.path).collect();
    assert_eq!(paths, ["all", "mine", "mine"]);
    // They come back when the hour is over.
    assert!(job.pending(100).await.unwrap().is_empty());
    scene.advance(Duration::from_secs(3601));
    assert!(!job.pending(100).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_endpoint_of_one_customer_holds_up_no_other() {
    let good = Rough::start(|_| Does::Answers(200)).await;
    let busy = Rough::start(|_| Does::AsksToWait(503, 3600)).await;
    let silent = Rough::start(|_| Does::Hangs).await;
    let gone = Rough::start(|_| Does::Answers(410)).await;
    let scene = customers(&[
        (&good.url("a"), 40),
        (&busy.url("b"), 40),
        (&silent.url("c"), 40),
        (&gone.url("d"), 40),
        (&good.url("e"), 40),
    ])
    .await;
    let job = hooks(&scene, &json!({}));
    for (token, batch) in (1..).zip(job.pending(100).await.unwrap()) {
        send(&job, token, &batch).await;
    }
    assert_eq!(good.taken().len(), 80, "in the first round already");
    assert!(busy.requests().len() <= 4, "{}", busy.requests().len());
    assert!(silent.requests().len() <= 12, "{}", silent.requests().len());
    assert!(gone.requests().len() <= 4, "{}", gone.requests().len());
    let end = listed(&job).await;
    assert_eq!(end.counts.dead, 40);
    for item in &end.items {
        let (state, reason) = (item.exception.state, &item.exception.reason);
        match state {
            State::Dead => assert!(reason.contains("410") && reason.contains("off"), "{reason}"),
            State::InDoubt => assert!(reason.contains("no answer in time"), "{reason}"),
            State::Retry if item.exception.attempts == 0 => {
                assert!(reason.starts_with("waits for its receiver"), "{reason}")
            }
            _ => assert!(reason.contains("503"), "{reason}"),
        }
    }
    // Nothing new goes to those that rest, however often one looks.
    let before = (busy.requests().len(), gone.requests().len());
    scene.advance(Duration::from_secs(100));
    for batch in job.pending(100).await.unwrap() {
        send(&job, 100, &batch).await;
    }
    assert_eq!((busy.requests().len(), gone.requests().len()), before);
}

#[tokio::test]
async fn no_more_items_of_one_host_are_under_way_than_are_allowed() {
    let slow = Rough::start(|_| Does::AnswersLate(Duration::from_millis(15), 200)).await;
    let scene = customers(&[(&slow.url("a"), 60)]).await;
    let job = hooks(&scene, &json!({"per_host": 2, "timeout": "10s"}));
    let clock = scene.clock();
    let began = clock.now();
    let batches = job.pending(10).await.unwrap();
    let work = (1..)
        .zip(&batches)
        .map(|(token, batch)| send(&job, token, batch));
    futures_util::future::join_all(work).await;
    assert_eq!(slow.taken().len(), 60);
    // Two at a time: thirty rounds, in whatever cell they are.
    let took = clock.now().since(began);
    assert!(took >= Duration::from_millis(15 * 30), "{took:?}");
}

#[tokio::test]
async fn rows_of_a_slow_receiver_are_put_aside_and_the_replica_is_not_slowed_down() {
    let slow = Rough::start(|_| Does::Hangs).await;
    let scene = customers(&[(&slow.url("a"), 60)]).await;
    let job = hooks(
        &scene,
        &json!({"per_host": 1, "batch_size": 1, "timeout": "1m"}),
    );
    let batches = job.pending(100).await.unwrap();
    let mut others = batches[1..].iter();
    let outcomes = async {
        while slow.requests().is_empty() {
            tokio::task::yield_now().await;
        }
        let first = send(&job, 2, others.next().unwrap()).await;
        assert_eq!(first, Outcome::Done, "after it has waited for a while");
        // Where so many wait in vain, others do not wait as well.
        let work = others.map(|batch| send(&job, 2, batch));
        futures_util::future::join_all(work).await
    };
    let outcomes = tokio::select! {
        outcome = send(&job, 1, &batches[0]) => panic!("{outcome:?}"),
        outcomes = outcomes => outcomes,
    };
    assert!(outcomes.iter().all(|o| *o == Outcome::Done), "{outcomes:?}");
    assert_eq!(slow.requests().len(), 1);
    let waiting = listed(&job).await;
    assert_eq!(waiting.counts.retry, 59);
    let reasons = waiting.items.iter().map(|i| i.exception.reason.as_str());
    assert_eq!(
        reasons.collect::<BTreeSet<_>>(),
        ["waits for its receiver"].into()
    );
}

#[tokio::test]
async fn each_customer_verifies_with_a_secret_of_their_own() {
    let receiver = Rough::start(|_| Does::Answers(200)).await;
    let scene = customers(&[
        (&receiver.url("a"), 1),
        (&receiver.url("b"), 1),
        (&receiver.url("c"), 1),
    ])
    .await;
    let secret = |c: &str| format!("whsec_{}", c.repeat(32));
    for c in ["a", "b"] {
        scene.sql(&format!(
            "UPDATE hooks SET secret = '{}' WHERE url LIKE '%/{c}'",
            secret(c)
        ));
    }
    let columns = json!({"url": "url", "secret": "secret"});
    let job = hooks(
        &scene,
        &json!({"columns": columns, "body": "{\"event\": ${body:json}}"}),
    );
    send(&job, 1, "hooks/50/0").await;
    let requests = receiver.requests();
    assert_eq!(requests.len(), 2, "what cannot be signed is not sent");
    for request in &requests {
        let headers = request
            .headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let headers: reqwest::header::HeaderMap = headers.collect();
        let verifies = |c: &str| {
            standardwebhooks::Webhook::new(&secret(c))
                .unwrap()
                .verify(&request.body, &headers)
                .is_ok()
        };
        assert_eq!(
            (verifies("a"), verifies("b")),
            (request.path == "a", request.path == "b")
        );
        assert_eq!(request.json(), json!({"event": {"n": 0}}));
    }
    let dead = listed(&job).await;
    assert_eq!(dead.counts.dead, 1);
    assert!(!format!("{dead:?} {job:?}").contains("whsec_"), "{dead:?}");
}

#[tokio::test]
async fn what_is_for_the_sink_alone_is_not_sent() {
    let receiver = Rough::start(|_| Does::Answers(200)).await;
    let scene = customers(&[(&receiver.url("a"), 1)]).await;
    let secret = format!("whsec_{}", "a".repeat(32));
    scene.sql(&format!("UPDATE hooks SET secret = '{secret}'"));
    let columns = json!({"url": "URL", "secret": "Secret"});
    let job = hooks(&scene, &json!({ "columns": columns }));
    send(&job, 1, "hooks/50/0").await;
    let requests = receiver.requests();
    let sent = requests[0].json();
    assert_eq!(
        sent,
        json!({"id": 1, "table": "hooks", "body": "{\"n\": 0}"})
    );
}

#[tokio::test]
async fn an_address_inside_is_dead_with_the_reason() {
    let inside = Rough::start(|_| Does::Answers(200)).await;
    let by_name = inside.url("x").replace("127.0.0.1", "localhost");
    let scene = customers(&[
        (&inside.url("x"), 1),
        (&by_name, 1),
        ("http://[fd00::1]/", 1),
        ("not an address", 1),
    ])
    .await;
    let job = hooks(&scene, &json!({"allow_private": false}));
    send(&job, 1, "hooks/50/0").await;
    assert_eq!(
        (inside.requests().len(), listed(&job).await.counts.dead),
        (0, 4)
    );
    let reasons: Vec<String> = listed(&job)
        .await
        .items
        .into_iter()
        .map(|i| i.exception.reason)
        .collect();
    for (reason, says) in reasons.iter().zip([
        "127.0.0.1 leads to an address of this machine",
        "localhost leads to",
        "a private address",
        "is not valid",
    ]) {
        assert!(reason.contains(says), "{reason}");
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_sent_is_dead_and_the_others_go() {
    let receiver = Rough::start(|_| Does::Answers(200)).await;
    let scene = Scene::with_rows(5).await;
    scene.sql(
        "UPDATE notifications SET body = '{\"id\": 1, \"to\": \"x\"}';
         UPDATE notifications SET body = 'no JSON' WHERE id = 2;
         UPDATE notifications SET body = '{}' WHERE id = 3;
         UPDATE notifications SET body = '{\"id\": 1, \"to\": \"' || replace(hex(zeroblob(25000000)), '00', 'xx') || '\"}' WHERE id = 4;
         UPDATE notifications SET body = '{\"id\": 1, \"to\": \"' || replace(hex(zeroblob(550000)), '00', 'xx') || '\"}' WHERE id = 5",
    );
    let body = "{\"id\": ${body.id}, \"to\": \"${body.to}\"}";
    let job = scene.job(json!({"sink": receiver.url(""), "body": body}));
    // The large one ends a batch, so that the next row comes with the next.
    for token in [1, 2] {
        send(&job, token, "notifications/50/0").await;
    }
    assert_eq!(
        (receiver.requests().len(), unsent(&scene.db()).unwrap()),
        (1, 4)
    );
    let reasons: Vec<String> = listed(&job)
        .await
        .items
        .into_iter()
        .map(|i| i.exception.reason)
        .collect();
    for (reason, says) in reasons.iter().zip([
        "`${body.id}` needs JSON",
        "no `id`",
        "its body has 500000",
        "its body has 11000",
    ]) {
        assert!(reason.contains(says), "{reason}");
    }
    assert_eq!(listed(&job).await.counts.dead, 4);
}

#[tokio::test]
async fn a_column_that_a_text_names_must_be_there() {
    let scene = Scene::with_rows(1).await;
    let job = scene.job(json!({"body": "${greeting}"}));
    let error = job.pending(1).await.unwrap_err().to_string();
    assert!(
        error.contains("no column `greeting`") && error.contains("recipient"),
        "{error}"
    );
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_a_clear_reason() {
    // Any listener that is no TLS server will do: the greeting fails.
    let plain = Rough::start(|_| Does::Answers(200)).await;
    let scene = Scene::with_rows(1).await;
    let job = scene.job(json!({"sink": plain.url("s3cret").replace("http://", "https://")}));
    send(&job, 1, "notifications/50/0").await;
    let waiting = listed(&job).await;
    let reason = &waiting.items[0].exception.reason;
    assert!(
        reason.starts_with("no connection") && !reason.contains("s3cret"),
        "{reason}"
    );
    assert_eq!(
        (waiting.counts.retry, waiting.doubted_ever),
        (1, 0),
        "nothing has left"
    );
}
