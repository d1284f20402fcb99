//! The simulation is a function of its seed: whatever else the process and the machine do, the same seed plays the same story.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{
    locks,
    world::{Memory, World},
};
use crate::lock::mutant::Mutant;

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
        for _ in 0..4 {
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

#[test]
fn the_same_seed_plays_the_same_schedule() {
    for (seed, nodes) in [(79, 3), (108, 5), (3, 5), (8, 3)] {
        let play = || locks::trace(|| World::new(seed, nodes, Mutant::default()));
        let one = play();
        assert!(one.len() > 500, "nothing happened in {} lines", one.len());
        let two = beside_busy_threads(play);
        let differs = difference(&one, &two);
        assert_eq!(differs, None, "seed {seed}, {nodes} nodes");
    }
}

#[test]
fn the_same_seed_loses_the_same_memory() {
    for (seed, nodes) in [(0, 3), (3, 5)] {
        let play = || locks::trace(|| World::forgetful(seed, nodes, Memory::Guarded));
        let (one, two) = (play(), beside_busy_threads(play));
        let differs = difference(&one, &two);
        assert_eq!(differs, None, "seed {seed}, {nodes} nodes");
    }
}
