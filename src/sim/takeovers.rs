//! How long a fleet is without a leader when the one it had dies: measured from the kill to the first run of the successor,
//! in virtual time, whatever the phase of renewals.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;

use crate::{
    chance::Chance,
    due::Misfire,
    event::Event,
    job::{Coordination, Job, JobError, Outcome, Run, Spec},
    testing::{Fleet, Replica, Sim, Told},
};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(5);
/// Half a second each without optimization; WATCHKEEPER_SIM_SCHEDULES asks for more.
const SEEDS: u64 = 8;

/// Works until it is told to stop.
struct Endless;

#[async_trait::async_trait]
impl Job for Endless {
    async fn run(&self, run: Run) -> Result<Outcome, JobError> {
        run.cancelled().await;
        Ok(Outcome::Skip("told to stop".into()))
    }
}

/// Is done at once.
struct Quick;

#[async_trait::async_trait]
impl Job for Quick {
    async fn run(&self, _: Run) -> Result<Outcome, JobError> {
        Ok(Outcome::Done)
    }
}

/// What was measured of one takeover.
struct Gap {
    /// From the kill to the first run of the successor.
    to_run: Duration,
    /// From the kill to its term.
    to_term: Duration,
    /// From the last renewal of the one that died.
    silent: Duration,
    /// What the successor says.
    said: Duration,
}

fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

fn sim(failover: bool, seed: u64) -> Sim {
    let sim = Sim::new()
        .ttl(TTL)
        .seed(seed)
        .job("led", |_| Quick, Spec::every(SECOND))
        .job("service", |_| Endless, Spec::continuous());
    if failover { sim.failover() } else { sim }
}

/// With a job without a leader, and whose run never ends by itself.
fn with_ticks(sim: Sim) -> Sim {
    let spec = Spec::every(SECOND * 7).coordination(Coordination::Tick);
    sim.job("tick", |_| Endless, spec)
}

/// When this was first told after `since`.
fn told(fleet: &Fleet, since: Timestamp, what: impl Fn(&Told) -> bool) -> Option<Told> {
    let mut all = fleet.events().into_iter();
    all.find(|told| told.at >= since && what(told))
}

fn leads(told: &Told, of: &str) -> bool {
    matches!(&told.event, Event::Leading { job, .. } if job == of)
}

fn starts(told: &Told, of: &str) -> bool {
    matches!(&told.event, Event::RunStarted { job, .. } if job == of)
}

