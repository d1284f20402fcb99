use std::sync::Arc;

use super::*;
use crate::{
    chance::Chance,
    node::{
        Node,
        memory::{Cut, MemoryNode},
    },
    sim_clock::SimTime,
};

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

    fn locks(&self, seed: u64) -> Locks {
        let lines = self.nodes.clone().into_iter();
        Locks::over(lines.map(|n| Arc::new(n) as Arc<dyn Node>).collect())
            .clock(self.time.clock())
            .chance(Chance::seeded(seed))
            .keeper_here(Spawn::system())
            .start()
            .unwrap()
    }

    fn rate(&self, seed: u64, per_second: f64) -> Rate {
        self.locks(seed).rate("mail", per_second).unwrap()
    }

    fn calls(&self) -> u64 {
        self.nodes.iter().map(MemoryNode::executed).sum()
    }

    /// How many acts there are in this time when there is always something to do.
    async fn busy(&self, rate: &Rate, span: Duration) -> usize {
        let end = self.time.clock().now() + span;
        let mut acts = 0;
        while self.time.clock().timeout_at(end, rate.take()).await.is_ok() {
            acts += 1;
        }
        acts
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn programs_reach_the_rate_together() {
    let scene = Scene::new();
    let rates: Vec<Rate> = (0..4).map(|seed| scene.rate(seed, 1000.0)).collect();
    let warm_up = rates.iter().map(|rate| scene.busy(rate, MINUTE / 4));
    futures_util::future::join_all(warm_up).await;
    let acts = rates.iter().map(|rate| scene.busy(rate, MINUTE));
    let acts = futures_util::future::join_all(acts).await;
    let sum: usize = acts.iter().sum();
    assert!((57_000..=60_000).contains(&sum), "{sum}: {acts:?}");
    // None of them is left far behind.
    assert!(acts.iter().all(|n| *n > sum / 10), "{acts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_gets_a_share_of_a_busy_rate() {
    let scene = Scene::new();
    let old = scene.rate(1, 1000.0);
    scene.busy(&old, MINUTE / 6).await;
    assert_eq!(old.shares(), (16, 16));
    let new = scene.rate(2, 1000.0);
    let span = Duration::from_secs(3);
    let (_, acts) = tokio::join!(scene.busy(&old, span), scene.busy(&new, span));
    assert!(acts > 0);
}

#[tokio::test(start_paused = true)]
async fn one_program_more_than_there_are_shares_gets_its_part() {
    for per_second in [14.0, 40.0] {
        let scene = Scene::new();
        let mut rates = vec![scene.rate(0, per_second)];
        scene.busy(&rates[0], MINUTE / 12).await;
        let (_, shares) = rates[0].shares();
        rates.extend((1..=shares).map(|n| scene.rate(n as u64, per_second)));
        let acts = rates.iter().map(|rate| scene.busy(rate, MINUTE * 2));
        let acts = futures_util::future::join_all(acts).await;
        let sum: usize = acts.iter().sum();
        assert!(sum as f64 > per_second * 120.0 * 0.9, "{acts:?}");
        let least = sum / rates.len() / 3;
        assert!(acts.iter().all(|n| *n > least), "{acts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_program_gives_back_what_it_holds() {
    let scene = Scene::new();
    let rate = scene.rate(1, 1000.0);
    scene.busy(&rate, MINUTE / 6).await;
    scene.time.clock().sleep(IDLE_ENOUGH).await;
    assert_eq!(rate.shares().0, 0);
    let before = scene.calls();
    scene.time.clock().sleep(MINUTE).await;
    assert!(scene.calls() - before < 60, "{}", scene.calls() - before);
    // And it comes back.
    rate.take().await;
}

const IDLE_ENOUGH: Duration = Duration::from_secs(3);

#[tokio::test(start_paused = true)]
async fn who_waits_long_for_a_share_gets_it() {
    let scene = Scene::new();
    let (other, rate) = (scene.locks(1), scene.rate(2, 14.0));
    let only = SlotsBuilder::of_rate(other, "mail", 1);
    let only = only.acquire().await.unwrap();
    let clock = scene.time.clock();
    let release = async {
        clock.sleep(MINUTE / 2).await;
        only.release().await;
        clock.now()
    };
    let take = async {
        clock.timeout(MINUTE, rate.take()).await.unwrap();
        clock.now()
    };
    let (free, got) = tokio::join!(release, take);
    assert!(got.since(free) < Duration::from_secs(2), "{got:?} {free:?}");
}

#[tokio::test(start_paused = true)]
async fn a_program_goes_on_after_its_nodes_were_away() {
    let scene = Scene::new();
    let rate = scene.rate(1, 14.0);
    let clock = scene.time.clock();
    let back = clock.now() + MINUTE;
    let acts = async {
        while clock.now() < back {
            rate.take().await;
        }
    };
    let away = async {
        clock.sleep(MINUTE / 6).await;
        let nodes = || scene.nodes.iter();
        nodes().for_each(|node| node.faults().partition(Cut::Refuse));
        clock.sleep_until(back).await;
        nodes().for_each(|node| node.faults().heal());
    };
    let both = async { tokio::join!(acts, away) };
    clock.timeout(MINUTE * 2, both).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn shares_are_released_with_the_last_handle() {
    let scene = Scene::new();
    let rate = scene.rate(1, 14.0);
    rate.take().await;
    drop(rate);
    let other = scene.rate(2, 14.0);
    let began = scene.time.clock().now();
    other.take().await;
    let took = scene.time.clock().now().since(began);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_rate_is_refused() {
    let scene = Scene::new();
    let locks = scene.rate(1, 1.0).0.locks.clone();
    for wrong in [0.0, -3.0, f64::NAN, f64::INFINITY] {
        assert_eq!(locks.rate("mail", wrong).unwrap_err(), LockError::Rate);
    }
}

#[tokio::test(start_paused = true)]
async fn an_act_that_was_given_up_is_not_counted() {
    let scene = Scene::new();
    let rate = scene.rate(1, 1.0);
    rate.take().await;
    let clock = scene.time.clock();
    let given_up = clock.timeout(Duration::from_millis(100), rate.take());
    assert!(given_up.await.is_err());
    let began = clock.now();
    rate.take().await;
    let took = clock.now().since(began);
    assert!(took < Duration::from_secs(1), "{took:?}");
}
