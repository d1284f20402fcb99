//! Rows of many recipients, sent by workers that are killed, to a receiver that fails in every way: each recipient has its rows in
//! their order, and none waits for another. For the long run: costs two minutes and a half.
//!
//! `WATCHKEEPER_ROUGH_SEED` repeats what the receiver does.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rusqlite::Connection;
use watchkeeper::{chance::Chance, clock::Clock};
use watchkeeper_jobs::demo_table::{create_demo_table, unsent};

use crate::{
    fleet::Fleet,
    rough::{Does, Request, Rough, assert_in_order},
    store::Store,
    wait::{SOON, pause, soon},
};

const ROWS: u64 = 2_000;
const RECIPIENTS: u64 = 40;
const WORKERS: usize = 3;
const KILLED: usize = 6;
/// The first row of a recipient that is not taken before all rows of the others are.
const STUCK: u64 = 7;
/// An answer that is late.
const LATE: Duration = Duration::from_secs(2);
/// After so many requests the receiver has too much to do for the next ones, while there are many: each refusal doubles the pause of
/// its row, and the last row would have all of them.
const WAVES: usize = 700;
const WAVE: usize = 6;

const MAIL: &str = r#"
[jobs.mail]
kind = "notifications"
schedule = "continuous"
coordination = "batch"

[jobs.mail.params]
source = "sqlite://$FOLDER/app.db"
table = "notifications"
columns = { recipient = "recipient" }
sink = "$SINK"
buckets = 16
backoff = "50ms"
attempts = 60
timeout = "5s"
in_doubt = "repeat"
"#;

/// Rows that wait for a person.
const HELD: &str = "SELECT count(*) FROM watchkeeper_delivery WHERE state IN ('dead', 'parked')";

/// About one in a hundred is refused for good.
fn is_refused(id: u64) -> bool {
    id % 101 == 50
}

/// What becomes of a request that nothing else is to become of.
fn by_chance(chance: &Chance) -> Does {
    match chance.below(100) {
        0..20 => Does::Answers(500),
        20..25 => Does::AnswersLate(LATE, 204),
        25..27 => Does::Breaks,
        27..29 => Does::Drops,
        _ => Does::Answers(204),
    }
}

pub(crate) fn each_recipient_has_its_rows_in_order_whatever_fails(store: Store) {
    let seed = std::env::var("WATCHKEEPER_ROUGH_SEED").ok();
    let seed = seed.map_or_else(
        || Chance::system().below(1 << 32),
        |seed| seed.parse().expect("a number"),
    );
    println!("rough receiver: WATCHKEEPER_ROUGH_SEED={seed}");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (chance, freed) = (Chance::seeded(seed), Arc::new(AtomicBool::default()));
    let is_free = Arc::clone(&freed);
    let receiver = runtime.block_on(Rough::start(move |request| {
        let id = request.id();
        match id {
            STUCK if !is_free.load(Ordering::SeqCst) => Does::Answers(500),
            _ if is_refused(id) => Does::Answers(400),
            _ if !is_free.load(Ordering::SeqCst) && request.before % WAVES >= WAVES - WAVE => {
                Does::AsksToWait(429, 1)
            }
            _ => by_chance(&chance),
        }
    }));
    let mut fleet = Fleet::new(store, &MAIL.replace("$SINK", &receiver.url("")));
    let table = fleet.file("app.db");
    create_demo_table(&table, usize::try_from(ROWS).unwrap()).unwrap();
    let db = Connection::open(&table).unwrap();
    db.busy_timeout(SOON).unwrap();
    let dealt = format!("UPDATE notifications SET recipient = 'r' || (id % {RECIPIENTS})");
    db.execute_batch(&dealt).unwrap();
    for _ in 0..WORKERS {
        fleet.start();
    }

    let is_of_stuck = |id: &u64| id % RECIPIENTS == STUCK % RECIPIENTS;
    let of_others = (1..=ROWS).filter(|id| !is_of_stuck(id) && !is_refused(*id));
    let of_others = of_others.count();
    for n in 1..=KILLED {
        let wanted = of_others * n / (KILLED + 1);
        soon("more rows", || receiver.count() >= wanted);
        let first = fleet.workers()[0];
        fleet.kill(first);
        fleet.start();
    }
    // One recipient gets nothing all the time, and holds up no other.
    let mut count = receiver.count();
    while count < of_others {
        // Rows of one recipient go one by one.
        soon("another row of the others", || receiver.count() > count);
        count = receiver.count();
    }
    let asked_for: BTreeSet<u64> = receiver
        .requests()
        .iter()
        .map(Request::id)
        .filter(is_of_stuck)
        .collect();
    assert_eq!(asked_for, [STUCK].into(), "seed {seed}");
    freed.store(true, Ordering::SeqCst);
    let refused: BTreeSet<u64> = (1..=ROWS).filter(|id| is_refused(*id)).collect();
    let number = |sql: &str| -> u64 {
        let found = db.query_row(sql, [], |row| row.get::<_, i64>(0));
        found.unwrap().unsigned_abs()
    };
    let left = || (unsent(&table).unwrap(), number(HELD));
    let clock = Clock::system();
    // Its pauses have grown meanwhile, and its rows go one by one: no progress for so long is none.
    let (mut before, mut until) = (left(), clock.now() + SOON * 5);
    while before != (refused.len() as u64, refused.len() as u64) {
        assert!(
            clock.now() < until,
            "rows left, and held: {before:?}, seed {seed}"
        );
        if left() != before {
            (before, until) = (left(), clock.now() + SOON * 5);
        }
        pause(Duration::from_millis(50));
    }
    for worker in fleet.workers() {
        fleet.terminate(worker);
        assert!(fleet.wait_until_gone(worker), "a drained worker ends well");
    }

    let requests = receiver.requests();
    fleet.measured("requests", &requests.len());
    assert_in_order(&requests, RECIPIENTS, Request::is_settled);
    // What was taken is marked; what is not was refused, and waits for a person with that reason.
    let mut left = db
        .prepare("SELECT item, state, reason FROM watchkeeper_delivery ORDER BY item")
        .unwrap();
    let left = left.query_map([], |row| {
        Ok((
            row.get(0)?,
            row.get::<_, String>(1)?,
            row.get::<_, String>(2)?,
        ))
    });
    let left: Vec<(i64, String, String)> = left.unwrap().map(Result::unwrap).collect();
    let ids: BTreeSet<u64> = left.iter().map(|(id, ..)| id.unsigned_abs()).collect();
    assert_eq!(ids, refused, "seed {seed}");
    for (id, state, reason) in &left {
        // One whose sender died with it may have been received, as far as senders know.
        let held = ["dead", "parked"].contains(&state.as_str());
        assert!(held, "{id}: {state}, seed {seed}");
        assert_eq!(reason, "answered 400", "{id}, seed {seed}");
    }
    let all = usize::try_from(ROWS).unwrap() - refused.len();
    assert_eq!(receiver.count(), all);
    let doubted = number("SELECT doubted FROM watchkeeper_delivery_source");
    let taken = requests.iter().filter(|request| request.is_taken());
    let again = taken.count() - all;
    fleet.measured("taken again, listed in doubt", &(again, doubted));
    let died = |line: &crate::log::Line| line.is("the last holder ended while sending", "mail");
    let died = fleet.log.since(0).iter().filter(|line| died(line)).count();
    assert!(died > 0, "nobody was killed in the act, seed {seed}");
}
