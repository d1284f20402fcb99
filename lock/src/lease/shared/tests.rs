use std::{sync::Arc, time::Duration};

use super::*;
use crate::{
    acquire::Locks,
    chance::Chance,
    lease::Loss,
    node::{Node, memory::MemoryNode},
    quorum::LockError,
    sim_clock::SimTime,
    spawn::Spawn,
};

fn locks() -> Locks {
    let time = SimTime::new();
    let node = |n| Arc::new(MemoryNode::new(format!("n{n}"), time.clock())) as Arc<dyn Node>;
    Locks::over((0..3).map(node).collect())
        .clock(time.clock())
        .chance(Chance::seeded(7))
        .keeper_here(Spawn::system())
        .start()
        .unwrap()
}

async fn shared(locks: &Locks) -> SharedLease {
    locks.lock("a").acquire().await.unwrap().share()
}

#[tokio::test(start_paused = true)]
async fn the_last_one_out_releases() {
    let locks = locks();
    let outer = shared(&locks).await;
    let inner = outer.clone();
    assert_eq!(outer.handles(), 2);
    assert_eq!(inner.release().await, LetGo::StillHeld { others: 1 });
    assert!(outer.is_held());
    let held = locks.lock("a").acquire().await;
    assert!(matches!(held, Err(LockError::Held { .. })));
    let report = outer.release().await.report().unwrap();
    assert_eq!((report.nodes, report.of), (3, 3));
    locks.lock("a").acquire().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_releases_in_the_background() {
    let locks = locks();
    let outer = shared(&locks).await;
    let (inner, view) = (outer.clone(), outer.view().clone());
    drop(outer);
    locks.clock().sleep(Duration::from_secs(60)).await;
    assert!(view.is_held(), "renewed for the one that is left");
    drop(inner);
    assert_eq!(view.loss(), Some(Loss::Released));
    locks.settle().await;
    locks.lock("a").acquire().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn of_handles_released_together_exactly_one_is_the_last() {
    let locks = locks();
    let first = shared(&locks).await;
    let mut handles: Vec<_> = (0..20).map(|_| first.clone()).collect();
    handles.push(first);
    let ends = handles.into_iter().map(SharedLease::release);
    let ends = futures_util::future::join_all(ends).await;
    let last = ends.iter().filter(|end| end.report().is_some());
    assert_eq!(last.count(), 1);
}
