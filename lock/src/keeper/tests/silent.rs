//! One node of three gives no answer: the callers must hardly notice.

use std::{sync::Arc, time::Duration};

use crate::{
    acquire::Locks,
    chance::Chance,
    event::Event,
    hash::fnv1a,
    node::{Node, NodeError, Op, memory::MemoryNode},
    sim_clock::SimTime,
    spawn::Spawn,
};

struct Scene {
    time: SimTime,
    nodes: Vec<MemoryNode>,
    locks: Locks,
}

impl Scene {
    fn new() -> Self {
        let time = SimTime::new();
        let nodes: Vec<_> = (0..3)
            .map(|n| MemoryNode::new(format!("n{n}"), time.clock()))
            .collect();
        let clients = nodes.iter().map(|n| Arc::new(n.clone()) as Arc<dyn Node>);
        let locks = Locks::over(clients.collect())
            .clock(time.clock())
            .chance(Chance::seeded(7))
            .keeper_here(Spawn::system())
            .start()
            .unwrap();
        Self { time, nodes, locks }
    }

    fn silence(&self) {
        self.nodes[2].faults().freeze();
    }

    /// Until the keeper knows that the node does not answer.
    async fn noticed(&self) {
        while self.trouble().await.is_none() {
            _ = self.look().await;
        }
    }

    async fn trouble(&self) -> Option<NodeError> {
        self.locks.nodes().await.unwrap().remove(2).trouble
    }

    /// The holder that the third node shows.
    async fn look(&self) -> Result<Option<String>, NodeError> {
        let keys = vec!["lock/a".to_owned()];
        let mut states = self.locks.look(keys).await.unwrap();
        let mut nodes = states.remove(0).nodes;
        nodes.remove(2).map(|view| view.holder)
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_does_not_wait_for_a_node_that_is_down() {
    let scene = Scene::new();
    scene.silence();
    scene.noticed().await;
    for _ in 0..3 {
        let lease = scene.locks.lock("a").acquire().await.unwrap();
        let start = scene.time.elapsed();
        let report = lease.release().await;
        assert_eq!((report.nodes, report.of), (2, 3));
        let waited = scene.time.elapsed() - start;
        assert!(waited < Duration::from_millis(5), "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_hears_of_every_release_it_missed() {
    let scene = Scene::new();
    let lease = scene.locks.lock("a").acquire().await.unwrap();
    // The majority has granted; the third one as well before it falls silent.
    while scene.look().await != Ok(Some(lease.owner().to_owned())) {}
    scene.silence();
    scene.noticed().await;
    assert_eq!(lease.release().await.nodes, 2);
    // Long enough for a repeated release to be waiting rather than asking.
    scene.locks.clock().sleep(Duration::from_secs(3)).await;

    scene.nodes[2].faults().thaw();
    let start = scene.time.elapsed();
    while scene.look().await != Ok(None) {
        scene.locks.clock().sleep(Duration::from_millis(10)).await;
    }
    // Well before the ten seconds after which it would have forgotten by itself.
    let took = scene.time.elapsed() - start;
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_extension_takes_as_long_as_its_majority() {
    let scene = Scene::new();
    let mut events = scene.locks.events().observe();
    let lease = scene.locks.lock("a").acquire().await.unwrap();
    scene.silence();
    // The first round after the silence waits for the node in vain; its verdict does not.
    let took = loop {
        if let Event::Renewed { took, ok, .. } = events.recv().await.unwrap() {
            assert!(ok);
            break took;
        }
    };
    assert!(took < scene.locks.timing().node_timeout, "{took:?}");
    assert!(lease.is_held());
}

#[tokio::test(start_paused = true)]
async fn where_others_wait_a_release_reaches_the_primary_when_a_majority_knows_with_it() {
    let scene = Scene::new();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    for node in &scene.nodes {
        let (order, name) = (order.clone(), node.name().to_owned());
        node.observe(move |executed| {
            if executed
                .call
                .ops
                .iter()
                .any(|op| matches!(op, Op::Release { .. }))
            {
                order.lock().unwrap().push(name.clone());
            }
        });
    }
    for key in ["a", "b", "c", "d", "e"] {
        let clock = scene.locks.clock().clone();
        let first = scene.locks.lock(key).acquire().await.unwrap();
        let waiting = scene.locks.lock(key).wait(Duration::from_secs(5)).acquire();
        let (lease, _) = tokio::join!(waiting, async {
            clock.sleep(Duration::from_millis(100)).await;
            first.release().await
        });
        // What attempts left behind is told, too.
        clock.sleep(Duration::from_millis(100)).await;
        order.lock().unwrap().clear();
        lease.unwrap().release().await;
        scene.locks.settle().await;
        let order = std::mem::take(&mut *order.lock().unwrap());
        assert_eq!(order.len(), 3);
        // A majority knows with the one that all clients take for the lock's primary.
        let at = order
            .iter()
            .position(|name| *name == primary_of(key))
            .unwrap();
        assert!(at >= 1, "{key}: {order:?}");
    }
}

fn primary_of(key: &str) -> String {
    let hash = fnv1a(format!("lock/{key}").into_bytes());
    format!("n{}", hash % 3)
}
