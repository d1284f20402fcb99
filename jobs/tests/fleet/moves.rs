//! A fleet that moves to another store, step by step as the book says (`docs/operations/choosing.md`).

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
#[cfg(any(feature = "postgres", feature = "etcd"))]
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::{
    beats::{Beats, starts},
    fleet::{Fleet, beat},
    store::Store,
    wait::SOON,
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

/// From a file of one machine, with `move` in between: what falls due meanwhile is late in the new store as it would have been in the
/// old one, and is made up for there; a pause goes along.
pub(crate) fn what_was_decided_moves_along_and_no_tick_is_lost_or_runs_twice(store: Store) {
    what_was_decided_moves_along(Store::embedded(), store);
}

/// The same from one store of many machines to another: from a database to three masters.
#[cfg(feature = "postgres")]
pub(crate) fn trial_from_a_database() -> Trial {
    let name = "masters_guarded::moves::what_was_decided_in_a_database_moves_along";
    where_redis_is(name, crate::postgres::trial_of_its_own, || {
        what_was_decided_moves_along(Store::postgres(), Store::masters_guarded());
    })
}

/// From three masters to etcd.
#[cfg(feature = "etcd")]
pub(crate) fn trial_from_masters() -> Trial {
    let name = "etcd_guarded::moves::what_was_decided_on_masters_moves_along";
    where_redis_is(name, crate::etcd_server::trial_of_its_own, || {
        what_was_decided_moves_along(Store::masters(), Store::etcd_guarded());
    })
}

/// A case that also needs what this trial asks for; ignored with the reason where one of both is missing.
#[cfg(any(feature = "postgres", feature = "etcd"))]
fn where_redis_is(name: &str, trial: fn(&str, fn()) -> Trial, case: fn()) -> Trial {
    match crate::server::binary() {
        Some(_) => trial(name, case),
        None => crate::server::trial(name, case),
    }
}

fn what_was_decided_moves_along(from: Store, store: Store) {
    let jobs = beat("a", "400ms", BUSY) + &beat("b", "400ms", BUSY) + &beat("idle", "", "");
    let mut fleet = Fleet::of(2, from, &jobs);
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
        each_once_and_in_a_row(&beats, job);
    }
    assert_eq!(beats.of("idle").len(), idle, "it is paused");
    let status = fleet.status();
    let jobs = status["jobs"].as_array().expect("jobs");
    let shown = jobs.iter().find(|job| job["name"] == "idle");
    assert_eq!(shown.expect("the job")["paused"], true);
    drop(left);
}

/// As the book says (`docs/operations/upgrading.md`). Here the version before is today's, and a store of its layout one with a smaller
/// number, which each of them refuses of the other: nothing starts there, and nothing changes. What the version before has written
/// out arrives in a store of today's layout.
pub(crate) fn a_fleet_goes_on_in_another_layout_and_no_tick_is_lost_or_runs_twice(store: Store) {
    let jobs = beat("a", "400ms", BUSY) + &beat("idle", "", "");
    let mut fleet = Fleet::of(1, store, &jobs);
    let beats = fleet.beats();
    fleet.command(&["pause", "idle", "--reason", "it moves"]);
    let first = beats.wait(SOON, "first tick", |b| b.job == "a").tick;
    let second = first + SignedDuration::from_secs(1);
    beats.wait(SOON, "a second tick", |b| b.job == "a" && b.tick >= second);
    drain_all(&mut fleet);
    let before = beats.all();
    let moved = before.iter().map(|b| b.tick).max().expect("ticks");
    let idle = beats.of("idle").len();

    let todays = fleet.store().layout();
    let earlier = todays - 1;
    fleet.store().set_layout(earlier);
    let named = format!("layout {earlier}");
    for command in [&["run"][..], &["move", "--out", "left.json"]] {
        let said = match command {
            ["run"] => fleet.refusal_to_start(),
            other => fleet.refusal(other),
        };
        for words in [&*named, "move --out FILE", "move --in FILE"] {
            assert!(said.contains(words), "{command:?}: no {words} in {said}");
        }
    }
    assert_eq!(beats.all(), before, "nothing runs");
    assert!(!fleet.file("left.json").exists());

    // With the version before.
    fleet.store().set_layout(todays);
    fleet.command(&["move", "--out", "left.json"]);
    fleet.store().set_layout(earlier);

    let other = fleet.store().put_aside();
    let left = fleet.move_to(other, &jobs);
    let whole = std::fs::read(fleet.file("left.json")).expect("it was written");
    let cut = whole.len() - 2;
    std::fs::write(fleet.file("cut.json"), &whole[..cut]).expect("our own folder");
    let said = fleet.refusal(&["move", "--in", "cut.json"]);
    assert!(said.contains("it was cut or damaged"), "{said}");
    // Again, as after one that was killed.
    for already in [0, 2] {
        let told = fleet.command(&["move", "--in", "left.json", "--json"]);
        let told: Value = serde_json::from_str(&told).expect("JSON");
        let counts = ["ledgers", "already", "pauses"].map(|count| told[count].clone());
        assert_eq!(counts, [json!(2), json!(already), json!(1)], "{told}");
    }
    fleet.join();
    let later = moved + SignedDuration::from_secs(2);
    beats.wait(SOON, "ticks in the new store", |b| {
        b.job == "a" && b.event == "ended" && b.tick > later
    });
    each_once_and_in_a_row(&beats, "a");
    assert_eq!(beats.of("idle").len(), idle, "it is paused");
    drop(left);
}

/// No tick of this job was lost, and none has run twice.
fn each_once_and_in_a_row(beats: &Beats, job: &str) {
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
