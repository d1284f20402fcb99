//! Queuing, and going away.

use std::{cell::RefCell, pin::pin, task::Poll};

use futures_util::future::join_all;
use watchkeeper_lock::{lease::Lease, node::View};

use super::*;

pub(crate) async fn those_who_wait_are_served_in_the_order_in_which_they_came(scene: Scene) {
    let scene = scene.patient();
    let mut rounds = 0;
    // The line is a courtesy: one that is called, and is kept from coming by a busy machine, is passed by.
    loop {
        rounds += 1;
        let served = five_in_line(&scene).await;
        scene.nothing_is_left(KEY).await;
        if served == [0, 1, 2, 3, 4] || !scene.time.may_stall(rounds) {
            assert_eq!(served, [0, 1, 2, 3, 4]);
            return;
        }
    }
}

/// Five come one after the other while the lock is held; in which order they get it.
async fn five_in_line(scene: &Scene) -> Vec<usize> {
    let holder = scene.client();
    let waiters: Vec<Client> = (0..5).map(|_| scene.client()).collect();
    let lease = holder.hold_for(LONG).await;
    let served = RefCell::new(Vec::new());
    let turns = waiters.iter().enumerate().map(|(number, waiter)| {
        let (served, waiters) = (&served, &waiters);
        async move {
            if let Some(before) = number.checked_sub(1) {
                waiters[before].stands_in_line().await;
            }
            let lease = waiter.hold_for(LONG).await;
            served.borrow_mut().push(number);
            lease.release().await;
        }
    });
    let begin = async {
        waiters[4].stands_in_line().await;
        lease.release().await;
    };
    let all = async { tokio::join!(join_all(turns), begin) };
    scene.soon("turns", all).await;
    served.into_inner()
}

pub(crate) async fn a_place_whose_owner_died_holds_nobody_up_for_long(scene: Scene) {
    let (holder, dead, b) = (scene.client(), scene.client(), scene.client());
    let lease = holder.hold_for(LONG).await;
    let gone = async {
        let wait = dead.lock().wait(PATIENCE).acquire();
        tokio::select! {
            _ = wait => panic!("it is held"),
            () = dead.stands_in_line() => dead.dies(),
        }
    };
    gone.await;
    is_followed_soon(&scene, lease, &b).await;
}

pub(crate) async fn a_release_before_a_waiter_hears_of_any_is_found_when_it_does(scene: Scene) {
    let (holder, deaf) = (scene.client(), scene.deaf_client());
    let lease = holder.hold_for(LONG).await;
    is_followed_soon(&scene, lease, &deaf).await;
}

/// The waiter has the lock soon after it was released while it stood in line, and hears from then on.
async fn is_followed_soon(scene: &Scene, lease: Lease, waiter: &Client) {
    let release = async {
        waiter.stands_in_line().await;
        lease.release().await;
        waiter.hears();
        scene.now()
    };
    let (next, start) = tokio::join!(waiter.hold_for(LONG), release);
    let took = scene.now().since(start);
    let few = scene.time.node_timeout * 4;
    assert!(took <= few + scene.time.slack / 2, "{took:?}");
    next.release().await;
}

