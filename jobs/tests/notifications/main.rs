//! Sending a table end to end: a real database file, a real web service, faults on the way.
//!
//! What a database must do is written once, in `sending`, `doubt`, `order`, `digest`, `commands` and `import`; `../source` runs the same there.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot be set up has failed"
)]

#[path = "../shared/command.rs"]
mod command;
mod commands;
mod digest;
mod doubt;
#[cfg(feature = "smtp")]
mod encrypted;
mod import;
#[cfg(feature = "smtp")]
mod mail_server;
#[cfg(feature = "smtp")]
mod mails;
#[cfg(feature = "smtp")]
mod notices;
mod order;
#[cfg(feature = "smtp")]
#[path = "../../../lock/tests/etcd/papers.rs"]
#[allow(dead_code, reason = "every suite uses its own part")]
mod papers;
mod rough;
mod scene;
#[path = "../shared/sender.rs"]
mod sender;
mod sending;
mod sinks;

use std::time::Duration;

use serde_json::json;
use watchkeeper::{batch::BatchJob, job::FailureKind};
use watchkeeper_jobs::{
    Notifications,
    notifications::{ItemId, State},
};

use crate::{
    command::{Ran, watchkeeper},
    commands::{configure, notify, number},
    scene::Scene,
    sender::{listed, send, try_send},
};

/// Makes a test of each case.
macro_rules! cases {
    ($($module:ident :: { $($case:ident),+ $(,)? },)+) => {
        $(mod $module { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { crate::$module::$case().await }
        )+ })+
    };
}

mod file {
    cases! {
        sending::{
            a_table_is_sent_cell_by_cell_and_marked,
            a_row_committed_late_into_a_finished_cell_is_sent,
            an_item_refused_for_good_is_dead_with_its_reason,
            a_refused_item_comes_back_after_its_pause,
            rows_are_sent_not_before_one_time_and_not_after_another,
            the_oldest_row_that_waits_is_told_by_its_time,
            rows_may_be_sent_to_a_file,
            items_given_up_after_their_attempts_are_dead,
            a_tenant_at_its_limit_holds_up_no_other_however_many_rows_it_has,
            rows_that_are_not_sent_use_no_turn,
            a_table_that_appears_later_is_served,
            a_run_without_a_claim_is_refused,
            no_secret_reaches_the_side_table_or_an_error,
            several_replicas_and_a_writer_share_one_database,
        },
        doubt::{
            items_of_a_killed_sender_are_listed_then_repeated_with_the_same_key,
            items_in_doubt_are_parked_when_told_so,
            a_row_that_is_hidden_keeps_its_doubt_and_can_be_parked,
            rows_of_another_job_are_left_to_it,
            a_stale_holder_marks_and_removes_nothing,
            an_item_without_an_answer_is_in_doubt_and_repeated_with_the_same_key,
            an_item_that_was_never_answered_is_parked_and_repeated_as_a_doubt,
            a_stopped_batch_marks_what_was_sent_and_lists_what_was_under_way,
            another_cell_size_waits_for_open_intents,
        },
        digest::{
            a_digest_goes_when_its_oldest_row_is_old_enough,
            a_digest_in_doubt_goes_again_with_the_same_rows_under_the_same_key,
            a_digest_in_doubt_is_read_whole_beside_a_row_that_is_before_it,
            a_row_that_joins_a_message_has_its_own_attempts,
            a_row_whose_time_is_none_is_dead_alone,
            a_step_through_parked_rows_takes_messages_whole,
            a_message_in_doubt_waits_for_replicas_that_make_such,
            a_text_holds_all_rows_of_a_digest,
            what_a_digest_cannot_go_with_is_said,
        },
        order::{
            rows_of_one_recipient_go_in_order_whatever_fails,
            in_strict_order_a_dead_row_keeps_back_its_recipient_alone,
            what_is_discarded_keeps_nothing_back,
            in_strict_order_each_recipient_has_its_messages_in_the_order_of_its_rows,
            a_parked_row_that_was_never_begun_keeps_its_place,
            a_row_in_an_order_that_is_being_sent_is_left_alone,
            a_recipient_with_many_rows_leaves_room_for_the_others,
            an_order_counts_for_what_waits_already,
            rows_of_one_message_are_sent_once_within_the_window,
            a_row_is_no_repeat_of_one_that_may_not_be_kept,
            rows_without_a_recipient_go_as_they_come,
        },
        commands::{
            dead_items_are_counted_and_listed_with_their_reason,
            what_is_named_is_sent_again_with_the_same_key_and_attempts_counted_anew,
            the_page_lists_and_changes_what_the_command_does,
            a_running_worker_takes_orders_about_its_items,
            a_running_worker_shows_dead_items_and_sends_them_once_when_asked_to,
            a_parked_row_is_not_sent_until_it_is_asked_for,
            what_is_discarded_is_neither_sent_nor_waits_for_a_person,
            an_item_that_is_being_sent_is_left_alone,
            looking_creates_nothing,
            ids_and_reasons_of_anybody_reach_no_terminal_as_they_are_and_can_be_named,
            rows_that_are_gone_are_listed_no_more_once_they_are_asked_for,
            many_items_go_page_by_page_and_step_by_step,
            orders_beside_senders_that_are_killed_lose_and_double_nothing,
        },
        import::{
            rows_of_a_file_are_imported_and_known_ids_left_out,
            a_file_with_a_fault_changes_nothing,
            a_row_that_is_refused_is_named_and_the_rest_goes_on_behind_it,
        },
    }
}

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

