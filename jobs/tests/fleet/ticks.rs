//! Every tick once, or a word why not, whoever dies meanwhile.

use std::{collections::BTreeSet, time::Duration};

use jiff::{SignedDuration, Timestamp};

use crate::{
    beats::starts,
    fleet::Fleet,
    log::Line,
    store::Store,
    wait::{SOON, pause},
};

/// Short work, so that some of the kills meet a run.
const TICKS: &str = r#"
[jobs.tick]
kind = "heartbeat"
schedule = "@every 1s"
misfire = "$MISFIRE"
params = { file = "$BEATS", work = "300ms" }
"#;

/// P4 with every late tick made up for: a minute, five dead leaders.
pub(crate) fn sixty_ticks_and_five_dead_leaders_with_late_ticks_made_up_for(store: Store) {
    ticks_and_dead_leaders(store, "all", 60, 5);
}

/// P4 with one run for all late ticks: twenty ticks, two dead leaders.
pub(crate) fn twenty_ticks_and_two_dead_leaders_with_one_run_for_late_ticks(store: Store) {
    ticks_and_dead_leaders(store, "once", 20, 2);
}

/// P4 with a server that is killed every few seconds: what was committed stands, and nothing else.
#[cfg(any(feature = "postgres", feature = "etcd"))]
pub(crate) fn twenty_ticks_of_a_database_that_crashes(store: Store) {
    ticks_and_crashes(store, 20, 4);
}

/// The same for a minute.
#[cfg(feature = "postgres")]
pub(crate) fn sixty_ticks_of_a_database_that_crashes(store: Store) {
    ticks_and_crashes(store, 60, 12);
}

/// P4 with a cluster whose leadership moves every few seconds, and whose new leader is killed.
#[cfg(feature = "etcd")]
pub(crate) fn twenty_ticks_of_a_cluster_that_loses_its_leaders(store: Store) {
    ticks_and_crashes(store, 20, 4);
}

/// P4 with a master that is killed again and again, and another one in its place each time.
pub(crate) fn twenty_ticks_across_four_failovers(store: Store) {
    ticks_and_crashes(store, 20, 4);
}

fn ticks_and_crashes(store: Store, ticks: i64, crashes: u32) {
    let fleet = Fleet::of(3, store, &TICKS.replace("$MISFIRE", "all"));
    let beats = fleet.beats();
    let first = beats
        .wait(SOON, "first tick", |b| b.event == "started")
        .tick;
    let last = first + SignedDuration::from_secs(ticks - 1);
    let every = ticks / i64::from(crashes + 1);
    for crash in 1..=crashes {
        let after = first + SignedDuration::from_secs(every * i64::from(crash));
        let started = |b: &crate::beats::Beat| b.event == "started" && b.tick >= after;
        beats.wait(SOON, "tick", started);
        // Somewhere in its second, another place each time.
        pause(Duration::from_millis(73) * crash);
        fleet.store.crash();
    }
    beats.wait(SOON, "last tick", |b| b.event == "started" && b.tick > last);
    none_twice_and_none_missing(&fleet, first, last);
}

fn ticks_and_dead_leaders(store: Store, misfire: &str, ticks: i64, kills: u32) {
    let mut fleet = Fleet::of(3, store, &TICKS.replace("$MISFIRE", misfire));
    let beats = fleet.beats();
    let first = beats
        .wait(SOON, "first tick", |b| b.event == "started")
        .tick;
    let last = first + SignedDuration::from_secs(ticks - 1);
    let every = ticks / i64::from(kills + 1);
    for kill in 1..=kills {
        // Somewhere in its second, another place each time.
        let after = first + SignedDuration::from_secs(every * i64::from(kill));
        let started = |b: &crate::beats::Beat| b.event == "started" && b.tick >= after;
        beats.wait(SOON, "tick", started);
        pause(Duration::from_millis(190) * (kill - 1));
        let led = fleet.leader("tick");
        let mark = fleet.log.mark();
        fleet.kill(led.worker);
        fleet.join();
        fleet.next_leader(mark, "tick");
    }
    // Once a later one has started the last one is decided.
    beats.wait(SOON, "last tick", |b| b.event == "started" && b.tick > last);
    none_twice_and_none_missing(&fleet, first, last);
}

/// Each attempt was started once, and each tick is started or reported.
pub(crate) fn none_twice_and_none_missing(fleet: &Fleet, first: Timestamp, last: Timestamp) {
    let starts = starts(&fleet.beats().all());
    for ((tick, attempt), times) in &starts {
        assert_eq!(*times, 1, "attempt {attempt} of tick {tick}");
    }
    let vanished = vanished(fleet, "tick", first, last);
    assert!(
        vanished.is_empty(),
        "neither started nor reported: {vanished:?}"
    );
    // Of what a store has forgotten it is not known what became of it. Only one whose master is replaced may forget.
    let lines = fleet.log.since(0);
    let unknown = |l: &&Line| l.is("ticks skipped", "tick") && l.text("why") == "unknown";
    let unknown: Vec<&Line> = lines.iter().filter(unknown).collect();
    let forgets = matches!(fleet.store, Store::Failover(_));
    assert!(forgets || unknown.is_empty(), "{unknown:?}");
    let ticks: BTreeSet<Timestamp> = starts.keys().map(|(tick, _)| *tick).collect();
    fleet.measured("ticks started", &ticks.range(first..=last).count());
    let again = starts.keys().filter(|(_, attempt)| *attempt > 1).count();
    fleet.measured("attempts after an interruption", &again);
}

/// Ticks of a job that were neither started nor reported.
pub(crate) fn vanished(
    fleet: &Fleet,
    job: &str,
    first: Timestamp,
    last: Timestamp,
) -> Vec<Timestamp> {
    let started = starts(&fleet.beats().of(job));
    let mut ticks: BTreeSet<Timestamp> = started.keys().map(|(tick, _)| *tick).collect();
    ticks.extend(reported(fleet, job));
    let mut vanished = Vec::new();
    let mut tick = first;
    while tick <= last {
        if !ticks.contains(&tick) {
            vanished.push(tick);
        }
        tick += SignedDuration::from_secs(1);
    }
    vanished
}

/// Ticks of a job that the log says will not run.
pub(crate) fn reported(fleet: &Fleet, job: &str) -> Vec<Timestamp> {
    let mut all = Vec::new();
    for line in fleet.log.since(0) {
        if line.is("ticks skipped", job) {
            let mut tick: Timestamp = line.text("first").parse().unwrap();
            let last: Timestamp = line.text("last").parse().unwrap();
            while tick <= last {
                all.push(tick);
                tick += SignedDuration::from_secs(1);
            }
        }
    }
    all
}
