//! Rows of one recipient go one after the other, whatever fails; the same on every database.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use serde_json::{Value, json};
use watchkeeper::{batch::BatchJob, node::Token};
use watchkeeper_jobs::{
    Notifications,
    notifications::{Answer, Did, Item, ItemId, Operator, Sink, State, operator},
};

use crate::{
    rough::{Does, Request, Rough, assert_in_order},
    scene::Scene,
    sender::{listed, run, send},
};

/// Rows, and the recipients among which they are dealt.
const ROWS: u64 = 60;
const RECIPIENTS: u64 = 6;

async fn scene(rows: u64) -> Scene {
    let scene = Scene::with_rows(usize::try_from(rows).unwrap()).await;
    scene.sql(&format!(
        "UPDATE notifications SET recipient = 'r' || (id % {RECIPIENTS})"
    ));
    scene
}

fn ordered(scene: &Scene, receiver: &Rough, more: Value) -> Notifications {
    let mut changes = json!({
        "sink": receiver.url(""),
        "columns": {"recipient": "recipient"},
        "buckets": 4,
        "batch_size": 10,
        "timeout": "2s",
    });
    let more = more.as_object().unwrap().clone();
    changes.as_object_mut().unwrap().extend(more);
    scene.job(changes)
}

/// A person's hands on the side table of the ordered job.
async fn person(scene: &Scene, order: &str) -> Box<dyn Operator> {
    let columns = json!({"recipient": "recipient"});
    let params = scene.params(json!({"columns": columns, "order": order}));
    operator(&params, true).await.unwrap()
}

/// Looks and sends until there is nothing that could go, and lets waiting rows come to their time; says which token is next.
async fn send_what_goes(scene: &Scene, job: &Notifications, mut token: u64) -> u64 {
    for _ in 0..60 {
        for batch in job.pending(10).await.unwrap() {
            assert!(batch.starts_with("notifications/k4-"), "{batch}");
            send(job, token, &batch).await;
            token += 1;
        }
        // The longest pause of a few attempts.
        scene.advance(Duration::from_secs(200));
    }
    assert_eq!(job.pending(10).await.unwrap(), [""; 0], "comes to an end");
    token
}

/// Each third row is refused, or taken without an answer, before it is taken; each eleventh is refused for good.
fn faulty(id: u64, times: usize) -> Does {
    match (times, id % 3, id % 11) {
        (_, _, 7) => Does::Answers(422),
        (1 | 2, 0, _) if id.is_multiple_of(2) => Does::Answers(500),
        (1 | 2, 0, _) => Does::Breaks,
        (_, 1, _) => Does::AnswersLate(Duration::from_millis(5), 204),
        _ => Does::Answers(204),
    }
}

pub(crate) async fn rows_of_one_recipient_go_in_order_whatever_fails() {
    let scene = scene(ROWS).await;
    let seen: Mutex<BTreeMap<u64, usize>> = Mutex::default();
    let receiver = Rough::start(move |request| {
        let mut seen = seen.lock().unwrap();
        let times = seen.entry(request.id()).or_default();
        *times += 1;
        faulty(request.id(), *times)
    })
    .await;
    let job = ordered(&scene, &receiver, json!({}));
    send_what_goes(&scene, &job, 1).await;
    let dead = (1..=ROWS).filter(|id| id % 11 == 7).count();
    assert_eq!(scene.unsent(), dead as u64);
    assert_eq!(listed(&job).await.ids(State::Dead).len(), dead);
    let requests = receiver.requests();
    let failed = (1..=ROWS).filter(|id| id % 3 == 0 && id % 11 != 7).count();
    assert_eq!(requests.len(), usize::try_from(ROWS).unwrap() + 2 * failed);
    assert_in_order(&requests, RECIPIENTS, Request::is_settled);
}