/// Another program is in the middle of a write for longer than is waited for. Five seconds.
#[tokio::test]
async fn a_file_that_is_kept_locked_is_named_and_its_rows_go_later() {
    let scene = Scene::with_rows(3).await;
    let job = scene.job(json!({}));
    let writer = rusqlite::Connection::open(scene.db()).unwrap();
    writer.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let refused = try_send(&job, 1, "notifications/50/0").await.unwrap_err();
    assert_eq!(refused.kind(), FailureKind::Retry);
    let file = scene.db().display().to_string();
    for said in [file.as_str(), "another program keeps it locked"] {
        assert!(refused.to_string().contains(said), "{refused}");
    }
    writer.execute_batch("COMMIT").unwrap();
    send(&job, 2, "notifications/50/0").await;
    assert_eq!((scene.unsent(), scene.tally().requests), (0, 3));
}

/// What the side tables mean has a number: by another one nothing is sent, and nothing is changed.
#[tokio::test]
async fn side_tables_of_a_later_version_are_left_alone() {
    let scene = Scene::with_rows(3).await;
    send(&scene.job(json!({})), 1, "notifications/50/0").await;
    scene.sql(
        "INSERT INTO notifications (recipient, body) VALUES ('a', 'b');
         UPDATE watchkeeper_delivery_source SET version = 2",
    );
    let job = scene.job(json!({}));
    let why = job.pending(1).await.unwrap_err().to_string();
    let said = "the side table holds `version 2`, which this version does not understand";
    assert!(why.contains(said), "{why}");
    assert_eq!((scene.unsent(), scene.tally().requests), (1, 3));
    scene.sql("UPDATE watchkeeper_delivery_source SET version = 1");
    send(&job, 2, "notifications/50/0").await;
    assert_eq!((scene.unsent(), scene.tally().requests), (0, 4));
}

#[tokio::test]
async fn a_row_that_refuses_its_mark_is_parked_and_the_others_are_marked() {
    let scene = Scene::with_rows(5).await;
    scene.sql(
        "CREATE TRIGGER raises BEFORE UPDATE ON notifications WHEN NEW.id = 2
             BEGIN SELECT RAISE(ABORT, 'not this one'); END;
         CREATE TRIGGER keeps BEFORE UPDATE ON notifications WHEN NEW.id = 4
             BEGIN SELECT RAISE(IGNORE); END;",
    );
    let job = scene.job(json!({"attempts": 2}));
    send(&job, 1, "notifications/50/0").await;
    let left = listed(&job).await;
    assert_eq!((scene.unsent(), left.doubted_ever), (2, 2));
    assert_eq!(left.ids(State::Parked), [ItemId::Int(2)]);
    let reason = &left.items[0].exception.reason;
    assert!(reason.contains("not this one"), "{reason}");
    assert_eq!(left.ids(State::InDoubt), [ItemId::Int(4)]);
    assert!(
        job.pending(9).await.unwrap().is_empty(),
        "it waits for its pause"
    );
    scene.advance(Duration::from_secs(20));
    send(&job, 2, "notifications/50/0").await;
    assert_eq!(listed(&job).await.counts.parked, 2);
    assert_eq!((scene.tally().requests, scene.tally().accepted), (6, 5));
}

