//! One node of three stands still, then goes on, again and again: what does that cost the callers?

use std::time::Duration;

use crate::{
    Plan,
    scene::{Extended, Scene},
    table::{Goal, Row, Table, micros, p50, p99, time},
};

/// The longest median with one node frozen, to that with all answering.
const LONGEST: f64 = 1.1;

/// What was measured in one state.
#[derive(Default)]
struct Took {
    acquire: Vec<Duration>,
    release: Vec<Duration>,
    extend: Vec<Duration>,
}

pub(crate) async fn measure(plan: Plan, table: &mut Table) {
    let scene = Scene::start(3).await;
    for _ in 0..plan.trials * 5 {
        scene.cycle().await;
    }
    let mut extended = scene.extended().await;
    let (mut healthy, mut frozen) = (Took::default(), Took::default());
    for round in 0..plan.rounds * 2 {
        block(&scene, plan, &mut healthy, &mut extended).await;
        // Each in its turn: the answer must not depend on which one it is.
        let victim = &scene.servers[round % scene.servers.len()];
        // Nothing is left out: the time until the silence is noticed counts as well.
        victim.freeze();
        block(&scene, plan, &mut frozen, &mut extended).await;
        victim.thaw();
        scene.all_up(&scene.locks).await;
    }
    for (what, frozen, healthy) in [
        ("acquire, one frozen", frozen.acquire, healthy.acquire),
        ("extend, one frozen", frozen.extend, healthy.extend),
        ("release, one frozen", frozen.release, healthy.release),
    ] {
        let text = |took: &[Duration]| format!("{}, p99 {}", time(p50(took)), time(p99(took)));
        let row = Row::new(what, 3)
            .ours(text(&frozen))
            .beside(format!("{} when all answer", text(&healthy)))
            .figure(micros(p50(&frozen)) / micros(p50(&healthy)))
            .goal(Goal::AtMost(LONGEST));
        table.add(row);
    }
}

async fn block(scene: &Scene, plan: Plan, took: &mut Took, extended: &mut Extended) {
    for _ in 0..plan.trials * 5 {
        let Some((acquire, release)) = scene.cycle().await else {
            continue;
        };
        took.acquire.push(acquire);
        took.release.push(release);
    }
    for _ in 0..plan.trials.min(20) {
        took.extend.push(scene.next_extension(extended).await);
    }
}
