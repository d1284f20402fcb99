//! What rests beside one node in memory.

use super::*;
use crate::{
    chance::Chance,
    intent::Resign,
    node::{Node, memory::MemoryNode},
    sim_clock::SimTime,
    spawn::Spawn,
};

const TTL: Duration = Duration::from_secs(10);

struct Scene {
    time: SimTime,
    node: MemoryNode,
    locks: Locks,
    intents: Intents,
    definitions: Definitions,
    resting: Resting,
}

impl Scene {
    fn new() -> Self {
        let time = SimTime::new();
        let node = MemoryNode::simulated("m", time.clock(), Spawn::system(), Chance::seeded(1));
        let nodes: Vec<Arc<dyn Node>> = vec![Arc::new(node.clone())];
        let locks = Locks::over(nodes)
            .clock(time.clock())
            .chance(Chance::seeded(2))
            .keeper_here(Spawn::system());
        let scene = Self {
            time,
            node,
            locks: locks.start().unwrap(),
            intents: Intents::default(),
            definitions: Definitions::default(),
            resting: Resting::default(),
        };
        let (locks, intents) = (scene.locks.clone(), scene.intents.clone());
        let follow = scene.resting.clone();
        let follow = follow.follow(locks, intents, scene.definitions.clone());
        drop(Spawn::system().spawn(follow));
        scene
    }

    fn news(&self) -> News {
        News::seen(&self.intents, &self.definitions)
    }

    /// So long by the wall clock.
    fn after(&self, pause: Duration) -> Until {
        Until {
            wall: self.locks.wall().checked_add(pause).ok(),
            moment: Moment::NEVER,
            lease: None,
        }
    }

    /// How long it rests, with this news known.
    async fn rests(&self, until: Until, known: News) -> Duration {
        let began = self.time.elapsed();
        let rest = self.resting.until(until, known, || self.news());
        let woken = self.time.clock().timeout(TTL * 100, rest).await;
        woken.expect("woken");
        self.time.elapsed() - began
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_at_rest_is_woken_at_its_time() {
    let scene = Scene::new();
    let (news, now) = (scene.news(), scene.time.clock().now());
    let secs = Duration::from_secs;
    let soon = Until {
        moment: now + secs(7),
        ..scene.after(secs(30))
    };
    let (first, second, third) = tokio::join!(
        scene.rests(scene.after(secs(20)), news),
        // Sooner than all that were known.
        scene.rests(scene.after(secs(1)), news),
        scene.rests(soon, news),
    );
    let near = |took: Duration, at| took >= secs(at) && took < secs(at) + Duration::from_millis(5);
    assert!(near(first, 20), "{first:?}");
    assert!(near(second, 1), "{second:?}");
    assert!(near(third, 7), "{third:?}");
    let sleepers = scene.resting.sleepers();
    assert!(sleepers.all.is_empty() && sleepers.by_wall.is_empty());
    assert!(sleepers.by_moment.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_wakes_all() {
    for set in [-3_600_000, 3_600_000] {
        let scene = Scene::new();
        let until = scene.after(TTL * 50);
        let set = async {
            scene.time.clock().sleep(TTL).await;
            scene.time.set_wall_offset(set);
        };
        let (took, ()) = tokio::join!(scene.rests(until, scene.news()), set);
        assert!(took <= TTL + LOOK_AGAIN * 2, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn news_wakes_what_rests() {
    let scene = Scene::new();
    let known = scene.news();
    let ask = || scene.intents.ask(Resign::default(), 0);
    let told = async {
        scene.time.clock().sleep(TTL).await;
        ask();
    };
    let (took, ()) = tokio::join!(scene.rests(scene.after(TTL * 50), known), told);
    assert_eq!(took, TTL);
    // Known before, and not rested through.
    let took = scene.rests(scene.after(TTL * 50), known).await;
    assert_eq!(took, Duration::ZERO);
    let told = async {
        scene.time.clock().sleep(TTL).await;
        scene.definitions.saw(BTreeMap::new());
    };
    let (took, ()) = tokio::join!(scene.rests(scene.after(TTL * 50), scene.news()), told);
    assert_eq!(took, TTL);
}

#[tokio::test(start_paused = true)]
async fn an_extended_lease_lets_its_job_rest() {
    let scene = Scene::new();
    let lease = scene.locks.lock("job").ttl(TTL).acquire().await.unwrap();
    let until = Until {
        lease: Some(lease.view().clone()),
        ..scene.after(TTL * 5)
    };
    let took = scene.rests(until.clone(), scene.news()).await;
    assert!(took >= TTL * 5, "{took:?}");
    scene
        .node
        .faults()
        .partition(crate::node::memory::Cut::Hang);
    let until = Until {
        wall: None,
        ..until
    };
    let took = scene.rests(until, scene.news()).await;
    assert!(took <= TTL + Duration::from_millis(5), "{took:?}");
    assert!(!lease.is_held());
}
