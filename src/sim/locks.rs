//! One holder and rising tokens under delay, loss, partition, crash and freeze; and the mutants that must be noticed.

use std::time::Duration;

use super::{
    unrest::{daily, number, play, seeds},
    world::{Counts, Machine, Memory, TTL, World},
};
use crate::{
    election::Elector,
    lock::{Claim, Claimed, mutant::Mutant},
    node::rules::mutants::{FORGET_UNWATCHED, HEAL_OVER_LATER, REVIVE_RELEASED},
};

/// Virtual time of one schedule.
const LENGTH: Duration = Duration::from_secs(10);

/// Runs one schedule; the violation it found, and what happened in it.
fn schedule(seed: u64, nodes: usize, mutant: Mutant) -> (Option<String>, Counts) {
    within(move || World::new(seed, nodes, mutant))
}

/// The same, with nodes that lose their memory.
fn forgetful(seed: u64, nodes: usize, memory: Memory) -> (Option<String>, Counts) {
    within(move || World::forgetful(seed, nodes, memory))
}

fn within(world: impl FnOnce() -> World) -> (Option<String>, Counts) {
    play(async move {
        let world = world();
        act(&world).await;
        (world.checker.violation(), world.checker.counts())
    })
}

/// Every executed call and every lease of one schedule, in order.
pub(super) fn trace(world: impl FnOnce() -> World) -> Vec<String> {
    play(async move {
        let world = world();
        world.checker.begin_trace();
        act(&world).await;
        world.checker.end_trace()
    })
}

async fn act(world: &World) {
    let mut fleet: Vec<Machine> = Vec::new();
    for n in 0..3 {
        fleet.push(join(world, n));
    }
    let mut born = fleet.len();
    world.founded().await;
    let end = world.time.elapsed() + LENGTH;
    while world.time.elapsed() < end && world.checker.violation().is_none() {
        let successor = || {
            born += 1;
            join(world, born - 1)
        };
        world.trouble(&mut fleet, successor).await;
    }
    if world.checker.violation().is_none() {
        recover(world, &fleet).await;
    }
}

/// P5: after the faults a machine leads within a ttl and a little, and no candidate's loop has ended.
async fn recover(world: &World, fleet: &[Machine]) {
    world.calm();
    fleet.iter().for_each(|m| m.tasks.thaw());
    let clock = world.time.clock();
    let before = world.checker.counts().acquisitions;
    // Nodes that have just lost their memory are watched for the longest lease first.
    let forgetful = if world.memory == Memory::Guarded {
        4
    } else {
        0
    };
    clock.sleep(TTL * (4 + forgetful)).await;
    if world.checker.violation().is_none() && world.checker.counts().acquisitions == before {
        world
            .checker
            .violate("nothing was acquired within four ttl of calm".to_owned());
    }
}

/// A new process that campaigns for a leadership, claims batches, and works for random times.
fn join(world: &World, n: usize) -> Machine {
    let machine = world.machine(&format!("m{n}"));
    let (m, checker) = (machine.clone(), world.checker.clone());
    machine.spawn.spawn(async move {
        let elector = Elector::new(&m.locks, "leader");
        loop {
            let term = elector.campaign().await.unwrap();
            checker.acquired(&m, term.lease());
            let work = m.chance.up_to(TTL * 3);
            let lease = term.lease().clone();
            tokio::select! {
                biased;
                _ = lease.lost() => {}
                () = m.clock.sleep(work) => {}
            }
            if m.chance.hits(0.8) {
                term.resign().await;
            }
            m.clock.sleep(m.chance.up_to(TTL / 4)).await;
        }
    });
    let (m, checker) = (machine.clone(), world.checker.clone());
    machine.spawn.spawn(async move {
        loop {
            let claims = (0..3).map(|i| Claim::short(format!("batch/{i}"))).collect();
            let claimed = m.locks.claim(claims).await.unwrap();
            let leases = claimed.into_iter().filter_map(|claimed| match claimed {
                Claimed::Acquired(lease) => Some(lease),
                _ => None,
            });
            let leases: Vec<_> = leases
                .inspect(|lease| checker.acquired(&m, lease.view()))
                .collect();
            for lease in leases {
                m.clock.sleep(m.chance.up_to(TTL / 4)).await;
                drop(lease);
            }
            m.clock.sleep(m.chance.up_to(TTL / 8)).await;
        }
    });
    let (m, always) = (machine.clone(), world.mutant.break_now);
    machine.spawn.spawn(async move {
        // An operator with little patience.
        loop {
            m.clock.sleep(TTL + m.chance.up_to(TTL * 9)).await;
            let seen = m.locks.look(vec!["elect/leader".to_owned()]).await.unwrap();
            if let Some(owner) = seen[0].holder() {
                let now = always || m.chance.hits(0.5);
                let broken = m.locks.break_lease("elect/leader", &owner, now).await;
                broken.unwrap();
            }
        }
    });
    machine
}

/// How many schedules each test runs: a few every day, many in the long run. `WATCHKEEPER_SIM_SCHEDULES` changes it.
fn schedules() -> u64 {
    number("WATCHKEEPER_SIM_SCHEDULES").unwrap_or_else(|| daily(250))
}

