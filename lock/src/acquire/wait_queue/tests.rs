use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll};

use futures_util::future::join_all;

use super::*;
use crate::{
    chance::Chance,
    keeper::ReleaseListeners,
    node::{
        Announcement, Call, Expiry, Kind, Node, Op, Take, Token,
        memory::MemoryNode,
        rules::{Row, Rows},
    },
    quorum::{Claim, Claimed},
    sim_clock::SimTime,
    spawn::Spawn,
};

const MS: Duration = Duration::from_millis(1);
const KEY: &str = "lock/k";
const LONG: Duration = Duration::from_secs(20);

struct Scene {
    time: SimTime,
    nodes: Vec<MemoryNode>,
    locks: Locks,
}

impl Scene {
    fn new() -> Self {
        let time = SimTime::new();
        let node = |n| MemoryNode::new(format!("n{n}"), time.clock());
        let nodes: Vec<_> = (0..3).map(node).collect();
        let lines = nodes.iter().map(|n| Arc::new(n.clone()) as Arc<dyn Node>);
        let locks = Locks::over(lines.collect())
            .expiry(Expiry::Observed)
            .clock(time.clock())
            .chance(Chance::seeded(1))
            .keeper_here(Spawn::system())
            .start()
            .unwrap();
        Self { time, nodes, locks }
    }

    /// Another owner has the lock on this node.
    async fn take_on(&self, node: usize) {
        let op = Op::Acquire {
            key: KEY.into(),
            owner: "theirs".into(),
            kind: Kind::Lock,
            ttl: LONG,
            floor: Token(0),
            take: Take::Observed(None),
            clamp: LONG,
            ticket: None,
            waits: Duration::ZERO,
        };
        let ops = vec![op];
        let call = Call {
            not_after: None,
            ops,
        };
        self.nodes[node].call(call).await.unwrap();
    }

    fn ticket(&self) -> QueueTicket {
        QueueTicket::new(&self.locks, KEY)
    }

    /// How many wait in the queue, by node.
    fn queues(&self) -> Vec<usize> {
        let queue = |node: &MemoryNode| node.faults().snapshot().waiters(KEY).unwrap().len();
        self.nodes.iter().map(queue).collect()
    }

    /// The node that keeps the queue of a lock that is held.
    async fn primary(&self) -> usize {
        let mut ticket = self.ticket();
        let tried = self.locks.attempt(&Claim::named(KEY), ticket.queue()).await;
        assert!(matches!(tried, Ok((Claimed::Held { .. }, ..))), "{tried:?}");
        let primary = self.queues().iter().position(|n| *n == 1).unwrap();
        drop(ticket);
        self.locks.settle().await;
        assert_eq!(self.queues(), [0; 3]);
        primary
    }
}

/// It asks another node first, whose grant may come when the caller has gone.
#[tokio::test(start_paused = true)]
async fn an_impatient_attempt_that_is_cancelled_leaves_no_place() {
    for after in 0..24 {
        let scene = Scene::new();
        for node in 0..3 {
            scene.take_on(node).await;
        }
        let primary = scene.primary().await;
        for node in (0..3).filter(|node| *node != primary) {
            scene.nodes[node].faults().flush();
        }
        // It sees that the lock is held on the primary, and free elsewhere.
        let claim = Claim::named(KEY);
        let seen = scene.locks.look(vec![KEY.into()]).await.unwrap();
        assert!(seen[0].looks_free());
        for node in &scene.nodes {
            node.faults().delay_requests(MS * 5, MS * 5);
        }
        let mut ticket = scene.ticket();
        let (mode, clock) = (ticket.impatient(), scene.time.clock());
        tokio::select! {
            biased;
            tried = scene.locks.attempt(&claim, mode) => {
                assert!(after > 9, "two round trips");
                assert!(matches!(tried, Ok((Claimed::Acquired(_), ..))), "{tried:?}");
            }
            () = clock.sleep(MS * after) => {}
        }
        drop(ticket);
        scene.locks.settle().await;
        assert_eq!(scene.queues(), [0; 3], "after {after} ms");
        let keys = |node: &MemoryNode| node.inspect(|state| state.held().count());
        let keys: Vec<_> = scene.nodes.iter().map(keys).collect();
        assert_eq!(keys.iter().sum::<usize>(), 1, "after {after} ms: {keys:?}");
    }
}