/// Kills the leader of `job` at a moment of chance, and waits for its successor.
async fn takeover(fleet: &Fleet, job: &str, chance: &Chance) -> Gap {
    // Long enough for the others to have watched it, in any phase of the renewals.
    fleet.advance(TTL * 2 + chance.up_to(TTL)).await;
    let dies: Replica = fleet.leader(job).expect("a leader");
    let killed = fleet.now();
    fleet.kill(dies);
    let limit = TTL * 4;
    let came = |fleet: &Fleet| told(fleet, killed, |t| starts(t, job)).is_some();
    fleet.advance_until(came, limit).await;
    let run = told(fleet, killed, |t| starts(t, job)).unwrap();
    let term = told(fleet, killed, |t| leads(t, job)).unwrap();
    let Event::Leading { leaderless, .. } = term.event else {
        unreachable!("it was found by that");
    };
    let renewed = |told: &&Told| {
        let of_job = |resource: &str, ok: bool| ok && resource == job;
        told.replica == dies
            && told.at <= killed
            && matches!(&told.event, Event::Renewed { resource, ok, .. } if of_job(resource, *ok))
    };
    let events = fleet.events();
    let last = events.iter().rfind(renewed).expect("it renewed its leases");
    Gap {
        to_run: between(killed, run.at),
        to_term: between(killed, term.at),
        silent: between(last.at, term.at),
        said: leaderless.expect("it has seen the one before"),
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let seeds = number("WATCHKEEPER_SIM_SCHEDULES").unwrap_or(SEEDS);
    number("WATCHKEEPER_SIM_SEED").map_or(0..seeds, |seed| seed..seed + 1)
}

fn measure(failover: bool, job: &'static str) {
    let mut gaps = Vec::new();
    for seed in seeds() {
        let chance = Chance::seeded(seed);
        let gap =
            sim(failover, seed).run(|fleet| async move { takeover(&fleet, job, &chance).await });
        assert!(gap.to_run <= most(), "seed {seed}: {:?}", gap.to_run);
        // Renewals are a third of the ttl apart: by the half of that the moment of death is known.
        let says = gap.silent.saturating_sub(TTL / 6);
        let off = gap.said.abs_diff(says);
        assert!(off <= Duration::from_millis(300), "seed {seed}: {off:?}");
        let off = gap.said.abs_diff(gap.to_term);
        assert!(off <= TTL / 6 + SECOND / 4, "seed {seed}: {off:?}");
        gaps.push(gap.to_run);
    }
    gaps.sort_unstable();
    let median = gaps[gaps.len() / 2];
    println!("{job}, failover {failover}: {gaps:?}");
    assert!(median <= TTL.mul_f64(1.1), "{gaps:?}");
}

#[test]
fn a_failover_standby_takes_over_within_one_ttl_and_a_third() {
    measure(true, "led");
}

#[test]
fn a_service_moves_to_the_failover_standby_as_soon() {
    measure(true, "service");
}

#[test]
fn a_candidate_takes_over_as_soon() {
    measure(false, "led");
}

/// How long a takeover may take, whatever the phase of renewals.
fn most() -> Duration {
    TTL.mul_f64(1.3) + SECOND
}

/// One active replica and two spare ones, where `what` happens to the active one.
fn pair(sim: Sim, what: impl AsyncFn(&Fleet, Replica)) {
    sim.run(async |fleet| {
        fleet.advance(TTL * 2 + SECOND / 3).await;
        let active = fleet.leader("led").expect("a leader");
        what(&fleet, active).await;
    });
}

/// Waits for the next run of `job`, and says who began it how much later than `since`.
async fn next_run(fleet: &Fleet, job: &str, since: Timestamp) -> (Replica, Duration) {
    let came = |fleet: &Fleet| told(fleet, since, |t| starts(t, job)).is_some();
    fleet.advance_until(came, TTL * 4).await;
    let run = told(fleet, since, |t| starts(t, job)).unwrap();
    (run.replica, between(since, run.at))
}

/// It has no leader: its lock was taken for the tick, and is the dead replica's until it was watched for its ttl.
#[test]
fn the_run_of_a_tick_goes_on_with_the_failover_standby_as_soon() {
    pair(with_ticks(sim(true, 7)), async |fleet, active| {
        fleet.advance_until(|f| f.is_running("tick"), TTL * 4).await;
        fleet.advance(TTL).await;
        let killed = fleet.now();
        fleet.kill(active);
        let (_, gap) = next_run(fleet, "tick", killed).await;
        assert!(gap <= most(), "{gap:?}");
    });
}

#[test]
fn a_frozen_active_replica_starts_nothing_when_it_is_thawed() {
    pair(with_ticks(sim(true, 7)), async |fleet, active| {
        let frozen = fleet.now();
        fleet.freeze(active, TTL * 3);
        let (next, gap) = next_run(fleet, "led", frozen).await;
        assert!(next != active && gap <= most(), "{next} after {gap:?}");
        fleet.advance(TTL * 4).await;
        let acts = |t: &Told| {
            t.replica == active && ["led", "service", "tick"].iter().any(|j| starts(t, j))
        };
        let act = told(fleet, frozen, acts);
        assert!(act.is_none(), "{act:?}");
    });
}

#[test]
fn an_active_replica_that_goes_hands_over_at_once_and_its_successor_says_so() {
    pair(sim(true, 7), async |fleet, active| {
        let stopped = fleet.now();
        fleet.stop(active);
        let led = |fleet: &Fleet| told(fleet, stopped, |t| leads(t, "service")).is_some();
        fleet.advance_until(led, TTL).await;
        let term = told(fleet, stopped, |t| leads(t, "service")).unwrap();
        assert!(between(stopped, term.at) < SECOND / 2, "{term:?}");
        let Event::Leading { leaderless, .. } = term.event else {
            unreachable!("it was found by that");
        };
        assert!(leaderless.is_some_and(|l| l < SECOND / 4), "{leaderless:?}");
    });
}

/// Its watch begins when it joins: it cannot know more.
#[test]
fn whoever_has_just_joined_takes_over_a_ttl_later() {
    pair(with_ticks(sim(true, 7)), async |fleet, active| {
        let spare = fleet.replicas().into_iter().filter(|r| *r != active);
        spare.for_each(|replica| fleet.kill(replica));
        let joins = fleet.replicas().into_iter().find(|r| *r != active).unwrap();
        fleet.advance(SECOND).await;
        fleet.start(joins);
        fleet.advance(SECOND / 2).await;
        let killed = fleet.now();
        fleet.kill(active);
        let (next, gap) = next_run(fleet, "service", killed).await;
        assert!(next == joins && gap <= most(), "{next} after {gap:?}");
    });
}

/// Half of a fleet at once: what they led is led again within a ttl and three seconds, and each tick that fell due meanwhile runs, by
/// the rule that says so, and once.
#[test]
fn half_of_a_fleet_dies_and_each_job_is_led_again_in_time_and_misses_no_tick() {
    const REPLICAS: u32 = 16;
    const JOBS: usize = 32;
    let every = SECOND * 2;
    let name = |n: usize| format!("job{n}");
    let mut sim = Sim::new().ttl(TTL).replicas(REPLICAS).seed(11);
    for n in 0..JOBS {
        let spec = Spec::every(every).misfire(Misfire::All);
        sim = sim.job(&name(n), |_| Quick, spec);
    }
    sim.run(async |fleet| {
        fleet.advance(TTL * 4).await;
        let half: Vec<Replica> = fleet
            .replicas()
            .into_iter()
            .take(REPLICAS as usize / 2)
            .collect();
        let leads = |fleet: &Fleet, n: usize| fleet.leader(&name(n));
        let lost = (0..JOBS).filter(|n| leads(&fleet, *n).is_some_and(|l| half.contains(&l)));
        let lost = lost.count();
        assert!(lost >= JOBS / 4, "{lost}: nothing is shown");
        half.iter().for_each(|replica| fleet.kill(*replica));
        let all_led = |fleet: &Fleet| (0..JOBS).all(|n| leads(fleet, n).is_some());
        fleet.advance_until(all_led, TTL + SECOND * 3).await;
        fleet.advance(TTL * 2).await;
        let events = fleet.events();
        for n in 0..JOBS {
            let mut runs = BTreeSet::new();
            for told in &events {
                if let Event::RunStarted {
                    job, tick, attempt, ..
                } = &told.event
                    && *job == name(n)
                {
                    assert!(runs.insert((*tick, *attempt)), "{job}: {tick} twice");
                }
            }
            let ticks: BTreeSet<Timestamp> = runs.iter().map(|(tick, _)| *tick).collect();
            let pairs = ticks.iter().zip(ticks.iter().skip(1));
            for (before, after) in pairs {
                assert_eq!(between(*before, *after), every, "{n}: after {before}");
            }
            assert!(ticks.len() >= 15, "{n}: {ticks:?}");
        }
    });
}
