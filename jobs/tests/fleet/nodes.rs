//! Standbys that wait, and stores that stop answering.

use std::time::Duration;

use watchkeeper::clock::Clock;

use crate::{
    beats::Beat,
    fleet::{Fleet, TTL, beat, pulse},
    store::Store,
    wait::{SOON, pause, starved, takeover_limit, until},
};

/// A pulse, and work that is always under way.
fn jobs() -> String {
    pulse() + &beat("service", "10m", "schedule = \"continuous\"")
}

/// Most that a worker may use of one processor when nothing can be done.
const IDLE_SHARE: f64 = 0.2;

/// A standby looks and waits: it does not ask for a lock whose holder is well, nor does it keep a processor busy.
pub(crate) fn a_standby_waits_quietly(store: Store) {
    let fleet = Fleet::of(3, store, &jobs());
    fleet.leader("pulse");
    fleet.leader("service");
    let bids = |mark| {
        let lines = fleet.log.since(mark);
        lines.iter().filter(|l| l.says() == "attempt ended").count()
    };
    // Those who came second bid once, blind: on a busy machine some time after the leaders.
    let is_quiet = || {
        let mark = fleet.log.mark();
        pause(TTL / 4);
        bids(mark) == 0
    };
    assert!(until(is_quiet), "bids without end");
    let mark = fleet.log.mark();
    let shares = busy_shares(&fleet, TTL * 2);
    assert_eq!(bids(mark), 0, "bids while the leaders were well");
    fleet.measured("share of a processor", &shares);
    assert!(shares.iter().all(|share| *share < IDLE_SHARE), "{shares:?}");
}

/// One frozen master of three is noticed in the log, and nowhere else.
pub(crate) fn a_minority_of_frozen_masters_does_no_harm(store: Store) {
    let fleet = Fleet::of(2, store, &jobs());
    let (pulse, service) = (fleet.leader("pulse"), fleet.leader("service"));
    let mark = fleet.log.mark();
    pause(TTL * 3);
    for line in fleet.log.since(mark) {
        let trouble = [
            "leading",
            "standing by",
            "lease not extended",
            "ticks skipped",
        ];
        assert!(!trouble.contains(&line.says()), "{line:?}");
    }
    let beats = fleet.beats();
    let ticks: Vec<Beat> = beats.of("pulse");
    assert!(ticks.len() >= 5, "{} ticks in {:?}", ticks.len(), TTL * 3);
    for pair in ticks.windows(2) {
        assert_eq!(
            pair[1].tick.duration_since(pair[0].tick).as_secs(),
            1,
            "{pair:?}"
        );
        assert_eq!(pair[1].token, pulse.token);
    }
    assert_eq!(beats.of("service").len(), 1, "it runs, under {service:?}");
}

/// Without a majority nobody leads: work is told to stop before its lease ends, nobody spins, and a majority that comes
/// back has its leaders within a ttl and a second.
pub(crate) fn without_a_majority_nobody_leads(store: Store) {
    let fleet = Fleet::of(3, store, &jobs());
    let service = fleet.leader("service");
    let beats = fleet.beats();
    beats.wait(SOON, "run", |b| b.job == "service");
    let clock = Clock::system();
    let frozen = clock.now();
    fleet.store.block();
    beats.wait(SOON, "cancellation", |b| {
        b.job == "service" && b.event == "cancelled"
    });
    let told = clock.now().since(frozen);
    fleet.measured("told to stop after", &told);
    assert!(told < TTL, "told to stop after {told:?}");
    pause((frozen + TTL).since(clock.now()));
    for worker in fleet.workers() {
        for job in ["pulse", "service"] {
            let status = fleet.status_of(worker, &format!("/leaderz?job={job}"));
            assert_eq!(status, 503, "worker {worker}, {job}");
        }
    }
    let before = beats.all().len();
    let shares = busy_shares(&fleet, TTL);
    fleet.measured("share of a processor", &shares);
    assert!(shares.iter().all(|share| *share < IDLE_SHARE), "{shares:?}");
    assert_eq!(beats.all().len(), before, "nothing starts without a leader");
    assert_eq!(fleet.workers().len(), 3);

    let mark = fleet.log.mark();
    let thawed = clock.now();
    fleet.store.unblock();
    for job in ["pulse", "service"] {
        let led = fleet.next_leader(mark, job);
        let gap = led.at.since(thawed);
        fleet.measured("led again after", &gap);
        let most = takeover_limit(TTL) + starved(thawed, led.at);
        assert!(gap <= most, "{job} led again after {gap:?}");
    }
    beats.wait(SOON, "run of the next term", |b| {
        b.job == "service" && b.event == "started" && b.token > service.token
    });
}

/// A store that cannot be reached is no reason to go: whoever was started without it leads once it is there.
pub(crate) fn a_fleet_outlasts_a_start_without_its_masters(store: Store) {
    store.block();
    let fleet = Fleet::of(2, store, &jobs());
    pause(TTL / 2);
    for worker in fleet.workers() {
        assert_eq!(fleet.status_of(worker, "/livez"), 200);
        assert_eq!(fleet.status_of(worker, "/leaderz?job=pulse"), 503);
    }
    let mark = fleet.log.mark();
    let thawed = Clock::system().now();
    fleet.store.unblock();
    let led = fleet.next_leader(mark, "pulse").at;
    let gap = led.since(thawed);
    fleet.measured("led after", &gap);
    let most = takeover_limit(TTL) + starved(thawed, led);
    assert!(gap <= most, "led after {gap:?}");
}

/// The share of one processor that each worker uses meanwhile.
fn busy_shares(fleet: &Fleet, time: Duration) -> Vec<f64> {
    let used = || -> Vec<Duration> { fleet.workers().iter().map(|w| fleet.cpu(*w)).collect() };
    let before = used();
    pause(time);
    let share = |(after, before): (&Duration, &Duration)| {
        after.saturating_sub(*before).as_secs_f64() / time.as_secs_f64()
    };
    used().iter().zip(&before).map(share).collect()
}
