//! Leases that are ended by force.

use watchkeeper_lock::{
    lease::{Lease, Loss},
    lock::{BreakReport, Broken, LockError},
};

use super::*;

impl Client {
    /// Breaks a lease, again while too few nodes answer.
    async fn breaks(&self, lease: &Lease, now: bool) -> BreakReport {
        loop {
            let owner = lease.view().owner();
            let report = self.locks.break_lease(KEY, owner, now).await.unwrap();
            if report.outcome() != Broken::Unsure {
                assert_eq!(report.outcome(), Broken::Final);
                return report;
            }
        }
    }
}

pub(crate) async fn a_broken_lease_is_final_and_lets_nobody_in_before_its_end_n7(scene: Scene) {
    let (a, b) = (scene.client(), scene.client());
    let lease = a.hold_for(scene.time.ttl * 3).await;
    let work = lease.view().begin_work();
    let report = b.breaks(&lease, false).await;
    assert!(lease.token() < report.token);
    // It may believe, and works: no other client is let in, whatever it sends.
    assert!(matches!(b.attempt().await, Err(LockError::Held { .. })));
    assert!(matches!(
        scene.client().attempt().await,
        Err(LockError::Held { .. })
    ));
    let told = async {
        assert_eq!(lease.view().lost().await, Loss::Taken);
        // Its work ends, and it lets go.
        drop(work);
        drop(lease);
    };
    let (next, ()) = tokio::join!(b.hold(), scene.soon("it is told", told));
    assert!(report.token < next.token());
    next.release().await;
    a.locks.settle().await;
    scene.nothing_is_left(KEY).await;
}

pub(crate) async fn what_is_broken_now_is_released_when_nothing_of_it_can_act_b6(scene: Scene) {
    let (a, b) = (scene.client(), scene.client());
    let lease = a.hold_for(scene.time.ttl * 2).await;
    a.dies();
    let report = b.breaks(&lease, true).await;
    assert!(!lease.view().is_held(), "it may believe no more");
    // A client that comes now finds a release, and has nothing to watch.
    let start = scene.now();
    let next = b.hold().await;
    let took = scene.now().since(start);
    assert!(took < scene.time.slack, "{took:?}");
    assert!(report.token < next.token());
}
