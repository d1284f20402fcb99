//! Addresses, secrets and texts for receivers, from columns of this database's types.

use serde_json::{Value, json};
use watchkeeper_jobs::{Notifications, notifications::ItemId};

use crate::{
    mail_server::{self, MailServer},
    rough::{Does, Rough},
    scene::Scene,
    sender::{listed, send},
};

/// A table of events for customers.
async fn hooks() -> Scene {
    let scene = Scene::with_rows(0).await;
    scene.sql(
        "CREATE TABLE hooks (id int PRIMARY KEY, url text, secret varchar(99), event jsonb NOT NULL, sent_at timestamptz)",
    );
    scene
}

fn job(scene: &Scene, changes: &Value) -> Notifications {
    let mut params = json!({
        "table": "hooks", "sink": "", "columns": {"url": "url", "secret": "Secret"}, "allow_private": true,
    });
    let changes = changes.as_object().unwrap().clone();
    params.as_object_mut().unwrap().extend(changes);
    scene.job(params)
}

fn secret(c: &str) -> String {
    format!("whsec_{}", c.repeat(32))
}

pub(crate) async fn each_row_goes_to_its_address_signed_with_its_secret() {
    let receiver = Rough::start(|_| Does::Answers(200)).await;
    let scene = hooks().await;
    for (id, c) in [(1, "a"), (2, "b")] {
        scene.sql(&format!(
            "INSERT INTO hooks VALUES ({id}, '{}', '{}', '{{\"n\": {id}}}')",
            receiver.url(c),
            secret(c)
        ));
    }
    scene.sql(&format!(
        "INSERT INTO hooks VALUES (3, '{}', NULL, '{{}}'), (4, NULL, '{}', '{{}}')",
        receiver.url("c"),
        secret("c")
    ));
    let job = job(&scene, &json!({}));
    send(&job, 1, "hooks/50/0").await;
    let requests = receiver.requests();
    assert_eq!(requests.len(), 2, "what has no address or secret stays");
    for request in &requests {
        let (id, c) = if request.path == "a" {
            (1, "a")
        } else {
            (2, "b")
        };
        let headers = request
            .headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let headers: reqwest::header::HeaderMap = headers.collect();
        let webhook = standardwebhooks::Webhook::new(&secret(c)).unwrap();
        webhook.verify(&request.body, &headers).unwrap();
        // Neither the address nor the secret is in it.
        let sent = json!({"id": id, "table": "hooks", "event": {"n": id}});
        assert_eq!(request.json(), sent);
    }
    let dead = listed(&job).await;
    assert_eq!(dead.counts.dead, 2);
    assert!(!format!("{dead:?} {job:?}").contains("whsec_"), "{dead:?}");
}

pub(crate) async fn a_text_takes_columns_of_every_type() {
    let receiver = Rough::start(|_| Does::Answers(200)).await;
    let scene = Scene::with_rows(0).await;
    scene.sql(
        r#"CREATE TABLE orders (id uuid PRIMARY KEY, who text, n bigint, price numeric(9, 2), at date, note text, details jsonb,
               sent_at timestamptz);
           INSERT INTO orders VALUES ('0190b5a4-1c2d-7e3f-8a9b-0c1d2e3f4a5b', 'Ann "the" O''Hara', 9007199254740993, 12.50,
               '2026-01-02', NULL, '{"city": "Ulm", "tags": [1, 2]}'), ('0190b5a4-1c2d-7e3f-8a9b-0c1d2e3f4a5c', 'x', 1, 1,
               '2026-01-02', '', '{}');"#,
    );
    let body = r#"{"id": "${id}", "to": "${who}", "n": ${n}, "price": "${price}", "at": ${at}, "note": ${note},
        "city": "${details.city}", "all": ${details:json}}"#;
    let job = scene.job(json!({"table": "orders", "sink": receiver.url(""), "body": body}));
    scene.send_all(&job, 1).await;
    let requests = receiver.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(
        requests[0].json(),
        json!({
            "id": "0190b5a4-1c2d-7e3f-8a9b-0c1d2e3f4a5b", "to": "Ann \"the\" O'Hara", "n": 9_007_199_254_740_993_i64,
            "price": "12.50", "at": "2026-01-02", "note": null, "city": "Ulm",
            "all": {"city": "Ulm", "tags": [1, 2]},
        })
    );
    let dead = listed(&job).await;
    let [item] = dead.items.as_slice() else {
        panic!("{dead:?}");
    };
    let other = "0190b5a4-1c2d-7e3f-8a9b-0c1d2e3f4a5c";
    assert_eq!(item.id, ItemId::Text(other.to_owned()));
    assert!(item.exception.reason.contains("no `city`"), "{dead:?}");
}

pub(crate) async fn rows_go_as_mails() {
    let server = MailServer::start(|_, _| mail_server::Does::Agrees).await;
    let scene = Scene::with_rows(3).await;
    let mail = json!({
        "from": "Shop <shop@example.org>", "to": "${recipient}", "subject": "Number ${id}", "text": "${body}",
    });
    let job = scene.job(json!({"sink": server.url(), "mail": mail}));
    scene.send_all(&job, 1).await;
    let mut taken = server.taken();
    taken.sort_by(|a, b| a.to.cmp(&b.to));
    let to: Vec<&str> = taken.iter().map(|mail| mail.to.as_str()).collect();
    let all = [1, 2, 3].map(|i| format!("user{i}@example.org"));
    assert!(
        to.iter().zip(&all).all(|(to, all)| to.contains(all)),
        "{to:?}"
    );
    assert!(taken[2].text.contains("Notification 3"), "{taken:?}");
    assert_eq!((taken.len(), scene.unsent()), (3, 0));
}