#[tokio::test]
async fn a_mark_that_is_taken_back_is_no_mark() {
    let scene = Scene::with_rows(3).await;
    scene.sql(
        "CREATE TRIGGER takes_back AFTER UPDATE ON notifications WHEN NEW.id = 2 AND NEW.sent_at IS NOT NULL
             BEGIN UPDATE notifications SET sent_at = NULL WHERE id = NEW.id; END;",
    );
    let job = scene.job(json!({"attempts": 2}));
    send(&job, 1, "notifications/50/0").await;
    let left = listed(&job).await;
    assert_eq!((scene.unsent(), left.doubted_ever), (1, 1));
    assert_eq!(left.ids(State::InDoubt), [ItemId::Int(2)]);
    assert!(job.pending(9).await.unwrap().is_empty(), "it waits");
    scene.advance(Duration::from_secs(20));
    send(&job, 2, "notifications/50/0").await;
    assert_eq!(listed(&job).await.counts.parked, 1);
    assert_eq!((scene.tally().requests, scene.tally().accepted), (4, 3));
}

#[tokio::test]
async fn a_mark_that_a_trigger_undoes_or_cannot_follow_is_refused() {
    let scene = Scene::with_rows(5).await;
    scene.sql(
        "CREATE TRIGGER undoes BEFORE UPDATE ON notifications WHEN NEW.id IN (2, 4)
             BEGIN SELECT RAISE(ROLLBACK, 'all of it'); END;",
    );
    let job = scene.job(json!({}));
    send(&job, 1, "notifications/50/0").await;
    let left = listed(&job).await;
    assert_eq!((scene.unsent(), left.doubted_ever), (2, 2));
    assert_eq!(left.ids(State::Parked), [2, 4].map(ItemId::Int));
    let reason = &left.items[0].exception.reason;
    assert!(reason.contains("all of it"), "{reason}");

    let scene = Scene::with_rows(3).await;
    scene.sql(
        "CREATE TRIGGER notes AFTER UPDATE ON notifications BEGIN INSERT INTO notes VALUES (NEW.id); END;",
    );
    let job = scene.job(json!({}));
    send(&job, 1, "notifications/50/0").await;
    let left = listed(&job).await;
    assert_eq!((left.counts.parked, left.doubted_ever), (3, 3));
    let reason = &left.items[0].exception.reason;
    assert!(reason.contains("no such table: main.notes"), "{reason}");
    assert!(job.pending(9).await.unwrap().is_empty(), "a person has it");
}

#[tokio::test]
async fn an_order_that_fails_half_way_tells_what_it_has_changed() {
    let scene = Scene::with_rows(400).await;
    configure(&scene, "");
    scene.job(json!({})).pending(1).await.unwrap();
    scene.note_all();
    for event in ["INSERT", "UPDATE"] {
        scene.sql(&format!(
            "CREATE TRIGGER stops_{event} BEFORE {event} ON watchkeeper_delivery WHEN NEW.item = 350 AND NEW.state <> 'dead'
                 BEGIN SELECT RAISE(ABORT, 'no further'); END"
        ));
    }
    scene.sql(
        "CREATE TRIGGER stops_DELETE BEFORE DELETE ON watchkeeper_delivery WHEN OLD.item = 350
             BEGIN SELECT RAISE(ABORT, 'no further'); END",
    );
    let ids: Vec<String> = (1..=400).map(|id| id.to_string()).collect();
    let mut named = vec!["park", "--yes"];
    named.extend(ids.iter().map(String::as_str));
    let ran = notify(&scene, &named).await.with(1);
    assert!(ran.out.contains("200 parked"), "{}", ran.out);
    assert!(ran.err.contains("no further"), "{}", ran.err);
    let parked = scene.number("SELECT count(*) FROM watchkeeper_delivery WHERE state = 'parked'");
    assert_eq!(parked, 333, "those up to 300, and every third");

    // Also where all of a state are meant, and nothing is said of nothing.
    let all = ["retry", "--state", "parked,dead", "--yes", "--json"];
    let ran = notify(&scene, &all).await.with(1);
    assert_eq!(number(&ran.json(), "changed"), 333);
    assert!(ran.err.contains("no further"), "{}", ran.err);
    let ran = notify(&scene, &["retry", "350"]).await.with(1);
    assert_eq!(ran.out, "");
}

