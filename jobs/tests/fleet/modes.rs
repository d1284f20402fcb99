//! One active replica and a spare one; one service and a hot standby.

use crate::{
    beats::Beat,
    fleet::{Fleet, beat},
    store::Store,
    wait::{AT_ONCE, SOON, less, starved, undisturbed},
};

/// In failover mode the spare replica does nothing, whatever the coordination of a job, until the active one goes.
pub(crate) fn a_spare_replica_does_nothing_until_the_active_one_goes(store: Store) {
    let mut fleet = Fleet::failover(store);
    for _ in 0..2 {
        fleet.join();
    }
    let active = fleet.leader("replica").worker;
    let spare = 1 - active;
    fleet.wait_for_all_kinds_of_work(0, active);
    assert!(did_nothing(&fleet, spare), "the spare one worked");
    let mark = fleet.log.mark();
    fleet.terminate(active);
    let next = fleet.next_leader(mark, "replica");
    assert_eq!(next.worker, spare);
    assert!(fleet.wait_until_gone(active), "a drained worker ends well");
    fleet.wait_for_all_kinds_of_work(mark, spare);
    let of_active = fleet
        .log
        .since(0)
        .into_iter()
        .filter(|l| l.worker == active && l.works());
    let last = of_active.map(|l| l.at).max().unwrap();
    fleet.measured("handed over after", &next.at.since(last));
    let of_spare = fleet
        .log
        .since(0)
        .into_iter()
        .filter(|l| l.worker == spare && l.works());
    let first = of_spare.map(|l| l.at).min().unwrap();
    assert!(last < first, "both worked at once");
    assert!(undisturbed(last, next.at) < AT_ONCE);
}

fn did_nothing(fleet: &Fleet, worker: usize) -> bool {
    !fleet
        .log
        .since(0)
        .iter()
        .any(|l| l.worker == worker && l.works())
}

/// A service runs in one replica at a time; it is handed over when that one is told to go, and taken over when it dies.
pub(crate) fn a_service_runs_once_and_moves_to_its_hot_standby(store: Store) {
    let service = beat("service", "10m", "schedule = \"continuous\"");
    let mut fleet = Fleet::of(2, store, &service);
    let beats = fleet.beats();
    let mut gaps = Vec::new();
    let mut led = fleet.leader("service");
    for _ in 0..3 {
        beats.wait(SOON, "run", |b| {
            b.event == "started" && b.token == led.token
        });
        let mark = fleet.log.mark();
        let told = fleet.terminate(led.worker);
        let next = fleet.next_leader(mark, "service");
        let gap = next.after(&beats.last("cancelled", led.token));
        gaps.push(less(gap, starved(told, next.at)));
        assert!(
            fleet.wait_until_gone(led.worker),
            "a drained worker ends well"
        );
        led = next;
        fleet.join();
    }
    fleet.handed_over(&gaps);

    beats.wait(SOON, "run", |b| {
        b.event == "started" && b.token == led.token
    });
    let next = fleet.kill_leader(led, "service");
    beats.wait(SOON, "run", |b| {
        b.event == "started" && b.token == next.token
    });
    one_at_a_time(&beats.all(), led.token);
}

/// Every run ended before the next one started, but for the one that was killed.
fn one_at_a_time(beats: &[Beat], killed: u64) {
    for pair in beats.windows(2).filter(|pair| pair[1].event == "started") {
        let before = &pair[0];
        assert!(
            before.event == "cancelled" || before.token == killed,
            "{before:?} was not over when {:?} started",
            pair[1]
        );
    }
}
