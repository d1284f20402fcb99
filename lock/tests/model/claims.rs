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

#[test]
#[ignore = "takes 40 s alone on a core: two million states"]
fn claims_in_larger_bounds() {
    let retries = CLAIM.counting().three();
    holds("claim, tokens, three attempts", &retries.in_time());
    let parts = Bounds {
        parts: true,
        ..CLAIM.counting().in_time()
    };
    holds("claim, a grant each, in parts", &parts);
}

/// A call of more claims than a node takes at once goes in parts. The nodes give all claims of one attempt the same
/// grant, also where they come in different calls: between two another client may have been granted a larger number,
/// and have released. So an attempt must not be larger than one call, or each part must be granted anew.
#[test]
fn claims_of_one_attempt_come_in_one_call() {
    let shared = CLAIM.counting().without(Rule::ClaimGrantIsFresh);
    holds("claim, a shared grant, in one call", &shared.never_late());
    let parts = Bounds {
        parts: true,
        ..shared.in_time()
    };
    breaks(
        "claim, a shared grant, in parts",
        &parts,
        "a token did not rise",
    );
}
