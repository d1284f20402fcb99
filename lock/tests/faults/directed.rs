//! One fault at the worst moment. Each case tells what went wrong with the rules that it is given. With every
//! combination of rules they cost about twenty seconds, most of it waiting for leases to end.

use std::time::Duration;

use watchkeeper_lock::node::RestartGuard;

use crate::{
    client::{Client, admit, patient},
    history::{Belief, Violation, violations},
    masters::Masters,
    rules::Rules,
    server::RedisServer,
};

/// What a busy machine needs for two restarts, several times over.
const TTL: Duration = Duration::from_secs(2);
/// A dead holder's lease, the watch of nodes that lost their memory and that of a record may follow each other.
const PATIENCE: Duration = Duration::from_secs(8);
const HOUR: i64 = 3600;
/// Where a node keeps the lock of all cases: its table, and the field.
const LOCK: [&str; 2] = ["{app}:2:t", "lorder:42"];

/// Three masters that all vote.
fn masters(rules: Rules) -> Masters {
    let masters = Masters::start(3);
    settle(&masters, rules);
    masters
}

fn settle(masters: &Masters, rules: Rules) {
    admit(masters, rules, &patient(TTL));
    Client::new(masters, rules, TTL).settles();
}

/// One acquires on so many nodes and pauses in its lease, `fault` strikes, another one comes.
fn struck(
    masters: Masters,
    on: usize,
    rules: Rules,
    fault: impl FnOnce(&mut Masters),
) -> Vec<Violation> {
    struck_for(PATIENCE, masters, on, rules, fault)
}

/// As [`struck`], and the other one waits no longer than `patience`.
fn struck_for(
    patience: Duration,
    mut masters: Masters,
    on: usize,
    rules: Rules,
    fault: impl FnOnce(&mut Masters),
) -> Vec<Violation> {
    let holder = Client::new(&masters, rules, TTL);
    let lease = holder.acquires();
    holder.holds_on(&lease, on);
    fault(&mut masters);
    let other = Client::new(&masters, rules, TTL);
    other.meets_all();
    match other.acquires_within(patience) {
        Ok(next) => violations(vec![
            Belief::of("the holder", &lease),
            Belief::of("the other", &next),
        ]),
        Err(why) => vec![Violation::Stuck {
            why: why.to_string(),
        }],
    }
}

/// The holder's majority and the other's have one node in common, and that one forgets.
pub(crate) fn a_node_restarts_empty_between_two_majorities(rules: Rules) -> Vec<Violation> {
    let masters = masters(rules);
    masters.freeze(2);
    struck(masters, 2, rules, |masters| {
        masters.forget(1);
        masters.thaw(2);
    })
}

pub(crate) fn two_nodes_restart_empty(rules: Rules) -> Vec<Violation> {
    struck(masters(rules), 3, rules, |masters| {
        masters.forget(0);
        masters.forget(1);
    })
}

/// Neither process nor connection changes.
pub(crate) fn two_nodes_are_flushed(rules: Rules) -> Vec<Violation> {
    struck(masters(rules), 3, rules, |masters| {
        masters.flush(0);
        masters.flush(1);
    })
}

/// The failover that Redlock warns of: replication is asynchronous.
pub(crate) fn a_promoted_replica_lacks_the_lock(rules: Rules) -> Vec<Violation> {
    let mut masters = Masters::start(3);
    // Before the nodes are met: to be followed for the first time changes what a master calls its data.
    let replica = masters.replica(0);
    settle(&masters, rules);
    masters.cut(&replica);
    masters.freeze(2);
    struck(masters, 2, rules, |masters| {
        masters.promote(0, replica);
        masters.thaw(2);
    })
}

/// Keys end by the server's wall clock.
pub(crate) fn two_node_clocks_jump_an_hour_ahead(rules: Rules) -> Vec<Violation> {
    struck(masters(rules), 3, rules, |masters| {
        masters.step(0, HOUR);
        masters.step(1, HOUR);
    })
}

