//! A thousand unlocked jobs due at one instant, beside bare timers.

use serde_json::json;

use crate::{
    Plan,
    child::{When, Who},
    scene::{NODES, Scene, pause},
    table::{Goal, Row, Table, micros, p50, p99, time},
};

/// Milliseconds at p99, beside bare timers for comparison.
const LATENESS_MS: f64 = 10.0;

pub(crate) fn measure(plan: Plan, table: &mut Table) {
    // The worker talks to its masters as ever; only its jobs need none.
    let scene = Scene::start(NODES);
    // Both live at the same time, and two seconds apart: a machine that grows busy slows both.
    let mut worker = scene.child(Who::Everywhere, When::AtOnce(0), plan.jobs);
    let mut timers = scene.child(Who::Timers, When::AtOnce(2), plan.jobs);
    pause(plan.settle());
    worker.begin();
    timers.begin();
    pause(plan.time);
    let (ours, bare) = (worker.end(), timers.end());
    let row = Row::new(format!("{} at once, lateness p99", plan.jobs), NODES)
        .ours(format!(
            "{}, p50 {}, {:.0} % cpu, {:.1} MB",
            time(p99(&ours.delays)),
            time(p50(&ours.delays)),
            ours.cpu_percent(),
            ours.memory
        ))
        .beside(format!(
            "{}, p50 {}, {:.0} % cpu, {:.1} MB",
            time(p99(&bare.delays)),
            time(p50(&bare.delays)),
            bare.cpu_percent(),
            bare.memory
        ))
        .figure(micros(p99(&ours.delays)) / 1000.0)
        .goal(Goal::AtMost(LATENESS_MS))
        .more(json!({ "runs": ours.delays.len(), "bare": bare.delays.len() }));
    table.add(row);
}
