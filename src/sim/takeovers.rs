//! How long a fleet is without a leader when the one it had dies: measured from the kill to the first run of the successor,
//! in virtual time, whatever the phase of renewals.

use std::time::Duration;

use jiff::Timestamp;

use crate::{
    chance::Chance,
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
        .job("service", |_| Endless, Spec::continuous())
        .job(
            "tick",
            |_| Endless,
            Spec::every(SECOND * 7).coordination(Coordination::Tick),
        );
    if failover { sim.failover() } else { sim }
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

/// Kills whoever leads `job` at a moment of chance, and waits for its successor.
async fn takeover(fleet: &Fleet, job: &str, chance: &Chance) -> Gap {
    // Long enough for the others to have watched it, in any phase of the renewals.
    fleet.advance(TTL * 2 + chance.up_to(TTL)).await;
    let dies: Replica = fleet.leader(job).expect("somebody leads");
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
        let most = TTL.mul_f64(1.3) + SECOND;
        assert!(gap.to_run <= most, "seed {seed}: {:?}", gap.to_run);
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
