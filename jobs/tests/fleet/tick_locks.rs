//! A lock that is taken for each tick, by whichever of three real workers comes first.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::SignedDuration;

use crate::{
    beats::starts,
    fleet::Fleet,
    store::Store,
    wait::{SOON, soon},
};

const TICKS: &str = r#"
[jobs.tick]
kind = "heartbeat"
schedule = "@every 1s"
coordination = "tick"
overlap = "queue"
misfire = "all"
params = { file = "$BEATS", work = "300ms" }
"#;

/// Every tick once, by more than one of them; the run of one that is killed goes on elsewhere.
pub(crate) fn ticks_without_a_leader_run_once_and_spread_over_the_workers(store: Store) {
    let mut fleet = Fleet::of(3, store, TICKS);
    let names: BTreeMap<String, usize> = (0..3).map(|w| (fleet.replica(w), w)).collect();
    let beats = fleet.beats();
    let first = beats
        .wait(SOON, "first tick", |b| b.event == "started")
        .tick;
    let after = |seconds| first + SignedDuration::from_secs(seconds);
    beats.wait(SOON, "some ticks", |b| b.tick >= after(8));
    let status = fleet.status();
    assert_eq!(status["jobs"][0]["coordination"], "tick");

    // In the middle of its work.
    let killed = beats.wait(SOON, "run to be killed", |b| {
        b.event == "started" && b.tick >= after(10)
    });
    let runner = names[&killed.replica];
    fleet.kill(runner);
    // Either it had just ended, or somebody else has begun its next attempt.
    soon("end of the killed run", || {
        let all = beats.all();
        let ended = |b: &&crate::beats::Beat| b.tick == killed.tick && b.event == "ended";
        all.iter().any(|b| ended(&b))
    });
    beats.wait(SOON, "later ticks", |b| {
        b.event == "ended" && b.tick >= after(20)
    });
    let all = beats.all();
    let starts = starts(&all);
    for ((tick, attempt), times) in &starts {
        assert_eq!(*times, 1, "attempt {attempt} of tick {tick}");
    }
    let ticks: BTreeSet<_> = starts.keys().map(|(tick, _)| *tick).collect();
    for seconds in 0..=20 {
        assert!(ticks.contains(&after(seconds)), "tick {seconds} is missing");
    }
    let mut by: BTreeMap<&str, usize> = BTreeMap::new();
    for beat in all.iter().filter(|b| b.event == "started") {
        *by.entry(&beat.replica).or_default() += 1;
    }
    assert!(by.len() >= 2, "{by:?}");
    fleet.measured("ticks by replica", &by.values().collect::<Vec<_>>());
    let late: Vec<Duration> = all
        .iter()
        .filter(|b| b.event == "started" && b.tick <= killed.tick)
        .map(|b| Duration::try_from(b.at.duration_since(b.tick)).unwrap_or_default())
        .collect();
    fleet.measured("start after its tick", &crate::fleet::median(late));
}
