//! With every rule in force, no state within these bounds breaks a promise.

use crate::{
    bounds::{TABLE, acquires, holds, holds_after},
    world::Bounds,
};

#[test]
fn observed_expiry_keeps_one_holder() {
    let live = TABLE.live();
    holds("an attempt each", &live.late().deaf());
    holds("three attempts", &live.three());
    holds("three clients", &live.three_clients());
    holds("an extension each", &live.extending(1, 1));
}

#[test]
fn one_holder_whatever_is_late() {
    holds("late, twice", &TABLE.twice());
    let bounds = TABLE.late().extending(1, 0);
    let prefix = acquires(0, &[0, 1], true);
    holds_after::<3>("late, an extension", &bounds, &prefix);
}

#[test]
fn one_holder_with_unequal_ttls() {
    let bounds = TABLE.with_ttls([3, 2, 2]);
    holds("unequal ttls", &bounds);
    holds("unequal ttls, an extension", &bounds.extending(1, 0));
    holds("unequal ttls, a loss", &bounds.losing(1));
}

#[test]
fn one_holder_with_explicit_watches() {
    holds("explicit watches", &TABLE.reading().extending(1, 0));
}

/// A client that starts again has a new owner value, and has forgotten what it watched.
#[test]
fn one_holder_of_clients_that_start_again() {
    let restarts = TABLE.trying(2, 1).restarting();
    holds("started again, late", &restarts.late());
    holds("started again, a loss", &restarts.losing(1));
}

#[test]
fn one_holder_over_lost_memory() {
    holds("a loss", &TABLE.losing(1).late());
    holds("an older copy", &TABLE.copied());
}

#[test]
fn observed_expiry_keeps_tokens_rising() {
    let tokens = TABLE.counting();
    holds("tokens", &tokens.late().deaf());
    holds("tokens, three attempts", &tokens.three());
    let bumps = Bounds { bumps: 2, ..tokens };
    holds("tokens, other locks raise c", &bumps);
    let floors = tokens.with_floors().restarting();
    holds("tokens, floors that are forgotten", &floors);
}

#[test]
fn tokens_rise_over_lost_memory() {
    let tokens = TABLE.counting();
    holds("tokens, a loss", &tokens.losing(1));
    holds("tokens, an older copy", &tokens.copied());
    holds("tokens, a loss, swept", &tokens.losing(1).swept());
}
