//! Holders that go without a word.

use watchkeeper_lock::{
    clock::Moment,
    lease::{Lease, Loss},
    lock::LockError,
};

use super::*;

pub(crate) async fn a_dead_holder_is_followed_within_its_ttl(scene: Scene) {
    let (a, b) = (scene.client(), scene.client());
    let lease = a.hold().await;
    let death = async {
        b.stands_in_line().await;
        a.dies();
        scene.now()
    };
    let (next, died) = tokio::join!(b.hold(), death);
    is_followed_soon(&scene, &lease, &next, died);
}

/// What a waiter has seen of one node stands for no other: it watches them all, also while its turn has not come.
pub(crate) async fn a_holder_that_dies_after_a_sign_of_life_is_followed_as_soon(scene: Scene) {
    let (a, b) = (scene.client(), scene.client());
    let lease = a.hold().await;
    let death = async {
        b.stands_in_line().await;
        for _ in 0..3 {
            let before = lease.valid_until();
            scene
                .until("a sign of life", || async { lease.valid_until() > before })
                .await;
        }
        a.dies();
        scene.now()
    };
    let (next, died) = tokio::join!(b.hold(), death);
    is_followed_soon(&scene, &lease, &next, died);
}

fn is_followed_soon(scene: &Scene, lease: &Lease, next: &Lease, died: Moment) {
    // A candidate that has stood by for a while has seen its last sign of life just after it was given.
    let took = next.since().since(died);
    let ttl = scene.time.ttl;
    assert!(took <= ttl + ttl / 10 + scene.time.slack, "{took:?}");
    assert!(!lease.is_held());
}

/// As a scheduler would start them: each a process of its own, which has seen nothing of those before.
pub(crate) async fn a_try_after_a_crash_succeeds_within_one_ttl(scene: Scene) {
    let mut rounds = 1;
    while try_after_a_crash(&scene).await == 1 {
        // A busy machine let the first try begin, or its nodes answer, when the key was gone.
        assert!(scene.time.may_stall(rounds), "the key stands for a while");
        rounds += 1;
    }
}

/// How many processes it took until one had the lock.
async fn try_after_a_crash(scene: &Scene) -> usize {
    let a = scene.client();
    let lease = a.hold().await;
    a.dies();
    let died = scene.now();
    let ttl = scene.time.ttl;
    let mut tries = 0;
    let (start, next) = loop {
        let start = scene.now();
        tries += 1;
        match scene.client().attempt().await {
            Ok(next) => break (start, next),
            Err(LockError::Held { .. }) => {
                // As long as the key stands it may be living.
                let took = scene.now().since(start);
                assert!(took < ttl / 2 + scene.time.slack, "{took:?}");
                let held = scene.now().since(died);
                assert!(held < ttl + scene.time.slack, "held after {held:?}");
            }
            Err(other) => panic!("{other}"),
        }
        scene.time.clock.sleep(ttl / 10).await;
    };
    let (took, after) = (scene.now().since(start), scene.now().since(died));
    let least = if scene.is_observed() {
        ttl
    } else {
        Duration::ZERO
    };
    assert!(least <= took, "{took:?}");
    let lived = lease.valid_until().since(died);
    assert!(lived <= after, "taken {after:?} after, of {lived:?}");
    if tries > 1 {
        assert!(took <= least + ttl / 10 + scene.time.slack, "{took:?}");
    }
    drop((lease, next));
    tries
}

pub(crate) async fn a_short_ttl_robs_nobody_with_a_long_one(scene: Scene) {
    let (a, b) = (scene.client(), scene.client());
    let ttl = scene.time.ttl;
    let mut rounds = 0;
    let lease = loop {
        rounds += 1;
        let lease = a.hold_for(ttl * 3).await;
        // Its own ttl passes several times, while the holder says nothing and lives. Were it robbed, `take` would see it.
        let short = b.lock().ttl(ttl / 2).wait(ttl * 3);
        match b.take(short).await {
            Err(LockError::Held { .. }) if lease.is_held() => break lease,
            // A busy machine kept the nodes from answering, or the holder from saying anything until its time was over.
            Err(LockError::NoQuorum(_) | LockError::TooSlow) if scene.time.may_stall(rounds) => {}
            _ if lease.loss() == Some(Loss::Expired) && scene.time.may_stall(rounds) => {}
            other => panic!("{other:?} {lease:?}"),
        }
    };
    a.dies();
    let next = b.hold_for(ttl / 2).await;
    assert!(!lease.view().is_held());
    drop(next);
}
