use std::sync::{Arc, Mutex};

use super::*;
use crate::{
    acquire::Locks,
    chance::Chance,
    election::Elector,
    node::{
        Expiry, Node, View,
        memory::{Cut, MemoryNode},
    },
    quorum::Claim,
    sim_clock::SimTime,
    spawn::Spawn,
};

const TTL: Duration = Duration::from_secs(10);
/// In which everything is swept that can be.
const LONG: Duration = Duration::from_secs(3600);

struct Scene {
    time: SimTime,
    nodes: Vec<MemoryNode>,
    /// When the first node was asked what, of all that concerns sweeping.
    asked: Arc<Mutex<Vec<(Moment, Op)>>>,
}

impl Scene {
    fn new() -> Self {
        let time = SimTime::new();
        let node = |n| MemoryNode::new(format!("n{n}"), time.clock());
        let nodes: Vec<_> = (0..3).map(node).collect();
        let asked = Arc::<Mutex<Vec<_>>>::default();
        let (to, clock) = (asked.clone(), time.clock());
        nodes[0].observe(move |executed| {
            let sweeps = |op: &&Op| {
                matches!(
                    op,
                    Op::Sweep { .. } | Op::Forget { .. } | Op::Doc { .. } | Op::PutDoc { .. }
                )
            };
            for op in executed.call.ops.iter().filter(sweeps) {
                to.lock().unwrap().push((clock.now(), op.clone()));
            }
        });
        Self { time, nodes, asked }
    }

    fn client(&self, seed: u64) -> Locks {
        self.client_over(self.nodes.clone(), seed)
    }

    fn client_over(&self, lines: Vec<MemoryNode>, seed: u64) -> Locks {
        let nodes = lines.into_iter().map(|n| Arc::new(n) as Arc<dyn Node>);
        Locks::over(nodes.collect())
            .expiry(Expiry::Observed)
            .clock(self.time.clock())
            .chance(Chance::seeded(seed))
            .keeper_here(Spawn::system())
            .start()
            .unwrap()
    }

    async fn pass(&self, time: Duration) {
        self.time.clock().sleep(time).await;
    }

    /// How many rows each node has.
    fn rows(&self) -> Vec<usize> {
        let rows = |node: &MemoryNode| node.inspect(|state| state.rows().count());
        self.nodes.iter().map(rows).collect()
    }

    /// When the first node was asked such a thing.
    fn when(&self, what: fn(&Op) -> bool) -> Vec<Moment> {
        let asked = self.asked.lock().unwrap();
        let such = asked.iter().filter(|(_, op)| what(op));
        such.map(|(at, _)| *at).collect()
    }

    fn sweeps(&self) -> Vec<Moment> {
        self.when(|op| matches!(op, Op::Sweep { .. }))
    }
}

#[tokio::test(start_paused = true)]
async fn c3_what_was_used_once_is_forgotten_and_its_tokens_are_not() {
    let scene = Scene::new();
    let locks = scene.client(1);
    let mut last = None;
    for name in ["a", "b", "c"] {
        let lease = locks.lock(name).acquire().await.unwrap();
        last = last.max(Some(lease.token()));
        lease.release().await;
    }
    let claimed = locks.claim(vec![Claim::short("batch/b/1")]).await.unwrap();
    assert_eq!(scene.rows(), [4; 3]);
    drop(claimed);
    scene.pass(LONG).await;
    assert_eq!(scene.rows(), [0; 3]);
    let next = scene.client(2).lock("a").acquire().await.unwrap();
    assert!(Some(next.token()) > last);
}

#[tokio::test(start_paused = true)]
async fn s2_an_orphan_is_forgotten_when_it_was_watched_for_its_ttl() {
    let scene = Scene::new();
    let lines = scene.nodes.clone();
    let links: Vec<_> = lines.iter().map(MemoryNode::link).collect();
    let (locks, dies) = (scene.client(1), scene.client_over(lines, 2));
    let _orphan = dies.lock("orphan").ttl(TTL).acquire().await.unwrap();
    links.iter().for_each(|link| link.cut(Cut::Refuse));
    let lives = locks.lock("lives").ttl(TTL).acquire().await.unwrap();
    // A clock that jumps ends both by the node's word, at every look.
    scene.nodes[0].faults().clock_offset(3_600_000);
    while scene.rows()[0] > 1 {
        scene.pass(Duration::from_millis(100)).await;
    }
    let forgets = scene.when(|op| matches!(op, Op::Forget { .. }));
    let shown = scene.sweeps();
    let before: Vec<_> = shown.iter().filter(|at| **at < forgets[0]).collect();
    assert!(
        before.iter().any(|at| forgets[0].since(**at) >= TTL),
        "watched since it was shown"
    );
    scene.pass(LONG).await;
    assert!(lives.is_held(), "what moves is no orphan");
    assert_eq!(scene.rows(), [1; 3]);
}

