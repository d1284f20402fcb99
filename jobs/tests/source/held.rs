//! Other programs in the same rows: none waits for a sender, and a sender waits for none.

use std::time::Duration;

use serde_json::json;
use tokio::sync::oneshot;
use watchkeeper::{batch::BatchJob, clock::Clock, node::Token};
use watchkeeper_jobs::{
    notifications::{Did, ItemId, State},
    receiver::Faults,
};

use crate::{
    digest::{key, rows},
    rough::{Does, Rough},
    scene::Scene,
    sender::{listed, run, send},
};

const BATCH: &str = "notifications/50/0";

pub(crate) async fn a_row_that_another_program_holds_is_marked_later() {
    let scene = Scene::with_rows(5).await;
    let job = scene.job(json!({}));
    let other = scene.session().await;
    let hold = "BEGIN; SELECT 1 FROM notifications WHERE id = 3 FOR UPDATE";
    other.batch_execute(hold).await.unwrap();
    let letting_go = async {
        // The others are marked while one is held.
        while scene.unsent() > 1 {
            Clock::system().sleep(Duration::from_millis(5)).await;
        }
        other.batch_execute("COMMIT").await.unwrap();
    };
    tokio::join!(send(&job, 1, BATCH), letting_go);
    let left = listed(&job).await;
    assert_eq!((scene.unsent(), left.doubted_ever), (0, 0));
    assert_eq!((scene.tally().accepted, scene.tally().requests), (5, 5));
    let open = scene.number("SELECT count(*) FROM watchkeeper_delivery_intent");
    assert_eq!(open, 0);
}

pub(crate) async fn a_row_that_stays_held_is_repeated_with_pauses_or_parked() {
    let scene = Scene::with_rows(5).await;
    let job = scene.job(json!({}));
    let other = scene.session().await;
    let hold = "BEGIN; UPDATE notifications SET body = 'mine' WHERE id = 3";
    other.batch_execute(hold).await.unwrap();
    send(&job, 1, BATCH).await;
    let doubt = listed(&job).await;
    assert_eq!((scene.unsent(), doubt.doubted_ever), (1, 1));
    let item = &doubt.items[0].exception;
    assert_eq!((item.state, item.attempts), (State::InDoubt, 1));
    assert!(
        item.reason.contains("another program holds it"),
        "{}",
        item.reason
    );
    assert!(
        job.pending(9).await.unwrap().is_empty(),
        "it waits for its pause"
    );

    scene.advance(Duration::from_secs(20));
    send(&job, 2, BATCH).await;
    let doubt = listed(&job).await;
    assert_eq!(
        (doubt.items[0].exception.attempts, doubt.doubted_ever),
        (2, 2)
    );
    scene.advance(Duration::from_secs(15));
    assert!(job.pending(9).await.unwrap().is_empty(), "the pauses grow");
    scene.advance(Duration::from_secs(20));
    send(&scene.job(json!({"in_doubt": "park"})), 3, BATCH).await;
    assert_eq!(listed(&job).await.counts.parked, 1);
    scene.advance(Duration::from_secs(9_999));
    assert!(
        job.pending(9).await.unwrap().is_empty(),
        "it waits for a person"
    );

    other.batch_execute("COMMIT").await.unwrap();
    scene
        .operator(true)
        .await
        .retry(&[ItemId::Int(3)])
        .await
        .unwrap();
    scene.send_all(&job, 4).await;
    let tally = scene.tally();
    assert_eq!(
        (
            tally.accepted,
            tally.repeats_recognised,
            tally.accepted_twice
        ),
        (5, 3, 0)
    );
    assert_eq!(scene.unsent(), 0);
}

