//! Masters that all lose their memory at one time, and masters whose clocks jump: no tick vanishes without a word, and none
//! runs twice. The loss costs about 25 seconds, the jump about a minute, most of it spent waiting.

use std::{collections::BTreeSet, time::Duration};

use jiff::{SignedDuration, Timestamp};

use crate::{
    beats::{Beat, starts},
    fleet::Fleet,
    store::Store,
    ticks::reported,
    wait::{SOON, pause},
};

const TICKS: &str = r#"
[jobs.tick]
kind = "heartbeat"
schedule = "@every 1s"
misfire = "$MISFIRE"
misfire_limit = 100
params = { file = "$BEATS", work = "100ms" }
"#;

const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// Twice: while the leader lives, and when it dies with the masters' memory, so that a standby alone remembers.
pub(crate) fn ticks_that_all_masters_have_forgotten_are_said_by_their_span(store: Store) {
    let mut fleet = Fleet::of(2, store, &TICKS.replace("$MISFIRE", "all"));
    let beats = fleet.beats();
    let first = beats
        .wait(SOON, "first tick", |b| b.event == "started")
        .tick;
    let mut last = first;
    for leader_dies in [false, true] {
        let some = last + SECOND * 4;
        beats.wait(SOON, "ticks", |b| b.event == "started" && b.tick >= some);
        let led = fleet.leader("tick");
        let mark = fleet.log.mark();
        if leader_dies {
            fleet.kill(led.worker);
        }
        fleet.store.forget();
        let led = fleet.next_leader(mark, "tick");
        let unknown = |line: &crate::log::Line| {
            line.is("ticks skipped", "tick") && line.text("why") == "unknown"
        };
        let said = fleet
            .log
            .wait(mark, SOON, "report of unknown ticks", unknown);
        let after = said.at.since(led.at);
        assert!(
            after <= Duration::from_secs(5),
            "{after:?} after the new leader"
        );
        fleet.measured("report after the new leader", &after);
        let tick: Timestamp = said.text("first").parse().unwrap();
        let why = fleet.command(&["explain", "tick", "--at", &tick.to_string()]);
        assert!(why.contains("lost its memory"), "{why}");
        let later = tick + SECOND * 10;
        last = beats
            .wait(SOON, "later tick", |b| {
                b.event == "started" && b.tick > later
            })
            .tick;
        if leader_dies {
            break;
        }
        fleet.join();
    }
    let starts = starts(&beats.all());
    once(&starts);
    let mut accounted: BTreeSet<Timestamp> = starts.keys().map(|(tick, _)| *tick).collect();
    accounted.extend(reported(&fleet, "tick"));
    let mut tick = first;
    while tick < last {
        assert!(
            accounted.contains(&tick),
            "tick {tick} was neither started nor reported"
        );
        tick += SECOND;
    }
}

/// One server, a day ahead for five seconds.
pub(crate) fn a_master_whose_clock_jumped_a_day_ahead_costs_half_a_minute_and_no_tick_runs_twice(
    store: Store,
) {
    let fleet = Fleet::of(2, store, &TICKS.replace("$MISFIRE", "once"));
    let beats = fleet.beats();
    let first = beats
        .wait(SOON, "first tick", |b| b.event == "started")
        .tick;
    pause(Duration::from_secs(3));
    let mark = fleet.log.mark();
    fleet.store.set_clock(86_400);
    let tomorrow = first + SECOND * 80_000;
    beats.wait(SOON, "tick of tomorrow", |b| {
        b.event == "started" && b.tick > tomorrow
    });
    pause(Duration::from_secs(5));
    fleet.store.set_clock(0);
    let says = |text: &'static str| move |line: &crate::log::Line| line.says().contains(text);
    let told = fleet.log.wait(
        mark,
        SOON,
        "word of it",
        says("decided further than the clock shows"),
    );
    let told_of = fleet.command(&["doctor"]);
    assert!(
        told_of.contains("further than the clock shows"),
        "{told_of}"
    );
    let back = fleet.log.wait(
        mark,
        Duration::from_secs(60),
        "ledger taken back",
        says("a clock had jumped ahead: ticks"),
    );
    fleet.measured("taken back after", &back.at.since(told.at));
    let of_today: Vec<Beat> = beats
        .all()
        .into_iter()
        .filter(|b| b.tick < tomorrow)
        .collect();
    let last = of_today.iter().map(|b| b.tick).max().unwrap();
    beats.wait(SOON, "tick of today", |b| {
        b.event == "started" && b.tick > last && b.tick < tomorrow
    });
    pause(Duration::from_secs(3));
    once(&starts(&beats.all()));
}

fn once(starts: &std::collections::BTreeMap<(Timestamp, u32), usize>) {
    for ((tick, attempt), times) in starts {
        assert_eq!(*times, 1, "attempt {attempt} of tick {tick}");
    }
}
