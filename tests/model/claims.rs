//! Short claims of batches and messages: a key only, the token from the node's counter, one grant per owner and node,
//! never healed (`Kind::Claim`).

use crate::{
    bounds::{SERVER, breaks, caught, holds},
    rules::Rule,
    world::Bounds,
};

const CLAIM: Bounds = SERVER.claiming();

/// An attempt each, an extension each; messages late and lost.
#[test]
fn claims_keep_one_holder() {
    holds("claim, an attempt each", &CLAIM);
    holds(
        "claim, an extension each",
        &CLAIM.extending(1, 1).never_late(),
    );
}

#[test]
fn claims_keep_tokens_rising() {
    holds("claim, tokens", &CLAIM.counting().never_late());
    let retries = CLAIM.counting().three();
    holds("claim, tokens, three attempts", &retries.in_time());
}

#[test]
fn claims_are_no_vote_of_a_node_that_lost_its_memory() {
    holds("claim, a loss", &CLAIM.losing(1).extending(1, 0).in_time());
    caught(Rule::G1Marker, CLAIM.losing(1).in_time(), "two holders");
}

#[test]
fn claims_leave_a_strangers_key_alone() {
    let foreign = CLAIM.beside_a_stranger().extending(2, 0);
    holds("claim, foreign", &foreign.in_time());
}

#[test]
fn claims_are_never_healed() {
    caught(
        Rule::ClaimNotHealed,
        CLAIM.forgetful().extending(1, 0),
        "a released lease was revived",
    );
}

/// A call of more claims than fit into one goes in parts, and all of one owner share a grant. Between two parts somebody
/// else may have been granted a larger number, and have released.
#[test]
fn a_shared_grant_is_given_again_only_while_it_is_the_last() {
    let parts = Bounds {
        parts: true,
        ..CLAIM.counting().in_time()
    };
    holds("claim, in parts", &parts);
    breaks(
        "claim, in parts, without ClaimGrantIsLast",
        &parts.without(Rule::ClaimGrantIsLast),
        "a token did not rise",
    );
    // A call that fits into one part needs no such care.
    let whole = CLAIM.counting().never_late();
    holds(
        "claim, in one part, without ClaimGrantIsLast",
        &whole.without(Rule::ClaimGrantIsLast),
    );
}
