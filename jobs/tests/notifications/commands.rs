//! `watchkeeper notify` as a person uses it: the real command, beside senders that work, hang and die; the same on every
//! database.

use std::{path::Path, process::Stdio, time::Duration};

use serde_json::{Value, json};
use tokio::process::{Child, Command};
use watchkeeper::{
    batch::BatchJob,
    clock::{Clock, Moment},
    fleet::items::{ItemOrder, ItemState, ItemsAsked, KeptItems, WhichItems},
    spawn::Spawn,
};
use watchkeeper_jobs::{
    notifications::{Did, FIRST_STEP, ItemId, NotificationItems, State},
    receiver::Faults,
};

use crate::{
    command::{self, Ran},
    scene::Scene,
    sender::{listed, run, send},
};

const BATCH: &str = "notifications/50/0";
/// For what happens within a second or two on an idle machine.
const LONG: Duration = Duration::from_secs(60);

fn watchkeeper(folder: &Path) -> Command {
    let mut command = Command::from(command::watchkeeper(folder));
    command.kill_on_drop(true);
    command
}

pub(crate) async fn notify(scene: &Scene, args: &[&str]) -> Ran {
    let mut command = watchkeeper(scene.folder.path());
    command
        .arg("notify")
        .args(args)
        .output()
        .await
        .unwrap()
        .into()
}

/// A configuration with this table as the job `mail`.
pub(crate) fn configure(scene: &Scene, more: &str) {
    let toml = format!(
        "[worker]\nname = \"a\"\n[locks]\nttl = \"2s\"\n[locks.embedded]\npath = \"store.db\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n\
         [jobs.mail]\nkind = \"notifications\"\nschedule = \"continuous\"\ncoordination = \"batch\"\n\
         [jobs.mail.params]\nsource = \"{}\"\ntable = \"notifications\"\nsink = \"{}\"\n{more}",
        scene.source(),
        scene.receiver.url()
    );
    std::fs::write(scene.folder.path().join("watchkeeper.toml"), toml).unwrap();
}

/// Six rows, all of them refused for good.
async fn six_dead() -> Scene {
    let scene = Scene::with_rows(6).await;
    configure(&scene, "");
    scene.receiver.behave(Faults {
        refuse_next: 6,
        status: 400,
        ..Faults::default()
    });
    send(&scene.job(json!({})), 7, BATCH).await;
    scene
}

pub(crate) fn number(value: &Value, key: &str) -> u64 {
    value[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key}: {value}"))
}

