//! The example of a hundred thousand customers, in virtual time and with replicas that die.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use rusqlite::Connection;
use watchkeeper::{
    DurationExt,
    lock::clock::Clock,
    testing::{Fleet, Sim},
};

#[allow(dead_code, missing_docs, reason = "a program of its own")]
#[path = "../../examples/customers.rs"]
mod example;

use example::{Reminders, spec};

/// Lets so many customers become due in so much time, evenly, and kills one replica after the other meanwhile. Nobody is left out
/// or reminded twice, and 99 of 100 wait for two seconds at most.
fn play(customers: i64, time: Duration) {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let clock = Arc::new(OnceLock::<Clock>::new());
    let known = clock.clone();
    let now = move || {
        known
            .get()
            .map_or(Timestamp::UNIX_EPOCH, |clock| clock.wall())
    };
    let table = Connection::open_in_memory().unwrap();
    let reminders = Reminders::new(table, Arc::new(now), 20.millis()).unwrap();
    let end = start + SignedDuration::try_from(time).unwrap();
    reminders
        .add(customers, start + SignedDuration::from_secs(15), end)
        .unwrap();
    let job = reminders.clone();
    let sim = Sim::new().batch_job("reminders", move |_| job.clone(), spec());
    sim.run(|fleet| async move {
        clock.set(fleet.clock()).ok().unwrap();
        let kills = 3;
        for _ in 0..kills {
            fleet.advance(time / (kills + 1)).await;
            // In the middle of its work.
            let works = |fleet: &Fleet| fleet.is_running("reminders");
            fleet.advance_until(works, 5.secs()).await;
            let batches = fleet.batches("reminders");
            let running = batches.iter().find(|batch| batch.outcome == "running");
            let replica = running.unwrap().replica;
            fleet.kill(replica);
            fleet.advance(5.secs()).await;
            fleet.start(replica);
        }
        fleet.advance(time / (kills + 1) + 10.secs()).await;
        let late = reminders.lateness().unwrap();
        // The table itself refuses a second time.
        assert_eq!(
            late.len(),
            usize::try_from(customers).unwrap(),
            "none is lost"
        );
        let failed = fleet.batches("reminders");
        let failed = failed.iter().filter(|batch| batch.outcome == "failed");
        assert_eq!(failed.count(), 0, "none is tried twice");
        let p99 = late[late.len() * 99 / 100];
        eprintln!(
            "{customers} customers: p50 {} ms, p99 {p99} ms, longest {:?} ms",
            late[late.len() / 2],
            late.last()
        );
        assert!(p99 <= 2_000, "{p99} ms");
        assert!(
            late.last() > Some(&1_000),
            "a death costs somebody a claim's time, or nobody died at work"
        );
        fleet.assert_no_two_at_once("reminders");
    });
}

/// As many a second as a hundred thousand in an hour.
#[test]
fn customers_are_reminded_when_they_are_due_whatever_dies() {
    play(10_000, 6.mins());
}

#[test]
#[ignore = "an hour in virtual time is some minutes"]
fn a_hundred_thousand_customers_of_one_hour_are_reminded_when_they_are_due_whatever_dies() {
    play(100_000, 1.hours());
}
