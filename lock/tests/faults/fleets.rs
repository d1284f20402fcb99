//! Two programs that are configured differently, on the same servers: one of them is refused by name, whichever came first.
//! Costs about ten seconds.

use std::{sync::Arc, time::Duration};

#[cfg(feature = "testing")]
use watchkeeper_lock::lock::mutant::Mutant;
use watchkeeper_lock::{
    clock::Clock,
    lock::{Locks, LocksBuilder, Timing},
    node::{Node, RestartGuard, redis::RedisNode},
    spawn::Spawn,
};

use crate::{
    client::{Client, KEY, admit, block_on, builder, locks, patient},
    history::{Belief, Violation, violations},
    masters::Masters,
    rules::{ALL_OFF, ALL_ON, Rules},
};

const TTL: Duration = Duration::from_secs(4);
/// Without the guard, and otherwise as the others.
const UNGUARDED: Rules = Rules {
    guard: RestartGuard::Off,
    ..ALL_ON
};

/// As `watchkeeper lock` is: on threads of its own.
fn program(masters: &Masters, rules: Rules, timing: &Timing) -> Locks {
    let settings = masters.settings(timing.node_timeout, false);
    locks(&settings, rules, timing.clone(), None)
}

/// What a program is told that does not get the lock.
async fn refused(locks: &Locks) -> String {
    for _ in 0..100 {
        let why = match locks.lock_key(KEY).acquire().await {
            Err(why) => why.to_string(),
            Ok(lease) => panic!("it holds the lock: {lease:?}"),
        };
        // A busy machine may not have connected in time: no reason yet.
        if !why.contains("still connecting") {
            return why;
        }
        Clock::system().sleep(Duration::from_millis(50)).await;
    }
    panic!("it does not connect");
}

fn named(why: &str, what: &str) {
    assert!(why.contains(what), "{why}");
    assert!(why.contains("doctor --reconfigure"), "{why}");
}

/// A1, whichever came first.
pub(crate) fn a_program_without_the_guard_takes_no_lock_of_a_guarded_fleet() {
    let masters = Masters::start(3);
    let timing = patient(TTL);
    admit(&masters, ALL_ON, &timing);
    block_on(async {
        let guarded = program(&masters, ALL_ON, &timing);
        let wait = guarded.lock_key(KEY).wait(TTL);
        let lease = wait.acquire().await.unwrap();
        let unguarded = program(&masters, UNGUARDED, &timing);
        let why = refused(&unguarded).await;
        named(&why, "restart_guard is call there and off here");
        assert!(lease.is_held());
    });
}

/// The holder's fleet has lost two of its nodes, of which the third says whose they are. A program without the guard starts now:
/// its first call would mark both as its own. What is wrong with what both believe.
fn two_lost_nodes(start: impl FnOnce(LocksBuilder) -> LocksBuilder) -> Vec<Violation> {
    let masters = Masters::start(3);
    let timing = patient(TTL);
    admit(&masters, ALL_ON, &timing);
    // Nothing drives it from here on: it nominates neither.
    let holder = Client::new(&masters, ALL_ON, TTL);
    let lease = holder.acquires();
    holder.holds_on(&lease, 3);
    let mut beliefs = vec![Belief::of("guarded", &lease)];
    masters.flush(0);
    masters.flush(1);
    block_on(async {
        let settings = masters.settings(timing.node_timeout, false);
        let unguarded = start(builder(&settings, UNGUARDED, timing)).start();
        match unguarded.unwrap().lock_key(KEY).acquire().await {
            Ok(lease) => beliefs.push(Belief::of("unguarded", &lease)),
            Err(why) => named(&why.to_string(), "restart_guard is call there and off here"),
        }
    });
    assert!(lease.is_held(), "too slow to show anything");
    violations(beliefs)
}

pub(crate) fn a_program_without_the_guard_leaves_the_lost_nodes_of_a_guarded_fleet_alone() {
    assert_eq!(two_lost_nodes(|locks| locks), []);
}

/// What the case above shows, it would not show by itself.
#[cfg(feature = "testing")]
pub(crate) fn a_program_without_the_guard_that_does_not_look_first_is_a_second_holder() {
    let hasty = Mutant {
        never_bar: true,
        ..Mutant::default()
    };
    let seen = two_lost_nodes(|locks| locks.mutant(hasty));
    assert!(
        matches!(seen.first(), Some(Violation::TwoHolders { .. })),
        "{seen:?}"
    );
}

/// It looks at all nodes before it asks for anything, and one that is silent then is not waited for.
pub(crate) fn a_new_fleet_without_the_guard_comes_up_although_a_node_is_down() {
    let timing = patient(TTL);
    for frozen in [false, true] {
        let mut masters = Masters::start(3);
        match frozen {
            true => masters.freeze(2),
            false => masters.kill(2),
        }
        block_on(async {
            let start = Clock::system().now();
            let program = program(&masters, UNGUARDED, &timing);
            let lease = program.lock_key(KEY).wait(TTL).acquire().await.unwrap();
            let took = Clock::system().now().since(start);
            assert!(took < timing.node_timeout * 5, "{took:?}, frozen: {frozen}");
            lease.release().await;
        });
        if frozen {
            masters.thaw(2);
        }
    }
}

