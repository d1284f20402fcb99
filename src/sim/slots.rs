//! Semaphores under delay, loss, partition, crash, freeze and lost memory, with both kinds of expiry.

use std::time::Duration;

use super::{
    unrest::{daily, play},
    world::{Machine, Memory, TTL, World},
};
use crate::lock::mutant::Mutant;

const SLOTS: usize = 2;
const LENGTH: Duration = Duration::from_secs(10);

/// A new process that takes slots and keeps them for random times. The world's checker sees each slot's lock; with as
/// many locks as slots there are never more holders.
fn join(world: &World, n: usize) -> Machine {
    let machine = world.machine(&format!("m{n}"));
    for _ in 0..2 {
        let (m, checker) = (machine.clone(), world.checker.clone());
        machine.spawn.spawn(async move {
            loop {
                let slots = m.locks.slots("fuzz", SLOTS).wait(m.chance.up_to(TTL * 2));
                if let Ok(slot) = slots.acquire().await {
                    assert!(slot.index() < SLOTS);
                    checker.acquired(&m, slot.lease());
                    m.clock.sleep(m.chance.up_to(TTL)).await;
                    if m.chance.hits(0.5) {
                        slot.release().await;
                    }
                }
                m.clock.sleep(m.chance.up_to(TTL / 8)).await;
            }
        });
    }
    machine
}

#[test]
fn never_more_holders_than_slots_whatever_fails() {
    let mut acquisitions = 0;
    for seed in 0..daily(96) {
        acquisitions += play(async move {
            let world = match seed % 4 {
                0 | 1 => World::new(seed, 3, Mutant::default()),
                // A node that loses its memory is a minority that forgets who holds what.
                _ => World::forgetful(seed, 3, Memory::Guarded),
            };
            let mut fleet: Vec<_> = (0..4).map(|n| join(&world, n)).collect();
            world.founded().await;
            let end = world.time.elapsed() + LENGTH;
            while world.time.elapsed() < end && world.checker.violation().is_none() {
                world.trouble(&mut fleet, || join(&world, 4)).await;
            }
            assert_eq!(world.checker.violation(), None, "seed {seed}");
            world.checker.counts().acquisitions
        });
    }
    // Schedules in which nothing happens prove nothing.
    assert!(acquisitions > daily(96) * 20, "{acquisitions}");
}