pub(crate) async fn in_strict_order_a_dead_row_keeps_back_its_recipient_alone() {
    let scene = scene(24).await;
    let forgiving = Arc::new(AtomicBool::default());
    let forgives = Arc::clone(&forgiving);
    let receiver =
        Rough::start(
            move |request| match request.id() == 7 && !forgives.load(Ordering::SeqCst) {
                true => Does::Answers(422),
                false => Does::Answers(204),
            },
        )
        .await;
    let job = ordered(&scene, &receiver, json!({"order": "strict"}));
    let token = send_what_goes(&scene, &job, 1).await;
    assert_eq!(listed(&job).await.ids(State::Dead), [ItemId::Int(7)]);
    let ids = || -> Vec<u64> { receiver.requests().iter().map(Request::id).collect() };
    let sent: BTreeSet<u64> = ids().into_iter().collect();
    let goes = |id: &u64| id % RECIPIENTS != 1 || *id <= 7;
    assert_eq!(sent, (1..=24).filter(goes).collect());
    // One who parks it changes nothing for those behind it.
    let mut person = person(&scene, "strict").await;
    person.park(&[ItemId::Int(7)]).await.unwrap();
    let token = send_what_goes(&scene, &job, token).await;
    assert_eq!(ids().len(), sent.len());
    forgiving.store(true, Ordering::SeqCst);
    person.retry(&[ItemId::Int(7)]).await.unwrap();
    drop(person);
    send_what_goes(&scene, &job, token).await;
    assert_eq!(ids()[sent.len()..], [7, 13, 19]);
}

pub(crate) async fn what_is_discarded_keeps_nothing_back() {
    let scene = scene(24).await;
    let receiver = Rough::start(|request| match request.id() {
        7 => Does::Answers(422),
        _ => Does::Answers(204),
    })
    .await;
    let job = ordered(&scene, &receiver, json!({"order": "strict"}));
    let token = send_what_goes(&scene, &job, 1).await;
    assert_eq!(listed(&job).await.ids(State::Dead), [ItemId::Int(7)]);
    let before = receiver.requests().len();
    let mut person = person(&scene, "strict").await;
    person.discard(&[ItemId::Int(7)]).await.unwrap();
    drop(person);
    send_what_goes(&scene, &job, token).await;
    let ids: Vec<u64> = receiver.requests().iter().map(Request::id).collect();
    assert_eq!(ids[before..], [13, 19]);
}

