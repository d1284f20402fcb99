//! Jobs that are asked for their health beside one node in memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;

use super::*;
use crate::{
    chance::Chance,
    job::{JobError, Outcome, Run},
    lock::Locks,
    node::{Node, memory::MemoryNode},
    sim_clock::SimTime,
};

const TTL: Duration = Duration::from_secs(9);
const EVERY: Duration = Duration::from_secs(3);

/// Counts how often it is asked, and answers after this time.
#[derive(Clone, Default)]
struct Counts {
    asked: Arc<AtomicUsize>,
    takes: Duration,
    clock: Option<Clock>,
}

#[async_trait]
impl Job for Counts {
    async fn run(&self, _: Run) -> Result<Outcome, JobError> {
        Ok(Outcome::Done)
    }

    async fn health(&self) -> Health {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if let Some(clock) = &self.clock {
            clock.sleep(self.takes).await;
        }
        Health::Fit
    }
}

impl Counts {
    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

struct Scene {
    clock: Clock,
    locks: Locks,
    health: HealthRounds,
}

impl Scene {
    fn new() -> Self {
        let clock = SimTime::new().clock();
        let node = MemoryNode::simulated("m", clock.clone(), Spawn::system(), Chance::seeded(1));
        let nodes: Vec<Arc<dyn Node>> = vec![Arc::new(node)];
        let locks = Locks::over(nodes)
            .clock(clock.clone())
            .chance(Chance::seeded(2))
            .keeper_here(Spawn::system());
        let health = HealthRounds::default();
        let asks = Asks {
            clock: clock.clone(),
            spawn: Spawn::system(),
            events: Events::default(),
            told_unfit: ToldUnfit::default(),
            every: EVERY,
        };
        drop(Spawn::system().spawn(health.clone().follow(asks)));
        Self {
            clock,
            locks: locks.start().unwrap(),
            health,
        }
    }

    async fn lease(&self, name: &str) -> crate::lease::Lease {
        let lease = self.locks.lock(name).ttl(TTL).acquire().await;
        lease.unwrap()
    }

    fn ask(&self, job: &Counts, lease: &LeaseView) -> Asking {
        let first = self.clock.now() + EVERY;
        self.health.ask(Arc::new(job.clone()), lease.clone(), first)
    }
}

#[tokio::test(start_paused = true)]
async fn a_led_job_is_asked_as_often_as_it_is_to_be() {
    let scene = Scene::new();
    let (one, other) = (scene.lease("one").await, scene.lease("other").await);
    let jobs = [Counts::default(), Counts::default()];
    let _asking = scene.ask(&jobs[0], &one);
    scene.clock.sleep(EVERY / 2).await;
    let _other = scene.ask(&jobs[1], &other);
    scene.clock.sleep(EVERY * 10).await;
    for job in &jobs {
        assert!((9..=11).contains(&job.asked()), "{}", job.asked());
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_that_does_not_answer_delays_no_other() {
    let scene = Scene::new();
    let (one, other) = (scene.lease("one").await, scene.lease("other").await);
    let stuck = Counts {
        takes: TTL * 100,
        clock: Some(scene.clock.clone()),
        ..Counts::default()
    };
    let quick = Counts::default();
    let _asking = [scene.ask(&stuck, &one), scene.ask(&quick, &other)];
    scene.clock.sleep(EVERY * 10 + EVERY / 2).await;
    assert_eq!((stuck.asked(), quick.asked()), (1, 10));
    assert!(!one.is_open() && other.is_open());
}

#[tokio::test(start_paused = true)]
async fn what_is_led_no_more_is_not_asked() {
    let scene = Scene::new();
    let lease = scene.lease("one").await;
    let slow = Counts {
        takes: TTL * 100,
        clock: Some(scene.clock.clone()),
        ..Counts::default()
    };
    let asking = scene.ask(&slow, &lease);
    scene.clock.sleep(EVERY + EVERY / 2).await;
    assert_eq!(slow.asked(), 1);
    // Another definition of the job may be led under the same lease.
    drop(asking);
    scene.clock.sleep(TTL * 5).await;
    assert!(lease.is_open());
    assert_eq!(slow.asked(), 1);
    assert!(scene.health.rounds().led.is_empty());
}
