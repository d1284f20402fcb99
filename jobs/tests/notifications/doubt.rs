//! Senders that are killed, stopped, overtaken or left without an answer; the same on every database.

use std::time::Duration;

use serde_json::json;
use watchkeeper::{
    batch::BatchJob,
    job::{FailureKind, Outcome},
    node::Token,
};
use watchkeeper_jobs::{
    notifications::{Did, ItemId, State, operator},
    receiver::Faults,
};

use crate::{
    scene::Scene,
    sender::{listed, run, run_of, send},
};

pub(crate) async fn items_of_a_killed_sender_are_listed_then_repeated_with_the_same_key() {
    let scene = Scene::with_rows(20).await;
    let hang = Faults {
        hang_next: 3,
        ..Faults::default()
    };
    scene.receiver.behave(hang);
    let batch = "notifications/50/0";
    scene.kill_after(3, &scene.job(json!({})), 1, batch).await;
    assert_eq!(scene.unsent(), 20);

    // The next holder is another process; it lists before it repeats.
    let heir = scene.job(json!({}));
    assert_eq!(heir.pending(10).await.unwrap(), [batch]);
    scene.receiver.behave(Faults {
        hang_next: 20,
        ..Faults::default()
    });
    // Not by the requests that have come: some of the first sender's may come after its end.
    let doubts = async { while listed(&heir).await.counts.in_doubt < 20 {} };
    let run = run();
    tokio::select! {
        _ = heir.process_under(Token(2), batch, &run) => panic!("ended by itself"),
        () = doubts => {}
    }
    let in_doubt = listed(&heir).await;
    assert_eq!((in_doubt.counts.in_doubt, in_doubt.doubted_ever), (20, 20));
    assert_eq!(in_doubt.ids(State::InDoubt).len(), 20);

    scene.receiver.behave(Faults::default());
    send(&heir, 3, batch).await;
    let tally = scene.tally();
    assert_eq!((tally.accepted, tally.accepted_twice), (20, 0));
    assert!(tally.repeats_recognised >= 1);
    let end = listed(&heir).await;
    assert!(tally.repeats_recognised <= end.doubted_ever);
    assert_eq!((end.counts.in_doubt, end.items.len()), (0, 0));
    assert_eq!(scene.unsent(), 0);
}

pub(crate) async fn items_in_doubt_are_parked_when_told_so() {
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
    assert_eq!(listed(&job).await.counts.parked, 5);
    assert!(job.pending(10).await.unwrap().is_empty());
    assert_eq!(
        (scene.tally().requests, job.backlog().await.unwrap()),
        (5, 0)
    );
}

pub(crate) async fn a_row_that_is_hidden_keeps_its_doubt_and_can_be_parked() {
    let scene = Scene::with_rows(3).await;
    scene.sql("ALTER TABLE notifications ADD COLUMN due bigint");
    let changes = json!({"columns": {"payload": "body", "send_after": "due"}});
    scene.receiver.behave(Faults {
        hang_next: 9,
        ..Faults::default()
    });
    let batch = "notifications/50/0";
    let killed = scene.job(changes.clone());
    scene.kill_after(3, &killed, 1, batch).await;
    // The application puts one off.
    scene.sql("UPDATE notifications SET due = 9000000000 WHERE id = 2");
    scene.receiver.behave(Faults::default());
    let heir = scene.job(changes.clone());
    send(&heir, 2, batch).await;
    let (doubt, hidden) = (listed(&heir).await, [ItemId::Int(2)]);
    assert_eq!(
        (doubt.ids(State::InDoubt), doubt.doubted_ever),
        (hidden.to_vec(), 3)
    );

    let mut person = operator(&scene.params(changes), true).await.unwrap();
    assert_eq!(person.find("2").await.unwrap(), Some(ItemId::Int(2)));
    assert_eq!(person.park(&hidden).await.unwrap(), [Did::Changed]);
    assert_eq!(person.retry(&hidden).await.unwrap(), [Did::Changed]);
    assert_eq!(listed(&heir).await.ids(State::InDoubt), hidden);
    assert_eq!(person.park(&hidden).await.unwrap(), [Did::Changed]);
    scene.sql("UPDATE notifications SET due = 1 WHERE id = 2");
    assert!(heir.pending(10).await.unwrap().is_empty(), "it is parked");
    assert_eq!(scene.tally().repeats_recognised, 2);
}

