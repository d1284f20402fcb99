use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use super::*;
use crate::{
    chance::Chance,
    keeper::ReleaseListeners,
    node::{
        Expiry, Node, NodeError, View,
        memory::{Cut, Link, MemoryNode},
    },
    sim_clock::SimTime,
    spawn::Spawn,
};

const TTL: Duration = Duration::from_secs(3);

struct Scene {
    time: SimTime,
    nodes: Vec<MemoryNode>,
}

impl Scene {
    fn new() -> Self {
        let time = SimTime::new();
        let node = |n| MemoryNode::new(format!("n{n}"), time.clock());
        let nodes = (0..3).map(node).collect();
        Self { time, nodes }
    }

    fn client(&self, seed: u64) -> Locks {
        let lines = self.nodes.clone().into_iter();
        Locks::over(lines.map(|n| Arc::new(n) as Arc<dyn Node>).collect())
            .clock(self.time.clock())
            .chance(Chance::seeded(seed))
            .keeper_here(Spawn::system())
            .start()
            .unwrap()
    }

    /// A process that watches holders by its own clock, and its connections.
    fn observer(&self, seed: u64) -> (Locks, Vec<Link>) {
        let lines = self.nodes.clone();
        let links = lines.iter().map(MemoryNode::link).collect();
        let nodes = lines.into_iter().map(|n| Arc::new(n) as Arc<dyn Node>);
        let locks = Locks::over(nodes.collect())
            .expiry(Expiry::Observed)
            .clock(self.time.clock())
            .chance(Chance::seeded(seed))
            .keeper_here(Spawn::system());
        (locks.start().unwrap(), links)
    }

    fn calls(&self) -> Vec<u64> {
        self.nodes.iter().map(MemoryNode::executed).collect()
    }
}

fn gpus(locks: &Locks) -> SlotsBuilder {
    locks.slots("gpu", 4).ttl(TTL)
}

