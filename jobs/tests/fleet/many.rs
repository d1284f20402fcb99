//! What many jobs of one replica cost, counted by the servers. How long anything takes is not measured here.

use std::fmt::Write;

use crate::{
    fleet::{Fleet, soon},
    store::Store,
    tap::{Heard, Tap},
};

/// At rest: three calls of 250 at most.
const RESTING: usize = 600;
const CALLS: u64 = 3;
/// Rounds that are counted.
const ROUNDS: u64 = 2;
/// Ticks that are counted.
const TICKS: usize = 4;
/// How often it is counted until it is as it should be.
const WINDOWS: usize = 4;
/// Resident, in MB: twenty of the program and its tables, and what the jobs may take.
const MEMORY: usize = 100;

/// Renewals come in as few calls as there can be, each tick is two writes of its ledger on each node, and memory is bounded.
pub(crate) fn six_hundred_jobs_cost_three_calls_a_round_and_two_writes_a_tick(store: Store) {
    let mut config = String::from(
        "[jobs.tick]\nkind = \"heartbeat\"\nschedule = \"@every 1s\"\nttl = \"8s\"\nparams = { file = \"$BEATS\" }\n",
    );
    for job in 0..RESTING - 1 {
        let _ = write!(
            config,
            "[jobs.rest-{job}]\nkind = \"heartbeat\"\nschedule = \"@yearly\"\nttl = \"8s\"\nparams = {{ file = \"$BEATS\" }}\n"
        );
    }
    let fleet = Fleet::of(1, store, &config);
    let led = format!(":{RESTING}\r\n");
    let count = "return #redis.call('KEYS', '*:l:job/*')";
    soon("a leader of each job", || {
        let servers = fleet.store.servers().iter();
        servers
            .into_iter()
            .all(|server| server.raw(&["EVAL", count, "0"]) == led)
    });
    // In their first rounds those that were acquired one after the other come together.
    let first = Tap::on(&fleet.store.servers()[0]);
    rounds(&first, 1);
    drop(first.heard());

    // A busy machine may cut a round in two, or let some jobs of a crowd see their first tick late. At rest no window is so.
    let windows = (0..WINDOWS).map(|_| Window::of(&fleet));
    let dear: Vec<Window> = windows.take_while(|window| !window.is_cheap()).collect();
    assert!(dear.len() < WINDOWS, "{dear:#?}");
    let memory = fleet.memory(0);
    fleet.measured("resident memory, MB", &memory);
    assert!(memory <= MEMORY, "{memory} MB");
}

/// What one server heard while some rounds of renewals and some ticks went by.
#[derive(Debug)]
struct Window {
    heard: Heard,
    runs: u64,
}

impl Window {
    fn of(fleet: &Fleet) -> Self {
        let runs = || {
            let beats = fleet.beats().of("tick").into_iter();
            beats.filter(|beat| beat.event == "started").count()
        };
        let tap = Tap::on(&fleet.store.servers()[0]);
        let begun = runs();
        rounds(&tap, ROUNDS);
        soon("ticks", || runs() >= begun + TICKS);
        let heard = tap.heard();
        fleet.measured("calls", &heard);
        let runs = (runs() - begun) as u64;
        Self { heard, runs }
    }

    /// As few calls as there can be: the last round may have begun, and so may a run that is written, or told, only later.
    fn is_cheap(&self) -> bool {
        let Self { heard, runs } = self;
        let whole = heard.extended.div_ceil(RESTING as u64);
        let writes = heard.writes;
        heard.extensions() <= whole * CALLS + 1 && writes + 2 >= runs * 2 && writes <= runs * 2 + 2
    }
}

fn rounds(tap: &Tap, rounds: u64) {
    let leases = rounds * RESTING as u64;
    soon("rounds of renewals", || tap.so_far().extended >= leases);
}
