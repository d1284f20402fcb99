//! From one holder to the next: by a release, and by the end of a lease that is not extended.

use std::time::Duration;

use deadpool_redis::redis::Client;
use futures_util::StreamExt;
use serde_json::json;
use tokio::{sync::mpsc, task::JoinSet};
use watchkeeper_lock::{
    chance::Chance,
    lock::Locks,
    node::{Expiry, Kind},
};

use crate::{
    Plan,
    raw::ByHand,
    scene::Scene,
    table::{Goal, Row, Table, micros, p50, time},
};

/// The longest hand-over, to publish-and-set, without the hops between threads.
const LONGEST: f64 = 2.0;
/// The longest medians from the end of a lease to the next holder, in milliseconds: by the nodes' clocks, and watched.
const LATE_MS: f64 = 10.0;
const WATCHED_LATE_MS: f64 = 150.0;
/// Until a waiter waits.
const SETTLED: Duration = Duration::from_millis(60);
const PATIENCE: Duration = Duration::from_secs(20);
/// Of a lease whose holder vanishes.
const SHORT: Duration = Duration::from_millis(400);

pub(crate) async fn on_release(plan: Plan, table: &mut Table) {
    for nodes in plan.nodes([1, 3, 5]) {
        let scene = Scene::start(nodes).await;
        let (others, clock) = (scene.others().await, scene.clock.clone());
        let by_hand = (
            ByHand::connect(&scene.urls()).await,
            ByHand::connect(&scene.urls()).await,
        );
        let mut news = subscribe(&scene.urls(), "raw").await;
        let (mut ours, mut raw, mut hops) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..plan.trials {
            let lease = scene
                .locks
                .lock("next")
                .wait(PATIENCE)
                .acquire()
                .await
                .unwrap();
            let waiting = others.lock("next").wait(PATIENCE).acquire();
            let waiter = async {
                let next = waiting.await.unwrap();
                (clock.now(), next)
            };
            let holder = async {
                clock.sleep(SETTLED).await;
                let start = clock.now();
                lease.release().await;
                start
            };
            let ((held, next), start) = tokio::join!(waiter, holder);
            next.release().await;
            ours.push(held.since(start));

            assert!(by_hand.0.acquire("raw", "a").await);
            let waiter = async {
                // A majority is free when a majority has said so.
                let mut told = 0;
                while told < nodes / 2 + 1 {
                    news.recv().await.unwrap();
                    told += 1;
                }
                while !by_hand.1.acquire("raw", "b").await {
                    // A node that said nothing yet: again.
                    by_hand.1.release("raw", "b").await;
                }
                (clock.now(), told)
            };
            let holder = async {
                clock.sleep(SETTLED).await;
                let start = clock.now();
                by_hand.0.hand_over("raw", "a").await;
                start
            };
            let ((held, told), start) = tokio::join!(waiter, holder);
            for _ in told..nodes {
                news.recv().await.unwrap();
            }
            by_hand.1.release("raw", "b").await;
            raw.push(held.since(start));
            // From rest, as the hand-over is.
            clock.sleep(SETTLED).await;
            hops.push(scene.timed(scene.locks.nodes()).await.0);
        }
        // The release goes to the keeper, the announcement comes from another one, the attempt goes there and back.
        let figure = (micros(p50(&ours)) - 2.0 * micros(p50(&hops))) / micros(p50(&raw));
        let row = Row::new("from a release to the next holder", nodes)
            .ours(spread(&ours))
            .beside(spread(&raw))
            .figure(figure)
            .goal(Goal::AtMost(LONGEST))
            .more(json!({ "two_hops_us": micros(p50(&hops)) }));
        table.add(row);
    }
}

pub(crate) async fn on_expiry(plan: Plan, table: &mut Table) {
    for nodes in plan.nodes([1, 3, 5]) {
        let scene = Scene::start(nodes).await;
        for (what, expiry, goal) in [
            ("by the nodes' clocks", Expiry::Server, LATE_MS),
            ("watched", Expiry::Observed, WATCHED_LATE_MS),
        ] {
            let locks = scene.others_by(expiry).await;
            let late = after_a_crash(&scene, &locks, plan).await;
            let row = Row::new(
                format!("from the end of a lease to the next, {what}"),
                nodes,
            )
            .ours(spread(&late))
            .figure(micros(p50(&late)) / 1e3)
            .goal(Goal::AtMost(goal));
            table.add(row);
        }
    }
}

/// How long a lock stays free that its holder left behind.
async fn after_a_crash(scene: &Scene, locks: &Locks, plan: Plan) -> Vec<Duration> {
    // What is taken below the keeper is not extended.
    let (vanished, chance) = (scene.nodes(), Chance::system());
    let mut late = Vec::new();
    for _ in 0..plan.trials {
        let name = chance.id();
        let (key, owner) = (format!("lock/{name}"), chance.id());
        assert!(vanished.acquire(&key, &owner, Kind::Lock, SHORT).await);
        // All nodes took it before this, so that it is over on all of them at the latest then.
        let end = scene.clock.now() + SHORT;
        let next = locks.lock(&name).wait(PATIENCE).acquire().await.unwrap();
        late.push(scene.clock.now().since(end));
        next.release().await;
    }
    late
}

fn spread(took: &[Duration]) -> String {
    let most = took.iter().max().copied().unwrap_or_default();
    format!("{}, at most {}", time(p50(took)), time(most))
}

/// A message from any server whenever this channel is published on there.
async fn subscribe(urls: &[String], channel: &'static str) -> Messages {
    let (heard, news) = mpsc::unbounded_channel();
    let mut listeners = JoinSet::new();
    for url in urls {
        let client = Client::open(url.as_str()).unwrap();
        let (mut sink, mut stream) = client.get_async_pubsub().await.unwrap().split();
        sink.subscribe(channel).await.unwrap();
        let heard = heard.clone();
        listeners.spawn(async move {
            // Dropped, it would unsubscribe.
            let _sink = sink;
            while stream.next().await.is_some() {
                if heard.send(()).is_err() {
                    return;
                }
            }
        });
    }
    Messages {
        news,
        _listeners: listeners,
    }
}

struct Messages {
    news: mpsc::UnboundedReceiver<()>,
    _listeners: JoinSet<()>,
}

impl Messages {
    async fn recv(&mut self) -> Option<()> {
        self.news.recv().await
    }
}
