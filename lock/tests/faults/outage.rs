//! An outage that is shorter than what is left of a lease costs nothing, and one that is longer than a wait does not stretch
//! it. Costs about five seconds.

use std::time::Duration;

use watchkeeper_lock::{
    clock::{Clock, Moment},
    lease::LeaseView,
    lock::Timing,
};

use crate::{
    client::{KEY, admit, block_on, locks},
    masters::Masters,
    rules::ALL_ON,
};

const TTL: Duration = Duration::from_secs(10);
const OUTAGE: Duration = Duration::from_millis(800);

/// Three of five masters stand still when the lease is to be extended: it is kept, no loss is told, and its token
/// stays. No other client gets it meanwhile.
pub(crate) fn a_majority_that_stands_still_within_a_lease_costs_nothing() {
    let masters = Masters::start(5);
    let timing = Timing {
        ttl: TTL,
        max_ttl: TTL,
        ..Timing::default()
    };
    admit(&masters, ALL_ON, &timing);
    let settings = masters.settings(timing.node_timeout, false);
    let ours = locks(&settings, ALL_ON, timing.clone(), None);
    let others = locks(&settings, ALL_ON, timing.clone(), None);
    block_on(async {
        let wait = ours.lock_key(KEY).wait(TTL);
        let lease = wait.acquire().await.unwrap();
        let (view, token) = (lease.view().clone(), lease.token());
        let outage = async {
            let before = stand_still(&masters, &view).await;
            assert!(others.lock_key(KEY).acquire().await.is_err());
            assert_eq!(view.valid_until(), before, "the outage hit no extension");
            (0..3).for_each(|n| masters.thaw(n));
            let thawed = Clock::system().now();
            extended_after(&view, timing.valid_until(thawed, TTL)).await;
        };
        tokio::select! {
            biased;
            loss = view.lost() => panic!("lost: {loss:?}"),
            () = outage => {}
        }
        assert_eq!(lease.token(), token);
        assert!(others.lock_key(KEY).acquire().await.is_err());
    });
}

/// A limit is a limit: a wait ends within a few node timeouts of it, though the nodes stand still, are gone, have lost their
/// memory or do so meanwhile.
pub(crate) fn a_wait_ends_at_its_limit_whatever_the_nodes_do() {
    const LIMIT: Duration = Duration::from_millis(1_000);
    type Fault = fn(&mut Masters);
    let frozen: Fault = |masters| (0..2).for_each(|n| masters.freeze(n));
    let all_frozen: Fault = |masters| (0..3).for_each(|n| masters.freeze(n));
    let dead: Fault = |masters| (0..3).for_each(|n| masters.kill(n));
    let forgot: Fault = |masters| (0..3).for_each(|n| masters.flush(n));
    let timing = Timing {
        ttl: TTL,
        max_ttl: TTL,
        ..Timing::default()
    };
    let case = |fault: Fault, at: Duration| {
        let mut masters = Masters::start(3);
        admit(&masters, ALL_ON, &timing);
        let settings = masters.settings(timing.node_timeout, false);
        let ours = locks(&settings, ALL_ON, timing.clone(), None);
        let others = locks(&settings, ALL_ON, timing.clone(), None);
        let took = block_on(async {
            let clock = Clock::system();
            let lease = ours.lock_key(KEY).wait(TTL).acquire().await.unwrap();
            others
                .lock_key("another")
                .wait(TTL)
                .acquire()
                .await
                .unwrap();
            let disturb = async {
                clock.sleep(at).await;
                fault(&mut masters);
            };
            let wait = async {
                if at.is_zero() {
                    // After the fault.
                    clock.sleep(Duration::from_millis(20)).await;
                }
                let start = clock.now();
                let got = others.lock_key(KEY).wait(LIMIT).acquire().await;
                (got, clock.now().since(start))
            };
            let ((got, took), ()) = tokio::join!(wait, disturb);
            assert!(got.is_err(), "{got:?}");
            drop(lease);
            took
        });
        println!("a wait of {LIMIT:?} took {took:?}");
        // Eight node timeouts, and a second for a busy machine.
        let most = LIMIT + timing.node_timeout * 8 + Duration::from_secs(1);
        assert!(LIMIT <= took && took < most, "{took:?}");
    };
    std::thread::scope(|scope| {
        for fault in [frozen, all_frozen, dead, forgot] {
            for at in [Duration::ZERO, LIMIT / 2] {
                let case = &case;
                scope.spawn(move || case(fault, at));
            }
        }
    });
}

/// Freezes a majority around the next extension. Returns the deadline from before.
async fn stand_still(masters: &Masters, view: &LeaseView) -> Moment {
    let clock = Clock::system();
    // It is due after a third of the ttl.
    let start = view.since() + (TTL / 3 - OUTAGE / 2);
    clock.sleep_until(start).await;
    let before = view.valid_until();
    (0..3).for_each(|n| masters.freeze(n));
    clock.sleep(OUTAGE).await;
    before
}

/// Waits for an extension that began when all nodes were there again.
async fn extended_after(view: &LeaseView, deadline: Moment) {
    while view.valid_until() < deadline {
        Clock::system().sleep(Duration::from_millis(10)).await;
    }
}
