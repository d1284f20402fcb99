//! Rows that go as mails, and servers that fail at each stage. Costs about six seconds, if one case runs after the other.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use serde_json::{Value, json};
use watchkeeper::batch::BatchJob;
use watchkeeper_jobs::{
    Notifications,
    demo_table::unsent,
    notifications::{Exceptions, State},
};

use crate::{
    mail_server::{Does, MailServer, Stage, Taken},
    scene::Scene,
    sender::{listed, send},
};

pub(crate) const BATCH: &str = "notifications/50/0";

pub(crate) fn mailer(
    scene: &Scene,
    server: &MailServer,
    mail: &Value,
    changes: &Value,
) -> Notifications {
    let mut all = json!({
        "from": "Shop <shop@example.org>", "to": "${recipient}", "subject": "Number ${id}", "text": "${body}",
    });
    all.as_object_mut()
        .unwrap()
        .extend(mail.as_object().unwrap().clone());
    let mut params = json!({"sink": server.url(), "mail": all, "timeout": "2s"});
    params
        .as_object_mut()
        .unwrap()
        .extend(changes.as_object().unwrap().clone());
    scene.job(params)
}

pub(crate) async fn rows(n: usize) -> Scene {
    let scene = Scene::with_rows(n).await;
    scene.sql("UPDATE notifications SET recipient = 'user' || id || '@example.com'");
    scene
}

/// What becomes of one mail when the server does this at that stage, and what the server has then.
async fn after(stage: Stage, does: Does, mail: &Value) -> (Exceptions, Vec<Taken>) {
    let server =
        MailServer::start(move |at, _| if at == stage { does } else { Does::Agrees }).await;
    let scene = rows(1).await;
    let timeout = if matches!(does, Does::Hangs) {
        "1s"
    } else {
        "10s"
    };
    let job = mailer(&scene, &server, mail, &json!({"timeout": timeout}));
    send(&job, 1, BATCH).await;
    (listed(&job).await, server.taken())
}

fn header<'t>(mail: &'t Taken, name: &str) -> &'t str {
    let line = mail.text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name} in {}", mail.text))
}

#[tokio::test]
async fn many_mails_go_over_few_connections() {
    let server = MailServer::start(|_, _| Does::Agrees).await;
    let scene = rows(60).await;
    scene.sql(
        "UPDATE notifications SET body = 'a' || char(10) || '.' || char(10) || '..b' WHERE id = 7",
    );
    let job = mailer(
        &scene,
        &server,
        &json!({"html": "<b>${body}</b>"}),
        &json!({}),
    );
    for (token, batch) in (1..).zip(job.pending(10).await.unwrap()) {
        send(&job, token, &batch).await;
    }
    let mails = server.taken();
    assert_eq!((mails.len(), unsent(&scene.db()).unwrap()), (60, 0));
    assert!(server.connections() <= 4, "{}", server.connections());
    let of = |id: &str| {
        mails
            .iter()
            .find(|m| m.to == format!("user{id}@example.com"))
            .unwrap()
    };
    assert_eq!(of("7").from, "shop@example.org");
    assert_eq!(header(of("8"), "Subject: "), "Number 8");
    assert_eq!(header(of("8"), "From: "), "Shop <shop@example.org>");
    assert!(header(of("8"), "X-Entity-Ref-ID: ").ends_with("/notifications/8"));
    let ids: BTreeSet<&str> = mails.iter().map(|m| header(m, "Message-ID: ")).collect();
    assert_eq!(ids.len(), 60);
    assert!(
        ids.iter()
            .all(|id| id.starts_with("<wk_") && id.ends_with("@example.org>"))
    );
    // A line of one dot in the text does not end it.
    assert!(
        of("7").text.contains("\r\n..\r\n") && of("7").text.contains("\r\n...b"),
        "{}",
        of("7").text
    );
}

