//! A rate that processes keep together, under delay, loss, partition, crash, freeze and lost memory.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{
    unrest::play,
    world::{Machine, Memory, World},
};
use crate::{
    clock::Moment,
    lock::mutant::{Mutant, SHARES_WITHOUT_PAUSE},
};

const LENGTH: Duration = Duration::from_secs(20);
const SECOND: Duration = Duration::from_secs(1);

/// Acts of all processes, by the world's clock.
type Acts = Arc<Mutex<Vec<Moment>>>;

/// A new process that acts whenever it may, with breaks.
fn join(world: &World, n: usize, per_second: f64, acts: &Acts) -> Machine {
    let machine = world.machine(&format!("m{n}"));
    let rate = machine
        .locks
        .rate_on("fuzz", per_second, &machine.spawn, None);
    let (rate, m) = (rate.unwrap(), machine.clone());
    let (acts, time) = (acts.clone(), world.time.clock());
    machine.spawn.spawn(async move {
        loop {
            let burst = m.clock.now() + m.chance.up_to(SECOND * 4);
            while m.clock.timeout_at(burst, rate.take()).await.is_ok() {
                acts.lock().unwrap().push(time.now());
            }
            m.clock.sleep(m.chance.up_to(SECOND * 2)).await;
        }
    });
    machine
}

/// The most acts in any half-open span, and where it begins.
fn most_in(span: Duration, acts: &[Moment]) -> (usize, Moment) {
    let (mut most, mut first) = ((0, Moment::ZERO), 0);
    for (last, at) in acts.iter().enumerate() {
        while at.since(acts[first]) >= span {
            first += 1;
        }
        most = most.max((last - first + 1, acts[first]));
    }
    most
}

/// How many acts there are in the story of a seed.
///
/// # Errors
/// Where there were too many in a second.
fn story(seed: u64) -> Result<usize, String> {
    play(async move {
        let world = match seed % 4 {
            0 | 1 => World::new(seed, 3, Mutant::default()),
            // A node that loses its memory is a minority that forgets who holds what.
            _ => World::forgetful(seed, 3, Memory::Guarded),
        };
        let per_second = match seed % 3 {
            0 => 1.0 + world.chance.below(20) as f64,
            1 => 40.0 + world.chance.below(200) as f64,
            _ => 1000.0,
        };
        let acts = Acts::default();
        let mut fleet: Vec<_> = (0..4).map(|n| join(&world, n, per_second, &acts)).collect();
        world.founded().await;
        let end = world.time.elapsed() + LENGTH;
        while world.time.elapsed() < end {
            let successor = || join(&world, 4, per_second, &acts);
            world.trouble(&mut fleet, successor).await;
        }
        let acts = acts.lock().unwrap();
        // The processes' clocks may be fast.
        let second = SECOND.mul_f64(1.0 - world.weights.rate * 2.0);
        let (most, at) = most_in(second, &acts);
        match most as f64 <= per_second.ceil() {
            true => Ok(acts.len()),
            false => Err(format!(
                "seed {seed}: {most} acts in the second after {at:?}, at most {per_second} may be"
            )),
        }
    })
}

/// Every day some, in the long run a thousand: two minutes.
#[test]
fn the_rate_holds_whatever_fails() {
    let seeds = match std::env::var_os("WATCHKEEPER_LONG") {
        Some(_) => 1000,
        None => 12,
    };
    let acts: Result<Vec<usize>, String> = (0..seeds).map(story).collect();
    let acts: usize = acts.unwrap_or_else(|why| panic!("{why}")).iter().sum();
    // Schedules in which nothing is done prove nothing.
    assert!(acts as u64 > seeds * 100, "{acts}");
}

/// The mutant: it is seen that a share has to begin with a pause.
#[test]
fn without_the_pause_of_a_share_the_rate_is_exceeded() {
    SHARES_WITHOUT_PAUSE.set(true);
    let exceeded = (0..60).find_map(|seed| story(seed).err());
    SHARES_WITHOUT_PAUSE.set(false);
    println!("{}", exceeded.expect("a rate that is exceeded"));
}
