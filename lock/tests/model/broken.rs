//! Ending a lease by force, and asking whether one still stands: N7 and B1 to B4 of `src/quorum/broken.rs`, V1 of
//! `src/keeper/verify.rs`.
//!
//! A break leaves the key where it is, so that no other client is granted while the holder may believe (one holder,
//! as without a break), and is final for the holder: a round that begins after a majority knows is never won. With
//! `now` the keys go at once, and two may believe: then a holder that verifies must not be told that all is well.

use crate::{
    bounds::{OBSERVED, SERVER, asks, breaks_after, caught, holds, holds_after},
    node::owner,
    rules::Rule,
    world::{Bounds, Step},
};

const BOTH: [Bounds; 2] = [SERVER, OBSERVED];

/// Keys go at once; holders verify, and a node may come back as an older copy.
fn verifying(bounds: Bounds) -> Bounds {
    Bounds {
        now: true,
        verifies: true,
        saves: 1,
        liveness: false,
        total: 2,
        ..bounds.breaking().in_time()
    }
}

/// c0 holds all three nodes, node 1 is copied, and the break reaches nodes 1 and 2: there c1 takes over.
fn taken_over() -> Vec<Step> {
    let mut prefix = vec![Step::Begins(0)];
    prefix.extend(asks(0, &[0, 1, 2]));
    prefix.extend([Step::Wins(0, 0), Step::Saves(1), Step::Breaks(0)]);
    prefix.extend([Step::BreakReaches(1), Step::BreakReaches(2)]);
    prefix.push(Step::Begins(1));
    prefix.extend(asks(1, &[1, 2]));
    prefix.push(Step::Wins(1, 0));
    prefix
}

/// Two clients, an attempt each; replies are lost.
#[test]
fn a_break_lets_nobody_in_early() {
    holds("server, break", &SERVER.breaking().never_late());
    holds("observed, break", &OBSERVED.breaking().never_late());
}

#[test]
#[ignore = "takes 2 minutes: millions of states with two extensions and with late messages"]
fn a_break_in_larger_bounds() {
    for bounds in BOTH {
        let two = bounds.breaking().extending(2, 0).in_time();
        holds("break, two extensions", &two);
    }
    let late = SERVER.breaking().extending(1, 0);
    holds("server, break, late messages", &late);
    for bounds in BOTH {
        let lossy = bounds.breaking().losing(1).extending(1, 0).in_time();
        holds("break, a loss, an extension", &lossy);
    }
}

/// A late acquire or extension of the broken holder changes nothing.
#[test]
fn a_break_stands_late_messages() {
    let alone = |b: Bounds| Bounds {
        attempts: [1, 0, 0],
        total: 1,
        ..b.breaking().extending(2, 0).twice()
    };
    holds("server, break, late and twice, alone", &alone(SERVER));
    let one = alone(OBSERVED).extending(1, 0);
    holds("observed, break, late and twice, alone", &one);
}

#[test]
fn a_break_raises_the_next_token() {
    for bounds in BOTH {
        holds("break, tokens", &bounds.breaking().counting().in_time());
    }
}

#[test]
fn a_break_stands_a_lost_memory() {
    let lossy = SERVER.breaking().losing(1).in_time();
    holds("server, break, a loss", &lossy);
}

#[test]
fn n7_what_is_broken_is_not_released() {
    caught(
        Rule::N7BrokenIsWatched,
        OBSERVED.breaking().in_time(),
        "two holders",
    );
}

#[test]
fn n7_the_key_stays() {
    caught(Rule::N7KeyStays, SERVER.breaking().in_time(), "two holders");
    // Where the record decides the key does not matter, unless for a stranger.
    holds(
        "observed, without N7KeyStays",
        &OBSERVED.breaking().in_time().without(Rule::N7KeyStays),
    );
}

#[test]
fn n7_a_stranger_is_kept_out_by_the_key() {
    let px = |b: Bounds| {
        Bounds {
            vanish: false,
            liveness: false,
            ..b
        }
        .beside_a_stranger()
        .breaking()
        .in_time()
    };
    caught(
        Rule::N7KeyStays,
        px(OBSERVED),
        "two holders, one of them foreign",
    );
    holds("observed, foreign, break", &px(OBSERVED).extending(1, 0));
}

// === verify ===

#[test]
fn a_verification_confirms_only_what_is_held() {
    let open = Bounds {
        saves: 0,
        ..verifying(SERVER)
    };
    holds("server, verify, break now", &open);
    for bounds in BOTH {
        holds_after::<3>(
            "verify, break now, an old copy",
            &verifying(bounds),
            &taken_over(),
        );
    }
}

#[test]
#[ignore = "takes 20 s alone on a core: 763,250 states"]
fn a_verification_confirms_only_what_is_held_by_record() {
    let open = Bounds {
        saves: 0,
        ..verifying(OBSERVED)
    };
    holds("observed, verify, break now", &open);
}

#[test]
fn v1_an_old_copy_confirms_nothing() {
    for bounds in BOTH {
        breaks_after::<3>(
            "without V1Named",
            &verifying(bounds).without(Rule::V1Named),
            &taken_over(),
            "a verification confirmed what another holds",
        );
    }
}

#[test]
fn v1_a_broken_lease_is_not_confirmed() {
    for bounds in BOTH {
        let left = Bounds {
            verifies: true,
            ..bounds.breaking().in_time()
        };
        caught(
            Rule::V1Broken,
            left,
            "a verification confirmed a broken lease",
        );
    }
    let left = Bounds {
        verifies: true,
        ..SERVER.breaking().in_time()
    };
    holds("server, verify, break", &left);
}

/// A release of the broken holder makes the record a released one: no client waits for it (`quiet` checks every
/// state).
#[test]
fn a_broken_holder_that_lets_go_makes_nobody_wait() {
    let mut prefix = vec![Step::Begins(0)];
    prefix.extend(asks(0, &[0, 1]));
    prefix.extend([Step::Wins(0, 0), Step::Breaks(0)]);
    prefix.extend([0, 1, 2].map(Step::BreakReaches));
    prefix.push(Step::Ends(0));
    prefix.extend([0, 1].map(|i| Step::Releases(owner(0, 1), i)));
    prefix.push(Step::Begins(1));
    prefix.extend(asks(1, &[0, 1]));
    prefix.push(Step::Wins(1, 0));
    holds_after::<3>(
        "observed, broken and released",
        &OBSERVED.breaking(),
        &prefix,
    );
}
