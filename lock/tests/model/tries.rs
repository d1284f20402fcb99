//! Clients that come and go: they try once and leave, are started again while old messages are under way, are three.
//!
//! A client that is started again has a new owner value, and has forgotten what it saw and the largest token; of its
//! old attempts nothing is certain but that it never believes in them again. That a client that tries once gets a
//! lock whose holder has died is asked in every state of every search with liveness (`quiet`).

use crate::{
    bounds::{OBSERVED, SERVER, asks, breaks_after, caught, holds, holds_after},
    rules::Rule,
    world::{Bounds, Step},
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

/// c0 holds two nodes.
fn held() -> Vec<Step> {
    let mut prefix = vec![Step::Begins(0)];
    prefix.extend(asks(0, &[0, 1]));
    prefix.push(Step::Wins(0, 0));
    prefix
}

/// c1 comes cold, is refused, watches from there on, and tries again.
#[test]
fn cold_clients_are_no_less_safe() {
    let cold = Bounds {
        reads: true,
        liveness: false,
        attempts: [1, 2, 0],
        total: 3,
        ..OBSERVED.in_time()
    };
    let mut prefix = held();
    prefix.push(Step::Begins(1));
    prefix.extend(asks(1, &[0, 1]));
    prefix.push(Step::Fails(1, 0));
    holds_after::<3>("observed, cold clients", &cold, &prefix);
    let short = cold.without(Rule::O2FromReply);
    breaks_after::<3>("cold, without O2FromReply", &short, &prefix, "two holders");
}

#[test]
#[ignore = "takes 60 s alone on a core: 5,499,067 states"]
fn a_client_started_again_keeps_tokens_rising() {
    let floors = Bounds {
        floors: true,
        liveness: false,
        ..restarting(SERVER.counting())
    };
    holds("server, started again, floors", &floors.in_time());
}

/// Its acquire is under way to node 1 when the client is started again: it arrives before, within, or after the next
/// attempt, or never.
#[test]
fn a_client_is_started_again_while_messages_are_under_way() {
    let mut prefix = vec![Step::Begins(0)];
    prefix.extend(asks(0, &[0]));
    prefix.push(Step::Fails(0, 2));
    let late = Bounds {
        liveness: false,
        ..restarting(SERVER).heard()
    };
    holds_after::<3>("server, started again, late", &late, &prefix);
}

#[test]
#[ignore = "takes minutes: observed, millions of states"]
fn a_client_is_started_again_in_larger_bounds() {
    let late = Bounds {
        liveness: false,
        ..restarting(OBSERVED).heard()
    };
    holds("observed, started again, late", &late);
    holds("server, started again, late", &restarting(SERVER).heard());
}

/// One client alone with its own old messages, and a node that loses its memory.
#[test]
fn extensions_come_late_and_twice() {
    holds(
        "server, late and twice",
        &SERVER.extending(1, 0).twice().heard(),
    );
    let alone = Bounds {
        attempts: [2, 0, 0],
        total: 2,
        ..OBSERVED.extending(1, 0).twice().heard()
    };
    holds("observed, late and twice, alone", &alone);
}

#[test]
#[ignore = "takes minutes: millions of states"]
fn extensions_come_late_and_twice_in_larger_bounds() {
    let twice = OBSERVED.extending(1, 0).twice();
    holds("observed, late and twice", &twice.heard());
    let alone = Bounds {
        attempts: [2, 0, 0],
        total: 2,
        ..twice.losing(1).heard()
    };
    holds("observed, a loss, late and twice, alone", &alone);
}

#[test]
fn three_clients_have_one_holder() {
    let server = SERVER.three_clients().in_time();
    holds("server, three clients", &server);
}

#[test]
#[ignore = "takes minutes: millions of states"]
fn three_clients_have_one_holder_in_larger_bounds() {
    holds(
        "server, three clients, late",
        &SERVER.three_clients().heard(),
    );
    holds(
        "observed, three clients",
        &OBSERVED.three_clients().in_time(),
    );
    holds(
        "observed, three clients, late",
        &OBSERVED.three_clients().heard(),
    );
}
