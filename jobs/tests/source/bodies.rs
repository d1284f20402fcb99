//! What is sent of a row, whatever stands in it.

use serde_json::{Value, json};
use watchkeeper::batch::BatchJob;
use watchkeeper_jobs::notifications::{ItemId, State};

use crate::{
    rough::{Does, Rough},
    scene::Scene,
    sender::{listed, send},
};

/// What a file received.
fn lines(scene: &Scene) -> Vec<Value> {
    let text = std::fs::read_to_string(scene.folder.path().join("sent.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

fn to_a_file(scene: &Scene) -> String {
    format!(
        "file://{}",
        scene.folder.path().join("sent.jsonl").display()
    )
}

pub(crate) async fn values_of_every_type_are_sent_without_loss() {
    let scene = Scene::with_rows(0).await;
    scene.sql(
        r#"CREATE DOMAIN price AS numeric(30, 10);
           CREATE TABLE mixed (id int PRIMARY KEY, n price, b bytea, j json, a int[], t timestamptz, x text, f float8, sent_at timestamptz);
           INSERT INTO mixed VALUES (1, 12345678901234567890.0123456789, '\xdeadbeef', '{"a": "\u0000\ud800"}', '{1,2}',
               '2026-01-02T03:04:05+06', NULL, 'NaN', NULL);
           CREATE TABLE payloads (id int PRIMARY KEY, body jsonb, sent_at timestamptz);
           INSERT INTO payloads VALUES (1, '{"id": "forged", "to": "x"}'), (2, '[1]'), (3, NULL), (4, '"{\"to\": \"y\"}"');"#,
    );
    let sink = to_a_file(&scene);
    scene
        .send_all(&scene.job(json!({"table": "mixed", "sink": sink})), 1)
        .await;
    let sent = &lines(&scene)[0];
    assert_eq!(sent["n"], "12345678901234567890.0123456789");
    assert_eq!(
        (&sent["b"], &sent["a"]),
        (&json!("deadbeef"), &json!([1, 2]))
    );
    assert_eq!(sent["t"], "2026-01-01T21:04:05+00:00");
    assert_eq!((&sent["x"], &sent["f"]), (&Value::Null, &json!("NaN")));
    // What no reader takes as JSON comes as the text that it is.
    assert!(sent["j"].as_str().unwrap().contains(r"\ud800"), "{sent}");

    std::fs::remove_file(scene.folder.path().join("sent.jsonl")).unwrap();
    let params = json!({"table": "payloads", "sink": sink, "columns": {"payload": "body"}});
    scene.send_all(&scene.job(params), 1).await;
    let mut sent = lines(&scene);
    sent.sort_by_key(|line| line["id"].as_i64());
    assert_eq!((&sent[0]["id"], &sent[0]["to"]), (&json!(1), &json!("x")));
    assert_eq!(sent[1]["payload"], json!([1]));
    assert_eq!(sent[2]["payload"], Value::Null);
    assert_eq!(sent[3]["to"], "y");
}

pub(crate) async fn a_body_that_is_one_column_is_sent_as_it_stands_there() {
    let json = r#"{"z": 12345678901234567.89,  "a": 1}"#;
    for (kind, expected) in [
        ("text", json),
        ("json", json),
        ("jsonb", r#"{"a": 1, "z": 12345678901234567.89}"#),
    ] {
        let scene = Scene::with_rows(0).await;
        scene.sql(&format!(
            "CREATE TABLE bodies (id int PRIMARY KEY, body {kind}, sent_at timestamptz); INSERT INTO bodies VALUES (1, '{json}')"
        ));
        let rough = Rough::start(|_| Does::Answers(200)).await;
        let params = json!({"table": "bodies", "sink": rough.url(""), "body": "${body}"});
        scene.send_all(&scene.job(params), 1).await;
        let request = rough.requests().remove(0);
        assert_eq!(String::from_utf8(request.body).unwrap(), expected, "{kind}");
    }
}

pub(crate) async fn large_bodies_take_turns_and_too_large_ones_are_dead() {
    let scene = Scene::with_rows(0).await;
    scene.sql(
        "CREATE TABLE large (id int PRIMARY KEY, body text, sent_at timestamptz);
         INSERT INTO large SELECT i, repeat('x', 5 << 20) FROM generate_series(1, 4) AS i;
         INSERT INTO large VALUES (5, repeat('x', 70 << 20)), (6, 'small');",
    );
    let sink = to_a_file(&scene);
    let job = scene.job(json!({"table": "large", "sink": sink, "timeout": "60s"}));
    let batch = job.pending(9).await.unwrap();
    assert_eq!(batch, ["large/50/0"]);
    send(&job, 1, &batch[0]).await;
    let unsent = "SELECT count(*) FROM large WHERE sent_at IS NULL";
    assert_eq!(
        scene.number(unsent),
        4,
        "more than eight megabytes wait for the next one"
    );
    scene.send_all(&job, 2).await;
    assert_eq!(scene.number(unsent), 1);
    let dead = listed(&job).await;
    assert_eq!(dead.ids(State::Dead), [ItemId::Int(5)]);
    let reason = &dead.items[0].exception.reason;
    assert_eq!(reason, "its body has 70 MiB; at most 64 MiB are sent");
}

pub(crate) async fn rows_without_an_id_are_left_alone() {
    let scene = Scene::with_rows(0).await;
    scene.sql(
        "CREATE TABLE holes (id text UNIQUE, sent_at timestamptz);
         INSERT INTO holes VALUES (NULL), (NULL), (''), ('a');",
    );
    let job = scene.job(json!({"table": "holes"}));
    scene.send_all(&job, 1).await;
    assert_eq!(
        (scene.tally().accepted, job.backlog().await.unwrap()),
        (2, 2)
    );
}