/// The key of a dead holder lives an hour longer, until a client that is refused cuts it to the longest lease.
pub(crate) fn two_node_clocks_go_back_an_hour(rules: Rules) -> Vec<Violation> {
    // The longest lease, and as much for a busy machine.
    struck_for(2 * TTL, masters(rules), 3, rules, |masters| {
        for n in [0, 1] {
            masters.step(n, -HOUR);
            let left = left(masters.server(n));
            assert!(left > (HOUR - 60) * 1000, "no harm without the cut: {left}");
        }
    })
}

/// The lock is free: what is lost is how far the tokens had come. The node that remembers is not there.
pub(crate) fn a_majority_forgets_how_far_it_has_counted(rules: Rules) -> Vec<Violation> {
    let mut masters = masters(rules);
    let mut beliefs = Vec::new();
    let holder = Client::new(&masters, rules, TTL);
    for _ in 0..5 {
        let lease = holder.acquires();
        let mut belief = Belief::of("the holder", &lease);
        holder.run(lease.release());
        holder.run(holder.locks.settle());
        belief.to = holder.locks.clock().now();
        beliefs.push(belief);
    }
    drop(holder);
    masters.forget(0);
    masters.forget(1);
    masters.freeze(2);
    let other = Client::new(&masters, rules, TTL);
    if rules.guard != RestartGuard::Off {
        // I2: what most nodes have forgotten they learn from the others, so that all are waited for.
        assert!(other.acquires_within(TTL * 3).is_err());
        masters.thaw(2);
    }
    let lease = other.acquires();
    beliefs.push(Belief::of("the other", &lease));
    violations(beliefs)
}

// === what these cases rest on ===

/// Nothing is wrong with the case itself: the other one waits until the holder's lease has ended.
pub(crate) fn without_a_fault_nothing_happens(rules: Rules) -> Vec<Violation> {
    struck(masters(rules), 3, rules, |_| {})
}

/// A server goes by the clock that it is given, while it runs.
pub(crate) fn a_server_goes_by_its_stepped_clock() {
    let masters = Masters::start(1);
    let server = masters.server(0);
    let before = time(server);
    server.raw(&["SET", "short", "x", "PX", "30000"]);
    server.raw(&["SET", "long", "x", "PX", "7200000"]);

    masters.step(0, HOUR);
    let ahead = time(server) - before;
    assert!((HOUR..HOUR + 60).contains(&ahead), "{ahead}");
    assert_eq!(server.raw(&["GET", "short"]), "$-1\r\n");
    assert_eq!(server.raw(&["GET", "long"]), "$1\r\nx\r\n");

    masters.step(0, -HOUR);
    let behind = before - time(server);
    assert!((HOUR - 60..=HOUR).contains(&behind), "{behind}");
    let left = server.raw(&["PTTL", "long"]);
    let left: i64 = left.trim().trim_start_matches(':').parse().unwrap();
    assert!(left > 2 * HOUR * 1000, "{left}");

    // Within one script, too.
    let script = "return redis.call('TIME')[1]";
    let inside: i64 = field(&server.raw(&["EVAL", script, "0"]), 1);
    assert!(before - inside >= HOUR - 60, "{inside}");
}

/// How long the lease still lasts by the node's clock, in milliseconds.
fn left(server: &RedisServer) -> i64 {
    let [table, row] = LOCK;
    let row = server.raw(&["HGET", table, row]);
    let row = row.split("\r\n").nth(1).unwrap();
    let at = if row.starts_with('h') { 17 } else { 33 };
    let until: i64 = row[at..at + 13].parse().unwrap();
    until - time(server) * 1000
}

fn time(server: &RedisServer) -> i64 {
    field(&server.raw(&["TIME"]), 2)
}

fn field(answer: &str, line: usize) -> i64 {
    answer.split("\r\n").nth(line).unwrap().parse().unwrap()
}
