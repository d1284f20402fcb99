//! A table sent by several workers, one of which dies.

use std::time::Duration;

use watchkeeper::{clock::Clock, spawn::Spawn};
use watchkeeper_jobs::{
    demo_table::{create_demo_table, unsent},
    receiver::{Faults, Receiver},
};

use crate::{
    fleet::Fleet,
    store::Store,
    wait::{SOON, pause},
};

const ROWS: u64 = 900;

const MAIL: &str = r#"
[jobs.mail]
kind = "notifications"
schedule = "continuous"
coordination = "batch"
params = { source = "sqlite://$FOLDER/app.db", table = "notifications", sink = "$SINK", batch_size = 30 }
"#;

/// Nothing is lost, nothing accepted twice, and what is repeated was listed in doubt before.
pub(crate) fn a_table_is_sent_although_a_sender_is_killed(store: Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let receiver = runtime.block_on(Receiver::start(&Spawn::system())).unwrap();
    let mut fleet = Fleet::new(store, &MAIL.replace("$SINK", &receiver.url()));
    let table = fleet.file("app.db");
    create_demo_table(&table, usize::try_from(ROWS).unwrap()).unwrap();
    for _ in 0..3 {
        fleet.start();
    }
    runtime.block_on(async {
        let mut tally = receiver.watch();
        tally
            .wait_for(|t| t.requests >= ROWS / 3)
            .await
            .map(drop)
            .unwrap();
    });
    // From here no answer comes: whoever works is in the middle of a cell.
    receiver.behave(Faults {
        hang_next: ROWS,
        ..Faults::default()
    });
    while still_growing(|| receiver.tally().requests) {}
    let busiest = fleet
        .workers()
        .into_iter()
        .max_by_key(|w| open_claims(&fleet, *w));
    fleet.kill(busiest.unwrap());
    receiver.behave(Faults::default());
    receiver.release();
    let clock = Clock::system();
    let until = clock.now() + SOON * 2;
    while unsent(&table).unwrap() > 0 {
        assert!(clock.now() < until, "{} rows left", unsent(&table).unwrap());
        pause(Duration::from_millis(20));
    }
    for worker in fleet.workers() {
        fleet.terminate(worker);
        assert!(fleet.wait_until_gone(worker), "a drained worker ends well");
    }
    let tally = receiver.tally();
    let in_doubt: u64 = fleet
        .log
        .since(0)
        .iter()
        .filter(|l| l.is("items", "mail") && l.text("outcome") == "in_doubt")
        .map(|l| l.number("count"))
        .sum();
    fleet.measured("requests, in doubt", &(tally.requests, in_doubt));
    assert!(in_doubt > 0, "the killed one had nothing under way");
    assert_eq!((tally.accepted, tally.accepted_twice), (ROWS, 0));
    assert_eq!(
        tally.lost("notifications", 1..=i64::try_from(ROWS).unwrap()),
        0
    );
    assert!(
        tally.repeats_recognised <= in_doubt,
        "{} repeats, {in_doubt} in doubt",
        tally.repeats_recognised
    );
}

pub(crate) fn still_growing(number: impl Fn() -> u64) -> bool {
    let before = number();
    pause(Duration::from_millis(200));
    number() > before
}

/// Batches that a worker has claimed and not finished.
pub(crate) fn open_claims(fleet: &Fleet, worker: usize) -> usize {
    let lines = fleet.log.since(0);
    let count = |says| {
        let told = lines
            .iter()
            .filter(|l| l.worker == worker && l.is(says, "mail"));
        told.count()
    };
    count("batch claimed") - count("batch ended")
}