/// As an earlier version has made them.
#[tokio::test]
async fn side_tables_that_take_no_discarded_items_are_named_with_the_remedy() {
    let scene = Scene::with_rows(1).await;
    configure(&scene, "");
    notify(&scene, &["park", "1"]).await.ok();
    scene.sql(
        "PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET sql = replace(sql, ', ''discarded''', '') WHERE name = 'watchkeeper_delivery'",
    );
    let refused = notify(&scene, &["discard", "1"]).await.with(1).err;
    let remedy = "drop the table watchkeeper_delivery once";
    assert!(refused.contains(remedy), "{refused}");
    notify(&scene, &["retry", "1"]).await.ok();
    scene.sql("DROP TABLE watchkeeper_delivery");
    notify(&scene, &["discard", "1"]).await.ok();
}

/// SQLite itself reads a time in fewer ways than it is written in.
#[tokio::test]
async fn a_row_has_its_place_from_its_time_on_however_that_is_written() {
    for order in ["none", "strict"] {
        let scene = Scene::with_rows(4).await;
        scene.sql(
            "ALTER TABLE notifications ADD COLUMN due TEXT; UPDATE notifications SET recipient = 'r';
             UPDATE notifications SET due = strftime('%Y-%m-%dt%H:%M:%S+0000', 'now', '+1 hour') WHERE id = 2;
             UPDATE notifications SET due = strftime('%Y-%m-%d %H:%M+0100', 'now') WHERE id = 3",
        );
        let job = scene.job(json!({
            "columns": {"send_after": "due", "recipient": "recipient"}, "order": order, "buckets": 1,
        }));
        let batches = job.pending(9).await.unwrap();
        send(&job, 1, &batches[0]).await;
        // Others of its recipient go, and nothing is written of it.
        let left = listed(&job).await;
        assert_eq!(
            (scene.tally().requests, left.items.len()),
            (3, 0),
            "{order}"
        );
        assert!(job.pending(9).await.unwrap().is_empty());
        scene.sql("UPDATE notifications SET due = strftime('%Y-%m-%dt%H:%M:%S+0000', 'now', '-1 hour') WHERE id = 2");
        send(&job, 2, &batches[0]).await;
        assert_eq!((scene.tally().requests, scene.unsent()), (4, 0), "{order}");
    }
}

/// Names of columns are the same in capital letters and small ones.
#[tokio::test]
async fn rows_with_known_ids_are_left_out_however_the_column_is_written() {
    let scene = Scene::with_rows(1).await;
    let mut person = scene.operator(true).await;
    let columns = ["ID", "Recipient", "body"].map(str::to_owned);
    let row = |id| json!({"ID": id, "Recipient": "a", "body": "b"});
    let imported = person.import(&columns, vec![row(1), row(2)]).await;
    assert_eq!((imported.unwrap(), scene.unsent()), (1, 2));
}

#[tokio::test]
async fn check_looks_into_the_file() {
    let scene = Scene::with_rows(1).await;
    let check = |more: &str| -> Ran {
        configure(&scene, more);
        let mut command = watchkeeper(scene.folder.path());
        command.arg("check").output().unwrap().into()
    };
    check("").ok();
    let file = scene.db().display().to_string();
    let ran = check("columns = { id = \"key\" }\n").with(2);
    for words in ["jobs.mail.params.columns", "no column `key`", &file] {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
    scene.sql(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
         INSERT INTO notifications (recipient, body, sent_at) SELECT 'a', 'b', 'c' FROM n",
    );
    check("").ok();
    scene.sql("DROP INDEX notifications_unsent");
    let ran = check("").with(2);
    let index = "CREATE INDEX IF NOT EXISTS \"notifications_unsent\" ON \"notifications\" (\"id\") WHERE \"sent_at\" IS NULL;";
    for words in [index, &file] {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
    scene.sql(index);
    check("").ok();
    std::fs::write(scene.db(), "This is something else.").unwrap();
    let ran = check("").with(2);
    assert!(ran.out.contains("not a database"), "{}", ran.out);
}

#[tokio::test]
async fn check_warns_of_ids_that_come_back() {
    let scene = Scene::with_rows(1).await;
    configure(&scene, "");
    let check = || -> Ran {
        let mut command = watchkeeper(scene.folder.path());
        command.arg("check").output().unwrap().into()
    };
    assert!(!check().ok().out.contains("AUTOINCREMENT"));
    scene.sql("DROP TABLE notifications; CREATE TABLE notifications (id INTEGER PRIMARY KEY, sent_at TEXT)");
    let ran = check().ok();
    assert!(ran.out.contains("AUTOINCREMENT"), "{} {}", ran.out, ran.err);
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
    assert_eq!(scene.unsent(), 1);
}
