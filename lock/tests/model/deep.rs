//! The larger bounds, for changes of the protocol.

use crate::{
    bounds::{OBSERVED, SERVER, holds},
    world::Bounds,
};

#[test]
#[ignore = "takes 3 minutes with the others: cargo test --test model -- --ignored"]
fn server_expiry_in_larger_bounds() {
    holds(
        "server, three attempts, tokens",
        &SERVER.three().counting().in_time(),
    );
    holds("server, three attempts, late messages", &SERVER.three());
    holds(
        "server, tokens, an extension each",
        &SERVER.counting().extending(1, 1).never_late(),
    );
    holds(
        "server, foreign, late messages",
        &SERVER.beside_a_stranger().extending(2, 0),
    );
}

#[test]
#[ignore = "takes 3 minutes with the others: cargo test --test model -- --ignored"]
fn observed_expiry_in_larger_bounds() {
    let three_ticks = OBSERVED.ticks(3).extending(1, 1);
    holds("observed, a ttl of three ticks", &three_ticks.never_late());
    holds(
        "observed, an extension each, late messages",
        &OBSERVED.extending(1, 1),
    );
    holds("observed, three attempts", &OBSERVED.three().never_late());
    holds("observed, tokens, late messages", &OBSERVED.counting());
    holds(
        "observed, two extensions each",
        &OBSERVED.extending(2, 2).never_late(),
    );
    let px = Bounds {
        vanish: false,
        ..OBSERVED
    };
    holds(
        "observed, foreign, late messages",
        &px.beside_a_stranger().extending(2, 0),
    );
}

#[test]
#[ignore = "takes 3 minutes with the others: cargo test --test model -- --ignored"]
fn the_guard_in_larger_bounds() {
    holds("observed, a loss, late messages", &OBSERVED.losing(1));
    holds(
        "observed, tokens and a loss",
        &OBSERVED.counting().losing(1).never_late(),
    );
    holds("observed, two losses", &OBSERVED.losing(2).never_late());
    holds(
        "observed, an extension each and a loss",
        &OBSERVED.extending(1, 1).losing(1).never_late(),
    );
    let saves = Bounds {
        saves: 1,
        ..OBSERVED
    };
    holds("observed, an old copy", &saves.extending(1, 0).never_late());
}