#[tokio::test]
async fn what_a_server_says_decides_at_each_stage() {
    let refusals = [Stage::Recipient, Stage::Permission, Stage::Text];
    for stage in [
        Stage::Sender,
        Stage::Recipient,
        Stage::Permission,
        Stage::Text,
    ] {
        for code in [421, 450, 451, 452, 454, 550, 552] {
            let (end, taken) = after(stage, Does::Answers(code), &json!({})).await;
            let counts = end.counts;
            let dead = code >= 500 && refusals.contains(&stage);
            assert_eq!(
                (counts.dead, counts.retry),
                (u64::from(dead), u64::from(!dead)),
                "{stage:?} {code}: {end:?}"
            );
            assert_eq!((taken.len(), end.doubted_ever), (0, 0), "{stage:?} {code}");
            let exception = &end.items[0].exception;
            assert!(
                exception.reason.contains(&code.to_string()),
                "{exception:?}"
            );
            // A refused sender is no fault of the row.
            let free = stage == Stage::Sender && code >= 500;
            assert_eq!(exception.attempts, u32::from(!free), "{stage:?} {code}");
        }
    }
    for stage in [Stage::Greeting, Stage::Hello] {
        let (end, _) = after(stage, Does::Answers(554), &json!({})).await;
        let exception = &end.items[0].exception;
        assert_eq!(
            (exception.state, exception.attempts),
            (State::Retry, 0),
            "{end:?}"
        );
    }
}

#[tokio::test]
async fn a_connection_that_breaks_or_hangs_leaves_doubt_after_the_text_alone() {
    for does in [Does::Breaks, Does::Hangs] {
        let stages = [
            Stage::Greeting,
            Stage::Hello,
            Stage::Sender,
            Stage::Recipient,
            Stage::Permission,
            Stage::Text,
        ];
        let none = json!({});
        let ends = stages.map(|stage| after(stage, does, &none));
        let ends = futures_util::future::join_all(ends).await;
        for (stage, (end, taken)) in stages.into_iter().zip(ends) {
            let doubt = u64::from(stage == Stage::Text);
            assert_eq!(
                (end.counts.in_doubt, end.counts.retry),
                (doubt, 1 - doubt),
                "{stage:?} {does:?}: {end:?}"
            );
            assert_eq!((taken.len() as u64, end.doubted_ever), (doubt, doubt));
        }
    }
}

#[tokio::test]
async fn a_mail_in_doubt_comes_again_with_the_same_id_or_is_parked() {
    for (in_doubt, mails) in [("repeat", 2), ("park", 1)] {
        let texts = AtomicUsize::new(0);
        let server = MailServer::start(move |at, _| match at {
            Stage::Text if texts.fetch_add(1, Ordering::SeqCst) == 0 => Does::Breaks,
            _ => Does::Agrees,
        })
        .await;
        let scene = rows(1).await;
        let job = mailer(&scene, &server, &json!({}), &json!({"in_doubt": in_doubt}));
        send(&job, 1, BATCH).await;
        scene.advance(Duration::from_secs(60));
        for batch in job.pending(9).await.unwrap() {
            send(&job, 2, &batch).await;
        }
        let taken = server.taken();
        assert_eq!(taken.len(), mails, "{in_doubt}");
        let ids: BTreeSet<&str> = taken.iter().map(|m| header(m, "Message-ID: ")).collect();
        assert_eq!(ids.len(), 1);
        assert_eq!(
            listed(&job).await.counts.parked,
            u64::from(in_doubt == "park")
        );
    }
}

#[tokio::test]
async fn a_busy_server_is_left_alone_and_no_mail_loses_an_attempt_for_it() {
    let server = MailServer::start(|at, mail| match at {
        Stage::Sender if mail.connection <= 4 => Does::Answers(421),
        _ => Does::Agrees,
    })
    .await;
    let scene = rows(200).await;
    let job = mailer(&scene, &server, &json!({}), &json!({}));
    send(&job, 1, BATCH).await;
    assert!(server.connections() <= 4, "{}", server.connections());
    let waiting = listed(&job).await.items;
    assert!(
        waiting.len() <= 4,
        "the others are unsent rows as before: {waiting:?}"
    );
    for round in 2..20 {
        scene.advance(Duration::from_secs(61));
        for batch in job.pending(10).await.unwrap() {
            send(&job, round, &batch).await;
        }
    }
    assert_eq!(
        (server.taken().len(), unsent(&scene.db()).unwrap()),
        (200, 0)
    );
}

