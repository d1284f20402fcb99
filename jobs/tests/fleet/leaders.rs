//! A leader goes: killed, told to go, or frozen.

use std::time::Duration;

use crate::{
    beats::Beat,
    fleet::{Fleet, Led, TTL, beat, pulse},
    log::{GONE, Line},
    store::Store,
    wait::{SOON, less, pause, soon, starved, undisturbed},
};

/// Nothing to do, so that nothing but the election is measured.
const IDLE: &str = r#"
[jobs.idle]
kind = "heartbeat"
schedule = "@every 24h"
"#;

/// P5: whatever the phase of its renewals, a killed leader is replaced within a ttl and half a second.
pub(crate) fn a_killed_leader_is_replaced_within_ttl_and_a_half_second(store: Store) {
    let mut fleet = Fleet::of(3, store, IDLE);
    let mut led = fleet.leader("idle");
    for round in 0..4 {
        // Another phase of the renewals each time.
        pause(Duration::from_millis(170) * round);
        let next = fleet.kill_leader(led, "idle");
        assert!(next.token > led.token, "{next:?} after {led:?}");
        led = next;
        fleet.join();
    }
}

/// A leader without a run in flight hands over as soon as it is told to go.
pub(crate) fn an_idle_leader_hands_over_at_once(store: Store) {
    let mut fleet = Fleet::of(3, store, IDLE);
    let mut led = fleet.leader("idle");
    let mut gaps = Vec::new();
    for _ in 0..7 {
        let mark = fleet.log.mark();
        let told = fleet.terminate(led.worker);
        let next = fleet.next_leader(mark, "idle");
        gaps.push(undisturbed(told, next.at));
        assert!(next.token > led.token, "{next:?} after {led:?}");
        assert!(
            fleet.wait_until_gone(led.worker),
            "a drained worker ends well"
        );
        led = next;
        fleet.join();
    }
    fleet.handed_over(&gaps);
}

/// A run in flight is finished, then the lease goes, then the next one leads: in this order, and quickly.
pub(crate) fn a_leader_ends_its_run_before_it_hands_over(store: Store) {
    // Work that is nearly always under way.
    let mut fleet = Fleet::of(3, store, &beat("busy", "600ms", ""));
    let mut led = fleet.leader("busy");
    let mut gaps = Vec::new();
    for _ in 0..5 {
        let started = |l: &Line| l.is("heartbeat", "busy") && l.worker == led.worker;
        let mark = fleet.log.mark();
        fleet.log.wait(mark, SOON, "run", started);
        let mark = fleet.log.mark();
        fleet.terminate(led.worker);
        let ended = fleet.log.wait(mark, SOON, "end of the run", |l| {
            l.is("run ended", "busy") && l.worker == led.worker
        });
        assert_eq!(ended.text("outcome"), "done");
        let next = fleet.next_leader(mark, "busy");
        assert!(
            fleet.wait_until_gone(led.worker),
            "a drained worker ends well"
        );
        let beat = fleet.beats().last("ended", led.token);
        gaps.push(less(next.after(&beat), starved(ended.at, next.at)));
        led = next;
        fleet.join();
    }
    fleet.handed_over(&gaps);

    let beats = fleet.beats().of("busy");
    for ((tick, attempt), times) in crate::beats::starts(&beats) {
        assert_eq!((attempt, times), (1, 1), "tick {tick}");
    }
    assert!(
        beats.iter().all(|beat| beat.event != "cancelled"),
        "no run was cut short"
    );
}

/// P2: a leader that was frozen for three ttl is told of the end of its term before it does anything else in it.
/// Meanwhile another one leads; afterwards the thawed one is as good as any.
pub(crate) fn a_frozen_leader_never_acts_in_its_old_term_again(store: Store) {
    // Work that does not end by itself, and a pulse beside it.
    let jobs = beat("long", "10m", "") + &pulse();
    let mut fleet = Fleet::of(2, store, &jobs);
    let led = fleet.leader("long");
    let old = led.worker;
    let beats = fleet.beats();
    let run = beats.wait(SOON, "run", |b| b.job == "long" && b.token == led.token);
    // Between two ticks: a process that is stopped while it writes to the embedded store keeps the file locked.
    pause(Duration::from_millis(400));
    let mark = fleet.log.mark();
    let frozen = fleet.freeze(old);
    let next = fleet.next_leader(mark, "long");
    assert_ne!(next.worker, old);
    fleet.took_over(frozen, &next);
    // The pulse was the frozen one's, too, or is the other's already.
    beats.wait(SOON, "run of the next leader", |b| {
        b.job == "long" && b.token == next.token
    });
    pause((frozen + TTL * 3).since(watchkeeper::clock::Clock::system().now()));
    let (before, mark) = (beats.all().len(), fleet.log.mark());
    fleet.thaw(old);
    let stood = fleet.log.wait(mark, SOON, "end of the old term", |l| {
        l.worker == old && (l.is("standing by", "long") || l.says() == GONE)
    });
    assert_ne!(
        stood.says(),
        GONE,
        "a job that stops when told need not be aborted"
    );
    assert_eq!(stood.text("reason"), "expired");
    pause(Duration::from_millis(1500));
    soon("tick, and they go on", || {
        beats.all()[before..].iter().any(|b| b.job == "pulse")
    });
    let replica = fleet.replica(old);
    let since: Vec<Beat> = beats.all().split_off(before);
    // What was stamped before the freeze, and only written after it, had begun when it was in its right.
    let anew = |b: &&Beat| b.at.duration_since(run.at) >= jiff::SignedDuration::from_secs(1);
    let its = since.iter().filter(|b| b.replica == replica);
    let (acts, later): (Vec<&Beat>, Vec<&Beat>) =
        its.filter(anew).partition(|b| b.token <= next.token);
    assert_eq!(acts.len(), 1, "all that the thawed one did: {acts:#?}");
    assert_eq!(
        (acts[0].event.as_str(), &acts[0].run_id),
        ("cancelled", &run.run_id)
    );
    let leads = fleet.leader("long");
    if leads.worker != old {
        assert!(later.is_empty(), "it acts and does not lead: {later:#?}");
        return stands_by_again(&mut fleet, leads, old);
    }
    // On a machine that was busy elsewhere the other one has lost its term meanwhile, and has said so before.
    let lines = fleet.log.since(mark);
    let ended = lines
        .iter()
        .position(|l| l.worker == next.worker && l.is("standing by", "long"));
    let led = lines
        .iter()
        .position(|l| l.worker == old && l.is("leading", "long"));
    assert!(ended.is_some() && ended < led, "two led at one time");
}

/// The thawed worker is a candidate like any other.
fn stands_by_again(fleet: &mut Fleet, leader: Led, thawed: usize) {
    let mark = fleet.log.mark();
    fleet.kill(leader.worker);
    assert_eq!(fleet.next_leader(mark, "long").worker, thawed);
}
