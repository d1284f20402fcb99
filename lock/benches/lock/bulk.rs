//! A hundred claims in one call.

use std::time::Duration;

use serde_json::json;
use watchkeeper_lock::lock::{Claim, Claimed};

use crate::{
    Plan,
    processor::{Spent, Used},
    raw::ByHand,
    scene::Scene,
    table::{Goal, Row, Table, micros, p50, p99, time},
};

const CLAIMS: usize = 100;
const REST: Duration = Duration::from_millis(1);
/// The least speed, to the pipeline.
const LEAST: f64 = 1.0;

pub(crate) async fn measure(plan: Plan, table: &mut Table) {
    for nodes in plan.nodes([1, 3, 5]) {
        let scene = Scene::start(nodes).await;
        let by_hand = ByHand::connect(&scene.urls()).await;
        let (mut ours, mut raw, mut script_us) = (Vec::new(), Vec::new(), Vec::new());
        let mut listed = Vec::new();
        let (mut processor, mut processor_raw) = (Spent::default(), Spent::default());
        let mut failed = 0;
        // The first tenth warms up.
        let trials = plan.trials * 5;
        for trial in 0..trials + trials / 10 {
            let keys: Vec<_> = (0..CLAIMS)
                .map(|i| format!("batch/bench/{trial}-{i}"))
                .collect();
            let claims: Vec<_> = keys.iter().map(Claim::short).collect();
            let (before, used) = (scene.asked(), Used::here(&scene.servers));
            let (took, claimed) = scene.timed(scene.locks.claim(claims)).await;
            // A thread is counted when it has come to rest.
            scene.clock.sleep(REST).await;
            let used = Used::here(&scene.servers).since(used);
            let spent = scene.asked().since(before);
            let claimed = claimed.unwrap();
            let won = claimed
                .iter()
                .filter(|c| matches!(c, Claimed::Acquired(_)))
                .count();
            drop(claimed);
            scene.locks.settle().await;
            let used_raw = Used::here(&scene.servers);
            let (by_hand_took, all) = scene.timed(by_hand.acquire_many(&keys, "me")).await;
            scene.clock.sleep(REST).await;
            let used_raw = Used::here(&scene.servers).since(used_raw);
            by_hand.delete_many(&keys).await;
            let (least_took, least) = scene.timed(by_hand.claim_many(&keys, "me")).await;
            by_hand.delete_many(&keys).await;
            assert!(all && least, "nobody else wants them");
            if trial < trials / 10 {
                continue;
            }
            if won < CLAIMS {
                // The machine stood still for longer than a node may take.
                failed += 1;
                continue;
            }
            ours.push(took);
            raw.push(by_hand_took);
            processor.add(used, 1.0);
            processor_raw.add(used_raw, 1.0);
            listed.push(least_took);
            script_us.push(spent.us_per_call());
        }
        let row = Row::new(format!("{CLAIMS} claims in one call"), nodes)
            .ours(format!("{}, p99 {}", time(p50(&ours)), time(p99(&ours))))
            .beside(format!(
                "{}, p99 {}; with token and list {}",
                time(p50(&raw)),
                time(p99(&raw)),
                time(p50(&listed))
            ))
            .figure(micros(p50(&raw)) / micros(p50(&ours)))
            .goal(Goal::AtLeast(LEAST))
            .columns(processor.columns(Some(&processor_raw)))
            .more(json!({ "failed": failed, "script_us": crate::table::median(script_us) }));
        table.add(row);
    }
}
