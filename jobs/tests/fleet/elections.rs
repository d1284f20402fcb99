//! A leader is killed while its store, of three members, loses one of them or elects another: jobs and store are without a leader at
//! one time. Costs about half a minute, most of it spent waiting.

use std::time::Duration;

use crate::{
    etcd_members::EtcdCluster,
    fleet::{Fleet, TTL, beat},
    log::{GONE, Mark},
    store::Store,
    ticks::none_twice_and_none_missing,
    wait::{SOON, pause, until},
};

/// What befalls the members while no replica leads.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// One that follows is killed.
    FollowerDies,
    /// The one that leads is killed: the others elect another.
    LeaderDies,
    /// Another one is told to lead, and is killed.
    SuccessorDies,
    /// One after the other is told to lead.
    LeaderMoves,
}

/// At the beginning of the lease that has lost its holder, and about at its end, when its successors ask for it.
const FAULTS: [(Fault, Duration); 6] = [
    (Fault::FollowerDies, Duration::ZERO),
    (Fault::LeaderDies, Duration::ZERO),
    (Fault::LeaderDies, AT_ITS_END),
    (Fault::SuccessorDies, AT_ITS_END),
    (Fault::FollowerDies, AT_ITS_END),
    (Fault::LeaderMoves, Duration::ZERO),
];

/// So long after its holder was killed a lease of [`TTL`] lasts at least.
const AT_ITS_END: Duration = Duration::from_millis(1_300);

/// Between two moves, so that something is answered.
const REST: Duration = Duration::from_millis(250);

/// P4 and P5: the next one leads within the limit of every takeover, no two lead at once, and no tick is started twice.
pub(crate) fn a_killed_leader_is_replaced_while_its_store_elects_another(store: Store) {
    let mut fleet = Fleet::of(3, store, &beat("tick", "300ms", "misfire = \"all\""));
    let beats = fleet.beats();
    let first = beats.wait(SOON, "first tick", |b| b.event == "started");
    let mut led = fleet.leader("tick");
    for (round, (fault, after)) in (0..).zip(FAULTS) {
        // Another phase of the renewals each time.
        pause(TTL * round / 7);
        let mark = fleet.log.mark();
        let killed = fleet.kill(led.worker);
        pause(after);
        let dead = strike(&fleet, fault, mark);
        let next = fleet.next_leader(mark, "tick");
        println!(
            "[{}] {fault:?} {after:?} after the kill",
            fleet.store().name()
        );
        fleet.took_over(killed, &next);
        assert!(next.token > led.token, "{next:?} after {led:?}");
        if let Some(member) = dead {
            with_members(&fleet, |members| members.start_again(member));
        }
        led = next;
        fleet.join();
    }
    let last = beats.all().iter().map(|b| b.tick).max().expect("a tick");
    beats.wait(SOON, "later tick", |b| {
        b.event == "started" && b.tick > last
    });
    one_leads_at_a_time(&fleet);
    none_twice_and_none_missing(&fleet, first.tick, last);
}

/// Says which member is dead now.
fn strike(fleet: &Fleet, fault: Fault, mark: Mark) -> Option<usize> {
    let victim = match fault {
        Fault::FollowerDies => with_members(fleet, |members| (members.leader() + 1) % 3),
        Fault::LeaderDies => with_members(fleet, |members| members.leader()),
        Fault::SuccessorDies => with_members(fleet, |members| members.move_leader()),
        Fault::LeaderMoves => {
            let leads = || {
                let lines = fleet.log.since(mark);
                lines.iter().any(|line| line.is("leading", "tick"))
            };
            let led = until(|| {
                with_members(fleet, |members| members.move_leader());
                pause(REST);
                leads()
            });
            assert!(led, "no replica leads while the members take turns");
            return None;
        }
    };
    with_members(fleet, |members| members.kill(victim));
    Some(victim)
}

fn with_members<T>(fleet: &Fleet, act: impl FnOnce(&mut EtcdCluster) -> T) -> T {
    let Store::Etcd(etcd) = fleet.store() else {
        panic!("this case is for members of etcd")
    };
    etcd.with_members(act)
}

/// As the log tells, and as the heartbeats do: nothing is done in a term that is over.
fn one_leads_at_a_time(fleet: &Fleet) {
    let mut leader = None;
    for line in fleet.log.since(0) {
        let is_over = line.is("standing by", "tick") || line.says() == GONE;
        if line.is("leading", "tick") {
            assert_eq!(leader, None, "two lead at one time: {line:?}");
            leader = Some(line.worker);
        } else if is_over && leader == Some(line.worker) {
            leader = None;
        }
    }
    let mut newest = 0;
    for beat in fleet.beats().all() {
        assert!(beat.token >= newest, "in a term that was over: {beat:?}");
        newest = beat.token;
    }
}
