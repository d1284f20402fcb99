//! Rows of one table: by replicas of ours, and by a loop with `FOR UPDATE SKIP LOCKED` in the same database.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use serde_json::json;
use tokio_postgres::Client;
use watchkeeper::{Spec, clock::Clock, lock::spawn::Spawn, node::Token};
use watchkeeper_jobs::{
    Notifications,
    notifications::{Answer, Item, Sink},
};

use crate::{
    Plan,
    fleet::{Masters, Replicas, connect, database, insert, until},
    table::{Goal, Row, Table, median},
};

/// Takes everything, and counts it.
#[derive(Clone, Default)]
pub(crate) struct Count(Arc<AtomicU64>);

/// What both take at a time.
const BATCH: u32 = 100;
const LIMIT: Duration = Duration::from_secs(300);

#[async_trait]
impl Sink for Count {
    fn name(&self) -> String {
        "count".to_owned()
    }

    async fn send(&self, _item: &Item, _token: Token) -> Answer {
        self.0.fetch_add(1, Ordering::Relaxed);
        Answer::Accepted
    }
}

impl Count {
    pub(crate) fn seen(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

fn job(source: &str, count: &Count, more: serde_json::Value) -> Notifications {
    let mut params =
        json!({"source": source, "table": "notifications", "batch_size": BATCH, "claim": 16});
    params
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    Notifications::new(serde_json::from_value(params).unwrap(), None)
        .with_sink(Arc::new(count.clone()))
}

/// Rows a second, from the moment at which they are committed until all are marked.
async fn round(client: &Client, rows: u64, seen: impl Fn() -> u64) -> f64 {
    let clock = Clock::system();
    let before = seen();
    insert(client, rows).await;
    let began = clock.now();
    until("all rows", LIMIT, || seen() >= before + rows).await;
    let open = "SELECT count(*) FROM notifications WHERE sent_at IS NULL";
    loop {
        let left: i64 = client.query_one(open, &[]).await.unwrap().get(0);
        if left == 0 {
            break;
        }
        clock.sleep(Duration::from_millis(2)).await;
    }
    let took = clock.now().since(began);
    assert_eq!(seen(), before + rows, "sent twice");
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let rows = rows as f64;
    rows / took.as_secs_f64()
}

async fn ours(masters: &Masters, source: &str, replicas: usize, count: &Count) -> Replicas {
    let make = || job(source, count, json!({}));
    masters.replicas(replicas, "mail", make, &Spec::continuous())
}

/// As it is written well: an index of what is unsent, one statement to take rows and one to mark them, and a pause only where
/// there was nothing.
async fn take(url: String, count: Count) {
    let mut client = connect(&url).await;
    let clock = Clock::system();
    loop {
        let tx = client.transaction().await.unwrap();
        let taken = tx
            .query(
                "SELECT id, recipient, body FROM notifications WHERE sent_at IS NULL ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED",
                &[],
            )
            .await
            .unwrap();
        if taken.is_empty() {
            drop(tx);
            clock.sleep(Duration::from_millis(50)).await;
            continue;
        }
        let ids: Vec<i64> = taken.iter().map(|row| row.get(0)).collect();
        count.0.fetch_add(ids.len() as u64, Ordering::Relaxed);
        tx.execute(
            "UPDATE notifications SET sent_at = now() WHERE id = ANY ($1)",
            &[&ids],
        )
        .await
        .unwrap();
        tx.commit().await.unwrap();
    }
}

pub(crate) async fn section(plan: Plan, table: &mut Table) {
    table.section("beside", &[]);
    let masters = Masters::start(3);
    for replicas in [1, 2, 4] {
        let (_server, client, url) = database().await;
        let count = Count::default();
        let (mut by_us, mut by_loop) = (Vec::new(), Vec::new());
        for _ in 0..plan.rounds {
            let fleet = ours(&masters, &url, replicas, &count).await;
            // The first rows show that all is under way: new servers are watched before they vote.
            round(&client, 1_000, || count.seen()).await;
            by_us.push(round(&client, plan.rows, || count.seen()).await);
            fleet.end().await;
            let loops =
                (0..replicas).map(|_| Spawn::system().spawn(take(url.clone(), count.clone())));
            let loops: Vec<_> = loops.collect();
            round(&client, 1_000, || count.seen()).await;
            by_loop.push(round(&client, plan.rows, || count.seen()).await);
            for task in loops {
                task.abort();
                _ = task.await;
            }
            client
                .batch_execute("VACUUM ANALYZE notifications")
                .await
                .unwrap();
        }
        let (by_us, by_loop) = (median(by_us), median(by_loop));
        let row = Row::new(format!("{replicas} replicas, rows a second"), 3)
            .ours(format!("{by_us:.0}"))
            .beside(format!("{by_loop:.0}"))
            .figure(by_us / by_loop)
            .goal(Goal::AtLeast(0.8));
        table.add(row);
    }
}

/// A rate that four replicas keep together: what comes through, and the most in any second.
pub(crate) async fn rate(plan: Plan, table: &mut Table) {
    const RATE: u64 = 1_000;
    table.section("rate", &[]);
    let masters = Masters::start(3);
    let (_server, client, url) = database().await;
    let count = Count::default();
    let make = || job(&url, &count, json!({"rate": RATE}));
    let fleet = masters.replicas(4, "mail", make, &Spec::continuous());
    round(&client, 1_000, || count.seen()).await;
    let seconds = plan.seconds * 3;
    insert(&client, RATE * (seconds + 20)).await;
    let clock = Clock::system();
    // Shares go round first.
    clock.sleep(Duration::from_secs(5)).await;
    // Every fiftieth of a second, so that any second is seen.
    let (began, before) = (clock.now(), count.seen());
    let mut seen = Vec::new();
    for tick in 0..seconds * 50 {
        clock
            .sleep_until(began + Duration::from_millis(20 * tick))
            .await;
        seen.push((clock.now().since(began), count.seen() - before));
    }
    let most = seen.iter().enumerate().map(|(i, (at, n))| {
        let later = seen[i..]
            .iter()
            .take_while(|(t, _)| *t <= *at + Duration::from_secs(1));
        later.last().map_or(0, |(_, last)| last - n)
    });
    let most = most.max().unwrap_or(0);
    fleet.end().await;
    let (took, sent) = *seen.last().unwrap();
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let (mean, most) = (sent as f64 / took.as_secs_f64(), most as f64);
    let row = |what: &str, figure: f64, goal| {
        Row::new(what, 3)
            .ours(format!("{figure:.0}"))
            .beside(RATE.to_string())
            .figure(figure)
            .goal(goal)
    };
    table.add(row(
        "4 replicas, rate 1,000: rows a second",
        mean,
        Goal::AtLeast(950.0),
    ));
    table.add(row("the most in any second", most, Goal::AtMost(1_000.0)));
}