/// What the receiver has in the end are the rows of each recipient as they stand in the table, in their order: also where a sender has
/// died, and where a person has had a refused one sent again.
pub(crate) async fn in_strict_order_each_recipient_has_its_messages_in_the_order_of_its_rows() {
    /// These are refused until a person has seen to it.
    const REFUSED: [u64; 2] = [7, 20];
    let scene = scene(ROWS).await;
    let forgiving = Arc::new(AtomicBool::default());
    let silent = Arc::new(AtomicBool::new(true));
    let (forgives, is_silent) = (Arc::clone(&forgiving), Arc::clone(&silent));
    let times: Mutex<BTreeMap<u64, usize>> = Mutex::default();
    let receiver = Rough::start(move |request| {
        let id = request.id();
        if is_silent.load(Ordering::SeqCst) {
            // The first one is taken; the next one is under way when its sender dies.
            return match request.before {
                0 => Does::Answers(204),
                _ => Does::Hangs,
            };
        }
        let mut times = times.lock().unwrap();
        let times = times.entry(id).or_default();
        *times += 1;
        match (id, *times) {
            _ if REFUSED.contains(&id) && !forgives.load(Ordering::SeqCst) => Does::Answers(422),
            (_, 1) if id.is_multiple_of(5) => Does::Drops,
            (_, 1) if id.is_multiple_of(4) => Does::Answers(500),
            (_, 1 | 2) if id.is_multiple_of(9) => Does::Breaks,
            _ => Does::Answers(204),
        }
    })
    .await;
    let job = ordered(&scene, &receiver, json!({"order": "strict"}));
    let batch = job.pending(1).await.unwrap().remove(0);
    let killed = run();
    tokio::select! {
        _ = job.process_under(Token(1), &batch, &killed) => panic!("it has its answers"),
        () = async {
            while receiver.requests().len() < 2 {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    silent.store(false, Ordering::SeqCst);
    let token = send_what_goes(&scene, &job, 2).await;
    let refused = listed(&job).await;
    let ids = REFUSED.map(|id| ItemId::Int(id.cast_signed()));
    // What the dead sender has begun may have been received: it is parked.
    let held: BTreeSet<ItemId> = [State::Dead, State::Parked]
        .into_iter()
        .flat_map(|state| refused.ids(state))
        .collect();
    assert_eq!(held, ids.clone().into());
    assert!(refused.doubted_ever > 0, "nobody died in the act");
    let behind = |id: &u64| {
        let first = REFUSED
            .iter()
            .find(|first| *first % RECIPIENTS == id % RECIPIENTS);
        first.is_some_and(|first| id >= first)
    };
    let waits = (1..=ROWS).filter(behind).count();
    assert_eq!(scene.unsent(), waits as u64, "those behind a refused one");
    let mut person = person(&scene, "strict").await;
    person.retry(&ids).await.unwrap();
    drop(person);
    forgiving.store(true, Ordering::SeqCst);
    send_what_goes(&scene, &job, token).await;
    assert_eq!((scene.unsent(), listed(&job).await.items.len()), (0, 0));

    let requests = receiver.requests();
    assert_in_order(&requests, RECIPIENTS, Request::is_taken);
    let mut got: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for request in requests.iter().filter(|request| request.is_taken()) {
        let (id, message) = (request.id(), request.json());
        assert_eq!(message["body"], format!("Notification {id}"));
        let recipient = message["recipient"].as_str().unwrap_or_default();
        let of_recipient = got.entry(recipient.to_owned()).or_default();
        // One that comes again is known by its key.
        if !of_recipient.contains(&id) {
            of_recipient.push(id);
        }
    }
    let expected = (0..RECIPIENTS).map(|n| {
        let ids = (1..=ROWS).filter(|id| id % RECIPIENTS == n);
        (format!("r{n}"), ids.collect::<Vec<u64>>())
    });
    assert_eq!(got, expected.collect());
}

pub(crate) async fn a_parked_row_that_was_never_begun_keeps_its_place() {
    let scene = scene(18).await;
    let receiver = Rough::start(|_| Does::Answers(204)).await;
    let job = ordered(&scene, &receiver, json!({"order": "strict"}));
    // The senders' division is in force before anybody parks.
    job.pending(10).await.unwrap();
    let mut person = person(&scene, "strict").await;
    person.park(&[ItemId::Int(1)]).await.unwrap();
    let token = send_what_goes(&scene, &job, 1).await;
    let sent = receiver.requests();
    assert!(sent.iter().all(|request| request.id() % RECIPIENTS != 1));
    person.retry(&[ItemId::Int(1)]).await.unwrap();
    drop(person);
    send_what_goes(&scene, &job, token).await;
    assert_in_order(&receiver.requests(), RECIPIENTS, Request::is_taken);
    assert_eq!(scene.unsent(), 0);
}

pub(crate) async fn a_row_in_an_order_that_is_being_sent_is_left_alone() {
    let scene = scene(12).await;
    let receiver = Rough::start(|_| Does::Hangs).await;
    let job = ordered(
        &scene,
        &receiver,
        json!({"buckets": 1, "batch_size": 12, "timeout": "1m"}),
    );
    let batch = job.pending(1).await.unwrap().remove(0);
    let run = run();
    tokio::select! {
        _ = job.process_under(Token(1), &batch, &run) => panic!("no answer came"),
        () = async {
            while receiver.requests().len() < 6 {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    let mut person = person(&scene, "skip-dead").await;
    let dids = person
        .park(&[ItemId::Int(1), ItemId::Int(12)])
        .await
        .unwrap();
    // The second of a recipient is in the batch as well, although it was not begun.
    assert_eq!(dids, [Did::Sending, Did::Sending]);
}

pub(crate) async fn a_recipient_with_many_rows_leaves_room_for_the_others() {
    let scene = Scene::with_rows(400).await;
    scene.sql("UPDATE notifications SET recipient = 'many' WHERE id <= 395");
    let receiver = Rough::start(|_| Does::Answers(204)).await;
    let job = ordered(&scene, &receiver, json!({"buckets": 1}));
    let batches = job.pending(10).await.unwrap();
    assert_eq!(batches.len(), 1);
    send(&job, 1, &batches[0]).await;
    let sent: BTreeSet<u64> = receiver.requests().iter().map(Request::id).collect();
    assert_eq!(sent, [1, 2, 3, 4, 5, 396, 397, 398, 399, 400].into());
}

/// What has to wait knows its recipient from the moment on at which an order is wanted.
pub(crate) async fn an_order_counts_for_what_waits_already() {
    let scene = scene(12).await;
    let receiver = Rough::start(|request| match (request.id(), request.before) {
        (1, 0) | (2, 0..2) => Does::AsksToWait(500, 100),
        _ => Does::Answers(204),
    })
    .await;
    let unordered = scene.job(json!({"sink": receiver.url("")}));
    scene.sql("UPDATE notifications SET sent_at = '2026-05-04T08:00:00Z' WHERE id > 2");
    send(&unordered, 1, "notifications/50/0").await;
    assert!(listed(&unordered).await.counts.retry >= 1);
    scene.sql("UPDATE notifications SET sent_at = NULL WHERE id > 2");
    let before = receiver.requests().len();
    let job = ordered(&scene, &receiver, json!({}));
    let waits: BTreeSet<u64> = listed(&job)
        .await
        .ids(State::Retry)
        .into_iter()
        .map(|id| id.to_string().parse().unwrap())
        .collect();
    let mut token = 2;
    for batch in job.pending(10).await.unwrap() {
        send(&job, token, &batch).await;
        token += 1;
    }
    for request in receiver.requests().iter().skip(before) {
        let held = waits
            .iter()
            .any(|id| id % RECIPIENTS == request.id() % RECIPIENTS);
        assert!(!held, "{} goes before one that waits", request.id());
    }
    send_what_goes(&scene, &job, token).await;
    assert_eq!(scene.unsent(), 0);
}

/// Of rows that are one message one goes; what may have been received keeps back the others, and what was refused does not.
pub(crate) async fn rows_of_one_message_are_sent_once_within_the_window() {
    let scene = Scene::with_rows(12).await;
    scene.sql("ALTER TABLE notifications ADD COLUMN message text");
    scene.sql("UPDATE notifications SET message = 'm' || (id % 3) WHERE id <= 9");
    let times: Mutex<BTreeMap<u64, usize>> = Mutex::default();
    let receiver = Rough::start(move |request| {
        let mut times = times.lock().unwrap();
        let times = times.entry(request.id()).or_default();
        *times += 1;
        match (request.id(), *times) {
            (1, _) => Does::Answers(422),
            (2, 1) => Does::Breaks,
            _ => Does::Answers(204),
        }
    })
    .await;
    let params = |order: Value| {
        let mut params = json!({
            "columns": {}, "dedupe": {"column": "message", "within": "1h"},
        });
        params
            .as_object_mut()
            .unwrap()
            .extend(order.as_object().unwrap().clone());
        params
    };
    let job = ordered(&scene, &receiver, params(json!({})));
    let batches = job.pending(10).await.unwrap();
    let mut token = 1;
    for batch in batches {
        send(&job, token, &batch).await;
        token += 1;
    }
    let ids = || -> BTreeSet<u64> { receiver.requests().iter().map(Request::id).collect() };
    // Of m1 the first is dead, and the second is sent; m2 is in doubt; of m0 the first is sent; the others are messages of their own.
    assert_eq!(ids(), [1, 2, 3, 4, 10, 11, 12].into());
    assert_eq!(
        scene.unsent(),
        4,
        "the dead one, and those of the message in doubt"
    );
    token = send_what_goes(&scene, &job, token).await;
    assert_eq!(
        ids(),
        [1, 2, 3, 4, 10, 11, 12].into(),
        "once more, under its key"
    );
    assert_eq!((receiver.requests().len(), scene.unsent()), (8, 1));
    // Hours have passed by the clock of the sender: it is another message.
    let late = |id: u64| {
        format!(
            "INSERT INTO notifications (id, recipient, body, message) VALUES ({id}, 'a', 'b', 'm2')"
        )
    };
    scene.sql(&late(20));
    let other = ordered(&scene, &receiver, params(json!({})));
    token = send_what_goes(&scene, &other, token).await;
    assert!(ids().contains(&20));
    // That it was sent just now another replica finds in the table.
    scene.sql(&late(21));
    scene.sql("UPDATE notifications SET sent_at = NULL WHERE id = 20");
    for batch in other.pending(10).await.unwrap() {
        send(&other, token, &batch).await;
        token += 1;
    }
    let other = ordered(&scene, &receiver, params(json!({})));
    scene.sql(&late(22));
    for batch in other.pending(10).await.unwrap() {
        send(&other, token, &batch).await;
        token += 1;
    }
    assert_eq!((ids().contains(&21), ids().contains(&22)), (false, false));
    assert_eq!(scene.unsent(), 1);
    // Each repeat is marked as the row is that was sent, so the time does not begin anew with it.
    scene.advance(Duration::from_secs(1800));
    scene.sql(&late(23));
    for batch in other.pending(10).await.unwrap() {
        send(&other, token, &batch).await;
        token += 1;
    }
    assert!(!ids().contains(&23));
    scene.advance(Duration::from_secs(1801));
    scene.sql(&late(24));
    for batch in other.pending(10).await.unwrap() {
        send(&other, token, &batch).await;
        token += 1;
    }
    assert!(ids().contains(&24), "an hour after the last that was sent");
    // Of two recipients they are two messages.
    scene.sql("UPDATE notifications SET recipient = 'c' WHERE id = 21");
    scene.sql("UPDATE notifications SET sent_at = NULL WHERE id = 21");
    let each = ordered(
        &scene,
        &receiver,
        params(json!({"columns": {"recipient": "recipient"}})),
    );
    send_what_goes(&scene, &each, token).await;
    assert!(ids().contains(&21));
}

/// Takes all, and says whether that stays.
#[derive(Default)]
struct Forgets {
    taken: Mutex<Vec<ItemId>>,
    keeps: AtomicBool,
}

#[async_trait]
impl Sink for Forgets {
    fn name(&self) -> String {
        "forgets".to_owned()
    }

    async fn send(&self, item: &Item, _: Token) -> Answer {
        self.taken.lock().unwrap().push(item.id.clone());
        Answer::Accepted
    }

    async fn flush(&self) -> io::Result<()> {
        match self.keeps.load(Ordering::SeqCst) {
            true => Ok(()),
            false => Err(io::Error::other("no space left")),
        }
    }
}

pub(crate) async fn a_row_is_no_repeat_of_one_that_may_not_be_kept() {
    let scene = Scene::with_rows(2).await;
    scene.sql("ALTER TABLE notifications ADD COLUMN message text");
    scene.sql("UPDATE notifications SET message = 'm'");
    let sink = Arc::new(Forgets::default());
    let params = json!({"dedupe": {"column": "message", "within": "1h"}, "buckets": 1});
    let job = scene.job(params).with_sink(Arc::<Forgets>::clone(&sink));
    for batch in job.pending(9).await.unwrap() {
        send(&job, 1, &batch).await;
    }
    let in_doubt = listed(&job).await.ids(State::InDoubt);
    assert_eq!((scene.unsent(), in_doubt), (2, vec![ItemId::Int(1)]));
    sink.keeps.store(true, Ordering::SeqCst);
    scene.advance(Duration::from_secs(20));
    for batch in job.pending(9).await.unwrap() {
        send(&job, 2, &batch).await;
    }
    let taken = sink.taken.lock().unwrap().clone();
    assert_eq!((scene.unsent(), taken), (0, vec![ItemId::Int(1); 2]));
}

pub(crate) async fn rows_without_a_recipient_go_as_they_come() {
    let scene = scene(12).await;
    let nullable = "ALTER TABLE notifications ADD COLUMN whom text";
    scene.sql(nullable);
    scene.sql("UPDATE notifications SET whom = 'r' WHERE id IN (3, 5)");
    let receiver = Rough::start(|request| match request.id() {
        3 => Does::Answers(500),
        _ => Does::Answers(204),
    })
    .await;
    let job = ordered(&scene, &receiver, json!({"columns": {"recipient": "whom"}}));
    for (token, batch) in (1..).zip(job.pending(10).await.unwrap()) {
        send(&job, token, &batch).await;
    }
    assert_eq!(scene.unsent(), 2, "3 waits, and 5 behind it");
}
