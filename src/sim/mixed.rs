//! Jobs with a leader beside jobs whose lock is taken for each tick, on replicas of different priorities.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    acts::{Starts, ms},
    overlaps::{Going, work},
    unrest::{daily, number, seeds},
};
use crate::{
    chance::Chance,
    due::{Misfire, Overlap},
    event::Event,
    job::{Coordination, Spec},
    testing::{cluster::Cluster, members::Member},
    worker::ready::Body,
};

const SECOND: Duration = Duration::from_secs(1);
const LED: [&str; 5] = ["led-1", "led-2", "led-3", "led-4", "led-5"];
/// Some without a leader: counted as a replica's share they would move terms about.
const BY_TICK: [&str; 3] = ["tick-1", "tick-2", "tick-3"];
const MIN_TERM: Duration = Duration::from_secs(3);
const REPLICAS: [&str; 3] = ["a", "b", "c"];
/// Half a second each, or a whole one without optimization; WATCHKEEPER_SIM_SCHEDULES asks for more.
const SEEDS: u64 = 24;

type All = BTreeMap<&'static str, Starts>;

struct Replica {
    member: Member,
    priority: i32,
}

/// Seconds between two ticks. Replicas look at each other every two seconds: locks that come and go in step with that
/// would always look the same.
fn period(job: &str) -> u32 {
    if BY_TICK.contains(&job) { 3 } else { 2 }
}

/// Work that lasts for half of the time between two ticks, so that many a look at the others meets a lock that is held.
fn jobs(starts: &All) -> Vec<(&'static str, Body, Spec)> {
    let job = |(job, starts): (&&'static str, &Starts)| {
        let by_tick = BY_TICK.contains(job);
        let takes = if by_tick { ms(1500) } else { ms(20) };
        let act = work(starts, &Going::default(), move |_| takes);
        let spec = Spec::every(SECOND * period(job))
            .misfire(Misfire::All)
            .overlap(Overlap::Queue)
            .min_term(MIN_TERM);
        let spec = match by_tick {
            true => spec.coordination(Coordination::Tick),
            false => spec,
        };
        (*job, Body::Job(Arc::new(act)), spec)
    };
    starts.iter().map(job).collect()
}

impl Replica {
    fn join(fleet: &Cluster, name: &str, starts: &All, priority: i32) -> Self {
        let member = fleet.join_as(name, jobs(starts), false, priority, true);
        member.publish();
        Self { member, priority }
    }

    /// What it leads, by the locks that it holds.
    fn share(&self) -> usize {
        let leases = self.member.ctx.local_status.leases().into_iter();
        leases.filter(|(job, _)| LED.contains(&&**job)).count()
    }

    fn terms(&self) -> usize {
        let leading = |e: &&Event| matches!(e, Event::Leading { .. });
        self.member
            .told
            .lock()
            .unwrap()
            .iter()
            .filter(leading)
            .count()
    }
}

/// All that have a leader are led by those of the largest priority, in shares that differ by one at most.
fn is_at_rest(replicas: &[Replica]) -> bool {
    let first = replicas.iter().map(|r| r.priority).max().unwrap();
    let best = replicas.iter().filter(|r| r.priority == first);
    let shares: Vec<usize> = best.map(Replica::share).collect();
    let (least, most) = (*shares.iter().min().unwrap(), *shares.iter().max().unwrap());
    shares.iter().sum::<usize>() == LED.len() && most - least <= 1
}

fn shown(replicas: &[Replica]) -> Vec<(i32, usize)> {
    replicas.iter().map(|r| (r.priority, r.share())).collect()
}

async fn until_at_rest(fleet: &Cluster, replicas: &[Replica], seed: u64) {
    for _ in 0..480 {
        if is_at_rest(replicas) {
            return;
        }
        fleet.sleep(ms(250)).await;
    }
    panic!("seed {seed}: {:?}", shown(replicas));
}

/// Nothing moves for `length`.
async fn stays(fleet: &Cluster, replicas: &[Replica], length: Duration, seed: u64) {
    let before: usize = replicas.iter().map(Replica::terms).sum();
    fleet.sleep(length).await;
    let after: usize = replicas.iter().map(Replica::terms).sum();
    assert_eq!(before, after, "seed {seed}: {:?}", shown(replicas));
    assert!(is_at_rest(replicas), "seed {seed}: {:?}", shown(replicas));
}

/// Two or three replicas join one after the other; later one of them goes, in one way or the other.
async fn one_fleet(seed: u64) {
    let (fleet, chance) = (Cluster::seeded(3, seed), Chance::seeded(seed));
    let starts: All = LED
        .iter()
        .chain(&BY_TICK)
        .map(|job| (*job, Starts::default()))
        .collect();
    let mut replicas = Vec::new();
    for name in &REPLICAS[..2 + chance.below(2) as usize] {
        let priority = [0, 0, 5, 9][chance.below(4) as usize];
        replicas.push(Replica::join(&fleet, name, &starts, priority));
        fleet.sleep(ms(chance.below(5000))).await;
    }
    until_at_rest(&fleet, &replicas, seed).await;
    stays(&fleet, &replicas, SECOND * 15, seed).await;
    let gone = replicas.swap_remove(chance.below(replicas.len() as u64) as usize);
    if chance.below(2) == 0 {
        gone.member.tasks.crash();
    } else {
        gone.member.drain();
        gone.member.ended().await;
        gone.member.tasks.crash();
    }
    fleet.sleep(SECOND * 3).await;
    until_at_rest(&fleet, &replicas, seed).await;
    stays(&fleet, &replicas, SECOND * 15, seed).await;
    for (job, starts) in &starts {
        starts.assert_once();
        let ticks = starts.ticks();
        assert!(
            ticks.len() > 10,
            "{job}: {} ticks; seed {seed}",
            ticks.len()
        );
        for pair in ticks.windows(2) {
            let gap = pair[1].duration_since(pair[0]).unsigned_abs();
            assert_eq!(gap, SECOND * period(job), "{job}: {pair:?}; seed {seed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn terms_come_to_rest_beside_locks_that_are_taken_for_ticks() {
    for seed in seeds(number("WATCHKEEPER_SIM_SCHEDULES").unwrap_or_else(|| daily(SEEDS))) {
        one_fleet(seed).await;
    }
}
