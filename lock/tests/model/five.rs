//! Five nodes, for what three cannot tell: which majority a confirm needs.

use crate::{
    bounds::{TABLE, asks, caught_after, decided_after, holds_after},
    node::owner,
    rules::Rule,
    world::{Bounds, Step},
};

const FALLS: &str = "a token did not rise";
const FIVE: Bounds = TABLE.counting();

/// Node 2 is ahead by what it forgot, and c0 is granted 1, 1 and 2.
fn ahead() -> Vec<Step> {
    let mut prefix = vec![Step::Bumps(2), Step::Begins(0)];
    prefix.extend(asks(0, &[0, 1, 2]));
    prefix
}

#[test]
fn t2_a_confirm_needs_the_configured_majority() {
    let bounds = Bounds { bumps: 1, ..FIVE };
    let mut prefix = ahead();
    prefix.push(Step::Wins(0, false));
    decided_after::<5>(Rule::T2Configured, bounds, &prefix, FALLS);
}

#[test]
fn t2_five_nodes_confirm_what_differs() {
    let bounds = Bounds { bumps: 1, ..FIVE };
    decided_after::<5>(Rule::T2Confirm, bounds, &ahead(), FALLS);
}

#[test]
fn c3_five_nodes_raise_c_when_they_forget() {
    let mut prefix = vec![Step::Begins(0)];
    prefix.extend(asks(0, &[0, 1, 2]));
    prefix.extend([Step::Wins(0, false), Step::Ends(0)]);
    prefix.extend([0, 1, 2].map(|i| Step::Releases(owner(0, 1), i)));
    caught_after::<5>(Rule::C3SweepRaises, FIVE.swept(), &prefix, FALLS);
}

#[test]
fn five_nodes_keep_tokens_rising() {
    let bounds = Bounds { bumps: 1, ..FIVE };
    holds_after::<5>("five", &bounds, &ahead());
}
