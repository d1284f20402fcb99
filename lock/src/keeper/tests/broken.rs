//! A lease that is ended by force: what its holder and the others see.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    acquire::Locks,
    chance::Chance,
    lease::Loss,
    node::{
        Announcements, Call, Expiry, Node, NodeError, Op, Reply,
        memory::{Cut, MemoryNode},
        rules::{DOUBTED, LAST},
    },
    quorum::{BreakVote, Broken, LockError},
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

    /// Connections of its own for another process.
    fn lines(&self) -> Vec<MemoryNode> {
        self.nodes.clone()
    }

    /// Another process.
    fn client(&self, seed: u64) -> Locks {
        over(self, self.lines(), seed, Expiry::Server)
    }

    /// One that watches holders by its own clock.
    fn observer(&self, seed: u64) -> Locks {
        over(self, self.lines(), seed, Expiry::Observed)
    }

    /// The clocks of all nodes jump, which ends every key there.
    fn jump(&self) {
        let nodes = self.nodes.iter();
        nodes.for_each(|node| node.faults().clock_offset(3_600_000));
    }
}

fn over(scene: &Scene, lines: Vec<MemoryNode>, seed: u64, expiry: Expiry) -> Locks {
    let nodes = lines.into_iter().map(|n| Arc::new(n) as Arc<dyn Node>);
    Locks::over(nodes.collect())
        .expiry(expiry)
        .clock(scene.time.clock())
        .chance(Chance::seeded(seed))
        .keeper_here(Spawn::system())
        .start()
        .unwrap()
}

/// A node that cannot say what stands there while it is looked at.
struct Busy(MemoryNode);

#[async_trait]
impl Node for Busy {
    fn name(&self) -> &str {
        self.0.name()
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        match call.ops.iter().any(|op| matches!(op, Op::Read { .. })) {
            true => Err(NodeError::Unfit("busy".to_owned())),
            false => self.0.call(call).await,
        }
    }

    async fn announcements(&self) -> Option<Announcements> {
        self.0.announcements().await
    }
}

#[tokio::test(start_paused = true)]
async fn the_token_of_a_break_is_above_the_holders_whatever_its_look_has_shown() {
    let scene = Scene::new();
    let holder = scene.client(1);
    for _ in 0..3 {
        let lease = holder.lock("a").ttl(TTL).acquire().await.unwrap();
        lease.release().await;
    }
    let lease = holder.lock("a").ttl(TTL).acquire().await.unwrap();
    let busy = |node| Arc::new(Busy(node)) as Arc<dyn Node>;
    let operator = Locks::over(scene.lines().into_iter().map(busy).collect())
        .clock(scene.time.clock())
        .chance(Chance::seeded(2))
        .keeper_here(Spawn::system())
        .start()
        .unwrap();
    let report = operator.break_lease("lock/a", lease.owner(), false).await;
    let report = report.unwrap();
    assert_eq!(report.outcome(), Broken::Final);
    assert!(report.token > lease.token(), "{report:?}");
}

/// It would be written on all nodes, and no token were left above it.
#[tokio::test(start_paused = true)]
async fn a_number_out_of_range_on_one_node_is_no_token_of_a_break() {
    let scene = Scene::new();
    let (holder, operator) = (scene.client(1), scene.client(2));
    let lease = holder.lock("a").ttl(TTL).acquire().await.unwrap();
    // Damage: a break by another hand, with the largest number that there is.
    let force = Op::Break {
        key: "lock/a".to_owned(),
        owner: lease.owner().to_owned(),
        token: LAST,
        ttl: TTL,
        marked: TTL,
        retention: TTL,
        now: false,
    };
    let call = Call {
        not_after: None,
        ops: vec![force],
    };
    scene.nodes[0].call(call).await.unwrap();
    let report = operator.break_lease("lock/a", lease.owner(), false).await;
    let report = report.unwrap();
    assert!(report.token > lease.token(), "{report:?}");
    assert!(report.token < DOUBTED, "{report:?}");
    assert_eq!(report.outcome(), Broken::Final);
}

#[tokio::test(start_paused = true)]
async fn a_broken_lease_is_final_for_its_holder() {
    let scene = Scene::new();
    let (holder, operator) = (scene.client(1), scene.client(2));
    let lease = holder.lock("a").ttl(TTL).acquire().await.unwrap();
    // It is extended for a while, as always.
    scene.time.clock().sleep(TTL * 2).await;
    assert!(lease.is_held());

    let start = scene.time.elapsed();
    let report = operator
        .break_lease("lock/a", lease.owner(), false)
        .await
        .unwrap();
    assert_eq!(report.outcome(), Broken::Final);
    assert!(report.remaining().unwrap() <= TTL && report.token > lease.token());
    assert_eq!(lease.lost().await, Loss::Taken);
    let told = scene.time.elapsed() - start;
    assert!(
        told <= TTL / 3,
        "told by its next round, not after {told:?}"
    );

    let old = lease.token();
    lease.release().await;
    let next = operator.lock("a").ttl(TTL).acquire().await.unwrap();
    assert!(next.token() > report.token && report.token > old);
}

/// Also when its holder is cut off and never hears of it.
#[tokio::test(start_paused = true)]
async fn a_break_lets_nobody_in_early() {
    let scene = Scene::new();
    let (mine, operator) = (scene.lines(), scene.client(2));
    let links: Vec<_> = mine.iter().map(MemoryNode::link).collect();
    let holder = over(&scene, mine, 1, Expiry::Server);
    let lease = holder.lock("a").ttl(TTL).acquire().await.unwrap();
    links.iter().for_each(|link| link.cut(Cut::Hang));
    let broken = operator.break_lease("lock/a", lease.owner(), false).await;
    assert_eq!(broken.unwrap().outcome(), Broken::Final);
    let early = operator.lock("a").ttl(TTL).acquire().await;
    assert!(matches!(early, Err(LockError::Held { .. })), "{early:?}");
    assert!(lease.is_held(), "it does not know");
    let next = operator
        .lock("a")
        .ttl(TTL)
        .wait(TTL * 2)
        .acquire()
        .await
        .unwrap();
    assert_eq!(
        lease.loss(),
        Some(Loss::Expired),
        "before another owner is let in"
    );
    assert!(next.is_held());
}

