//! What people ask of a fleet, by command and over HTTP.

use std::{collections::BTreeSet, time::Duration};

use serde_json::Value;

use crate::{
    beats::starts,
    fleet::{Fleet, SOON, TTL, pause, soon},
    store::Store,
};

const PULSE: &str = r#"
[jobs.pulse]
kind = "heartbeat"
schedule = "@every 1s"
params = { file = "$BEATS" }
"#;

/// No tick falls due: what runs was triggered.
const MANUAL: &str = r#"
[jobs.manual]
kind = "heartbeat"
schedule = "0 0 29 2 *"
retry = 20
params = { file = "$BEATS", work = "400ms" }
"#;

/// Every master comes back empty, one after the other, and then every replica that knew of the pause goes.
pub(crate) fn a_paused_job_stays_paused_through_a_rolling_restart_of_all_masters(store: Store) {
    let mut fleet = Fleet::of(2, store, PULSE);
    let beats = fleet.beats();
    beats.wait(SOON, "first tick", |b| b.event == "started");
    let said = fleet.command(&["pause", "pulse", "--reason", "the masters move"]);
    assert!(said.contains("heard by w0, w1"), "{said}");
    pause(Duration::from_millis(1500));
    let before = beats.of("pulse").len();
    for master in 0..fleet.store.masters_count() {
        fleet.store.restart(master);
        let said = fleet.command(&["doctor", "--wait-admitted", "--timeout", "30s"]);
        assert!(said.contains("every node votes"), "{said}");
    }
    let new = fleet.start();
    fleet.wait_until_ready(new);
    for old in [0, 1] {
        fleet.kill(old);
    }
    let led = || status(&fleet)["jobs"][0]["leader"]["name"] == format!("w{new}");
    soon("leader that was not here when it was paused", led);
    pause(TTL);
    assert_eq!(beats.of("pulse").len(), before, "nothing has started since");
    let job = &status(&fleet)["jobs"][0];
    assert_eq!(job["paused"], true);
    assert_eq!(job["paused_why"], "the masters move");
    let why = fleet.command(&["explain", "pulse"]);
    assert!(why.contains("is paused since"), "{why}");

    let said = fleet.command(&["resume", "pulse"]);
    assert!(said.contains("goes on with its next tick"), "{said}");
    soon("tick after the pause", || beats.of("pulse").len() > before);
    let since = beats.of("pulse").split_off(before);
    let resumed = since[0].at;
    // None from the time of the pause: that was a lot longer ago.
    let oldest = resumed.duration_since(since[0].tick);
    assert!(oldest.as_secs() <= 2, "{since:?}");
}

/// The leader is killed as soon as it has accepted, often while it runs.
pub(crate) fn a_trigger_runs_once_although_its_leader_is_killed_at_once(store: Store) {
    let mut fleet = Fleet::of(3, store, MANUAL);
    let beats = fleet.beats();
    let mut led = fleet.leader("manual");
    for round in 1..=4_usize {
        let said = fleet.command(&["trigger", "manual"]);
        assert!(said.starts_with(&format!("w{}", led.worker)), "{said}");
        pause(Duration::from_millis(60) * (u32::try_from(round).unwrap() - 1));
        let mark = fleet.log.mark();
        fleet.kill(led.worker);
        let new = fleet.start();
        fleet.wait_until_ready(new);
        led = fleet.next_leader(mark, "manual");
        let ended = || -> BTreeSet<_> {
            let beats = beats.of("manual").into_iter();
            beats
                .filter(|b| b.event == "ended")
                .map(|b| b.tick)
                .collect()
        };
        soon("end of the run", || ended().len() >= round);
    }
    let said = fleet.command(&["trigger", "manual", "--wait=20s"]);
    assert!(said.contains("done"), "{said}");
    assert!(matches!(
        fleet.asks(led.worker, "POST", "/api/v1/jobs/manual/trigger"),
        200 | 202
    ));
    let ticks = || -> BTreeSet<_> {
        starts(&beats.of("manual"))
            .keys()
            .map(|(t, _)| *t)
            .collect()
    };
    soon("run of the sixth", || ticks().len() >= 6);
    pause(TTL * 2);
    let starts = starts(&beats.of("manual"));
    for ((tick, attempt), times) in &starts {
        assert_eq!(*times, 1, "attempt {attempt} of {tick}");
    }
    assert_eq!(ticks().len(), 6, "six were asked for: {starts:?}");
    let again = starts.keys().filter(|(_, attempt)| *attempt > 1).count();
    fleet.measured("attempts after an interruption", &again);
}

/// By name, by chance, and over HTTP.
pub(crate) fn a_job_is_handed_over_on_request(store: Store) {
    let fleet = Fleet::of(3, store, PULSE);
    let led = fleet.leader("pulse");
    let to = (led.worker + 1) % 3;
    let said = fleet.command(&["resign", "pulse", "--to", &format!("w{to}")]);
    assert!(said.starts_with(&format!("w{to} leads pulse")), "{said}");
    let said = fleet.command(&["resign", "pulse"]);
    assert!(said.contains(&format!("after w{to}")), "{said}");
    assert!(!said.starts_with(&format!("w{to} ")), "{said}");
    let mark = fleet.log.mark();
    let answer = fleet.orders(to, "/api/v1/jobs/pulse/resign");
    assert!(matches!(answer, 200 | 202), "{answer}");
    fleet.next_leader(mark, "pulse");
    assert_eq!(fleet.orders(to, "/api/v1/jobs/plse/resign"), 404);
    for ((tick, attempt), times) in starts(&fleet.beats().all()) {
        assert_eq!((attempt, times), (1, 1), "tick {tick}");
    }
}

fn status(fleet: &Fleet) -> Value {
    serde_json::from_str(&fleet.command(&["status", "--json"])).expect("JSON")
}