pub(crate) async fn a_row_that_refuses_its_mark_is_parked_and_the_others_are_marked() {
    let scene = Scene::with_rows(7).await;
    scene.sql(
        "ALTER TABLE notifications ADD CHECK (id <> 2 OR sent_at IS NULL);
         CREATE FUNCTION keeps() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER keeps BEFORE UPDATE ON notifications FOR EACH ROW WHEN (NEW.id = 3) EXECUTE FUNCTION keeps();
         CREATE FUNCTION raises() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''not this one''; END';
         CREATE TRIGGER raises BEFORE UPDATE ON notifications FOR EACH ROW WHEN (NEW.id = 5) EXECUTE FUNCTION raises();
         CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON notifications DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW WHEN (NEW.id = 6) EXECUTE FUNCTION raises();",
    );
    let job = scene.job(json!({"attempts": 2}));
    send(&job, 1, BATCH).await;
    let left = listed(&job).await;
    assert_eq!((scene.unsent(), left.doubted_ever), (4, 4));
    assert_eq!(left.ids(State::InDoubt), [ItemId::Int(3)]);
    let parked = [2, 5, 6].map(ItemId::Int);
    assert_eq!(left.ids(State::Parked), parked);
    let reasons: Vec<&str> = left
        .items
        .iter()
        .map(|i| i.exception.reason.as_str())
        .collect();
    assert!(reasons[0].contains("check constraint"), "{reasons:?}");
    assert!(reasons[2].contains("not this one"), "{reasons:?}");

    // What does not even say that it refuses is sent as often as the attempts allow.
    scene.advance(Duration::from_secs(20));
    send(&job, 2, BATCH).await;
    let left = listed(&job).await;
    assert_eq!((left.counts.parked, left.counts.in_doubt), (4, 0));
    assert_eq!((scene.tally().requests, scene.tally().accepted), (8, 7));
}

pub(crate) async fn a_digest_whose_rows_stay_held_comes_again_as_it_was() {
    let scene = Scene::with_rows(6).await;
    scene.sql(
        "UPDATE notifications SET recipient = 'r', created_at = created_at - interval '1 day'",
    );
    let receiver = Rough::start(|_| Does::Answers(204)).await;
    let job = scene.job(json!({
        "sink": receiver.url(""),
        "columns": {"recipient": "recipient"},
        "digest": {"every": "1h", "at_most": 3, "since": "created_at"},
        "buckets": 1,
    }));
    let batch = job.pending(1).await.unwrap().remove(0);
    let other = scene.session().await;
    let hold = "BEGIN; SELECT 1 FROM notifications WHERE id < 4 FOR UPDATE";
    other.batch_execute(hold).await.unwrap();
    send(&job, 1, &batch).await;
    let doubts = listed(&job).await;
    assert_eq!(doubts.ids(State::InDoubt), [1, 2, 3].map(ItemId::Int));
    let waits = |n: usize| doubts.items[n].exception.not_before_ms;
    assert_eq!(
        (waits(0), waits(0)),
        (waits(1), waits(2)),
        "they wait as one"
    );

    // One of them is let go: what is left of it is one message again, and nothing is added to it.
    other.batch_execute("COMMIT").await.unwrap();
    let hold = "BEGIN; SELECT 1 FROM notifications WHERE id IN (1, 3) FOR UPDATE";
    other.batch_execute(hold).await.unwrap();
    scene.advance(Duration::from_secs(20));
    send(&job, 2, &batch).await;
    assert_eq!((scene.unsent(), receiver.requests().len()), (5, 2));
    other.batch_execute("COMMIT").await.unwrap();
    scene.advance(Duration::from_secs(60));
    scene.send_all(&job, 3).await;
    let sent: Vec<Vec<u64>> = receiver.requests().iter().map(rows).collect();
    assert_eq!(sent, [&[1, 2, 3][..], &[1, 2, 3], &[1, 3], &[4, 5, 6]]);
    let keys: Vec<String> = receiver
        .requests()
        .iter()
        .map(|r| key(r).to_owned())
        .collect();
    assert_eq!(keys[0], keys[1]);
    assert_eq!(scene.unsent(), 0);
}

