//! Ending a lease by force: B1 to B6.

use crate::{
    bounds::{TABLE, acquires, caught, caught_after, decided_after, extends, holds, holds_after},
    node::owner,
    rules::Rule,
    world::Step,
};

const EXTENDED: &str = "a broken lease was extended";

#[test]
fn b1_what_is_broken_is_watched() {
    caught(Rule::B1Watched, TABLE.breaking(), "two holders");
}

/// Broken on node 0, and node 2 is told where nothing stands: the rounds heal node 2 and count it.
#[test]
fn b2_a_break_is_written_where_nothing_stands() {
    let bounds = TABLE.breaking().extending(2, 0);
    let mut prefix = acquires(0, &[0, 1], false);
    prefix.extend([Step::Breaks(0), Step::BreakReaches(0)]);
    decided_after::<3>(Rule::B2Everywhere, bounds, &prefix, EXTENDED);
}

/// c0's second round keeps it believing until node 2, which was told before its admission, votes again.
#[test]
fn b3_a_node_without_a_vote_is_not_told() {
    let bounds = TABLE.breaking().losing(1).extending(3, 0);
    let mut prefix = acquires(0, &[0, 1], false);
    prefix.extend([Step::Loses(2), Step::Tick]);
    prefix.extend(extends(0, &[0, 1], false));
    prefix.push(Step::Breaks(0));
    decided_after::<3>(Rule::B3Admitted, bounds, &prefix, EXTENDED);
}

#[test]
fn b4_now_is_written_where_nothing_stands() {
    let bounds = TABLE.breaking_now().without(Rule::B6Waits).extending(2, 0);
    let mut prefix = acquires(0, &[0, 1], false);
    prefix.extend([Step::Breaks(0), Step::NowReaches(0)]);
    decided_after::<3>(Rule::B4NowEverywhere, bounds, &prefix, EXTENDED);
}

#[test]
fn b5_what_is_broken_comes_free() {
    let bounds = TABLE.live().breaking();
    caught(Rule::B5Taken, bounds, "stuck: all others are dead");
    holds("break, never stuck", &bounds);
}

/// c0's acquire is under way to node 2 when the lease is broken.
pub(crate) fn under_way() -> Vec<Step> {
    let mut prefix = acquires(0, &[0, 1], true);
    prefix.push(Step::Breaks(0));
    prefix
}

/// At once, the acquire lands where c1 has taken and left node 2, and the next round counts it.
#[test]
fn b6_now_waits_until_the_acquire_is_too_late() {
    let bounds = TABLE.breaking_now().late().extending(1, 0);
    caught_after::<3>(Rule::B6Waits, bounds, &under_way(), EXTENDED);
    let mut told = under_way();
    told.extend([Step::BreakReaches(0), Step::BreakReaches(2)]);
    holds_after::<3>("with B6Waits", &bounds, &told);
}

#[test]
fn b6_without_late_calls_now_may_come_at_once() {
    let bounds = TABLE.breaking_now().without(Rule::B6Waits).extending(1, 0);
    holds("now at once, in time", &bounds);
}

// === with every rule ===

#[test]
fn a_break_keeps_one_holder_and_ends_the_lease() {
    holds("break", &TABLE.breaking().extending(1, 0));
    holds("break, now", &TABLE.breaking_now());
}

#[test]
fn a_break_lets_no_client_in_early() {
    holds("break, lost", &TABLE.live().breaking().deaf());
    holds("break, tokens", &TABLE.breaking().counting());
}

/// A release of the broken holder makes its record a released one.
#[test]
fn a_broken_holder_that_lets_go_makes_no_client_wait() {
    let mut prefix = acquires(0, &[0, 1], false);
    prefix.push(Step::Breaks(0));
    prefix.extend([0, 1, 2].map(Step::BreakReaches));
    prefix.push(Step::Ends(0));
    prefix.extend([0, 1].map(|i| Step::Releases(owner(0, 1), i)));
    prefix.extend(acquires(1, &[0, 1], false));
    let bounds = TABLE.live().breaking();
    holds_after::<3>("broken and released", &bounds, &prefix);
}

#[test]
fn a_break_stands_late_calls_of_its_target() {
    let bounds = TABLE.breaking().late();
    holds("break, late", &bounds);
}

/// A mark is swept only after its watch, and what `now` has written only when its target cannot believe any more.
#[test]
fn s0_what_now_has_released_is_kept_for_a_ttl() {
    let bounds = TABLE.breaking_now().without(Rule::B6Waits);
    let bounds = bounds.swept().extending(2, 0);
    let mut prefix = acquires(0, &[0, 1], false);
    prefix.extend([Step::Breaks(0), Step::NowReaches(0), Step::NowReaches(2)]);
    decided_after::<3>(Rule::S0Retention, bounds, &prefix, EXTENDED);
    holds("break, swept", &TABLE.breaking().swept_all());
}

// === verify ===

/// c0 holds all nodes, node 1 is copied, and c1 takes over where `now` has reached.
pub(crate) fn taken_over() -> Vec<Step> {
    let mut prefix = acquires(0, &[0, 1, 2], false);
    prefix.extend([Step::Saves(1), Step::Breaks(0)]);
    prefix.extend([Step::NowReaches(1), Step::NowReaches(2)]);
    prefix.extend(acquires(1, &[1, 2], false));
    prefix
}

#[test]
fn v1_a_copy_confirms_no_lease() {
    let bounds = TABLE.breaking_now().without(Rule::B6Waits);
    let bounds = bounds.copied().verifying();
    let promise = "a verification confirmed what another holds";
    decided_after::<3>(Rule::V1Named, bounds, &taken_over(), promise);
}

#[test]
fn v1_a_broken_lease_does_not_verify() {
    let promise = "a verification confirmed a broken lease";
    caught(Rule::V1Broken, TABLE.breaking().verifying(), promise);
    holds("verify, break", &TABLE.breaking().verifying());
    let now = TABLE.breaking_now().verifying();
    holds("verify, break now", &now);
}