fn holds(nodes: usize) {
    let mut total = Counts::default();
    let only = seeds(schedules()).count() == 1;
    for seed in seeds(schedules()) {
        let (violation, counts) = schedule(seed, nodes, Mutant::default());
        if let Some(what) = violation {
            panic!("WATCHKEEPER_SIM_SEED={seed}, {nodes} nodes: {what}");
        }
        total.acquisitions += counts.acquisitions;
        total.renewals += counts.renewals;
        total.healed += counts.healed;
        total.confirms += counts.confirms;
        total.broken += counts.broken;
    }
    println!("{nodes} nodes: {total:?}");
    if !only {
        // Schedules in which nothing happens prove nothing.
        let each = schedules();
        assert!(
            total.acquisitions > 20 * each && total.renewals > 20 * each,
            "{total:?}"
        );
        assert!(
            total.healed > each / 10 && total.confirms > each && total.broken > each,
            "{total:?}"
        );
    }
}

/// The mutant must be noticed within so many schedules.
fn caught(mutant: impl Fn() -> Mutant, what: &str) {
    caught_from([0, 0], mutant, what);
}

/// The same, beginning with these schedules, of three nodes and of five: most of those before them notice nothing.
fn caught_from(first: [u64; 2], mutant: impl Fn() -> Mutant, what: &str) {
    for (nodes, first) in [3, 5].into_iter().zip(first) {
        let found =
            (first..first + 2000).find_map(|seed| Some((seed, schedule(seed, nodes, mutant()).0?)));
        let (seed, violation) = found.unwrap_or_else(|| panic!("{nodes} nodes: not noticed"));
        println!("{nodes} nodes, seed {seed}: {violation}");
        assert!(violation.contains(what), "{violation}");
    }
}

fn holds_although_memory_is_lost(nodes: usize) {
    let mut acquisitions = 0;
    // Both hold the same rules: half of the usual number for each.
    let all = seeds(schedules());
    let seeds: Vec<u64> = all
        .clone()
        .filter(|seed| seed % 2 == 0 || all.end - all.start == 1)
        .collect();
    for seed in seeds.iter().copied() {
        let (violation, counts) = forgetful(seed, nodes, Memory::Guarded);
        if let Some(what) = violation {
            panic!("WATCHKEEPER_SIM_SEED={seed}, {nodes} nodes: {what}");
        }
        acquisitions += counts.acquisitions;
    }
    println!("{nodes} nodes: {acquisitions} acquisitions");
    // Schedules in which no node votes prove nothing.
    assert!(acquisitions > 2 * seeds.len() as u64, "{acquisitions}");
}

#[test]
fn g1_one_holder_and_rising_tokens_although_three_nodes_lose_their_memory() {
    holds_although_memory_is_lost(3);
}

#[test]
fn g1_one_holder_and_rising_tokens_although_five_nodes_lose_their_memory() {
    holds_although_memory_is_lost(5);
}

#[test]
fn g1_without_the_guard_a_lost_memory_makes_two_holders() {
    for nodes in [3, 5] {
        let found = (0..2000).find_map(|seed| forgetful(seed, nodes, Memory::Lost).0);
        let violation = found.unwrap_or_else(|| panic!("{nodes} nodes: not noticed"));
        println!("{nodes} nodes: {violation}");
    }
}

#[test]
fn one_holder_and_rising_tokens_over_three_nodes() {
    holds(3);
}

#[test]
fn one_holder_and_rising_tokens_over_five_nodes() {
    holds(5);
}

#[test]
fn tokens_rise_although_nodes_differ() {
    caught(
        || Mutant {
            skip_confirm: true,
            ..Mutant::default()
        },
        "token",
    );
}

#[test]
fn deadline_counts_from_before_the_first_byte() {
    // Two holders, or the later one's token first: either way the first believed too long.
    caught_from(
        [1048, 611],
        || Mutant {
            deadline_from_reply: true,
            ..Mutant::default()
        },
        "",
    );
}

#[test]
fn votes_of_two_rounds_are_never_summed() {
    caught(
        || Mutant {
            sum_rounds: true,
            ..Mutant::default()
        },
        "",
    );
}

#[test]
fn a_released_lease_is_never_revived() {
    REVIVE_RELEASED.set(true);
    caught(Mutant::default, "revived");
    REVIVE_RELEASED.set(false);
}

#[test]
fn e3_what_was_granted_later_is_never_healed_over() {
    HEAL_OVER_LATER.set(true);
    caught(Mutant::default, "was written over");
    HEAL_OVER_LATER.set(false);
}

#[test]
fn s2_what_was_not_watched_is_never_forgotten() {
    FORGET_UNWATCHED.set(true);
    caught(Mutant::default, "");
    FORGET_UNWATCHED.set(false);
}

#[test]
fn a_break_lets_nobody_in_early() {
    caught(
        || Mutant {
            break_now: true,
            ..Mutant::default()
        },
        "both hold it",
    );
}