pub(crate) async fn a_mark_is_refused_whatever_the_code_with_which() {
    let scene = Scene::with_rows(6).await;
    scene.sql(
        "CREATE FUNCTION raises() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN IF NEW.id = 2 THEN RAISE EXCEPTION ''not this one'' USING ERRCODE = ''AP001''; END IF;
                    IF NEW.id = 3 THEN INSERT INTO gone VALUES (NEW.id); END IF;
                    IF NEW.id = 4 THEN RAISE no_data_found; END IF; RETURN NEW; END';
         CREATE TRIGGER raises BEFORE UPDATE ON notifications FOR EACH ROW EXECUTE FUNCTION raises();
         CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN RAISE EXCEPTION ''not at the end'' USING ERRCODE = ''AP002''; END';
         CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON notifications DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW WHEN (NEW.id = 5) EXECUTE FUNCTION late();",
    );
    let job = scene.job(json!({}));
    send(&job, 1, BATCH).await;
    let left = listed(&job).await;
    assert_eq!((scene.unsent(), left.doubted_ever), (4, 4));
    assert_eq!(left.ids(State::Parked), [2, 3, 4, 5].map(ItemId::Int));
    for (item, said) in left
        .items
        .iter()
        .zip(["not this one", "\"gone\"", "", "not at the end"])
    {
        let reason = &item.exception.reason;
        assert!(reason.contains(said), "{reason}");
    }
    assert!(
        job.pending(9).await.unwrap().is_empty(),
        "a person has them"
    );
    assert_eq!(scene.tally().requests, 6);

    // All refuse: without what tells changes to others, say.
    let scene = Scene::with_rows(3).await;
    scene.sql("ALTER TABLE notifications DROP CONSTRAINT notifications_pkey");
    scene.sql("CREATE UNIQUE INDEX id ON notifications (id); CREATE PUBLICATION p FOR TABLE notifications");
    let job = scene.job(json!({}));
    send(&job, 1, BATCH).await;
    let left = listed(&job).await;
    assert_eq!((left.counts.parked, scene.unsent()), (3, 3));
    let reason = &left.items[0].exception.reason;
    assert!(reason.contains("replica identity"), "{reason}");
}

pub(crate) async fn a_mark_that_is_taken_back_is_no_mark() {
    let scene = Scene::with_rows(6).await;
    scene.sql(
        "CREATE FUNCTION empties() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN IF NEW.id = 2 THEN NEW.sent_at := NULL; END IF; IF NEW.id = 3 THEN RETURN OLD; END IF; RETURN NEW; END';
         CREATE TRIGGER empties BEFORE UPDATE ON notifications FOR EACH ROW EXECUTE FUNCTION empties();
         CREATE FUNCTION takes_back() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN UPDATE notifications SET sent_at = NULL WHERE id = NEW.id; RETURN NULL; END';
         CREATE TRIGGER takes_back AFTER UPDATE ON notifications FOR EACH ROW
             WHEN (NEW.id = 5 AND NEW.sent_at IS NOT NULL) EXECUTE FUNCTION takes_back();",
    );
    let job = scene.job(json!({"attempts": 2}));
    let kept = [2, 3, 5].map(ItemId::Int);
    send(&job, 1, BATCH).await;
    let left = listed(&job).await;
    assert_eq!((scene.unsent(), left.doubted_ever), (3, 3));
    assert_eq!(left.ids(State::InDoubt), kept);
    assert!(job.pending(9).await.unwrap().is_empty(), "they wait");
    scene.advance(Duration::from_secs(20));
    send(&job, 2, BATCH).await;
    assert_eq!(listed(&job).await.ids(State::Parked), kept);
    assert_eq!((scene.tally().requests, scene.tally().accepted), (9, 6));
}

/// What is done for one row of many is little, and for many it is done in several transactions.
pub(crate) async fn a_row_that_refuses_its_mark_is_found_in_a_few_steps() {
    let marks = "CREATE SEQUENCE marks;
         CREATE FUNCTION counts() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN PERFORM nextval(''marks''); RETURN NULL; END';
         CREATE TRIGGER counts BEFORE UPDATE ON notifications FOR EACH STATEMENT EXECUTE FUNCTION counts();";
    let params = json!({"batch_size": 400});
    let batch = "notifications/400/0";
    let scene = Scene::with_rows(399).await;
    scene.sql(marks);
    scene.sql("ALTER TABLE notifications ADD CHECK (id <> 222 OR sent_at IS NULL)");
    let job = scene.job(params.clone());
    send(&job, 1, batch).await;
    assert_eq!(listed(&job).await.ids(State::Parked), [ItemId::Int(222)]);
    assert_eq!(scene.unsent(), 1);
    let took = scene.number("SELECT last_value FROM marks");
    assert!(took < 25, "{took} statements");

    let scene = Scene::with_rows(399).await;
    scene.sql(marks);
    scene.sql("ALTER TABLE notifications ADD CHECK (id % 8 = 0 OR sent_at IS NULL)");
    let job = scene.job(params);
    send(&job, 1, batch).await;
    let left = listed(&job).await;
    assert_eq!((left.counts.parked, left.doubted_ever), (350, 350));
    assert_eq!((scene.unsent(), scene.tally().requests), (350, 399));
    let open = scene.number("SELECT count(*) FROM watchkeeper_delivery_intent");
    assert_eq!(open, 0);
}

