//! A fleet that moves to another store, step by step as the book says (`docs/operations/choosing.md`).

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::{
    beats::starts,
    fleet::{Fleet, beat, pulse},
    store::Store,
    wait::{SOON, soon},
};

/// Every tick that is found late is made up for, and work is under way most of the time.
const BUSY: &str = "misfire = \"all\"\nmisfire_limit = 100\noverlap = \"queue\"";

/// All workers at once: no replica takes over what another one leaves.
fn drain_all(fleet: &mut Fleet) {
    let all = fleet.workers();
    for worker in &all {
        fleet.terminate(*worker);
    }
    for worker in all {
        assert!(fleet.wait_until_gone(worker), "a drained worker ends well");
    }
}

/// From a file of one machine: what was under way is finished, no tick runs in both stores, and in the new one they follow each other
/// from the first one on. What falls due in between is made up for by nobody, as the new store knows of nothing before.
pub(crate) fn a_fleet_moves_here_and_no_tick_runs_twice(store: Store) {
    let jobs = beat("a", "400ms", BUSY) + &beat("b", "400ms", BUSY);
    let mut fleet = Fleet::of(2, Store::embedded(), &jobs);
    let beats = fleet.beats();
    let first = beats
        .wait(SOON, "first tick", |b| b.event == "started")
        .tick;
    let third = first + SignedDuration::from_secs(2);
    for job in ["a", "b"] {
        beats.wait(SOON, "a third tick", |b| b.job == job && b.tick >= third);
    }
    drain_all(&mut fleet);
    let before = beats.all();
    let left = fleet.move_to(store, &jobs);
    for _ in 0..2 {
        fleet.join();
    }
    let moved = before.iter().map(|b| b.tick).max().expect("ticks");
    let later = moved + SignedDuration::from_secs(3);
    for job in ["a", "b"] {
        beats.wait(SOON, "ticks in the new store", |b| {
            b.job == job && b.event == "ended" && b.tick > later
        });
    }
    for job in ["a", "b"] {
        let seen = beats.of(job);
        for ((tick, attempt), times) in &starts(&seen) {
            assert_eq!((*attempt, *times), (1, 1), "{job}: tick {tick}");
        }
        let ended = |tick: Timestamp| seen.iter().any(|b| b.event == "ended" && b.tick == tick);
        let ticks: BTreeSet<Timestamp> = seen.iter().map(|b| b.tick).collect();
        let (earlier, later): (Vec<Timestamp>, Vec<Timestamp>) =
            ticks.into_iter().partition(|tick| *tick <= moved);
        for tick in &earlier {
            assert!(ended(*tick), "{job}: tick {tick} was not finished");
        }
        for era in [earlier, later] {
            let follow = era
                .windows(2)
                .all(|two| two[1].duration_since(two[0]) == SignedDuration::from_secs(1));
            assert!(follow, "{job}: {era:?}");
        }
    }
    drop(left);
}

/// With `move` in between: what falls due meanwhile is late in the new store as it would have been in the old one, and is made up
/// for there; a pause goes along.
pub(crate) fn what_was_decided_moves_along_and_no_tick_is_lost_or_runs_twice(store: Store) {
    let jobs = beat("a", "400ms", BUSY) + &beat("b", "400ms", BUSY) + &beat("idle", "", "");
    let mut fleet = Fleet::of(2, Store::embedded(), &jobs);
    let beats = fleet.beats();
    fleet.command(&["pause", "idle", "--reason", "it moves"]);
    for job in ["a", "b"] {
        let first = beats.wait(SOON, "first tick", |b| b.job == job).tick;
        let third = first + SignedDuration::from_secs(2);
        beats.wait(SOON, "a third tick", |b| b.job == job && b.tick >= third);
    }
    drain_all(&mut fleet);
    let moved = beats.all().iter().map(|b| b.tick).max().expect("ticks");
    let idle = beats.of("idle").len();
    let (left, told) = fleet.move_along(store, &jobs);
    assert_eq!(
        (&told["ledgers"], &told["pauses"]),
        (&json!(3), &json!(1)),
        "{told}"
    );
    for _ in 0..2 {
        fleet.join();
    }
    let later = moved + SignedDuration::from_secs(3);
    for job in ["a", "b"] {
        beats.wait(SOON, "ticks in the new store", |b| {
            b.job == job && b.event == "ended" && b.tick > later
        });
    }
    for job in ["a", "b"] {
        let seen = beats.of(job);
        for ((tick, attempt), times) in &starts(&seen) {
            assert_eq!((*attempt, *times), (1, 1), "{job}: tick {tick}");
        }
        let ticks: BTreeSet<Timestamp> = seen.iter().map(|b| b.tick).collect();
        let ticks: Vec<Timestamp> = ticks.into_iter().collect();
        let follow = ticks
            .windows(2)
            .all(|two| two[1].duration_since(two[0]) == SignedDuration::from_secs(1));
        assert!(follow, "{job}: {ticks:?}");
    }
    assert_eq!(beats.of("idle").len(), idle, "it is paused");
    let status = fleet.status();
    let jobs = status["jobs"].as_array().expect("jobs");
    let shown = jobs.iter().find(|job| job["name"] == "idle");
    assert_eq!(shown.expect("the job")["paused"], true);
    drop(left);
}

/// As the book says (`docs/operations/upgrading.md`): nothing starts on a store of another layout, nothing changes there, and the fleet
/// works on another one.
pub(crate) fn a_store_of_another_layout_is_left_alone_and_another_one_begun(store: Store) {
    let mut fleet = Fleet::of(1, store, &pulse());
    let beats = fleet.beats();
    beats.wait(SOON, "a tick", |b| b.job == "pulse");
    fleet.terminate(0);
    assert!(fleet.wait_until_gone(0), "a drained worker ends well");
    let ran = beats.all().len();
    fleet.store().set_layout(99);
    for _ in 0..2 {
        let said = fleet.refusal_to_start();
        assert!(said.contains("layout 99"), "{said}");
    }
    assert_eq!(beats.all().len(), ran, "nothing runs");
    let other = fleet.store().put_aside();
    let left = fleet.move_to(other, &pulse());
    fleet.join();
    soon("a tick in the other store", || beats.all().len() > ran);
    drop(left);
}
