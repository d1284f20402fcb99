//! Standing in line, and going away.

use std::{cell::RefCell, pin::pin, task::Poll};

use futures_util::future::join_all;
use watchkeeper::lock::LockBuilder;

use super::*;

pub(crate) async fn those_who_wait_are_served_in_the_order_in_which_they_came(scene: Scene) {
    let scene = scene.patient();
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
    assert_eq!(*served.borrow(), [0, 1, 2, 3, 4]);
    scene.nothing_is_left(KEY).await;
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
    let release = async {
        b.stands_in_line().await;
        lease.release().await;
        scene.now()
    };
    let (next, start) = tokio::join!(b.hold_for(LONG), release);
    let took = scene.now().since(start);
    let few = scene.time.node_timeout * 4;
    assert!(took <= few + scene.time.slack / 2, "{took:?}");
    next.release().await;
}

/// Polls so often, each time when it asked for it, and then drops it.
async fn poll_so_often(acquire: LockBuilder, most: usize) -> bool {
    let mut acquire = pin!(acquire.acquire());
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
            let done = poll_so_often(client.lock().ttl(LONG).wait(wait), polls).await;
            client.locks.settle().await;
            scene.nothing_is_left(KEY).await;
            if done {
                break;
            }
        }
    }
}

pub(crate) async fn a_wait_that_is_cancelled_leaves_nothing(scene: Scene) {
    let scene = scene.patient();
    let (holder, client) = (scene.client(), scene.client());
    for polls in 1..8 {
        let lease = holder.hold_for(LONG).await;
        {
            let wait = client.lock().ttl(LONG).wait(PATIENCE);
            let mut cancelled = pin!(poll_so_often(wait, polls));
            // It may wait for a word of the holder.
            tokio::select! {
                biased;
                _ = &mut cancelled => drop(lease),
                () = scene.time.clock.sleep(scene.time.ttl / 5) => {
                    drop(lease);
                    cancelled.await;
                }
            }
        }
        holder.locks.settle().await;
        client.locks.settle().await;
        scene.nothing_is_left(KEY).await;
    }
}