/// Where many give theirs up at one instant a store may refuse some of them.
#[tokio::test(start_paused = true)]
async fn a_place_is_given_up_again_where_that_was_refused() {
    let scene = Scene::new();
    for node in 0..3 {
        scene.take_on(node).await;
    }
    let mut ticket = scene.ticket();
    let mode = ticket.queue();
    let (_, _, position) = scene.locks.attempt(&Claim::named(KEY), mode).await.unwrap();
    ticket.refused(position);
    assert_eq!(scene.queues().iter().sum::<usize>(), 1);
    for node in &scene.nodes {
        node.faults().fail_all();
    }
    drop(ticket);
    let (clock, slow) = (scene.time.clock(), scene.locks.timing().node_timeout);
    clock.sleep(slow / 2).await;
    for node in &scene.nodes {
        node.faults().fail_none();
    }
    clock.sleep(slow * 20).await;
    assert_eq!(scene.queues(), [0; 3]);
}

/// The place is given up before the keeper reads of the attempt.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_cancelled_in_the_queue_leaves_no_place() {
    let scene = Scene::new();
    for node in 0..3 {
        scene.take_on(node).await;
    }
    let mut ticket = scene.ticket();
    let mode = ticket.queue();
    {
        let claim = Claim::named(KEY);
        let mut attempt = pin!(scene.locks.attempt(&claim, mode));
        let polled = poll_fn(|cx| Poll::Ready(attempt.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
    }
    drop(ticket);
    scene.locks.settle().await;
    assert_eq!(scene.queues(), [0; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_place_is_given_up_although_the_keeper_has_much_to_do() {
    let scene = Scene::new();
    for node in 0..3 {
        scene.take_on(node).await;
    }
    let mut ticket = scene.ticket();
    let mode = ticket.queue();
    let tried = scene.locks.attempt(&Claim::named(KEY), mode).await;
    assert!(matches!(tried, Ok((Claimed::Held { .. }, ..))), "{tried:?}");
    assert_eq!(scene.queues().iter().sum::<usize>(), 1);
    // More than its inbox holds, in one step: it reads nothing meanwhile.
    let mut flood = pin!(join_all((0..1_100).map(|_| scene.locks.nodes())));
    let step = poll_fn(|cx| Poll::Ready(flood.as_mut().poll(cx).is_pending()));
    assert!(tokio::task::unconstrained(step).await);
    drop(ticket);
    flood.await;
    scene.locks.settle().await;
    assert_eq!(scene.queues(), [0; 3]);
}

/// What others have tried and undone brings no waiter nearer to the head of the queue: several would think that they
/// lead.
#[tokio::test(start_paused = true)]
async fn only_the_end_of_the_holder_that_was_seen_moves_the_line_on_and_once() {
    let scene = Scene::new();
    let listeners = ReleaseListeners::default();
    let mut releases = listeners.listen(vec![KEY.to_owned()]);
    let mut ticket = scene.ticket();
    ticket.refused(QueuePosition {
        ahead: Some(2),
        ..QueuePosition::default()
    });
    let says = |owner: &str| {
        let news = Announcement {
            key: KEY.into(),
            owner: owner.into(),
            next: Some("somebody".into()),
        };
        listeners.tell(&news);
    };
    for (said, ahead) in [
        (["undone", "another"], 2),
        (["holder", "undone"], 1),
        // Told twice, because an answer was lost; from the next wait on another owner holds it.
        (["next", "next"], 0),
    ] {
        said.into_iter().for_each(says);
        let holder = if ahead == 0 { "next" } else { "holder" };
        let clock = scene.time.clock();
        let timer = clock.sleep(MS * 2);
        let woken = ticket.wait(&mut releases, Some(holder), timer).await;
        assert_eq!(woken, Woken::Time);
        assert_eq!((ticket.ahead, ticket.leads()), (Some(ahead), ahead == 0));
    }
}

/// A thousand that lost patience together would make the one that was called later still.
#[tokio::test(start_paused = true)]
async fn of_a_thousand_waiters_few_lose_patience_at_a_time() {
    let scene = Scene::new();
    let slow = scene.locks.timing().node_timeout;
    let mut ends: Vec<Duration> = Vec::new();
    for ahead in 0..1_000 {
        let mut ticket = scene.ticket();
        ticket.refused(QueuePosition {
            ahead: Some(ahead),
            ..QueuePosition::default()
        });
        ends.push(ticket.patience());
    }
    assert!(ends[0] <= slow && ends[4] <= slow * 2, "{:?}", &ends[..5]);
    // Their places have to be asked for again, sooner or later.
    assert!(ends.iter().all(|end| *end <= slow * (FADES + 3)));
    ends[..480].sort_unstable();
    let most = (0..480).map(|n| {
        ends[n..480]
            .iter()
            .take_while(|end| **end < ends[n] + slow)
            .count()
    });
    assert!(most.max() <= Some(12), "{ends:?}");
}

impl Scene {
    /// The holder lets go on this node, which the node announces if it knows of a waiter.
    async fn release_on(&self, node: usize) {
        let op = Op::Release {
            key: KEY.into(),
            owner: "theirs".into(),
            kind: Kind::Lock,
            marked: LONG,
            retention: LONG,
        };
        let ops = vec![op];
        let call = Call {
            not_after: None,
            ops,
        };
        self.nodes[node].call(call).await.unwrap();
    }

    /// Until when each node's record tells that a client waits, from now.
    fn waits(&self) -> Vec<Duration> {
        let now = self.time.clock().now().since_boot();
        let waits = |node: &MemoryNode| match node.inspect(|state| state.row(KEY).cloned()) {
            Some(Row::Record(entry)) => Duration::from_millis(entry.waits.0).saturating_sub(now),
            _ => Duration::ZERO,
        };
        self.nodes.iter().map(waits).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn w2_a_waiter_has_told_enough_nodes_and_tells_them_again_in_time() {
    let scene = Scene::new();
    for node in 0..3 {
        scene.take_on(node).await;
    }
    let least = scene.locks.timing().node_timeout * 30;
    let acquire = scene.locks.lock("k").wait(LONG).acquire();
    let watches = async {
        for _ in 0..100 {
            scene.time.clock().sleep(LONG / 200).await;
            let told = scene.waits().iter().filter(|left| **left > least).count();
            assert!(told >= 2, "{:?}", scene.waits());
        }
    };
    tokio::select! {
        biased;
        () = watches => {}
        got = acquire => panic!("{got:?}"),
    }
}

/// The queue is known, so that one node alone was asked.
#[tokio::test(start_paused = true)]
async fn w2_a_waiter_that_told_too_few_nodes_looks_more_often() {
    let scene = Scene::new();
    for node in 0..3 {
        scene.take_on(node).await;
    }
    let slow = scene.locks.timing().node_timeout;
    let mut ticket = scene.ticket();
    assert_eq!(ticket.longest_sleep(), slow * UNTOLD);
    let claim = Claim::named(KEY);
    let seen = scene.locks.look(vec![KEY.into()]).await.unwrap();
    for told in [false, true] {
        let mode = match told {
            false => ticket.queue(),
            true => ticket.renew(&seen[0]),
        };
        let (_, _, position) = scene.locks.attempt(&claim, mode).await.unwrap();
        assert_eq!(position.told, told);
        ticket.refused(position);
        assert_eq!(ticket.longest_sleep() == Duration::MAX, told);
    }
    // What has no vote, or does not answer, was not told.
    scene.time.clock().sleep(slow * KEPT).await;
    assert_eq!(ticket.longest_sleep(), slow * UNTOLD);
    for node in &scene.nodes[1..] {
        node.faults().partition(crate::node::memory::Cut::Refuse);
    }
    let mode = ticket.renew(&seen[0]);
    let (_, _, position) = scene.locks.attempt(&claim, mode).await.unwrap();
    assert!(!position.told);
}

/// What is taken and given back where nothing stands keeps the holder from healing it.
#[tokio::test(start_paused = true)]
async fn to_tell_that_it_waits_a_waiter_takes_nothing_that_is_free() {
    let scene = Scene::new();
    for node in 0..3 {
        scene.take_on(node).await;
    }
    let primary = scene.primary().await;
    let lost = (primary + 1) % 3;
    scene.nodes[lost].faults().flush();
    let mut ticket = scene.ticket();
    let seen = scene.locks.look(vec![KEY.into()]).await.unwrap();
    let mode = ticket.renew(&seen[0]);
    let claim = Claim::named(KEY);
    let (_, _, position) = scene.locks.attempt(&claim, mode).await.unwrap();
    assert!(position.told);
    scene.locks.settle().await;
    assert_eq!(scene.nodes[lost].inspect(|state| state.rows().count()), 0);
}

#[tokio::test(start_paused = true)]
async fn w5_what_is_announced_while_an_attempt_is_under_way_is_remembered() {
    let scene = Scene::new();
    for node in 0..3 {
        scene.take_on(node).await;
    }
    // The answers come late: meanwhile the holder lets go.
    for node in &scene.nodes {
        node.faults().delay_replies(MS * 30, MS * 30);
    }
    let acquire = scene.locks.lock("k").wait(LONG).acquire();
    let start = scene.time.elapsed();
    let lets_go = async {
        scene.time.clock().sleep(MS * 10).await;
        for node in 0..3 {
            scene.release_on(node).await;
        }
    };
    let (lease, ()) = tokio::join!(acquire, lets_go);
    let took = scene.time.elapsed() - start;
    assert!(lease.is_ok() && took < MS * 300, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn w5_a_waiter_that_came_before_its_process_listened_looks_then() {
    let scene = Scene::new();
    let listeners = ReleaseListeners::default();
    let mut releases = listeners.listen(vec![KEY.to_owned()]);
    listeners.tell_gap(|_| true);
    let clock = scene.time.clock();
    let mut ticket = scene.ticket();
    let woken = ticket.wait(&mut releases, Some("holder"), clock.sleep(LONG));
    assert_eq!(woken.await, Woken::Gap);
    // And only once.
    let woken = ticket.wait(&mut releases, Some("holder"), clock.sleep(LONG));
    assert_eq!(woken.await, Woken::Time);
}

// === beside foreign clients ===

impl Scene {
    /// A foreign client writes its value on every node.
    fn plant(&self, value: &str) {
        let plant = |node: &MemoryNode| node.faults().plant(KEY, value, None);
        self.nodes.iter().for_each(plant);
    }

    /// A foreign client removes its value.
    fn unplant(&self, value: &str) {
        let end = |node: &MemoryNode| node.faults().plant(KEY, value, Some(Duration::ZERO));
        self.nodes.iter().for_each(end);
    }

    /// Whether a foreign client would get the lock.
    fn is_free(&self) -> bool {
        let held = |node: &MemoryNode| {
            let now = node.time();
            node.inspect(|state| state.holder(KEY, now).is_some())
        };
        !self.nodes.iter().any(held)
    }
}

#[tokio::test(start_paused = true)]
async fn w7_a_foreign_value_that_stays_costs_few_calls() {
    let scene = Scene::new();
    scene.plant("stranger");
    let clock = scene.time.clock();
    let wait = || scene.locks.lock("k").wait(LONG * 2).acquire();
    let mut waiters = pin!(join_all((0..5).map(|_| wait())));
    // Until the value is no longer young.
    let before = tokio::select! {
        biased;
        () = clock.sleep(MS * 1_000) => scene.nodes[0].executed(),
        got = &mut waiters => panic!("{got:?}"),
    };
    let after = tokio::select! {
        biased;
        () = clock.sleep(LONG) => scene.nodes[0].executed(),
        got = &mut waiters => panic!("{got:?}"),
    };
    // The slow poll of five adds as many a second as there are waiters, at most.
    let a_second = (after - before) / LONG.as_secs();
    assert!((10..30).contains(&a_second), "{a_second}");
    // And its end is seen soon.
    scene.unplant("stranger");
    let start = scene.time.elapsed();
    let first = wait().await;
    assert!(first.is_ok() && scene.time.elapsed() - start < MS * 10);
}

/// Three strangers try every 30 to 60 ms, and hold for 20: four waiters of ours get two thirds of an equal share at least.
#[tokio::test(start_paused = true)]
async fn w7_a_lock_that_changes_hands_among_strangers_is_had_in_turn() {
    let scene = Scene::new();
    for node in &scene.nodes {
        node.faults().delay_requests(Duration::ZERO, MS);
        node.faults().delay_replies(Duration::ZERO, MS);
    }
    let (clock, chance) = (scene.time.clock(), Chance::seeded(7));
    let (theirs, ours) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let stranger = async |name: &str| {
        loop {
            if scene.is_free() {
                scene.plant(name);
                clock.sleep(MS * 20).await;
                scene.unplant(name);
                theirs.set(theirs.get() + 1);
            }
            clock.sleep(MS * 30 + chance.up_to(MS * 30)).await;
        }
    };
    let waiter = async || {
        loop {
            if let Ok(lease) = scene.locks.lock("k").wait(MS * 5_000).acquire().await {
                clock.sleep(MS * 20).await;
                lease.release().await;
                ours.set(ours.get() + 1);
            }
        }
    };
    let strangers = join_all(["a", "b", "c"].map(stranger));
    let waiters = join_all((0..4).map(|_| waiter()));
    tokio::select! {
        biased;
        () = clock.sleep(LONG) => {}
        _ = strangers => {}
        _ = waiters => {}
    }
    let (theirs, ours): (u32, u32) = (theirs.get(), ours.get());
    assert!(theirs + ours > 300, "{theirs} and {ours}");
    assert!(
        theirs > 20,
        "{theirs} and {ours}: they have their turns, too"
    );
    // Two thirds of four sevenths.
    assert!(ours * 21 >= (theirs + ours) * 8, "{theirs} and {ours}");
}
