//! Clients that wait are told: W1 to W6.

use crate::{
    bounds::{TABLE, caught, decided_after, holds},
    rules::Rule,
    world::{Bounds, Step},
};

const WAITS: Bounds = TABLE.waking();
const LOST: &str = "a wake-up was lost";

/// A client that may stop for good.
const CRASH: Bounds = Bounds {
    crashes: 1,
    ..WAITS
};

/// c0 leaves an orphan; c1 and c2 wait for it.
const ORPHAN: Bounds = Bounds {
    clients: 3,
    attempts: [1, 2, 1],
    total: 4,
    ..CRASH
};

fn orphaned() -> Vec<Step> {
    let mut prefix = crate::bounds::acquires(0, &[0, 1], false);
    prefix.push(Step::Crashes(0));
    prefix
}

#[test]
fn w1_a_flag_outlives_whatever_writes_over_it() {
    decided_after::<3>(Rule::W1KeepFlag, ORPHAN, &orphaned(), LOST);
}

#[test]
fn w2_a_client_sleeps_when_enough_nodes_refused_it() {
    caught(Rule::W2Enough, CRASH, LOST);
}

/// Node 2 has lost its memory before anything else happened.
#[test]
fn w2_a_node_without_a_vote_does_not_refuse() {
    decided_after::<3>(Rule::W2Voters, CRASH.losing(1), &[Step::Loses(2)], LOST);
}

#[test]
fn w3_a_refusal_and_its_flag_are_one_step() {
    caught(Rule::W3Atomic, WAITS, LOST);
}

#[test]
fn w4_a_sweep_of_an_orphan_is_told() {
    caught(Rule::W4SweepTells, CRASH.swept_all(), LOST);
}

#[test]
fn w4_a_break_with_now_is_told() {
    caught(Rule::W4NowTells, WAITS.breaking_now(), LOST);
}

#[test]
fn w5_what_is_told_during_an_attempt_is_remembered() {
    caught(Rule::W5Remembered, WAITS, LOST);
}

#[test]
fn w6_a_release_is_told() {
    caught(Rule::W6ReleaseTells, WAITS, LOST);
}

// === with every rule ===

#[test]
fn no_wake_up_is_lost() {
    holds("wake", &WAITS.trying(1, 2));
    holds("wake, an extension", &WAITS.extending(1, 0));
    holds("wake, three clients", &WAITS.three_clients());
}

#[test]
fn no_wake_up_is_lost_by_a_crash_a_sweep_or_a_break() {
    holds("wake, a crash", &CRASH.trying(1, 2));
    holds("wake, a crash, swept", &CRASH.swept_all());
    holds("wake, break", &WAITS.breaking());
    holds("wake, break now", &WAITS.breaking_now());
}
