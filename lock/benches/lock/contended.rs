//! Sixteen processes that all want one lock, again and again.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    Plan,
    scene::Scene,
    table::{Goal, Row, Table, median, micros, p50, percentile, time},
};

const CONTENDERS: usize = 16;
const SECTIONS: usize = 20;
const SECTION: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(60);
/// The most calls, to one for each acquire and release on each node.
const MOST_CALLS: f64 = 2.0;
/// The longest wait, in milliseconds.
const LONGEST_MS: f64 = 100.0;

pub(crate) async fn measure(plan: Plan, table: &mut Table) {
    for nodes in plan.nodes([1, 3, 5]) {
        let scene = Scene::start(nodes).await;
        let mut contenders = Vec::new();
        for _ in 0..CONTENDERS {
            contenders.push(scene.others().await);
        }
        let least = 2 * CONTENDERS * SECTIONS * nodes;
        let (mut calls, mut longest, mut total, mut waits) = (vec![], vec![], vec![], vec![]);
        let mut failed = 0;
        for run in 0..plan.trials.div_ceil(12) {
            let before = scene.asked();
            let start = scene.clock.now();
            let mut working = JoinSet::new();
            for locks in &contenders {
                let (locks, clock) = (locks.clone(), scene.clock.clone());
                working.spawn(async move {
                    let mut waits = Vec::new();
                    for _ in 0..SECTIONS {
                        let began = clock.now();
                        let lock = locks.lock(&format!("wanted-{run}")).wait(PATIENCE);
                        let Ok(lease) = lock.acquire().await else {
                            continue;
                        };
                        waits.push(clock.now().since(began));
                        clock.sleep(SECTION).await;
                        lease.release().await;
                    }
                    waits
                });
            }
            let mut waited = Vec::new();
            while let Some(one) = working.join_next().await {
                waited.extend(one.unwrap());
            }
            total.push(scene.clock.now().since(start));
            #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
            calls.push(scene.asked().since(before).scripts as f64);
            failed += CONTENDERS * SECTIONS - waited.len();
            longest.push(percentile(&waited, 100));
            waits.extend(waited);
        }
        let calls = median(calls);
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let row = Row::new("calls of 16 contenders, 20 sections each", nodes)
            .ours(format!(
                "{calls:.0} calls in {}, {failed} failed",
                time(p50(&total))
            ))
            .beside(format!("{least} calls at least"))
            .figure(calls / least as f64)
            .goal(Goal::AtMost(MOST_CALLS));
        table.add(row);
        let row = Row::new("their longest wait, in ms", nodes)
            .ours(format!(
                "p50 {}, longest {}",
                time(p50(&waits)),
                time(p50(&longest))
            ))
            .figure(micros(p50(&longest)) / 1e3)
            .goal(Goal::AtMost(LONGEST_MS))
            .more(json!({ "p99_us": micros(percentile(&waits, 99)) }));
        table.add(row);
    }
}