/// A trigger that takes too long, for all rows: nothing says which of them it is.
pub(crate) async fn a_batch_that_never_ends_is_sent_no_oftener_than_its_attempts() {
    let scene = Scene::with_rows(3).await;
    scene.sql(
        "CREATE SEQUENCE tries;
         CREATE FUNCTION takes_long() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN PERFORM nextval(''tries''); RAISE EXCEPTION ''too long'' USING ERRCODE = ''57014''; END';
         CREATE TRIGGER takes_long BEFORE UPDATE ON notifications FOR EACH ROW EXECUTE FUNCTION takes_long();",
    );
    let job = scene.job(json!({"attempts": 2}));
    for (token, tries) in [(1, 1), (2, 2)] {
        let giving_up = async {
            while scene.number("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM tries")
                < tries
            {
                Clock::system().sleep(Duration::from_millis(5)).await;
            }
            scene.advance(Duration::from_secs(60));
        };
        scene.sql("SELECT setval('tries', 1, false)");
        tokio::join!(send(&job, token, BATCH), giving_up);
        let left = listed(&job).await;
        assert_eq!((scene.unsent(), left.items.len()), (3, 3));
        let attempts = left.items.iter().map(|i| i.exception.attempts);
        assert_eq!(
            attempts.collect::<Vec<_>>(),
            [u32::try_from(token).unwrap(); 3]
        );
        assert!(left.items[0].exception.reason.contains("too long"));
        let open = scene.number("SELECT count(*) FROM watchkeeper_delivery_intent");
        assert_eq!(open, 0);
        scene.advance(Duration::from_secs(60));
    }
    assert_eq!(listed(&job).await.counts.parked, 3);
    assert!(job.pending(9).await.unwrap().is_empty());
    assert_eq!(scene.tally().requests, 6);
}

pub(crate) async fn writers_wait_for_no_sender() {
    let scene = Scene::with_rows(5).await;
    scene.receiver.behave(Faults {
        hang_next: 9,
        ..Faults::default()
    });
    let job = scene.job(json!({}));
    let run = run();
    let sending = job.process_under(Token(1), BATCH, &run);
    let writing = async {
        let mut tally = scene.receiver.watch();
        drop(tally.wait_for(|t| t.requests >= 5).await.unwrap());
        scene.sql(
            "SET lock_timeout = '200ms'; UPDATE notifications SET body = 'new' WHERE id < 5;
             DELETE FROM notifications WHERE id = 5; ALTER TABLE notifications ADD COLUMN more text;",
        );
        scene.receiver.release();
    };
    let (outcome, ()) = tokio::join!(sending, writing);
    outcome.unwrap();
    assert_eq!((scene.unsent(), listed(&job).await.items.len()), (0, 0));
}

/// Claims are to keep two holders apart; what holds when they do not.
pub(crate) async fn holders_of_one_batch_at_one_time_repeat_only_what_is_listed() {
    let scene = Scene::with_rows(0).await;
    let jobs = [0, 1, 2].map(|_| scene.job(json!({})));
    jobs[0].pending(1).await.unwrap();
    let mut token = 0;
    for round in 0..40 {
        scene.sql("INSERT INTO notifications (recipient, body) SELECT 'a', 'b' FROM generate_series(1, 3)");
        let batch = format!("notifications/50/{}", (round * 3 + 1) / 50);
        let works = jobs.iter().map(|job| {
            token += 1;
            let (token, batch) = (token, batch.clone());
            async move {
                let run = run();
                job.process_under(Token(token), &batch, &run).await
            }
        });
        for outcome in futures_util::future::join_all(works).await {
            outcome.unwrap();
        }
    }
    token += 1;
    scene.send_all(&jobs[0], token).await;
    let (tally, left) = (scene.tally(), listed(&jobs[0]).await);
    assert_eq!(
        (tally.accepted, tally.accepted_twice, scene.unsent()),
        (120, 0, 0)
    );
    assert!(
        tally.repeats_recognised <= left.doubted_ever,
        "{} repeats, {} in doubt",
        tally.repeats_recognised,
        left.doubted_ever
    );
}

