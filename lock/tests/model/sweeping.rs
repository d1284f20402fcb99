//! Forgetting: S0, S1, S2.

use crate::{
    bounds::{TABLE, acquires, caught, decided_after, holds, holds_after},
    rules::Rule,
    world::Step,
};

#[test]
fn s0_released_records_may_be_swept_at_any_time() {
    holds("swept", &TABLE.swept_all().trying(2, 1));
    holds("swept, tokens", &TABLE.swept_all().counting());
    holds("swept, late", &TABLE.swept_all().late());
    let prefix = acquires(0, &[0, 1], true);
    let bounds = TABLE.swept_all().late().extending(1, 0);
    holds_after::<3>("swept, late, an extension", &bounds, &prefix);
}

/// Not for safety, but for those who wait: a round that is late finds nothing where its lease was released, and heals it.
#[test]
fn s0_a_release_is_kept_until_its_rounds_are_too_late() {
    let bounds = TABLE.freeing().late().swept().extending(1, 0).trying(1, 0);
    let prefix = acquires(0, &[0, 1], true);
    let promise = "a released lock is not free";
    decided_after::<3>(Rule::S0Retention, bounds, &prefix, promise);
}

#[test]
fn s1_a_sweep_compares_what_it_deletes() {
    let bounds = TABLE.swept().trying(2, 1);
    caught(Rule::S1SweepCompares, bounds, "two holders");
}

#[test]
fn s2_a_lease_is_swept_only_after_its_watch() {
    caught(Rule::S2SweepWatched, TABLE.swept_all(), "two holders");
}

/// A sweep of a record that a copy brought back raises `c` like any other.
#[test]
fn s2_records_of_another_incarnation_are_swept() {
    let bounds = TABLE.copied().counting().swept();
    let mut prefix = acquires(0, &[0, 1], false);
    prefix.extend([Step::Saves(0), Step::Restores(0)]);
    holds_after::<3>("a copy is swept", &bounds, &prefix);
}
