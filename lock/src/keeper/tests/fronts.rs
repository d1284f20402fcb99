//! What runs where the caller is, and what of it is left to the keeper.

use std::{
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Waker},
    time::Duration,
};

use crate::{
    acquire::Locks,
    chance::Chance,
    node::{Announcements, Call, Node, NodeError, Op, Reply, memory::MemoryNode},
    sim_clock::SimTime,
    spawn::Spawn,
};

const MS: Duration = Duration::from_millis(1);

/// A node with a connection for callers.
struct Doubled(MemoryNode);

#[async_trait::async_trait]
impl Node for Doubled {
    fn name(&self) -> &str {
        self.0.name()
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        self.0.call(call).await
    }

    fn another(&self) -> Option<Arc<dyn Node>> {
        Some(Arc::new(Self(self.0.clone())))
    }

    async fn announcements(&self) -> Option<Announcements> {
        self.0.announcements().await
    }
}

/// Over which connection what was asked of one node.
type Seen = Arc<Mutex<Vec<(u64, &'static str)>>>;

struct Scene {
    time: SimTime,
    nodes: Vec<MemoryNode>,
    locks: Locks,
    seen: Seen,
}

impl Scene {
    fn new() -> Self {
        let time = SimTime::new();
        let nodes: Vec<_> = (0..3)
            .map(|n| MemoryNode::new(format!("n{n}"), time.clock()))
            .collect();
        let seen = Seen::default();
        let told = Arc::clone(&seen);
        nodes[0].observe(move |executed| {
            for op in &executed.call.ops {
                let what = match op {
                    Op::Acquire { .. } => "acquire",
                    Op::Extend { .. } => "extend",
                    Op::Release { .. } => "release",
                    _ => continue,
                };
                told.lock().unwrap().push((executed.link, what));
            }
        });
        let lines = nodes
            .iter()
            .map(|n| Arc::new(Doubled(n.clone())) as Arc<dyn Node>);
        let locks = Locks::over(lines.collect())
            .clock(time.clock())
            .chance(Chance::seeded(7))
            .keeper_here(Spawn::system())
            .start()
            .unwrap();
        Self {
            time,
            nodes,
            locks,
            seen,
        }
    }

    /// With nodes whose clocks are known: an attempt is on its way at once.
    async fn ready() -> Self {
        let scene = Self::new();
        scene.locks.look(vec!["a".to_owned()]).await.unwrap();
        scene
    }

    /// From now on requests are under way for a while.
    fn delay(&self) {
        for node in &self.nodes {
            node.faults().delay_requests(MS * 5, MS * 5);
        }
    }

    fn held(&self) -> Vec<usize> {
        let held = |node: &MemoryNode| node.inspect(|state| state.held().count());
        self.nodes.iter().map(held).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_leaves_behind_its_acquire_and_renewals_do_not_wait_for_either() {
    let scene = Scene::new();
    let lock = scene.locks.lock("a").ttl(MS * 2_000);
    let lease = lock.acquire().await.unwrap();
    scene.time.clock().sleep(MS * 1_000).await;
    assert!(lease.is_held());
    assert_eq!(lease.release().await.nodes, 3);
    let seen = scene.seen.lock().unwrap().clone();
    let over = |what: &str| {
        let of = seen.iter().filter(|(_, op)| *op == what);
        Vec::from_iter(of.map(|(link, _)| *link))
    };
    assert_eq!(over("acquire"), over("release"), "{seen:?}");
    let extended = over("extend");
    assert!(
        !extended.is_empty() && !extended.contains(&over("acquire")[0]),
        "{seen:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_one_node_has_missed_of_a_release_the_keeper_repeats() {
    let scene = Scene::new();
    let lease = scene.locks.lock("a").acquire().await.unwrap();
    // The acquire has reached all by now.
    scene.time.clock().sleep(MS * 20).await;
    scene.nodes[1]
        .faults()
        .partition(crate::node::memory::Cut::Hang);
    let report = lease.release().await;
    assert_eq!((report.nodes, report.of), (2, 3));
    assert_eq!(scene.held(), [0, 1, 0]);
    scene.nodes[1].faults().heal();
    scene.time.clock().sleep(MS * 2_000).await;
    assert_eq!(scene.held(), [0; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_release_goes_on_without_its_caller() {
    let scene = Scene::ready().await;
    let lease = scene.locks.lock("a").acquire().await.unwrap();
    let view = lease.view().clone();
    scene.delay();
    {
        let mut release = pin!(lease.release());
        let polled = release
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        assert!(!view.is_held(), "nobody believes in what is being released");
    }
    scene.locks.settle().await;
    assert_eq!(scene.held(), [0; 3]);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_its_caller_leaves_is_undone_behind_its_acquire() {
    let scene = Scene::ready().await;
    scene.delay();
    {
        let mut acquire = pin!(scene.locks.lock("a").acquire());
        let polled = acquire
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }
    scene.locks.settle().await;
    scene.time.clock().sleep(MS * 50).await;
    assert_eq!(scene.held(), [0; 3]);
    let seen = scene.seen.lock().unwrap().clone();
    let [(first, "acquire"), (second, "release")] = seen[..] else {
        panic!("{seen:?}")
    };
    assert_eq!(first, second);
}
