//! An outage that is shorter than what is left of a lease costs nothing. Costs about five seconds.

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
