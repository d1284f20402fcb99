//! Having a lock, and letting go of it.

use watchkeeper_lock::{lock::LockError, node::Token};

use super::*;

pub(crate) async fn a_lock_has_one_holder(scene: Scene) {
    let clients: Vec<Client> = (0..4).map(|_| scene.client()).collect();
    // All at once, none willing to wait: perhaps none wins, for votes split, but never two.
    for _ in 0..5 {
        let tries = clients.iter().map(|client| client.take(client.lock()));
        let tried = futures_util::future::join_all(tries).await;
        let had: Vec<_> = tried.into_iter().filter_map(Result::ok).collect();
        assert!(had.len() <= 1);
        for lease in had {
            lease.release().await;
        }
    }
    let waits = clients.iter().map(|client| async {
        client.hold().await.release().await;
    });
    futures_util::future::join_all(waits).await;
    scene.nothing_is_left(KEY).await;
}

pub(crate) async fn tokens_rise_with_every_lease(scene: Scene) {
    let clients: Vec<Client> = (0..3).map(|_| scene.client()).collect();
    let mut last = Token(0);
    for round in 0..6 {
        let client = &clients[round % 3];
        let lease = client.hold().await;
        assert!(last < lease.token());
        last = lease.token();
        if round == 3 {
            // Some leave without a word.
            client.dies();
            lease.view().lost().await;
        } else {
            lease.release().await;
        }
    }
}

pub(crate) async fn a_try_against_a_living_holder_is_refused_at_once(scene: Scene) {
    let scene = scene.patient();
    let (a, b) = (scene.client(), scene.client());
    let lease = a.hold_for(LONG).await;
    let start = scene.now();
    let refused = b.attempt().await;
    let Err(LockError::Held { by, for_at_most }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(by.as_deref(), Some(lease.view().owner()));
    let most = LONG + scene.unknown_time();
    assert!(for_at_most.is_some_and(|life| !life.is_zero() && life <= most));
    let took = scene.now().since(start);
    assert!(took < scene.time.slack, "{took:?}");
    assert!(lease.view().is_held());
    lease.release().await;
    scene.nothing_is_left(KEY).await;
}

pub(crate) async fn a_dropped_lease_is_released_in_the_background(scene: Scene) {
    let scene = scene.patient();
    let (a, b) = (scene.client(), scene.client());
    let lease = a.hold_for(LONG).await;
    let waiter = async {
        b.stands_in_line().await;
        drop(lease);
    };
    let (next, ()) = tokio::join!(b.hold_for(LONG), waiter);
    a.locks.settle().await;
    drop(next);
    b.locks.settle().await;
    scene.nothing_is_left(KEY).await;
}

pub(crate) async fn the_last_of_several_hands_releases(scene: Scene) {
    let scene = scene.patient();
    let (a, b) = (scene.client(), scene.client());
    let first = a.hold_for(LONG).await.share();
    let second = first.clone();
    assert_eq!(first.release().await.report(), None);
    assert!(matches!(b.attempt().await, Err(LockError::Held { .. })));
    let report = second.release().await.report().unwrap();
    assert_eq!((report.nodes, report.of), (scene.nodes(), scene.nodes()));
    let third = b.attempt().await.unwrap().share();
    drop(third.clone());
    assert!(matches!(a.attempt().await, Err(LockError::Held { .. })));
    drop(third);
    b.locks.settle().await;
    a.attempt().await.unwrap().release().await;
    scene.nothing_is_left(KEY).await;
}

pub(crate) async fn slots_are_never_more_than_their_number(scene: Scene) {
    const OF: usize = 2;
    let scene = scene.patient();
    let clients: Vec<Client> = (0..5).map(|_| scene.client()).collect();
    let inside = std::cell::Cell::new(0_usize);
    let most = std::cell::Cell::new(0_usize);
    let turns = clients.iter().map(|client| {
        let (scene, inside, most) = (&scene, &inside, &most);
        async move {
            for _ in 0..2 {
                let slot = client.locks.slots("pool", OF).ttl(LONG).wait(PATIENCE);
                let slot = slot.acquire().await.unwrap();
                scene.look_at(slot.lease());
                inside.set(inside.get() + 1);
                most.set(most.get().max(inside.get()));
                assert!(inside.get() <= OF && slot.index() < OF);
                scene.time.clock.sleep(scene.time.ttl / 50).await;
                // The first stays until another is there: they are had together.
                while most.get() < OF {
                    scene.time.clock.sleep(scene.time.ttl / 50).await;
                }
                inside.set(inside.get() - 1);
                slot.release().await;
            }
        }
    });
    scene
        .soon("turns", futures_util::future::join_all(turns))
        .await;
    assert_eq!(most.get(), OF);
}