/// Polls so often, each time when it asked for it, and then drops it.
async fn poll_so_often<T>(acquire: impl Future<Output = T>, most: usize) -> bool {
    let mut acquire = pin!(acquire);
    let mut polls = 0;
    std::future::poll_fn(|cx| {
        if polls == most {
            return Poll::Ready(false);
        }
        polls += 1;
        match acquire.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            // The last one goes at once: nothing will wake it.
            Poll::Pending if polls == most => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

pub(crate) async fn an_acquire_that_is_cancelled_leaves_nothing(scene: Scene) {
    let scene = scene.patient();
    let client = scene.client();
    for wait in [Duration::ZERO, PATIENCE] {
        for polls in 1.. {
            let acquire = client.lock().ttl(LONG).wait(wait).acquire();
            let done = poll_so_often(acquire, polls).await;
            client.locks.settle().await;
            scene.nothing_is_left(KEY).await;
            if done {
                break;
            }
        }
    }
}

/// Cancels `acquire` after so many polls. It may wait for a word of the holder, whose lease is dropped by then, or soon.
async fn poll_while_held<T, H>(
    scene: &Scene,
    acquire: impl Future<Output = T>,
    polls: usize,
    held: H,
) {
    let mut cancelled = pin!(poll_so_often(acquire, polls));
    tokio::select! {
        biased;
        _ = &mut cancelled => drop(held),
        () = scene.time.clock.sleep(scene.time.ttl / 5) => {
            drop(held);
            cancelled.await;
        }
    }
}

pub(crate) async fn a_wait_that_is_cancelled_leaves_nothing(scene: Scene) {
    let scene = scene.patient();
    let (holder, client) = (scene.client(), scene.client());
    for polls in 1..8 {
        let lease = holder.hold_for(LONG).await;
        let wait = client.lock().ttl(LONG).wait(PATIENCE).acquire();
        poll_while_held(&scene, wait, polls, lease).await;
        holder.locks.settle().await;
        client.locks.settle().await;
        scene.nothing_is_left(KEY).await;
    }
}

pub(crate) async fn one_of_a_line_that_is_cancelled_holds_nobody_up(scene: Scene) {
    let scene = scene.patient();
    let holder = scene.client();
    // The waiter that is cancelled stands before, between or behind the others.
    for (polls, place) in (1..9).flat_map(|polls| (0..3).map(move |place| (polls, place))) {
        let waiters: Vec<Client> = (0..3).map(|_| scene.client()).collect();
        let lease = holder.hold_for(LONG).await;
        let comes = async |number: usize| {
            if let Some(before) = number.checked_sub(1).filter(|before| *before != place) {
                waiters[before].stands_in_line().await;
            }
        };
        let others = || (0..3).filter(|number| *number != place);
        let turns = others().map(async |number| {
            comes(number).await;
            waiters[number].hold_for(LONG).await.release().await;
        });
        let cancelled = async {
            comes(place).await;
            let wait = waiters[place].lock().ttl(LONG).wait(PATIENCE);
            poll_so_often(wait.acquire(), polls).await
        };
        let release = async {
            join_all(others().map(|number| waiters[number].stands_in_line())).await;
            scene.time.clock.sleep(scene.time.ttl / 10).await;
            drop(lease);
        };
        let all = async { tokio::join!(cancelled, join_all(turns), release) };
        scene.soon("turns", all).await;
        for client in &waiters {
            client.locks.settle().await;
        }
        scene.nothing_is_left(KEY).await;
    }
}

pub(crate) async fn a_wait_for_slots_that_is_cancelled_leaves_nothing(scene: Scene) {
    const SLOTS: [&str; 2] = ["slots/cancelled/0", "slots/cancelled/1"];
    let scene = scene.patient();
    let (holder, client) = (scene.client(), scene.client());
    let slots = |client: &Client, wait| {
        let slots = client.locks.slots("cancelled", SLOTS.len());
        slots.ttl(LONG).wait(wait).acquire()
    };
    for polls in 1..10 {
        // Both are free, then none.
        poll_so_often(slots(&client, Duration::ZERO), polls).await;
        client.locks.settle().await;
        let held = (
            slots(&holder, PATIENCE).await.unwrap(),
            slots(&holder, PATIENCE).await.unwrap(),
        );
        poll_while_held(&scene, slots(&client, PATIENCE), polls, held).await;
        holder.locks.settle().await;
        client.locks.settle().await;
        for key in SLOTS {
            scene.nothing_is_left(key).await;
        }
    }
}

/// With observed expiry a try watches for a while whether the holder has gone.
pub(crate) async fn a_try_that_is_cancelled_while_it_sits_out_an_orphan_leaves_nothing(
    scene: Scene,
) {
    let (dead, client, next) = (scene.client(), scene.client(), scene.client());
    let (ttl, names) = (
        scene.time.ttl,
        (1..16).map(|polls| format!("orphan{polls}")),
    );
    let names: Vec<String> = names.collect();
    let orphans = names.iter().map(|name| dead.locks.lock(name).ttl(ttl));
    let orphans = join_all(orphans.map(|lock| dead.take(lock.wait(PATIENCE)))).await;
    dead.dies();
    // Their keys run out.
    scene.time.clock.sleep(ttl).await;
    let tries = names.iter().zip(1..).map(|(name, polls)| {
        let acquire = client.locks.lock(name).ttl(LONG).acquire();
        poll_so_often(acquire, polls)
    });
    join_all(tries).await;
    client.locks.settle().await;
    let taken = names.iter().map(|name| {
        let lock = next.locks.lock(name).ttl(LONG).wait(PATIENCE);
        async { next.take(lock).await.unwrap().release().await }
    });
    // A key or a record that was left would live longer.
    scene.soon("what the dead left", join_all(taken)).await;
    for (name, orphan) in names.iter().zip(orphans) {
        let (key, orphan) = (format!("lock/{name}"), orphan.unwrap());
        assert!(!orphan.is_held());
        // The dead holder's record may stand where it was not needed, and a node that was slow may have been told nothing at all.
        let free = |view: &View| {
            let untold = view.owner.is_none();
            let dead = view.owner.as_deref() == Some(orphan.owner());
            view.holder.is_none() && (view.released || dead || untold)
        };
        scene
            .until("nothing is left", || async {
                scene.views(&key).await.iter().all(free)
            })
            .await;
    }
}