/// The node announces it as it announces a release, because a candidate waits.
#[tokio::test(start_paused = true)]
async fn a_record_that_one_node_forgets_costs_its_living_holder_nothing() {
    let scene = Scene::new();
    let lines = scene.nodes.clone();
    let links: Vec<_> = lines.iter().map(MemoryNode::link).collect();
    let (holder, standby) = (scene.client_over(lines, 1), scene.client(2));
    let leads = Elector::new(&holder, "x")
        .ttl(TTL)
        .campaign()
        .await
        .unwrap();
    let campaign = Elector::new(&standby, "x").ttl(TTL);
    let campaign = Spawn::system().spawn(async move { drop(campaign.campaign().await) });
    scene.pass(TTL).await;
    // Its holder alone reaches that node no more, and extends on the others.
    links[0].cut(Cut::Refuse);
    let _sweeps = scene.client(3);
    while scene.rows()[0] > 0 {
        assert!(leads.is_leading());
        scene.pass(Duration::from_millis(100)).await;
    }
    scene.pass(TTL * 3).await;
    assert!(leads.is_leading());
    assert!(!campaign.is_finished());
}

#[tokio::test(start_paused = true)]
async fn of_many_keepers_one_sweeps() {
    let scene = Scene::new();
    let keepers: Vec<_> = (0..20).map(|n| scene.client(n)).collect();
    scene.pass(LONG).await;
    scene.asked.lock().unwrap().clear();
    scene.pass(LONG).await;
    let [_, rest] = REST;
    let hourly = LONG.as_secs() / rest.as_secs();
    let sweeps = scene.sweeps().len() as u64;
    assert!(
        (hourly / 2..=hourly).contains(&sweeps),
        "one walk for each rest, not {sweeps}"
    );
    let looks = scene.when(|op| matches!(op, Op::Doc { .. })).len() as u64;
    assert!(looks <= hourly * 20, "{looks}");
    // When it has gone, another one does it.
    drop(keepers);
    let _late = scene.client(21);
    scene.pass(rest * 4).await;
    scene.asked.lock().unwrap().clear();
    scene.pass(rest * 2).await;
    assert!(!scene.sweeps().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_with_much_to_forget_is_swept_quickly() {
    let scene = Scene::new();
    let locks = scene.client(1);
    for n in 0..2_000 {
        let lease = locks.lock(&n.to_string()).acquire().await.unwrap();
        lease.release().await;
    }
    let marked = locks.timing().marked();
    let [least, most] = REST;
    scene.pass(marked + most + least).await;
    let pages = scene.sweeps();
    let fast = pages
        .windows(2)
        .filter(|two| two[1].since(two[0]) <= PAUSES[2] * 2);
    assert!(fast.count() >= 5, "{pages:?}");
    assert_eq!(scene.rows(), [0; 3]);
}

#[test]
fn a_walk_that_finds_nothing_is_followed_by_a_longer_rest() {
    let [least, most] = REST;
    let mut pace = Pace::default();
    let mut rests = vec![];
    for _ in 0..5 {
        pace.after(&Page::default());
        assert!(pace.longest_rest() * 2 > pace.rest);
        rests.push(pace.rest());
    }
    assert_eq!(rests, [least, least * 2, least * 4, most, most]);
    let orphaned = Page {
        views: vec![View::default()],
        ..Page::default()
    };
    pace.after(&orphaned);
    assert_eq!(pace.rest(), least);
    let [nothing, some, much] = PAUSES;
    for (forgotten, pause) in [(0, nothing), (1, some), (COUNT, much)] {
        let page = Page {
            forgotten,
            ..Page::default()
        };
        assert_eq!(pace.after(&page), pause);
    }
}
