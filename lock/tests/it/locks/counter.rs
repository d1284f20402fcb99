//! A counter that nothing but the lock protects.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::join_all;
use watchkeeper_lock::chance::Chance;

use super::*;

const CONTENDERS: u64 = 4;

/// Says how a failed run is repeated.
struct Seed(u64);

impl Seed {
    fn draw() -> Self {
        let named = std::env::var("WATCHKEEPER_SEED").ok();
        let drawn = || Chance::system().below(1 << 32);
        Self(named.map_or_else(drawn, |seed| seed.parse().expect("a number")))
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("WATCHKEEPER_SEED={}", self.0);
        }
    }
}

pub(crate) async fn no_update_is_lost(scene: Scene) {
    let seed = Seed::draw();
    // With real time a call that a busy machine keeps from its node in time is one that a dead client did not send:
    // its place in the queue would stay for as long. Here no client dies.
    let (scene, ttl, turns) = match scene.time.here {
        true => (scene.clone(), scene.time.ttl, 25),
        false => (scene.clone().patient(), LONG, 8),
    };
    count(&scene, &Chance::seeded(seed.0), turns, ttl, async {}).await;
    scene.nothing_is_left(KEY).await;
}

pub(crate) async fn no_update_is_lost_while_nodes_come_and_go(scene: Scene) {
    let seed = Seed::draw();
    let chance = Chance::seeded(seed.0);
    let turns = if scene.time.here { 60 } else { 8 };
    let nodes = u64::try_from(scene.nodes()).unwrap();
    let faults = async {
        for round in 0..if scene.time.here { 12 } else { 4 } {
            let node = usize::try_from(chance.below(nodes)).unwrap();
            let pause = || chance.up_to(scene.time.ttl / 2);
            scene.time.clock.sleep(pause()).await;
            if round % 2 == 0 {
                scene.faults().freeze(node);
                scene.time.clock.sleep(pause()).await;
                scene.faults().thaw(node);
            } else {
                scene.faults().restart(node);
            }
        }
    };
    let ttl = scene.time.ttl;
    count(&scene, &Chance::seeded(seed.0), turns, ttl, faults).await;
}

/// Reads, pauses and writes under the lock, beside `meanwhile`.
async fn count(
    scene: &Scene,
    chance: &Chance,
    turns: u64,
    ttl: Duration,
    meanwhile: impl Future<Output = ()>,
) {
    let (counter, counted) = (AtomicU64::new(0), AtomicU64::new(0));
    let over = AtomicBool::new(false);
    let contend = (0..CONTENDERS).map(|_| {
        let client = scene.client();
        let (counter, counted, over) = (&counter, &counted, &over);
        async move {
            let mut done = 0;
            while done < turns || !over.load(Ordering::SeqCst) {
                let lease = client.hold_for(ttl).await;
                let read = counter.load(Ordering::SeqCst);
                scene
                    .time
                    .clock
                    .sleep(chance.up_to(scene.time.ttl / 50))
                    .await;
                // A holder that has lost its lease must not act.
                if lease.view().is_held() {
                    counter.store(read + 1, Ordering::SeqCst);
                    counted.fetch_add(1, Ordering::SeqCst);
                    done += 1;
                }
                match chance.below(4) {
                    0 => drop(lease),
                    _ => drop(lease.release().await),
                }
                scene
                    .time
                    .clock
                    .sleep(chance.up_to(scene.time.ttl / 100))
                    .await;
            }
        }
    });
    let faults = async {
        meanwhile.await;
        over.store(true, Ordering::SeqCst);
    };
    tokio::join!(join_all(contend), faults);
    let (counter, counted) = (counter.into_inner(), counted.into_inner());
    assert!(counted >= turns * CONTENDERS);
    scene.never_but(counter == counted, || {
        format!("updates were lost: {counter} of {counted}")
    });
}
