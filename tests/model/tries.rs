//! Clients that come and go: they try once and leave, are started again while old messages are under way, are three.
//!
//! A client that is started again has a new owner value, and has forgotten what it saw and the largest token; of its old
//! attempts nothing is certain but that it never believes in them again. That somebody who tries once gets a lock whose
//! holder has died is asked in every state of every search with liveness (`quiet`).

use crate::{
    bounds::{OBSERVED, SERVER, caught, holds},
    rules::Rule,
    world::Bounds,
};

/// Two attempts of the first client, whose memory is lost between any two, one of the second.
fn restarting(bounds: Bounds) -> Bounds {
    Bounds {
        attempts: [2, 1, 0],
        total: 3,
        restarts: true,
        ..bounds
    }
}

#[test]
fn o4_a_try_sits_out_an_orphan() {
    caught(
        Rule::O4SitOut,
        OBSERVED.in_time(),
        "stuck: whoever tries once",
    );
}

/// Cold clients watch from the first refusal on, and take with them what they saw: explicit reads, an attempt each and
/// one more.
#[test]
fn cold_clients_are_no_less_safe() {
    let cold = Bounds {
        reads: true,
        liveness: false,
        ..restarting(OBSERVED)
    };
    holds("observed, cold clients", &cold.in_time());
}

#[test]
fn a_client_started_again_keeps_tokens_rising() {
    let floors = Bounds {
        floors: true,
        liveness: false,
        ..restarting(SERVER.counting())
    };
    holds("server, started again, floors", &floors.in_time());
}

#[test]
fn a_client_is_started_again_while_messages_are_under_way() {
    holds("server, started again, late", &restarting(SERVER).heard());
}

#[test]
fn extensions_come_late_and_twice() {
    holds("server, late and twice", &SERVER.extending(1, 0).twice());
    holds(
        "observed, late and twice",
        &OBSERVED.extending(1, 0).twice().heard(),
    );
    let lossy = OBSERVED.losing(1).extending(1, 0).twice();
    let one = Bounds {
        attempts: [1, 0, 0],
        total: 1,
        ..lossy
    };
    holds("observed, a loss, late and twice, alone", &one);
}

#[test]
fn three_clients_have_one_holder() {
    holds("server, three clients", &SERVER.three_clients().in_time());
    holds(
        "observed, three clients",
        &OBSERVED.three_clients().in_time(),
    );
}
