//! Who leads what, with real processes: standbys with priorities, shares, drains on request.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    beats::starts,
    fleet::{Fleet, TTL, beat},
    log::Mark,
    store::Store,
    wait::{pause, soon},
};

const THREE: [&str; 3] = ["a", "b", "c"];

fn three() -> String {
    THREE
        .map(|job| beat(job, "", "misfire = \"all\"\nmin_term = \"2s\""))
        .concat()
}

/// The active replica is killed, and the standby with the larger priority takes everything; then that one is killed.
pub(crate) fn one_standby_of_two_takes_over_and_then_the_last_one(store: Store) {
    let mut fleet = Fleet::failover(store);
    let active = fleet.join();
    works_alone(&fleet, 0, active);
    // The one that comes first is not the one that is preferred.
    let last = fleet.join();
    let next = fleet.start_as("preferred", &[("WATCHKEEPER_WORKER__PRIORITY", "1")]);
    fleet.wait_until_ready(next);
    // Everybody has heard of everybody; and a larger priority takes nothing from an active replica.
    pause(TTL * 3);
    works_alone(&fleet, 0, active);
    for (dies, follows) in [(active, next), (next, last)] {
        let mark = fleet.log.mark();
        let killed = fleet.kill(dies);
        let led = fleet.next_leader(mark, "replica");
        fleet.took_over(killed, &led);
        assert_eq!(led.worker, follows);
        // What the other one said in the instant before it was killed is no work beside this one.
        works_alone(&fleet, fleet.log.gone(mark, dies), follows);
    }
}

/// All kinds of work happen on this one, and none on another.
fn works_alone(fleet: &Fleet, mark: Mark, worker: usize) {
    fleet.wait_for_all_kinds_of_work(mark, worker);
    pause(TTL / 2);
    let lines = fleet.log.since(mark);
    let other = lines.iter().find(|l| l.works() && l.worker != worker);
    assert!(other.is_none(), "{other:?} beside {worker}");
}

/// By name and over HTTP; whoever is started under the name of one that goes is not meant.
pub(crate) fn a_drained_replica_goes_and_its_namesake_stays(store: Store) {
    let mut fleet = Fleet::of(2, store, &three());
    let led: BTreeSet<usize> = THREE.map(|job| fleet.leader(job).worker).into();
    let refused = fleet.refusal(&["drain", "w7"]);
    assert!(refused.contains("alive: w0, w1"), "{refused}");
    let first = *led.first().unwrap();
    let name = format!("w{first}");
    let id = fleet.replica(first);
    let said = fleet.command(&["drain", &name]);
    assert!(said.contains("drains") || said.contains("gone"), "{said}");
    let namesake = fleet.start_as(&name, &[]);
    fleet.wait_until_ready(namesake);
    assert!(fleet.wait_until_gone(first), "it ends well");
    // Longer than it takes to hear of any wish.
    pause(Duration::from_secs(4));
    let status = fleet.status();
    let replicas = status["replicas"].as_array().unwrap();
    assert_eq!(replicas.len(), 2, "{status}");
    assert!(
        replicas
            .iter()
            .all(|r| r["draining"] == false && r["id"] != id.as_str())
    );

    let refused = fleet.refusal(&["drain", &id]);
    assert!(refused.contains("there is no replica"), "{refused}");
    assert_eq!(
        fleet.asks(namesake, "POST", "/api/v1/replicas/w7/drain"),
        404
    );
    let other = 1 - first;
    let path = format!("/api/v1/replicas/{}/drain", fleet.replica(other));
    assert!(matches!(fleet.orders(namesake, &path), 200 | 202));
    assert!(fleet.wait_until_gone(other), "it ends well");
    let said = fleet.command(&["drain", &name, "--wait=20s"]);
    assert!(said.contains("gone"), "{said}");
    assert!(fleet.wait_until_gone(namesake), "it ends well");
    once(&fleet);
}

/// One replica leads all three jobs; two that join later get one each, and no tick is lost or doubled.
pub(crate) fn jobs_spread_over_replicas_that_join_later(store: Store) {
    let mut fleet = Fleet::of(1, store, &three());
    for job in THREE {
        assert_eq!(fleet.leader(job).worker, 0);
    }
    for worker in [fleet.start(), fleet.start()] {
        fleet.wait_until_ready(worker);
    }
    let leaders = || -> BTreeSet<String> {
        let status = fleet.status();
        let jobs = status["jobs"].as_array().unwrap().iter();
        let names = jobs.filter_map(|job| job["leader"]["name"].as_str());
        names.map(str::to_owned).collect()
    };
    // Two moves, each after five seconds of calm and two of notice.
    soon("first move", || leaders().len() >= 2);
    soon("second move", || leaders().len() == 3);
    let mark = fleet.log.mark();
    pause(Duration::from_secs(8));
    let moved = fleet.log.since(mark);
    let moved = moved.iter().find(|l| l.says() == "leading");
    assert!(moved.is_none(), "{moved:?}");
    once(&fleet);
    for job in THREE {
        let ticks: BTreeSet<_> = starts(&fleet.beats().of(job))
            .keys()
            .map(|(tick, _)| *tick)
            .collect();
        let ticks: Vec<_> = ticks.into_iter().collect();
        for pair in ticks.windows(2) {
            assert_eq!(
                pair[1].duration_since(pair[0]).as_secs(),
                1,
                "{job}: {pair:?}"
            );
        }
    }
}

fn once(fleet: &Fleet) {
    for job in THREE {
        for ((tick, attempt), times) in starts(&fleet.beats().of(job)) {
            assert_eq!((attempt, times), (1, 1), "{job}, tick {tick}");
        }
    }
}