#[tokio::test]
async fn rows_that_are_no_mails_are_dead_and_add_nothing() {
    let server = MailServer::start(|_, _| Does::Agrees).await;
    let scene = rows(5).await;
    scene.sql(
        "UPDATE notifications SET recipient = 'a@example.com' || char(13) || char(10) || 'Bcc: b@example.com' WHERE id = 1;
         UPDATE notifications SET recipient = 'a@example.com, b@example.com' WHERE id = 2;
         UPDATE notifications SET recipient = '' WHERE id = 3;
         UPDATE notifications SET body = 'x' || char(13) || char(10) || 'Bcc: b@example.com' WHERE id = 4",
    );
    let job = mailer(
        &scene,
        &server,
        &json!({"subject": "${body}", "text": "Hello"}),
        &json!({}),
    );
    send(&job, 1, BATCH).await;
    assert_eq!(
        (server.taken().len(), listed(&job).await.counts.dead),
        (1, 4)
    );
    let said = format!("{:?} {:?}", server.heard(), server.taken());
    assert!(
        !said.contains("b@example.com") && !said.contains("Bcc"),
        "{said}"
    );
}

#[tokio::test]
async fn a_password_is_given_and_never_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "hunter2hunter2\n").unwrap();
    let mail = json!({"username": "shop", "password_file": file});
    let (end, taken) = after(Stage::Greeting, Does::Agrees, &mail).await;
    assert_eq!((taken.len(), end.items.len()), (1, 0));
    // A wrong one is a setting: rows wait, and keep their attempts.
    let (end, _) = after(Stage::Password, Does::Answers(535), &mail).await;
    let exception = &end.items[0].exception;
    assert_eq!((exception.state, exception.attempts), (State::Retry, 0));
    assert!(
        exception
            .reason
            .contains("the password was refused: answered 535"),
        "{exception:?}"
    );
    let server = MailServer::start(|_, _| Does::Agrees).await;
    let scene = rows(1).await;
    let url = server
        .url()
        .replace("smtp://", "smtp://shop:hunter2hunter2@");
    let job = mailer(&scene, &server, &json!({}), &json!({"sink": url}));
    send(&job, 1, BATCH).await;
    let auth = server
        .heard()
        .into_iter()
        .find(|line| line.starts_with("AUTH"))
        .unwrap();
    assert!(
        auth.starts_with("AUTH PLAIN AHNob3AAaHVudGVyMmh1bnRlcjI"),
        "{auth}"
    );
    assert!(!format!("{job:?} {:?}", listed(&job).await).contains("hunter2"));
}

#[tokio::test]
async fn a_server_without_the_wanted_encryption_is_told_nothing() {
    let server = MailServer::start(|_, _| Does::Agrees).await;
    let at_once = server.url().replace("smtp://", "smtps://");
    for (mail, changes, says) in [
        (
            json!({"tls": "required"}),
            json!({}),
            "no STARTTLS; write `smtps://`",
        ),
        (json!({}), json!({"sink": at_once}), "no connection"),
    ] {
        let scene = rows(1).await;
        let mut mail = mail;
        mail["username"] = "shop".into();
        mail["password"] = "hunter2".into();
        let job = mailer(&scene, &server, &mail, &changes);
        send(&job, 1, BATCH).await;
        let end = listed(&job).await;
        let exception = &end.items[0].exception;
        assert_eq!((exception.state, exception.attempts), (State::Retry, 0));
        assert!(exception.reason.contains(says), "{exception:?}");
        assert_eq!(unsent(&scene.db()).unwrap(), 1);
    }
    let said = server.heard();
    assert!(said.iter().any(|line| line.starts_with("EHLO")), "{said:?}");
    for secret in ["AUTH", "MAIL", "RCPT", "DATA"] {
        assert!(
            !said.iter().any(|line| line.starts_with(secret)),
            "{said:?}"
        );
    }
    assert_eq!(server.taken().len(), 0);
}