pub(crate) fn a_program_with_the_guard_takes_no_lock_of_an_unguarded_fleet() {
    let masters = Masters::start(3);
    let timing = patient(TTL);
    block_on(async {
        let unguarded = program(&masters, UNGUARDED, &timing);
        let lease = unguarded.lock_key(KEY).acquire().await.unwrap();
        let guarded = program(&masters, ALL_ON, &timing);
        let why = refused(&guarded).await;
        named(&why, "restart_guard is off there and call here");
        // Another of its kind is none.
        let alike = program(&masters, UNGUARDED, &timing);
        assert!(refused(&alike).await.contains("held"));
        assert!(lease.is_held());
    });
}

/// A1, with a program that names neither guard nor fleet.
pub(crate) fn a_program_that_names_no_fleet_takes_no_lock_of_a_guarded_one() {
    let masters = Masters::start(3);
    // As a worker with its defaults.
    let timing = Timing::default();
    admit(&masters, ALL_ON, &timing);
    block_on(async {
        let guarded = program(&masters, ALL_ON, &timing);
        let lease = guarded.lock_key(KEY).wait(TTL).acquire().await.unwrap();
        let node = |settings| -> Arc<dyn Node> {
            Arc::new(RedisNode::new(&settings, Clock::system(), Spawn::system()).unwrap())
        };
        let settings = masters.settings(timing.node_timeout, false);
        let nodes = settings.into_iter().map(node).collect();
        let plain = Locks::over(nodes).start().unwrap();
        let why = refused(&plain).await;
        named(&why, "restart_guard is call there and off here");
        assert!(lease.is_held());
    });
}

/// A4: to one a claim stands in the plain key, to the other it does not.
pub(crate) fn programs_with_and_without_raw_keys_share_no_locks() {
    let masters = Masters::start(1);
    let timing = patient(TTL);
    block_on(async {
        let raw = masters.settings(timing.node_timeout, true);
        let raw = locks(&raw, UNGUARDED, timing.clone(), None);
        let lease = raw.lock_key(KEY).acquire().await.unwrap();
        let other = program(&masters, UNGUARDED, &timing);
        let why = refused(&other).await;
        named(&why, "raw_keys is true there and false here");
        assert!(lease.is_held());
    });
}

/// A5 and A19. The server has lost its memory, and a program that knows of shorter leases comes first: it gets nothing while the
/// longer one lasts, and does not shut the fleet out whose server this is.
pub(crate) fn a_newcomer_with_shorter_leases_comes_first_after_a_loss_and_gets_nothing() {
    let ttl = TTL * 2;
    let mut masters = Masters::start(1);
    let timing = patient(ttl);
    admit(&masters, ALL_ON, &timing);
    block_on(async {
        let fleet = program(&masters, ALL_ON, &timing);
        let lease = fleet.lock_key(KEY).wait(ttl).acquire().await.unwrap();
        masters.forget(0);
        let newcomer = program(&masters, ALL_ON, &patient(ttl / 4));
        let wait = newcomer.lock_key(KEY).wait(ttl / 2);
        let why = match wait.acquire().await {
            Err(why) => why.to_string(),
            Ok(other) => panic!("two hold it: {lease:?}, {other:?}"),
        };
        named(&why, "max_ttl is 8s there and 2s here");
        // The right fleet goes on.
        drop(lease);
        fleet.lock_key(KEY).wait(ttl * 2).acquire().await.unwrap();
        let why = refused(&newcomer).await;
        named(&why, "max_ttl is 8s there and 2s here");
    });
}

/// A19: the same with a node of three.
pub(crate) fn a_newcomer_does_not_admit_a_lost_node_of_another_fleet() {
    let mut masters = Masters::start(3);
    let timing = patient(TTL);
    admit(&masters, ALL_ON, &timing);
    block_on(async {
        let fleet = program(&masters, ALL_ON, &timing);
        drop(fleet.lock_key(KEY).wait(TTL).acquire().await.unwrap());
        masters.forget(0);
        let newcomer = program(&masters, ALL_ON, &patient(TTL / 4));
        named(&refused(&newcomer).await, "max_ttl is 4s there and 1s here");
        for _ in 0..1000 {
            let shown = fleet.admissions().await.unwrap();
            let differs = shown
                .iter()
                .find(|node| node.state.to_string().contains("differ"));
            // While it watches, the newcomer may have nominated it; it never gets to vote.
            assert!(
                differs.is_none_or(|node| node.name == shown[0].name),
                "{shown:?}"
            );
            if shown.iter().all(|node| node.state.votes()) {
                return;
            }
            Clock::system().sleep(Duration::from_millis(10)).await;
        }
        panic!("not admitted again: {:?}", fleet.admissions().await);
    });
}

/// Plain Redlock among themselves: programs that name no fleet and have the same times share their locks.
pub(crate) fn programs_that_name_no_fleet_and_have_the_same_times_are_one() {
    let masters = Masters::start(3);
    let timing = patient(TTL);
    block_on(async {
        let settings = masters.settings(timing.node_timeout, false);
        let one = builder(&settings, ALL_OFF, timing.clone()).start().unwrap();
        let lease = one.lock_key(KEY).acquire().await.unwrap();
        let two = program(&masters, ALL_OFF, &timing);
        assert!(refused(&two).await.contains("held"));
        lease.release().await;
        two.lock_key(KEY).wait(TTL).acquire().await.unwrap();
        let longer = program(&masters, ALL_OFF, &patient(TTL * 2));
        named(&refused(&longer).await, "max_ttl is 4s there and 8s here");
    });
}
