//! With every rule in force, no state within these bounds breaks a promise.

use crate::{
    bounds::{OBSERVED, SERVER, holds},
    world::Bounds,
};

// === server expiry ===

#[test]
fn server_expiry_keeps_one_holder() {
    holds("server, an attempt each", &SERVER);
    holds("server, an extension each", &SERVER.extending(1, 1));
}

#[test]
fn server_expiry_keeps_tokens_rising() {
    holds("server, tokens", &SERVER.counting());
    let floors = Bounds {
        floors: true,
        ..SERVER.counting()
    };
    holds("server, tokens with floors", &floors.never_late());
}

#[test]
fn server_expiry_forgets_released_records() {
    let forgets = Bounds {
        forgets: 3,
        ..SERVER.counting()
    };
    holds("server, retention ends", &forgets.never_late());
}

#[test]
fn server_expiry_stands_a_break() {
    let breaks = Bounds {
        breaks: true,
        ..SERVER
    };
    holds("server, break", &breaks.extending(1, 0).in_time());
}

#[test]
fn server_expiry_excludes_a_stranger() {
    holds(
        "server, foreign",
        &SERVER.beside_a_stranger().extending(2, 0).in_time(),
    );
}

/// With the clamp (O6): without it the lock is stuck until the keys end.
#[test]
fn server_expiry_survives_a_clock_that_goes_back() {
    let back = Bounds {
        back: true,
        jumps: 2,
        ..SERVER
    };
    holds("server, two clocks go back", &back.never_late());
}

// === observed expiry with the restart guard ===

#[test]
fn observed_expiry_keeps_one_holder() {
    holds("observed, an attempt each", &OBSERVED);
    holds("observed, three attempts", &OBSERVED.three().in_time());
}

#[test]
fn observed_expiry_keeps_one_holder_over_extensions() {
    holds(
        "observed, an extension each",
        &OBSERVED.extending(1, 1).never_late(),
    );
    holds(
        "observed, two extensions",
        &OBSERVED.extending(2, 0).in_time(),
    );
}

#[test]
fn observed_expiry_keeps_tokens_rising() {
    holds("observed, tokens", &OBSERVED.counting().never_late());
}

#[test]
fn observed_expiry_survives_a_lost_memory() {
    holds("observed, a loss", &OBSERVED.losing(1).never_late());
    holds(
        "observed, tokens and a loss",
        &OBSERVED.counting().losing(1).in_time(),
    );
}

#[test]
fn observed_expiry_survives_a_promotion() {
    let saves = Bounds {
        saves: 1,
        ..OBSERVED
    };
    holds("observed, an old copy", &saves.in_time());
}

#[test]
fn observed_expiry_stands_a_break() {
    let breaks = Bounds {
        breaks: true,
        ..OBSERVED
    };
    holds("observed, break", &breaks.extending(1, 0).in_time());
}

#[test]
fn observed_expiry_excludes_a_stranger() {
    let px = Bounds {
        vanish: false,
        ..OBSERVED
    };
    holds(
        "observed, foreign",
        &px.beside_a_stranger().extending(1, 0).in_time(),
    );
}

#[test]
fn explicit_watches_are_no_weaker_than_perfect_ones() {
    let reads = Bounds {
        reads: true,
        liveness: false,
        ..OBSERVED
    };
    holds(
        "observed, explicit watches",
        &reads.extending(1, 0).in_time(),
    );
}
