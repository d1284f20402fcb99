//! How many nodes may be lost without losing a lease: what its holder and readers of the log see.

use std::{sync::Arc, time::Duration};

use crate::{
    acquire::Locks,
    chance::Chance,
    event::{Event, Events},
    lease::Lease,
    node::{Node, Op, memory::MemoryNode},
    quorum::{Claim, Claimed},
    sim_clock::SimTime,
    spawn::Spawn,
};

const TTL: Duration = Duration::from_secs(3);

struct Scene {
    time: SimTime,
    nodes: Vec<MemoryNode>,
    events: Events,
    locks: Locks,
}

impl Scene {
    fn new() -> Self {
        let (time, events) = (SimTime::new(), Events::default());
        let node = |n| MemoryNode::new(format!("n{n}"), time.clock());
        let nodes: Vec<_> = (0..3).map(node).collect();
        let clients = nodes.iter().map(|n| Arc::new(n.clone()) as Arc<dyn Node>);
        let locks = Locks::over(clients.collect())
            .clock(time.clock())
            .chance(Chance::seeded(7))
            .events(events.clone())
            .keeper_here(Spawn::system())
            .start()
            .unwrap();
        Self {
            time,
            nodes,
            events,
            locks,
        }
    }

    async fn lease(&self) -> Lease {
        self.locks.lock("a").ttl(TTL).acquire().await.unwrap()
    }

    /// Two rounds, and a little.
    async fn two_rounds(&self) {
        self.time.clock().sleep(TTL * 3 / 4).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_too_few_nodes_keep_says_so_before_it_ends() {
    let scene = Scene::new();
    let lease = scene.lease().await;
    scene.two_rounds().await;
    assert_eq!(lease.margin(), 1);
    let mut events = scene.events.observe();
    scene.nodes[1].faults().freeze();
    scene.nodes[2].faults().freeze();
    let failed = loop {
        if let Event::Renewed { ok, margin, .. } = events.recv().await.unwrap() {
            break (ok, margin);
        }
    };
    assert_eq!(failed, (false, -1));
    assert!(lease.is_held());
    assert_eq!(lease.margin(), -1);
}

/// Also when the keeper has planned to extend it: the parts of a round begin one after the other.
#[tokio::test(start_paused = true)]
async fn what_ends_while_a_round_is_under_way_is_not_extended_by_its_later_parts() {
    let scene = Scene::new();
    let claims = (0..600).map(|n| Claim {
        ttl: Some(TTL),
        ..Claim::named(format!("lock/{n:03}"))
    });
    let claimed = scene.locks.claim(claims.collect()).await.unwrap();
    let leases: Vec<_> = claimed
        .into_iter()
        .map(|claimed| match claimed {
            Claimed::Acquired(lease) => lease,
            other => panic!("{other:?}"),
        })
        .collect();
    // The last stands in the third part. There is work under it, so that it stays in the table.
    let last = leases[599].view().clone();
    let (work, key) = (last.begin_work(), last.key().to_owned());
    let (extended, seen) = std::sync::mpsc::channel();
    scene.nodes[0].observe(move |executed| {
        for op in &executed.call.ops {
            if let Op::Extend { key, .. } = op {
                last.end(crate::lease::Loss::Taken);
                let _ = extended.send(key.clone());
            }
        }
    });
    scene.time.clock().sleep(TTL / 3 + TTL / 20).await;
    let extended: Vec<_> = seen.try_iter().collect();
    assert!(extended.len() >= 599, "{}", extended.len());
    assert!(
        !extended.contains(&key),
        "it was over before its part began"
    );
    assert!(leases[..599].iter().all(|lease| lease.is_held()));
    drop(work);
}

mod log {
    use super::*;
    use crate::base::paper::Paper;

    #[tokio::test(start_paused = true)]
    async fn a_margin_of_zero_is_warned_about_once_and_its_end_is_said() {
        let (paper, _reading) = Paper::reading(tracing::Level::INFO);
        let none_to_spare = || paper.lines_with("no lock node to spare");
        let to_spare = || paper.lines_with("lock nodes to spare again");

        let scene = Scene::new();
        let lease = scene.lease().await;
        scene.two_rounds().await;
        assert_eq!((lease.margin(), none_to_spare(), to_spare()), (1, 0, 0));
        scene.nodes[2].faults().freeze();
        scene.two_rounds().await;
        scene.two_rounds().await;
        assert_eq!((lease.margin(), none_to_spare(), to_spare()), (0, 1, 0));
        scene.nodes[2].faults().thaw();
        scene.two_rounds().await;
        scene.two_rounds().await;
        assert_eq!((lease.margin(), none_to_spare(), to_spare()), (1, 1, 1));
    }
}
