//! Few replicas watch what one leads: all of them are killed or frozen together with it. Costs a quarter of a minute for each way.

use std::time::Duration;

use watchkeeper::{clock::Clock, hash::liking};

use crate::{
    fleet::{Fleet, TTL},
    store::Store,
    wait::{SOON, pause, starved, takeover_limit},
};

const REPLICAS: usize = 6;
/// Others watch nothing while these do.
const WATCHERS: usize = 3;
/// As long as a sign of life counts, and a look at the others; a ttl; an election.
const LED_AGAIN: Duration = Duration::from_secs(20);

const IDLE: &str = "
[jobs.idle]
kind = \"heartbeat\"
schedule = \"@every 24h\"
min_term = \"1h\"
";

pub(crate) fn a_job_whose_leader_and_watchers_are_killed_is_led_again(store: Store) {
    all_at_once(store, |fleet, worker| {
        fleet.kill(worker);
    });
}

pub(crate) fn a_job_whose_leader_and_watchers_are_frozen_is_led_again(store: Store) {
    all_at_once(store, |fleet, worker| {
        fleet.freeze(worker);
    });
}

fn all_at_once(store: Store, strike: impl Fn(&mut Fleet, usize)) {
    let mut fleet = Fleet::of(REPLICAS, store, IDLE);
    let led = fleet.leader("idle");
    // All of them have heard of each other, and who need not watch has ceased to.
    pause(Duration::from_secs(8));
    let mut others = fleet.workers();
    others.retain(|worker| *worker != led.worker);
    // As candidates of one priority are ranked.
    others.sort_by_key(|worker| liking(&fleet.replica(*worker), "idle"));
    let (watch, rest) = others.split_at(WATCHERS);
    let mark = fleet.log.mark();
    let struck = Clock::system().now();
    for worker in watch.iter().chain([&led.worker]) {
        strike(&mut fleet, *worker);
    }
    let next = fleet.log.wait(mark, SOON, "leader", |l| {
        l.is("leading", "idle") && rest.contains(&l.worker)
    });
    let gap = next.at.since(struck);
    fleet.measured(
        "led again after the leader and all that watched have gone",
        &gap,
    );
    let most = LED_AGAIN + starved(struck, next.at);
    assert!(gap <= most, "led again after {gap:?}");
    assert!(gap > takeover_limit(TTL), "nobody rested: {gap:?}");
    assert!(next.number("token") > led.token);
}
