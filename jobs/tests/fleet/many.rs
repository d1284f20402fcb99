//! What many jobs of one replica cost, counted by the servers. How long anything takes is not measured here.

use std::{collections::BTreeMap, fmt::Write};

use crate::{fleet::Fleet, server::RedisServer, store::Store, tap::Tap, wait::soon};

/// At rest: three calls of 250 at most.
const RESTING: usize = 600;
const CALLS: u64 = 3;
/// Rounds that are counted.
const ROUNDS: u64 = 2;
/// Ticks that are counted.
const TICKS: usize = 4;
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
    let count = "local n = 0 \
         for _, table in ipairs(redis.call('KEYS', '*:2:t')) do \
         for _, field in ipairs(redis.call('HKEYS', table)) do \
         if string.sub(field, 1, 5) == 'ljob/' then n = n + 1 end end end \
         return n";
    soon("a leader of each job", || {
        let mut servers = fleet.store.servers().iter();
        servers.all(|server| server.raw(&["EVAL", count, "0"]) == led)
    });
    // On a busy machine some of a crowd see their first tick long after they were elected.
    soon("a ledger of each job", || ledgers(&fleet) == RESTING);
    // What a majority has, one server may still be about to write: the others are listened to.
    let servers = fleet.store.servers();
    let whole = || servers.iter().find(|one| written(one).len() == RESTING);
    soon("a server with all ledgers", || whole().is_some());
    let server = whole().expect("it was found");
    let rounds = |tap: &Tap, rounds: u64| {
        let leases = rounds * RESTING as u64;
        soon("rounds of renewals", || tap.so_far().extended >= leases);
    };
    // In their first rounds those that were acquired one after the other come together.
    let first = Tap::on(server);
    rounds(&first, 1);
    drop(first.heard());

    let runs = || {
        let beats = fleet.beats().of("tick").into_iter();
        beats.filter(|beat| beat.event == "started").count()
    };
    let tap = Tap::on(server);
    let begun = runs();
    rounds(&tap, ROUNDS);
    soon("ticks", || runs() >= begun + TICKS);
    let heard = tap.heard();
    let runs = runs() - begun;
    fleet.measured("calls", &heard);

    // The last round may have begun, and a busy machine may have cut one in two.
    let whole = heard.extended.div_ceil(RESTING as u64);
    assert!(heard.extensions() <= whole * CALLS + 1, "{heard:?}");
    // One before a run and one after it, which on a busy machine is that before the next.
    let (runs, writes) = (runs as u64, heard.writes);
    assert!(
        writes + 2 >= runs && writes <= runs * 2 + 2,
        "{writes} for {runs} runs"
    );
    let memory = fleet.memory(0);
    fleet.measured("resident memory, MB", &memory);
    assert!(memory <= MEMORY, "{memory} MB");
}

/// Jobs whose ledgers a majority of the servers holds.
fn ledgers(fleet: &Fleet) -> usize {
    let servers = fleet.store.servers();
    let mut holders: BTreeMap<String, usize> = BTreeMap::new();
    for name in servers.iter().flat_map(written) {
        *holders.entry(name).or_default() += 1;
    }
    let of_majority = |held: &&usize| **held > servers.len() / 2;
    holders.values().filter(of_majority).count()
}

/// Jobs whose ledger one server holds.
fn written(server: &RedisServer) -> Vec<String> {
    const WRITTEN: &str = "local names = {} \
         for _, table in ipairs(redis.call('KEYS', '*:2:t')) do \
         for _, field in ipairs(redis.call('HKEYS', table)) do \
         if string.sub(field, 1, 5) == 'ejob/' then names[#names + 1] = field end end end \
         return table.concat(names, ' ')";
    let names = server.raw(&["EVAL", WRITTEN, "0"]);
    // Behind the line with the length.
    let names = names.lines().nth(1).unwrap_or_default();
    names.split_whitespace().map(str::to_owned).collect()
}
