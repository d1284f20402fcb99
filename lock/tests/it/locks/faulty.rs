//! Nodes whose keys and clocks are not as they should be.

use watchkeeper_lock::lock::{Broken, LockError};

use super::*;

const THEIRS: &str = "theirs";

pub(crate) async fn a_foreign_value_is_never_replaced_cut_or_broken_o6(scene: Scene) {
    let client = scene.client();
    // There was a lease of ours before.
    client.hold().await.release().await;
    let ttl = scene.time.ttl;
    for life in [None, Some(MAX_TTL * 100)] {
        for node in 0..scene.nodes() {
            scene.faults().plant(node, KEY, THEIRS, life);
        }
        let refused = client.attempt().await;
        assert!(
            matches!(refused, Err(LockError::Held { .. })),
            "{refused:?}"
        );
        let waited = client.take(client.lock().wait(ttl * 2)).await;
        assert!(matches!(waited, Err(LockError::Held { .. })), "{waited:?}");
        for now in [false, true] {
            let report = client.locks.break_lease(KEY, THEIRS, now).await.unwrap();
            assert_eq!(report.outcome(), Broken::ChangedHands);
        }
        for view in scene.views(KEY).await {
            assert_eq!(view.holder.as_deref(), Some(THEIRS));
            let least = life.map(|life| (life - PATIENCE).as_millis());
            let remaining = view.remaining_ms.map(u128::from);
            assert!(least.is_none() == remaining.is_none() && least <= remaining);
        }
    }
    // When it goes by itself the lock is ours again.
    for node in 0..scene.nodes() {
        scene.faults().plant(node, KEY, THEIRS, Some(ttl));
    }
    client.hold().await.release().await;
}

pub(crate) async fn a_key_that_vanishes_ends_no_observed_lease_r8(scene: Scene) {
    if !scene.is_observed() {
        // There the key decides.
        return;
    }
    let (a, b) = (scene.client(), scene.client());
    let ttl = scene.time.ttl;
    let lease = a.hold_for(ttl * 2).await;
    for node in 0..scene.nodes() {
        scene.faults().vanish(node, KEY);
    }
    // Neither is another client let in, whether it comes now or has waited.
    let tried = scene.client().attempt().await;
    assert!(matches!(tried, Err(LockError::Held { .. })), "{tried:?}");
    let waited = b.take(b.lock().wait(ttl * 3)).await;
    assert!(matches!(waited, Err(LockError::Held { .. })), "{waited:?}");
    assert!(lease.view().is_held());
    a.margin(lease.view(), scene.nodes() / 2).await;
    for view in scene.views(KEY).await {
        assert_eq!(view.holder.as_deref(), Some(lease.view().owner()));
    }
    lease.release().await;
    b.attempt().await.unwrap().release().await;
}

pub(crate) async fn an_orphan_that_would_live_for_an_hour_is_taken_within_max_ttl(scene: Scene) {
    let (a, b) = (scene.client(), scene.client());
    let lease = a.hold().await;
    for node in 0..scene.nodes() {
        scene.faults().outlive(node, KEY);
    }
    a.dies();
    let longest = MAX_TTL.as_millis();
    // A majority refuses at once; what a slow node was asked it does later, or at the next try.
    let cut = scene.until("it is cut on every node", || async {
        let refused = b.attempt().await;
        assert!(
            matches!(refused, Err(LockError::Held { .. })),
            "{refused:?}"
        );
        let views = scene.views(KEY).await;
        let lives = views.iter().map(|view| view.remaining_ms.map(u128::from));
        lives.into_iter().all(|life| life <= Some(longest))
    });
    // A record has no end but by the watch; only what others read has one.
    if !(scene.is_observed() && scene.time.here) {
        cut.await;
    }
    let start = scene.now();
    // With real servers only those who watch need not wait for the whole of it.
    if !scene.is_observed() && !scene.time.here {
        return;
    }
    let next = b.take(b.lock().wait(MAX_TTL * 2)).await.unwrap();
    let took = scene.now().since(start);
    // A busy machine may keep the watch waiting, but not for as long as the key would live.
    let longest = if scene.is_observed() && scene.time.here {
        scene.time.ttl * 2
    } else {
        MAX_TTL
    };
    assert!(took <= longest + scene.time.slack, "{took:?}");
    assert!(!lease.view().is_held());
    drop(next);
}

pub(crate) async fn a_node_that_missed_rounds_is_healed(scene: Scene) {
    let spare = scene.nodes() / 2;
    if spare == 0 {
        return;
    }
    let (a, b) = (scene.client(), scene.client());
    let lease = a.hold().await;
    a.margin(lease.view(), spare).await;
    let last = scene.nodes() - 1;
    scene.faults().freeze(last);
    a.margin(lease.view(), spare - 1).await;
    scene.faults().thaw(last);
    a.margin(lease.view(), spare).await;
    let view = scene.view(last, KEY).await;
    assert_eq!(view.owner.as_deref(), Some(lease.view().owner()));
    // A node that came back with what it knew.
    scene.faults().restart(last);
    a.margin(lease.view(), spare).await;
    assert!(lease.view().is_held());
    lease.release().await;
    b.attempt().await.unwrap().release().await;
}

pub(crate) async fn what_the_dead_left_on_some_nodes_is_taken(scene: Scene) {
    let spare = scene.nodes() / 2;
    if spare == 0 {
        return;
    }
    let (a, b) = (scene.client(), scene.client());
    // A bid that reached a minority, and whose owner died before it could be undone: it is of the longest kind.
    for node in spare..scene.nodes() {
        scene.faults().freeze(node);
    }
    let bid = async {
        let _ = a
            .lock()
            .ttl(scene.time.ttl * 2)
            .wait(PATIENCE)
            .acquire()
            .await;
    };
    let there = scene.until("the bid", || async {
        scene.view(0, KEY).await.holder.is_some()
    });
    tokio::select! {
        () = bid => panic!("nothing is answered"),
        () = there => a.dies(),
    }
    for node in spare..scene.nodes() {
        scene.faults().thaw(node);
    }
    let lease = b.hold().await;
    b.margin(lease.view(), spare).await;
    for view in scene.views(KEY).await {
        assert_eq!(view.owner.as_deref(), Some(lease.view().owner()));
    }
    lease.release().await;
}
