//! Tokens: C1 to C4, T1 to T3, and admissions: G1, G2, G7.

use crate::{
    bounds::{TABLE, acquires, asks, caught, decided_after, holds},
    node::owner,
    rules::Rule,
    world::{Bounds, Step},
};

const FALLS: &str = "a token did not rise";

const PAGED: Bounds = Bounds {
    paged: true,
    ..TABLE.counting().losing(1).swept()
};

// === records and `c` ===

/// c0's first attempt was granted 1 on all nodes, and node 0 copied; its second holds token 2 on nodes 0 and 1.
#[test]
fn c1_a_record_of_another_incarnation_counts_with_c() {
    let bounds = TABLE.copied().counting().trying(2, 1);
    let mut prefix = vec![Step::Begins(0)];
    prefix.extend(asks(0, &[0, 1, 2]));
    prefix.extend([Step::Fails(0, false), Step::Saves(0)]);
    prefix.extend(acquires(0, &[0, 1], false));
    prefix.push(Step::Restores(0));
    decided_after::<3>(Rule::C1OldWithC, bounds, &prefix, FALLS);
}

/// c0 (token 1) is over, c1 had token 2, both records are swept; c0's round is late on all nodes.
#[test]
fn c2_healing_lowers_no_counter() {
    let bounds = TABLE.late().swept().counting();
    let bounds = bounds.extending(1, 0).trying(1, 2);
    let mut prefix = acquires(0, &[0, 1], true);
    prefix.extend([Step::Extends(0), Step::Fails(0, true), Step::Ends(0)]);
    prefix.extend([0, 1].map(|i| Step::Releases(owner(0, 1), i)));
    prefix.extend(acquires(1, &[0, 1], true));
    prefix.push(Step::Ends(1));
    prefix.extend([0, 1].map(|i| Step::Releases(owner(1, 1), i)));
    prefix.extend([Step::Sweeps(0), Step::Sweeps(1)]);
    decided_after::<3>(Rule::C2HealBase, bounds, &prefix, FALLS);
}

#[test]
fn c3_a_sweep_raises_c() {
    caught(Rule::C3SweepRaises, TABLE.counting().swept(), FALLS);
}

#[test]
fn c4_a_fresh_record_starts_above_c() {
    caught(Rule::C4FreshFromC, TABLE.counting().swept(), FALLS);
}

// === tokens ===

#[test]
fn t1_a_grant_raises_the_records_counter() {
    caught(Rule::T1Raise, TABLE.counting(), FALLS);
}

/// T1: with it a grant is above what its client has seen; without it tokens rise all the same.
#[test]
fn a_floor_only_saves_a_round_trip() {
    holds("without floors", &TABLE.counting().late());
    holds("with floors", &TABLE.counting().with_floors().late());
}

#[test]
fn t2_grants_that_differ_are_confirmed() {
    caught(Rule::T2Confirm, TABLE.counting().three(), FALLS);
}

/// A larger grant that went unheard has raised its node's counter all the same: with three nodes nothing hangs on it.
#[test]
fn t2_a_larger_grant_need_not_be_told_to_three_nodes() {
    let bounds = TABLE.counting().deaf().without(Rule::T2GrantCheck);
    holds("without T2GrantCheck", &bounds);
    holds("without T2GrantCheck, three", &bounds.three());
}

#[test]
fn t3_extensions_need_not_carry_the_token_under_the_guard() {
    let bounds = TABLE.counting().losing(1).without(Rule::T3Extend);
    holds("without T3Extend", &bounds.extending(1, 0));
}

// === admissions ===

#[test]
fn g1_lost_memory_has_no_vote() {
    caught(Rule::G1Marker, TABLE.losing(1), "two holders");
}

#[test]
fn g1_a_copy_has_no_vote() {
    caught(Rule::G1Marker, TABLE.copied(), "two holders");
}

#[test]
fn g2_a_newcomer_is_watched() {
    caught(Rule::G2Watch, TABLE.losing(1), "two holders");
}

#[test]
fn g2_a_newcomer_is_watched_for_the_longest_lease() {
    let bounds = TABLE.losing(1).with_ttls([3, 2, 2]);
    caught(Rule::G2LongestTtl, bounds, "two holders");
}

#[test]
fn g2_tokens_are_read_after_the_watch() {
    caught(Rule::G2ReadAfter, TABLE.counting().losing(1), FALLS);
}

#[test]
fn g2_tokens_of_enough_others_are_read() {
    caught(Rule::G2Majority, TABLE.counting().losing(1), FALLS);
}

/// Otherwise a record that is swept between the halves is in neither.
#[test]
fn g7_records_are_read_before_c() {
    let mut prefix = acquires(0, &[0, 1], false);
    prefix.extend([Step::Loses(0), Step::Ends(0)]);
    prefix.extend([Step::Releases(owner(0, 1), 1), Step::Tick, Step::Tick]);
    decided_after::<3>(Rule::G7RecordsFirst, PAGED, &prefix, FALLS);
}