/// Waits until so many sessions of this database wait for such a lock.
async fn until_so_many_wait(scene: &Scene, kind: &str, many: i64) {
    let waiting = format!(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = '{kind}'
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    );
    while scene.number(&waiting) < many {
        Clock::system().sleep(Duration::from_millis(5)).await;
    }
}

/// Nothing that looks into this table gets on while it is held.
const HOLD_INTENTS: &str = "BEGIN; LOCK TABLE watchkeeper_delivery_intent";

pub(crate) async fn a_successor_waits_for_the_open_transaction_of_the_last_holder() {
    let scene = Scene::with_rows(5).await;
    let (last, next) = (scene.job(json!({})), scene.job(json!({})));
    for job in [&last, &next] {
        job.pending(1).await.unwrap();
    }
    let other = scene.session().await;
    other.batch_execute(HOLD_INTENTS).await.unwrap();
    let (of_last, of_next) = (run(), run());
    let following = async {
        until_so_many_wait(&scene, "relation", 1).await;
        let letting_go = async {
            until_so_many_wait(&scene, "advisory", 1).await;
            other.batch_execute("COMMIT").await.unwrap();
        };
        let sending = next.process_under(Token(2), BATCH, &of_next);
        tokio::join!(sending, letting_go).0
    };
    let sending = last.process_under(Token(1), BATCH, &of_last);
    let (one, other) = tokio::join!(sending, following);
    one.unwrap();
    other.unwrap();
    // The second has seen what the first was about to send.
    let (tally, left) = (scene.tally(), listed(&next).await);
    assert_eq!((left.doubted_ever, scene.unsent()), (5, 0));
    assert_eq!((tally.accepted, tally.accepted_twice), (5, 0));
}

pub(crate) async fn a_person_waits_for_a_batch_that_begins() {
    let scene = Scene::with_rows(5).await;
    let job = scene.job(json!({}));
    job.pending(1).await.unwrap();
    let mut person = scene.operator(true).await;
    let other = scene.session().await;
    other.batch_execute(HOLD_INTENTS).await.unwrap();
    let parking = async {
        until_so_many_wait(&scene, "relation", 1).await;
        let letting_go = async {
            until_so_many_wait(&scene, "advisory", 1).await;
            other.batch_execute("COMMIT").await.unwrap();
        };
        tokio::join!(person.park(&[ItemId::Int(3)]), letting_go).0
    };
    let (_, did) = tokio::join!(send(&job, 1, BATCH), parking);
    assert_eq!(did.unwrap(), [Did::Sending], "it is left alone");
    assert_eq!((scene.tally().accepted, scene.unsent()), (5, 0));
}

pub(crate) async fn ids_committed_late_are_all_sent() {
    let scene = Scene::with_rows(0).await;
    let job = scene.job(json!({"batch_size": 20}));
    let early = scene.session().await;
    early
        .batch_execute(
            "BEGIN; INSERT INTO notifications (recipient, body) SELECT 'early', 'e' FROM generate_series(1, 110)",
        )
        .await
        .unwrap();
    scene.sql("INSERT INTO notifications (recipient, body) SELECT 'late', 'l' FROM generate_series(1, 390)");
    let (committed, wait) = oneshot::channel::<()>();
    let mut tally = scene.receiver.watch();
    let committing = async {
        drop(tally.wait_for(|t| t.accepted >= 200).await.unwrap());
        early.batch_execute("COMMIT").await.unwrap();
        committed.send(()).unwrap();
    };
    let sending = async {
        let token = scene.send_all(&job, 1).await;
        wait.await.unwrap();
        scene.send_all(&job, token).await;
    };
    tokio::join!(sending, committing);
    let tally = scene.tally();
    assert_eq!(
        (tally.accepted, tally.requests, scene.unsent()),
        (500, 500, 0)
    );
    assert_eq!(listed(&job).await.ids(State::InDoubt), []);
}