pub(crate) async fn rows_of_another_job_are_left_to_it() {
    let scene = Scene::with_rows(3).await;
    scene.receiver.behave(Faults {
        hang_next: 9,
        ..Faults::default()
    });
    let batch = "notifications/50/0";
    scene.kill_after(3, &scene.job(json!({})), 5, batch).await;
    let (other, of_other) = (scene.job(json!({})), run_of("letters"));
    // Tokens of its own claims may be larger or smaller.
    for token in [Token(1), Token(9)] {
        let refused = other.process_under(token, batch, &of_other).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), FailureKind::Fatal);
        assert!(refused.to_string().contains("\"mail\""), "{refused}");
    }
    assert_eq!(
        (scene.tally().requests, listed(&other).await.doubted_ever),
        (3, 0)
    );
    scene.receiver.behave(Faults::default());
    send(&scene.job(json!({})), 6, batch).await;
    assert_eq!((scene.unsent(), scene.tally().accepted_twice), (0, 0));
}

pub(crate) async fn a_stale_holder_marks_and_removes_nothing() {
    let scene = Scene::with_rows(8).await;
    scene.receiver.behave(Faults {
        hang_next: 99,
        ..Faults::default()
    });
    let batch = "notifications/50/0";
    let (stale, heir) = (scene.job(json!({})), scene.job(json!({})));
    let mut tally = scene.receiver.watch();
    let stale_run = run();
    let first = stale.process_under(Token(1), batch, &stale_run);
    let second = async {
        drop(tally.wait_for(|t| t.accepted == 8).await.unwrap());
        // The heir is killed in its turn, once all that it sends has come: what is still on its way would be counted later.
        scene.kill_after(16, &heir, 5, batch).await;
        scene.receiver.release();
    };
    let (outcome, ()) = tokio::join!(first, second);
    assert_eq!(
        outcome.unwrap(),
        Outcome::Skip("lost to a later holder".to_owned())
    );
    assert_eq!(scene.unsent(), 8);
    assert_eq!(
        scene.number("SELECT token FROM watchkeeper_delivery_intent"),
        5
    );
    assert_eq!(listed(&heir).await.counts.in_doubt, 8);
    // Nor can it begin again.
    let before = scene.tally().requests;
    let again = send(&stale, 4, batch).await;
    assert_eq!(again, Outcome::Skip("lost to a later holder".to_owned()));
    assert_eq!(scene.tally().requests, before);
}

pub(crate) async fn an_item_without_an_answer_is_in_doubt_and_repeated_with_the_same_key() {
    let scene = Scene::with_rows(3).await;
    scene.receiver.behave(Faults {
        hang_next: 1,
        ..Faults::default()
    });
    let job = scene.job(json!({"timeout": "200ms"}));
    send(&job, 1, "notifications/50/0").await;
    let doubt = listed(&job).await;
    assert_eq!((doubt.counts.in_doubt, doubt.doubted_ever), (1, 1));
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
    assert_eq!(scene.unsent(), 0);
}

pub(crate) async fn an_item_that_was_never_answered_is_parked_and_repeated_as_a_doubt() {
    let scene = Scene::with_rows(1).await;
    scene.receiver.behave(Faults {
        hang_next: 1,
        ..Faults::default()
    });
    let job = scene.job(json!({"timeout": "200ms", "attempts": 1}));
    send(&job, 1, "notifications/50/0").await;
    let parked = listed(&job).await;
    assert_eq!((parked.counts.parked, parked.doubted_ever), (1, 1));
    let reason = &parked.items[0].exception.reason;
    assert!(reason.contains("no answer in time"), "{reason}");
    let mut person = scene.operator(true).await;
    let asked = person.retry(&[ItemId::Int(1)]).await.unwrap();
    assert_eq!(asked, [Did::Changed]);
    assert_eq!(listed(&job).await.counts.in_doubt, 1);
    send(&job, 2, "notifications/50/0").await;
    let tally = scene.tally();
    assert_eq!((tally.accepted, tally.repeats_recognised), (1, 1));
    assert_eq!(scene.unsent(), 0);
}

pub(crate) async fn a_stopped_batch_marks_what_was_sent_and_lists_what_was_under_way() {
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
    let (tally, left) = (scene.tally(), scene.unsent());
    let doubt = listed(&job).await;
    assert!(tally.requests < 40, "it went on after it was stopped");
    assert!(left < 40 && doubt.counts.in_doubt >= 2, "{left} {doubt:?}");
    // Whatever was taken is either marked or in doubt.
    assert!(tally.accepted <= 40 - left + doubt.counts.in_doubt);
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
    assert!(tally.repeats_recognised <= doubt.counts.in_doubt);
}

pub(crate) async fn another_cell_size_waits_for_open_intents() {
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