#[tokio::test(start_paused = true)]
async fn a_full_semaphore_costs_one_round() {
    let scene = Scene::new();
    let locks = scene.client(1);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(gpus(&locks).acquire().await.unwrap());
    }
    let mut slots: Vec<_> = held.iter().map(Slot::index).collect();
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2, 3]);
    locks.settle().await;
    let before = scene.calls();
    let error = gpus(&locks).acquire().await.unwrap_err();
    let LockError::Held { by, for_at_most } = error else {
        panic!("{error}");
    };
    assert!(by.is_none() && for_at_most.unwrap() <= TTL);
    let spent = scene.calls().into_iter().zip(before).map(|(a, b)| a - b);
    assert_eq!(spent.collect::<Vec<_>>(), [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_takes_the_first_free_slot() {
    let scene = Scene::new();
    let (locks, other) = (scene.client(1), scene.client(2));
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(gpus(&locks).acquire().await.unwrap());
    }
    let gone = held.swap_remove(2);
    let (index, token) = (gone.index(), gone.token());
    let leave = async {
        scene.time.clock().sleep(Duration::from_secs(1)).await;
        gone.release().await;
    };
    let start = scene.time.elapsed();
    let waiting = gpus(&other).wait(Duration::from_secs(60)).acquire();
    let (slot, ()) = tokio::join!(waiting, leave);
    let slot = slot.unwrap();
    assert_eq!(slot.index(), index);
    assert!(slot.token() > token);
    let took = scene.time.elapsed() - start;
    assert!(
        took < Duration::from_millis(1_100),
        "woken, not by a poll: {took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_slot_of_a_dead_holder_is_free_after_its_ttl() {
    let scene = Scene::new();
    let locks = scene.client(1);
    for slot in 0..4 {
        for node in &scene.nodes {
            let key = format!("slots/gpu/{slot}");
            node.faults().plant(&key, "dead", Some(TTL));
        }
    }
    let start = scene.time.elapsed();
    gpus(&locks).wait(TTL * 2).acquire().await.unwrap();
    assert!(scene.time.elapsed() - start <= TTL + Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn a_try_sits_out_the_slot_of_a_holder_that_has_gone_and_waits_for_no_living_one() {
    let scene = Scene::new();
    let one = |locks: &Locks| locks.slots("gpu", 1).ttl(TTL).acquire();
    let (dead, links) = scene.observer(1);
    let gone = one(&dead).await.unwrap();
    let (b, _) = scene.observer(2);
    let start = scene.time.elapsed();
    let refused = one(&b).await;
    assert!(
        matches!(refused, Err(LockError::Held { .. })),
        "{refused:?}"
    );
    let took = scene.time.elapsed() - start;
    assert!(took < Duration::from_millis(10), "{took:?}");

    links.iter().for_each(|link| link.cut(Cut::Hang));
    scene.time.clock().sleep(TTL).await;
    // The keys have run out. Another process, which has seen nothing of all that.
    let (c, _) = scene.observer(3);
    let start = scene.time.elapsed();
    let slot = one(&c).await.unwrap();
    let took = scene.time.elapsed() - start;
    assert!(TTL <= took && took <= TTL + TTL / 10, "{took:?}");
    assert!(slot.token() > gone.token() && !gone.lease().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_a_limit_although_the_holder_has_gone_without_a_word() {
    let scene = Scene::new();
    let (dead, links) = scene.observer(1);
    let lock = dead.lock("gpu").ttl(TTL).acquire().await.unwrap();
    let slot = gpus_of_one(&dead).acquire().await.unwrap();
    links.iter().for_each(|link| link.cut(Cut::Hang));
    scene.time.clock().sleep(TTL).await;
    let (b, _) = scene.observer(2);
    let limit = TTL / 3;
    let in_time = |start: Duration| {
        let took = scene.time.elapsed() - start;
        assert!(took <= limit + Duration::from_millis(200), "{took:?}");
    };
    let start = scene.time.elapsed();
    let refused = b.lock("gpu").ttl(TTL).wait(limit).acquire().await;
    assert!(
        matches!(refused, Err(LockError::Held { .. })),
        "{refused:?}"
    );
    in_time(start);
    let start = scene.time.elapsed();
    let refused = gpus_of_one(&b).wait(limit).acquire().await;
    assert!(
        matches!(refused, Err(LockError::Held { .. })),
        "{refused:?}"
    );
    in_time(start);
    // What was watched is not watched anew: the next waits of this process have it.
    scene.time.clock().sleep(TTL).await;
    let start = scene.time.elapsed();
    let next = b.lock("gpu").ttl(TTL).wait(limit).acquire().await.unwrap();
    assert!(next.token() > lock.token() && !slot.lease().is_held());
    gpus_of_one(&b).wait(limit).acquire().await.unwrap();
    in_time(start);
}

fn gpus_of_one(locks: &Locks) -> SlotsBuilder {
    locks.slots("gpu", 1).ttl(TTL)
}

/// Many that bid for one free slot undo what they lost, which is announced like a release: it would wake all the others.
#[tokio::test(start_paused = true)]
async fn only_the_release_of_a_holder_wakes_those_who_wait() {
    let held = |slot: usize, by: Option<&str>| {
        let view = View {
            holder: by.map(str::to_owned),
            ..View::default()
        };
        LockState::new(format!("slots/gpu/{slot}"), vec![Ok(view)])
    };
    let seen = [held(0, Some("a")), held(1, Some("b")), held(2, None)];
    let wakes = async |slot: usize, owner: &str| {
        let listeners = ReleaseListeners::default();
        let keys = seen.iter().map(|slot| slot.key.clone()).collect();
        let mut releases = listeners.listen(keys);
        let news = Announcement {
            key: format!("slots/gpu/{slot}"),
            owner: owner.to_owned(),
            next: None,
        };
        listeners.tell(&news);
        tokio::select! {
            biased;
            () = any_released(&mut releases, &seen) => true,
            () = std::future::ready(()) => false,
        }
    };
    assert!(wakes(0, "a").await && wakes(1, "b").await);
    assert!(!wakes(0, "lost").await && !wakes(1, "a").await);
    assert!(wakes(2, "anybody").await, "who held it is not known");
    assert!(!wakes(3, "a").await, "of another semaphore");
}

#[tokio::test(start_paused = true)]
async fn a_semaphore_shares_no_key_with_locks_or_other_semaphores() {
    let scene = Scene::new();
    let locks = scene.client(1);
    let _slot = locks.slots("gpu", 1).acquire().await.unwrap();
    let _lock = locks.lock("gpu/0").acquire().await.unwrap();
    let _inner = locks.slots("gpu/0", 1).acquire().await.unwrap();
    let error = locks.slots("gpu", 1).acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Held { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_number_of_slots_that_is_none_is_refused() {
    let scene = Scene::new();
    let locks = scene.client(1);
    for slots in [0, MOST_SLOTS + 1] {
        let error = locks.slots("gpu", slots).acquire().await.unwrap_err();
        assert_eq!(error, LockError::SlotCount { slots });
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_the_nodes_are_named() {
    let scene = Scene::new();
    let locks = scene.client(1);
    scene.nodes[1..].iter().for_each(|n| n.faults().fail_all());
    let error = gpus(&locks).acquire().await.unwrap_err();
    let LockError::NoQuorum(troubles) = error else {
        panic!("{error}");
    };
    let names: Vec<_> = troubles.nodes.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(names, ["n1", "n2"]);
}

#[test]
fn slots_are_tried_in_turn_from_a_random_one() {
    let state = |free: bool| {
        LockState::new(
            String::new(),
            vec![Ok(View {
                holder: (!free).then(String::new),
                ..View::default()
            })],
        )
    };
    let seen = [true, false, true, true].map(state);
    assert_eq!(free(&seen, 0), [0, 2, 3]);
    assert_eq!(free(&seen, 3), [3, 0, 2]);
    let down = LockState::new(
        String::new(),
        vec![Err(NodeError::Unreachable(String::new()))],
    );
    assert!(free(&[down], 0).is_empty());
}

/// Many contenders over three nodes, one of which goes away and comes back.
#[tokio::test(start_paused = true)]
async fn never_more_holders_than_slots() {
    const SLOTS: usize = 3;
    for seed in 0..8 {
        let scene = Scene::new();
        let held: Arc<Mutex<Vec<LeaseView>>> = Arc::default();
        let (got, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        for contender in 0..8 {
            let locks = scene.client(seed * 100 + contender);
            let (held, got, most) = (held.clone(), got.clone(), most.clone());
            let chance = Chance::seeded(seed * 1000 + contender);
            Spawn::system().spawn(async move {
                let clock = locks.clock().clone();
                loop {
                    let wait = chance.up_to(TTL);
                    let slots = locks.slots("fuzz", SLOTS).ttl(TTL).wait(wait);
                    if let Ok(slot) = slots.acquire().await {
                        let now = {
                            let mut held = held.lock().unwrap();
                            held.push(slot.lease().clone());
                            held.retain(LeaseView::is_held);
                            held.len()
                        };
                        assert!(now <= SLOTS, "{now} at once");
                        most.fetch_max(now as u64, Ordering::SeqCst);
                        got.fetch_add(1, Ordering::SeqCst);
                        clock.sleep(chance.up_to(TTL / 2)).await;
                        if chance.hits(0.5) {
                            slot.release().await;
                        }
                    }
                    clock.sleep(chance.up_to(TTL / 10)).await;
                }
            });
        }
        let chance = Chance::seeded(seed);
        for _ in 0..20 {
            scene.time.clock().sleep(chance.up_to(TTL)).await;
            let node = &scene.nodes[usize::try_from(chance.below(3)).unwrap()];
            match chance.below(3) {
                0 => node.faults().freeze(),
                1 => node.faults().fail_all(),
                _ => scene.nodes.iter().for_each(|n| n.faults().clear()),
            }
            let mut held = held.lock().unwrap();
            held.retain(LeaseView::is_held);
            assert!(held.len() <= SLOTS);
        }
        let (got, most) = (got.load(Ordering::SeqCst), most.load(Ordering::SeqCst));
        assert!(
            got > 20 && most == SLOTS as u64,
            "seed {seed}: {got}, {most}"
        );
    }
}
