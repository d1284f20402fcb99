//! A leader goes: killed, told to go, or frozen.

use std::time::Duration;

use watchkeeper::clock::{Clock, Moment};

use crate::{
    beats::Beat,
    fleet::{Fleet, Led, TTL, beat, pulse},
    log::{GONE, Line, Mark},
    store::Store,
    wait::{SOON, less, pause, soon, starved, undisturbed},
};

/// Nothing to do, so that nothing but the election is measured.
const IDLE: &str = r#"
[jobs.idle]
kind = "heartbeat"
schedule = "@every 24h"
"#;

/// Of work that is to stop when a frozen process goes on: a twentieth of it is the time for that, also on a busy machine.
const LONG_TTL: Duration = Duration::from_secs(6);

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
    // A store that fails over votes for no longer lease.
    let ttl = match store {
        Store::Failover(_) => TTL,
        _ => LONG_TTL,
    };
    // Work that does not end by itself, and a pulse beside it.
    let jobs = beat("long", "10m", &format!("ttl = \"{}s\"", ttl.as_secs())) + &pulse();
    let mut fleet = Fleet::of(2, store, &jobs);
    let led = fleet.leader("long");
    let old = led.worker;
    let beats = fleet.beats();
    let run = beats.wait(SOON, "run", |b| b.job == "long" && b.token == led.token);
    let (since_freeze, frozen) = freeze_between_ticks(&fleet, old);
    let stopped = Clock::system().wall();
    let next = fleet.next_leader(since_freeze, "long");
    assert_ne!(next.worker, old);
    fleet.took_over_within(ttl, frozen, &next);
    // The pulse was the frozen one's, too, or is the other's already.
    beats.wait(SOON, "run of the next leader", |b| {
        b.job == "long" && b.token == next.token
    });
    pause((frozen + ttl * 3).since(Clock::system().now()));
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
    let since = beats.all().split_off(before);
    // On a machine that is busy elsewhere the other one may lose a term, and the thawed one win another.
    let lines = fleet.log.since(mark);
    let terms: Vec<&Line> = lines
        .iter()
        .filter(|l| l.worker == old && l.says() == "leading")
        .collect();
    let of_a_term = |b: &Beat| {
        terms
            .iter()
            .any(|l| l.text("job") == b.job && l.number("token") == b.token)
    };
    // What was stamped before the freeze, and only written after it, had begun when it was in its right.
    let its = since
        .iter()
        .filter(|b| b.replica == replica && b.at >= stopped);
    let acts: Vec<&Beat> = its.filter(|b| !of_a_term(b)).collect();
    assert_eq!(acts.len(), 1, "all that the thawed one did: {acts:#?}");
    assert_eq!(
        (acts[0].event.as_str(), &acts[0].run_id),
        ("cancelled", &run.run_id)
    );
    for began in &terms {
        let job = began.text("job");
        let said = Led::from(*began).said;
        let stood = fleet.log.since(since_freeze).into_iter().rfind(|l| {
            let tells = l.is("leading", job) || l.is("standing by", job);
            tells && l.worker == next.worker && Led::from(l).said <= said
        });
        assert!(
            stood.is_none_or(|l| l.says() == "standing by"),
            "two led {job} at one time"
        );
    }
    let leads = fleet.leader("long");
    if leads.worker != old {
        stands_by_again(&mut fleet, leads, old);
    }
}

/// Stops a worker between two ticks, which come with the second, and so outside a run that would end by itself.
fn freeze_between_ticks(fleet: &Fleet, worker: usize) -> (Mark, Moment) {
    let clock = Clock::system();
    let far_from_ticks = || (200..=800).contains(&(clock.wall().subsec_nanosecond() / 1_000_000));
    loop {
        let into = clock.wall().subsec_nanosecond().unsigned_abs();
        let until_middle = 1_500_000_000_u64.saturating_sub(into.into()) % 1_000_000_000;
        pause(Duration::from_nanos(until_middle));
        let mark = fleet.log.mark();
        let frozen = fleet.freeze(worker);
        if far_from_ticks() {
            return (mark, frozen);
        }
        fleet.thaw(worker);
    }
}

/// The thawed worker is a candidate like any other.
fn stands_by_again(fleet: &mut Fleet, leader: Led, thawed: usize) {
    let mark = fleet.log.mark();
    fleet.kill(leader.worker);
    assert_eq!(fleet.next_leader(mark, "long").worker, thawed);
}