async fn until<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let clock = Clock::system();
    let end: Moment = clock.now() + LONG;
    while !holds().await {
        assert!(clock.now() < end, "{what}");
        clock.sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn dead_items_are_counted_and_listed_with_their_reason() {
    let scene = six_dead().await;
    let status = notify(&scene, &["status", "--json"]).await.ok().json();
    let row = &status[0];
    assert_eq!(
        (row["job"].as_str(), row["served"].as_bool(), &row["error"]),
        (Some("mail"), Some(true), &Value::Null)
    );
    let counts = [
        "backlog",
        "retry",
        "dead",
        "parked",
        "in_doubt",
        "batches_open",
    ];
    let counts = counts.map(|key| number(row, key));
    assert_eq!(counts, [0, 0, 6, 0, 0, 0], "{row}");
    let text = notify(&scene, &["status"]).await.ok().out;
    assert!(text.contains("notify dead mail"), "{text}");

    let page = notify(&scene, &["dead", "--limit", "4", "--json"])
        .await
        .ok()
        .json();
    assert_eq!(page.as_array().map(Vec::len), Some(4));
    let first = &page[0];
    assert_eq!(first["id"], 1);
    assert_eq!(first["state"], "dead");
    assert_eq!(first["row"], "unsent");
    assert_eq!(first["token"], 7);
    assert_eq!(first["batch"], BATCH);
    assert_eq!(first["not_before"], Value::Null);
    assert!(first["reason"].as_str().unwrap().contains("400"), "{first}");
    assert!(first["key"].as_str().unwrap().ends_with("/notifications/1"));
    let rest = ["dead", "mail", "--limit", "4", "--after", "4", "--json"];
    let rest = notify(&scene, &rest).await.ok().json();
    let ids: Vec<&Value> = rest.as_array().unwrap().iter().map(|e| &e["id"]).collect();
    assert_eq!(ids, [5, 6]);
    let text = notify(&scene, &["dead", "--limit", "4"]).await.ok().out;
    assert!(text.ends_with("4 of 6; the next: --after 4\n"), "{text}");
    let text = notify(&scene, &["dead", "--state", "parked"])
        .await
        .ok()
        .out;
    assert_eq!(text, "mail: no item is parked\n");
}

pub(crate) async fn what_is_named_is_sent_again_with_the_same_key_and_attempts_counted_anew() {
    let scene = six_dead().await;
    let ran = notify(&scene, &["retry", "2", "mail"]).await;
    assert_eq!(ran.code, Some(1), "an id that is none: {}", ran.err);
    let ran = notify(&scene, &["retry", "mail", "5", "2", "77"]).await;
    assert_eq!(ran.code, Some(1));
    assert_eq!(
        ran.out,
        "mail: 2 to be sent again\nmail: 1 left alone: not there, or sent\n"
    );
    assert!(
        ran.err.contains("77: there is no unsent row"),
        "{}",
        ran.err
    );
    let job = scene.job(json!({}));
    let waiting = listed(&job).await;
    assert_eq!((waiting.counts.retry, waiting.counts.dead), (2, 4));
    let item = &waiting.items[1];
    assert_eq!((&item.id, item.exception.attempts), (&ItemId::Int(2), 0));
    assert!(item.exception.reason.contains("400"), "the reason stays");

    send(&job, 8, BATCH).await;
    let tally = scene.tally();
    assert_eq!((tally.accepted, tally.requests), (2, 8));
    assert_eq!(scene.unsent(), 4);
    // What was sent meanwhile is nobody's any more.
    let ran = notify(&scene, &["retry", "5", "--json"]).await;
    assert_eq!((ran.code, number(&ran.json(), "unknown")), (Some(1), 1));
}

pub(crate) async fn the_page_lists_and_changes_what_the_command_does() {
    let scene = six_dead().await;
    let params = json!({
        "source": scene.source(), "table": "notifications", "sink": scene.receiver.url(),
    });
    let list = async |states: &[ItemState], after: Option<&str>, limit: usize| {
        let asked = ItemsAsked {
            states: states.to_vec(),
            after: after.map(str::to_owned),
            limit,
        };
        let params = params.clone();
        let listed = move || NotificationItems.list(&params, &asked);
        tokio::task::spawn_blocking(listed).await.unwrap().unwrap()
    };
    let change = async |order, which: WhichItems| {
        let params = params.clone();
        let changed = move || NotificationItems.change(&params, order, &which);
        tokio::task::spawn_blocking(changed).await.unwrap()
    };
    let named = |ids: &[&str]| WhichItems::Named(ids.iter().map(|id| (*id).to_owned()).collect());

    let page = list(&[ItemState::Dead], None, 4).await;
    let ids: Vec<&str> = page.items.iter().map(|item| item.id.as_str()).collect();
    assert_eq!((ids, page.more), (vec!["1", "2", "3", "4"], true));
    let told = notify(&scene, &["dead", "--json"]).await.ok().json();
    for (item, told) in page.items.iter().zip(told.as_array().unwrap()) {
        assert_eq!((item.state, item.row.as_str()), (ItemState::Dead, "unsent"));
        assert_eq!(told["reason"], item.reason);
        assert_eq!(told["key"], item.key);
        assert_eq!(told["attempts"], item.attempts);
        assert!(item.since.is_some() && item.reason.contains("400"));
    }
    let rest = list(&[ItemState::Dead], Some("4"), 4).await;
    assert_eq!((rest.items.len(), rest.more), (2, false));
    let parked = list(&[ItemState::Parked], None, 4).await;
    assert!(parked.items.is_empty(), "{parked:?}");

    let parked = change(ItemOrder::Park, named(&["6", "77", "6"])).await;
    let parked = parked.unwrap();
    let counts = (parked.changed, parked.unchanged, parked.unknown);
    assert_eq!(counts, (1, 0, 1), "each item once");
    assert_eq!(parked.left_alone[0].id, "77");
    let dead_behind = |after: Option<&str>| WhichItems::All {
        state: ItemState::Dead,
        after: after.map(str::to_owned),
    };
    let all = change(ItemOrder::Park, dead_behind(None)).await;
    assert!(all.unwrap_err().contains("one by one"));
    let again = change(ItemOrder::Retry, named(&["2"])).await.unwrap();
    assert_eq!(again.changed, 1);
    // Of 1, 3, 4 and 5, which are left.
    let again = change(ItemOrder::Retry, dead_behind(Some("3"))).await;
    assert_eq!(again.unwrap().changed, 2);
    let again = change(ItemOrder::Retry, dead_behind(None)).await;
    let again = again.unwrap();
    assert_eq!((again.changed, again.more), (2, false));
    let parked = WhichItems::All {
        state: ItemState::Parked,
        after: None,
    };
    let discarded = change(ItemOrder::Discard, parked).await.unwrap();
    assert_eq!((discarded.changed, discarded.more), (1, false));
    let listed = list(&[ItemState::Discarded], None, 4).await;
    assert_eq!(listed.items[0].id, "6", "{listed:?}");
    let discarded = change(ItemOrder::Discard, named(&["6", "5"])).await;
    let discarded = discarded.unwrap();
    assert_eq!((discarded.changed, discarded.unchanged), (1, 1));
    let status = notify(&scene, &["status", "--json"]).await.ok().json();
    let counts = ["dead", "retry", "parked", "discarded"];
    let counts = counts.map(|key| number(&status[0], key));
    assert_eq!(counts, [0, 4, 0, 2], "{status}");
    let expected = scene.take_away();
    let gone = change(ItemOrder::Retry, named(&["2"])).await.unwrap_err();
    assert!(gone.contains(expected), "{gone}");
}

pub(crate) async fn a_running_worker_takes_orders_about_its_items() {
    let scene = six_dead().await;
    let mut worker = start(&scene);
    until("the status shows them", || async {
        status(&scene).await["jobs"][0]["held"]["dead"] == 6
    })
    .await;
    let fleet = status(&scene).await;
    let at = fleet["replicas"][0]["admin"].as_str().unwrap();
    let mut command = watchkeeper(scene.folder.path());
    let token = command.arg("token").output().await.unwrap().stdout;
    let token = String::from_utf8(token).unwrap();
    let client = reqwest::Client::new();
    let answered = async |asked: reqwest::RequestBuilder| -> (u16, Value) {
        let answer = asked.bearer_auth(token.trim()).send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or_default())
    };
    let items = format!("http://{at}/api/v1/jobs/mail/items");
    let (code, page) = answered(client.get(&items)).await;
    assert_eq!(code, 200, "{page}");
    assert_eq!(page["items"].as_array().map(Vec::len), Some(6), "{page}");
    assert_eq!(page["items"][0]["id"], "1");

    let order = |body: &str| client.post(format!("{items}/retry")).body(body.to_owned());
    let (code, told) = answered(order(r#"{"ids": ["2"], "reason": "it is mended"}"#)).await;
    assert_eq!((code, number(&told, "changed")), (200, 1), "{told}");
    let mut tally = scene.receiver.watch();
    let sent = tally.wait_for(|tally| tally.accepted == 1);
    assert!(Clock::system().timeout(LONG, sent).await.is_ok());
    let (_, audit) = answered(client.get(format!("http://{at}/api/v1/audit"))).await;
    let entry = &audit["items"][0];
    for (field, said) in [
        ("order", "retry"),
        ("of", "mail"),
        ("items", "1 item: [\"2\"]"),
        ("reason", "it is mended"),
        ("result", "1 to be sent again"),
    ] {
        assert_eq!(entry[field], said, "{audit}");
    }
    let discard = client.post(format!("{items}/discard"));
    let discard = discard.body(r#"{"ids": ["3"], "reason": "it is not wanted"}"#);
    let (code, told) = answered(discard).await;
    assert_eq!((code, number(&told, "changed")), (200, 1), "{told}");
    let listed = client.get(format!("{items}?state=discarded"));
    let (_, listed) = answered(listed).await;
    assert_eq!(listed["items"][0]["id"], "3", "{listed}");
    until("the status counts it no more", || async {
        status(&scene).await["jobs"][0]["held"]["dead"] == 4
    })
    .await;
    let none = format!("http://{at}/api/v1/jobs/nothing/items");
    let (code, told) = answered(client.get(none)).await;
    assert_eq!(code, 404, "{told}");
    terminate(&mut worker).await;
}

pub(crate) async fn a_running_worker_shows_dead_items_and_sends_them_once_when_asked_to() {
    let scene = six_dead().await;
    let mut worker = start(&scene);
    // It has sent nothing itself, and says what there is all the same.
    until("the status shows them", || async {
        let fleet = status(&scene).await;
        fleet["jobs"][0]["held"]["dead"] == 6 && fleet["jobs"][0]["backlog"] == 0
    })
    .await;
    let metrics = get(&status(&scene).await, "/metrics").await;
    let dead = "watchkeeper_notification_items{job=\"mail\",state=\"dead\"} 6";
    assert!(metrics.contains(dead), "{metrics}");
    let page = get(&status(&scene).await, "/").await;
    assert!(page.contains("6 dead"), "{page}");

    let ran = notify(&scene, &["retry", "--all"]).await;
    assert_eq!(ran.code, Some(2), "nobody was asked: {}", ran.err);
    assert!(ran.err.contains("say --yes"), "{}", ran.err);
    assert_eq!(scene.tally().accepted, 0);
    let ran = notify(&scene, &["retry", "--all", "--yes", "--json"])
        .await
        .ok();
    assert_eq!(number(&ran.json(), "changed"), 6);
    let mut tally = scene.receiver.watch();
    let sent = tally.wait_for(|tally| tally.accepted == 6);
    let clock = Clock::system();
    assert!(clock.timeout(LONG, sent).await.is_ok());
    until("they are marked", || async { scene.unsent() == 0 }).await;
    let tally = scene.tally();
    assert_eq!((tally.requests, tally.repeats_recognised), (12, 0));
    let ran = notify(&scene, &["retry", "--all", "--yes"]).await;
    assert_eq!(ran.code, Some(1), "nothing matches any more");
    assert!(
        ran.err.contains("no item of mail is dead or parked"),
        "{}",
        ran.err
    );

    // And the history tells of it, when the worker has gone.
    terminate(&mut worker).await;
    let history = history(&scene).await;
    let sent: u64 = history
        .iter()
        .filter_map(|r| r["items"]["sent"].as_u64())
        .sum();
    assert_eq!(sent, 6, "{history:?}");
    assert!(
        history.iter().all(|r| r["replica_name"] == "a"),
        "{history:?}"
    );
}

pub(crate) async fn a_parked_row_is_not_sent_until_it_is_asked_for() {
    let scene = Scene::with_rows(3).await;
    configure(&scene, "");
    // No sender has been here yet.
    let ran = notify(&scene, &["park", "mail", "2"]).await.ok();
    assert_eq!(ran.out, "mail: 1 parked\n");
    let ran = notify(&scene, &["park", "2"]).await.ok();
    assert_eq!(ran.out, "mail: 1 parked already\n");
    let job = scene.job(json!({}));
    send(&job, 1, BATCH).await;
    assert_eq!(
        (scene.tally().accepted, job.backlog().await.unwrap()),
        (2, 0)
    );
    let ran = notify(&scene, &["park", "1"]).await;
    assert_eq!(ran.code, Some(1), "it was sent: {}", ran.out);
    notify(&scene, &["retry", "2"]).await.ok();
    let waiting = listed(&job).await;
    assert_eq!((waiting.counts.retry, waiting.items.len()), (1, 1));
    assert_eq!(waiting.doubted_ever, 0, "it was never begun");
    send(&job, 2, BATCH).await;
    assert_eq!((scene.tally().accepted, scene.tally().requests), (3, 3));
}

pub(crate) async fn what_is_discarded_is_neither_sent_nor_waits_for_a_person() {
    let scene = six_dead().await;
    let ran = notify(&scene, &["discard", "mail", "2", "77"]).await;
    assert_eq!(ran.code, Some(1), "an id that is none: {}", ran.err);
    assert_eq!(
        ran.out,
        "mail: 1 discarded\nmail: 1 left alone: not there, or sent\n"
    );
    let ran = notify(&scene, &["discard", "2"]).await.ok();
    assert_eq!(ran.out, "mail: 1 discarded already\n");
    let ran = notify(&scene, &["discard", "--all"]).await;
    assert_eq!(ran.code, Some(2), "it was not asked about: {}", ran.out);
    let asks = "say --yes to discard many items of mail";
    assert!(ran.err.contains(asks), "{}", ran.err);
    let all = ["discard", "--state", "dead", "--yes", "--json"];
    let ran = notify(&scene, &all).await.ok().json();
    assert_eq!(number(&ran, "changed"), 5);
    assert_eq!(ran["order"], "discard");
    let ran = notify(&scene, &["discard", "--all", "--yes"]).await;
    assert_eq!(ran.code, Some(1), "nothing matches any more");
    let none = "no item of mail is dead or parked: nothing to discard";
    assert!(ran.err.contains(none), "{}", ran.err);

    let job = scene.job(json!({}));
    assert!(job.pending(9).await.unwrap().is_empty());
    assert_eq!(job.backlog().await.unwrap(), 0);
    assert_eq!((scene.tally().accepted, scene.unsent()), (0, 6));
    let status = notify(&scene, &["status", "--json"]).await.ok().json();
    let counts = ["backlog", "retry", "dead", "parked", "discarded"];
    let counts = counts.map(|key| number(&status[0], key));
    assert_eq!(counts, [0, 0, 0, 0, 6], "{status}");
    let waiting = notify(&scene, &["dead", "--json"]).await.ok().json();
    assert_eq!(waiting, json!([]));
    let listed = ["dead", "--state", "discarded", "--json"];
    let listed = notify(&scene, &listed).await.ok().json();
    assert_eq!(listed.as_array().map(Vec::len), Some(6));
    let reason = listed[0]["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("discarded on request; before: ") && reason.contains("400"),
        "{reason}"
    );

    // One that is asked for after all is sent.
    notify(&scene, &["retry", "2"]).await.ok();
    send(&job, 8, BATCH).await;
    assert_eq!((scene.tally().accepted, scene.unsent()), (1, 5));
}

pub(crate) async fn an_item_that_is_being_sent_is_left_alone() {
    let scene = Scene::with_rows(4).await;
    configure(&scene, "");
    scene.receiver.behave(Faults {
        hang_next: 9,
        ..Faults::default()
    });
    let job = scene.job(json!({"in_doubt": "park"}));
    let mut tally = scene.receiver.watch();
    {
        let run = run();
        let sending = job.process_under(watchkeeper::node::Token(1), BATCH, &run);
        let asking = async {
            drop(tally.wait_for(|t| t.requests >= 4).await.unwrap());
            for order in ["park", "retry", "discard"] {
                let ran = notify(&scene, &[order, "mail", "3"]).await;
                assert_eq!(ran.code, Some(1), "{}", ran.out);
                assert!(ran.err.contains("3: it is being sent"), "{}", ran.err);
            }
        };
        tokio::select! {
            _ = sending => panic!("no answer came"),
            () = asking => {}
        }
    }
    // The sender is dead; its intent speaks for it until the next one has come.
    let ran = notify(&scene, &["park", "mail", "3"]).await;
    assert_eq!(ran.code, Some(1));
    send(&job, 2, BATCH).await;
    assert_eq!(listed(&job).await.counts.parked, 4);
    scene.receiver.behave(Faults::default());
    notify(&scene, &["retry", "--state", "parked", "--yes"])
        .await
        .ok();
    let waiting = listed(&job).await;
    assert_eq!(
        (waiting.counts.in_doubt, waiting.counts.parked),
        (4, 0),
        "it may have been received"
    );
    send(&job, 3, BATCH).await;
    let tally = scene.tally();
    assert_eq!(
        (
            tally.accepted,
            tally.repeats_recognised,
            tally.accepted_twice
        ),
        (4, 4, 0)
    );
}

pub(crate) async fn looking_creates_nothing() {
    let scene = Scene::with_rows(2).await;
    configure(&scene, "");
    let names = || {
        let names = std::fs::read_dir(scene.folder.path()).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = (names(), scene.things());
    let status = notify(&scene, &["status"]).await.ok().out;
    assert!(
        status.contains("no sender has served this table yet"),
        "{status}"
    );
    let dead = notify(&scene, &["dead"]).await.ok().out;
    assert!(
        dead.contains("no sender has served its table yet"),
        "{dead}"
    );
    let ran = notify(&scene, &["retry", "--all", "--yes"]).await;
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    let ran = notify(&scene, &["retry", "1"]).await.ok();
    assert!(
        ran.out.contains("1 waiting to be sent anyway"),
        "{}",
        ran.out
    );
    assert_eq!((names(), scene.things()), before);
    let expected = scene.take_away();
    for args in [&["status"][..], &["dead"], &["park", "1"]] {
        let ran = notify(&scene, args).await;
        assert_eq!(ran.code, Some(1));
        let said = ran.out + &ran.err;
        assert!(said.contains(expected), "{said}");
    }
    assert!(!scene.folder.path().join("app.db").exists());
}

pub(crate) async fn ids_and_reasons_of_anybody_reach_no_terminal_as_they_are_and_can_be_named() {
    let scene = Scene::with_rows(0).await;
    let id = "a\u{1b}[2J\u{9b}m\u{202e}\nb' OR 1=1 --";
    scene.sql(&format!(
        "CREATE TABLE letters (uid TEXT PRIMARY KEY, sent_at TEXT);
         INSERT INTO letters VALUES ('{}', NULL), ('-5', NULL), ('{}', NULL);",
        id.replace('\'', "''"),
        "x".repeat(Scene::LONG_ID)
    ));
    configure(&scene, "columns = { id = \"uid\" }\n");
    let file = scene.folder.path().join("watchkeeper.toml");
    let toml = std::fs::read_to_string(&file).unwrap();
    std::fs::write(
        &file,
        toml.replace("\"notifications\"\nsink", "\"letters\"\nsink"),
    )
    .unwrap();
    let ran = notify(&scene, &["park", "mail", "--", id, "-5"]).await.ok();
    assert_eq!(ran.out, "mail: 2 parked\n");
    scene.sql("UPDATE watchkeeper_delivery SET reason = '\u{1b}]0;x\u{7}' || reason");
    for args in [
        &["dead"][..],
        &["dead", "--json"],
        &["park", "--", "no\u{1b}[2Jbody\u{202e}"],
    ] {
        let ran = notify(&scene, args).await;
        let said = ran.out.clone() + &ran.err;
        let obeyed = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!said.contains(obeyed), "{said:?}");
        assert!(said.len() < 5_000, "{} bytes", said.len());
    }
    let listed = notify(&scene, &["dead", "--json"]).await.ok().json();
    assert_eq!(
        (&listed[0]["id"], &listed[1]["id"]),
        (&json!("-5"), &json!(id))
    );
    let named = listed[1]["id"].as_str().unwrap();
    notify(&scene, &["retry", "mail", "--", named]).await.ok();
    let left = notify(&scene, &["dead", "--json"]).await.ok().json();
    assert_eq!(left.as_array().map(Vec::len), Some(1));
    let behind = ["dead", "--json", "--after", "-5"];
    assert_eq!(notify(&scene, &behind).await.ok().json(), json!([]));
}

pub(crate) async fn rows_that_are_gone_are_listed_no_more_once_they_are_asked_for() {
    let scene = six_dead().await;
    scene.sql("DELETE FROM notifications WHERE id = 1; UPDATE notifications SET sent_at = '2026-05-04T08:00:00Z' WHERE id = 2");
    let listed = notify(&scene, &["dead", "--json"]).await.ok().json();
    assert_eq!(
        (&listed[0]["row"], &listed[1]["row"]),
        (&json!("gone"), &json!("sent"))
    );
    let ran = notify(&scene, &["retry", "--all", "--yes", "--json"])
        .await
        .ok()
        .json();
    assert_eq!((number(&ran, "changed"), number(&ran, "forgotten")), (4, 2));
    assert_eq!(scene.number("SELECT count(*) FROM watchkeeper_delivery"), 4);
}

pub(crate) async fn many_items_go_page_by_page_and_step_by_step() {
    const MANY: usize = 5_000;
    let scene = Scene::with_rows(MANY).await;
    configure(&scene, "");
    scene.job(json!({})).pending(1).await.unwrap();
    scene.note_all();
    let mut table = scene.operator(false).await;
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = table
            .list(&[State::Dead, State::Parked], after.as_ref(), 700)
            .await
            .unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.id.clone());
        seen.extend(page.into_iter().map(|entry| entry.id));
    }
    let all: Vec<ItemId> = (1..=5_000).map(ItemId::Int).collect();
    assert!(seen == all, "each once, in order");
    assert!(
        table.retry(&[ItemId::Int(1)]).await.is_err(),
        "it was opened to look"
    );

    let mut table = scene.operator(true).await;
    let first = table
        .retry_step(State::Dead, None, FIRST_STEP)
        .await
        .unwrap();
    assert_eq!((first.changed, first.last), (100, Some(ItemId::Int(149))));
    let ran = notify(&scene, &["retry", "--all", "--yes", "--json"])
        .await
        .ok();
    assert_eq!(number(&ran.json(), "changed"), 4_900);
    let items = table.status().await.unwrap().items;
    assert_eq!(
        (items.dead, items.parked, items.retry + items.in_doubt),
        (0, 0, 5_000)
    );
    assert_eq!(scene.job(json!({})).backlog().await.unwrap(), 5_000);
    let did = table.retry(&[ItemId::Int(1), ItemId::Int(9_999)]).await;
    let did = did.unwrap();
    assert_eq!(did, [Did::Changed, Did::Unknown]);
}

/// Items are parked, sent again and sent, while senders are killed: nothing is lost, nothing accepted twice.
pub(crate) async fn orders_beside_senders_that_are_killed_lose_and_double_nothing() {
    const ROWS: usize = 120;
    let scene = Scene::with_rows(ROWS).await;
    configure(&scene, "");
    let batches = [
        "notifications/50/0",
        "notifications/50/1",
        "notifications/50/2",
    ];
    scene.job(json!({})).pending(1).await.unwrap();
    let mut table = scene.operator(true).await;
    let (tell, orders) = tokio::sync::oneshot::channel();
    Spawn::system().spawn(async move {
        let (mut parked, mut again, mut alone) = (0, 0, 0);
        for round in 0..60_i64 {
            let ids: Vec<ItemId> = (0..8)
                .map(|i| ItemId::Int((round * 17 + i * 31) % 120 + 1))
                .collect();
            for did in table.park(&ids).await.unwrap() {
                parked += u64::from(did == Did::Changed);
                alone += u64::from(did == Did::Sending);
            }
            for state in [State::Parked, State::Dead, State::InDoubt] {
                let step = table.retry_step(state, None, 5).await.unwrap();
                again += step.changed;
                alone += step.sending;
            }
        }
        tell.send((parked, again, alone)).unwrap();
    });
    let mut token = 0;
    for (round, batch) in (1..).zip(batches.iter().cycle().take(18)) {
        token += 1;
        scene.receiver.behave(Faults {
            hang_next: if round % 3 == 0 { 3 } else { 0 },
            refuse_next: 4,
            status: if round % 2 == 0 { 400 } else { 503 },
            ..Faults::default()
        });
        let sender = scene.job(json!({"backoff": "1ms"}));
        let run = run();
        let patience = Clock::system();
        // Killed in the middle, mostly: nothing of it is heard again.
        let sending = sender.process_under(watchkeeper::node::Token(token), batch, &run);
        let limit = Duration::from_millis(10 * round);
        let _ = patience.timeout(limit, sending).await;
        scene.receiver.release();
    }
    let (parked, again, alone) = orders.await.unwrap();
    assert!(
        parked > 0 && again > 0,
        "{parked} parked, {again} again, {alone} left alone"
    );
    scene.receiver.behave(Faults::default());
    let heir = scene.job(json!({}));
    for _ in 0..5 {
        scene.advance(Duration::from_secs(4_000));
        for batch in heir.pending(100).await.unwrap() {
            token += 1;
            send(&heir, token, &batch).await;
        }
        notify(&scene, &["retry", "--all", "--yes"]).await;
    }
    let tally = scene.tally();
    let left = listed(&heir).await;
    assert_eq!((scene.unsent(), left.items.len()), (0, 0), "{left:?}");
    assert_eq!((tally.accepted, tally.accepted_twice), (ROWS as u64, 0));
    assert!(
        tally.repeats_recognised <= left.doubted_ever,
        "{tally:?} {left:?}"
    );
}

// === a worker ===

fn start(scene: &Scene) -> Child {
    let mut command = watchkeeper(scene.folder.path());
    command.args(["run"]).stderr(Stdio::null()).spawn().unwrap()
}

async fn terminate(worker: &mut Child) {
    let pid = i32::try_from(worker.id().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(worker.wait().await.unwrap().success());
}

async fn asked(scene: &Scene, args: &[&str]) -> Option<Value> {
    let mut command = watchkeeper(scene.folder.path());
    let output = command.args(args).output().await.unwrap();
    serde_json::from_slice(&output.stdout).ok()
}

async fn status(scene: &Scene) -> Value {
    asked(scene, &["status", "--json"])
        .await
        .unwrap_or_default()
}

async fn history(scene: &Scene) -> Vec<Value> {
    let told = asked(scene, &["history", "mail", "--json"]).await;
    told.and_then(|told| told.as_array().cloned())
        .unwrap_or_default()
}

async fn get(fleet: &Value, path: &str) -> String {
    let at = fleet["replicas"][0]["admin"].as_str().unwrap();
    reqwest::get(format!("http://{at}{path}"))
        .await
        .unwrap()
        .text()
        .await
        .unwrap()
}