/// Also when its holder is cut off and never hears of it.
#[tokio::test(start_paused = true)]
async fn b6_now_waits_until_nothing_of_the_lease_can_act() {
    for expiry in [Expiry::Server, Expiry::Observed] {
        let scene = Scene::new();
        let mine = scene.lines();
        let links: Vec<_> = mine.iter().map(MemoryNode::link).collect();
        let (holder, operator) = (over(&scene, mine, 1, expiry), scene.observer(2));
        let lease = holder.lock("a").ttl(TTL).acquire().await.unwrap();
        links.iter().for_each(|link| link.cut(Cut::Hang));
        let start = scene.time.elapsed();
        let broken = operator.break_lease("lock/a", lease.owner(), true).await;
        let report = broken.unwrap();
        let took = scene.time.elapsed() - start;
        assert!(took > TTL && took < TTL + TTL / 10, "{took:?}");
        assert_eq!(report.outcome(), Broken::Final);
        assert!(report.is_released(), "{report:?}");
        assert_eq!(lease.loss(), Some(Loss::Expired), "it believes no more");
        // A client that comes now finds a release, and need not watch.
        let next = scene
            .observer(3)
            .lock("a")
            .ttl(TTL)
            .acquire()
            .await
            .unwrap();
        assert!(next.token() > report.token);
        assert!(scene.time.elapsed() - start < took + TTL / 10);
    }
}

/// One that has watched the holder meanwhile takes over when a watch ends, as without `now`.
#[tokio::test(start_paused = true)]
async fn b6_a_successor_that_came_before_the_release_keeps_the_lock() {
    let scene = Scene::new();
    let mine = scene.lines();
    let links: Vec<_> = mine.iter().map(MemoryNode::link).collect();
    let holder = over(&scene, mine, 1, Expiry::Observed);
    let (operator, watcher) = (scene.observer(2), scene.observer(3));
    let lease = holder.lock("a").ttl(TTL).acquire().await.unwrap();
    let waits = watcher.lock("a").ttl(TTL).wait(TTL * 3).acquire();
    let breaks = async {
        scene.time.clock().sleep(TTL / 10).await;
        links.iter().for_each(|link| link.cut(Cut::Hang));
        scene.time.clock().sleep(TTL / 10).await;
        operator.break_lease("lock/a", lease.owner(), true).await
    };
    let (next, report) = tokio::join!(waits, breaks);
    let (next, report) = (next.unwrap(), report.unwrap());
    assert!(report.is_released() && next.is_held(), "{report:?}");
    scene.time.clock().sleep(TTL * 2).await;
    assert!(next.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_late_break_does_not_touch_the_successor() {
    let scene = Scene::new();
    let (holder, operator) = (scene.client(1), scene.client(2));
    let lease = holder.lock("a").ttl(TTL).acquire().await.unwrap();
    let old = lease.owner().to_owned();
    lease.release().await;
    let next = holder.lock("a").ttl(TTL).acquire().await.unwrap();
    for now in [false, true] {
        let report = operator.break_lease("lock/a", &old, now).await.unwrap();
        assert_eq!(report.outcome(), Broken::ChangedHands);
    }
    scene.time.clock().sleep(TTL * 2).await;
    assert!(next.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_break_that_reaches_a_minority_says_so() {
    let scene = Scene::new();
    let (holder, operator) = (scene.client(1), scene.client(2));
    let lease = holder.lock("a").ttl(TTL).acquire().await.unwrap();
    scene.nodes[1].faults().freeze();
    scene.nodes[2].faults().freeze();
    let report = operator
        .break_lease("lock/a", lease.owner(), false)
        .await
        .unwrap();
    assert_eq!(report.outcome(), Broken::Unsure);
    let answered = report
        .nodes
        .iter()
        .filter(|(_, vote)| matches!(vote, BreakVote::Over(_)));
    assert_eq!(
        answered.map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["n0"]
    );
}

/// Its holder believes in it by its record, until it is told.
#[tokio::test(start_paused = true)]
async fn a_lease_whose_keys_have_vanished_is_broken_like_any_other() {
    for now in [false, true] {
        let scene = Scene::new();
        let (holder, operator) = (scene.observer(1), scene.observer(2));
        let lease = holder.lock("a").ttl(TTL).acquire().await.unwrap();
        scene.jump();
        let seen = operator.look(vec!["lock/a".into()]).await.unwrap();
        let views: Vec<_> = seen[0].nodes.iter().flatten().collect();
        assert_eq!(views.len(), 3);
        for view in views {
            assert_eq!(view.holder, None, "its time is up by the node's clock");
            assert_eq!(view.holder_by(Expiry::Observed), Some(lease.owner()));
        }

        let broken = operator.break_lease("lock/a", lease.owner(), now).await;
        let report = broken.unwrap();
        assert_eq!(report.outcome(), Broken::Final);
        assert_eq!(report.remaining(), Some(TTL));
        assert_eq!(lease.is_held(), !now, "it does not know, or has been told");
        let next = operator.lock("a").ttl(TTL).acquire().await.unwrap();
        assert!(next.token() > report.token);
        assert_eq!(lease.loss(), Some(Loss::Taken));
    }
}
