//! The simulation is a function of its seed: whatever else the process and the machine do, the same seed plays the same story.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    acts::{Starts, quick},
    locks,
    unrest::{Unrest, play},
    world::{Memory, World},
};
use crate::{
    chance::Chance, due::Misfire, job::Spec, lock::mutant::Mutant, testing::cluster::Cluster,
};

const SECOND: Duration = Duration::from_secs(1);

/// The first difference between two traces, in a few words.
fn difference(one: &[String], two: &[String]) -> Option<String> {
    let at = one.iter().zip(two).position(|(a, b)| a != b);
    let at = at.or((one.len() != two.len()).then(|| one.len().min(two.len())))?;
    let of = |trace: &[String]| trace.get(at).cloned().unwrap_or_default();
    let (all, a, b) = (one.len(), of(one), of(two));
    Some(format!("line {at} of {all}:\n{a}\n{b}"))
}

/// Threads that take the processors, and allocate, until the work is done.
fn beside_busy_threads<T>(work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::black_box(vec![0_u8; 4096]);
                }
            });
        }
        let outcome = work();
        done.store(true, Ordering::Relaxed);
        outcome
    })
}

fn assert_same(name: &str, play: impl Fn() -> Vec<String>) {
    let one = play();
    assert!(one.len() > 200, "{name}: nothing happens, {}", one.len());
    let two = beside_busy_threads(play);
    assert_eq!(difference(&one, &two), None, "{name}");
}

#[test]
fn the_same_seed_plays_the_same_schedule() {
    for (seed, nodes) in [(108, 3), (3, 5)] {
        assert_same(&format!("seed {seed}, {nodes} nodes"), || {
            locks::trace(|| World::new(seed, nodes, Mutant::default()))
        });
    }
}

#[test]
fn the_same_seed_loses_the_same_memory() {
    assert_same("memory is lost", || {
        locks::trace(|| World::forgetful(2, 3, Memory::Guarded))
    });
}

/// Whole replicas that tick every second; one after the other dies, freezes or is cut off.
fn fleet(seed: u64) -> Vec<String> {
    play(async move {
        let fleet = Cluster::seeded(3, seed);
        let trace = Arc::new(Mutex::new(Vec::new()));
        for (i, node) in fleet.nodes.iter().enumerate() {
            let trace = Arc::clone(&trace);
            node.observe(move |executed| {
                trace.lock().unwrap().push(format!("{i}: {executed:?}"));
            });
        }
        let (starts, chance) = (Starts::default(), Chance::seeded(seed));
        let spec = Spec::every(SECOND).misfire(Misfire::All).retry(5);
        let mut unrest = Unrest::begin(&fleet, &chance, |name| {
            fleet.join(name, quick(&starts), spec.clone())
        });
        while fleet.time.elapsed() < SECOND * 20 {
            fleet.sleep(chance.up_to(SECOND * 4)).await;
            unrest.strike();
        }
        unrest.recover(SECOND * 5).await;
        for member in &unrest.all {
            let told = format!("{:?}", member.told.lock().unwrap());
            trace.lock().unwrap().push(told);
        }
        std::mem::take(&mut *trace.lock().unwrap())
    })
}

#[test]
fn the_same_seed_plays_the_same_fleet() {
    for seed in [1, 2] {
        assert_same(&format!("fleet, seed {seed}"), || fleet(seed));
    }
}
