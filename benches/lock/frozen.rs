//! One node of three stands still, then goes on, again and again: what does that cost the callers?

use crate::{Plan, figures::Figures, scene::Scene};

pub(crate) async fn measure(plan: Plan, figures: &mut Figures) {
    let scene = Scene::start(3).await;
    scene.all_up().await;
    for _ in 0..plan.warm_up {
        scene.cycle().await;
    }
    let mut extended = scene.extended().await;
    for block in 0..plan.blocks {
        healthy_or_not(&scene, plan, "all answer", &mut extended, figures).await;
        // Each in its turn: the answer must not depend on which one it is.
        let victim = &scene.servers[block % scene.servers.len()];
        // Nothing is left out: the time until the silence is noticed counts as well.
        victim.freeze();
        healthy_or_not(&scene, plan, "one frozen", &mut extended, figures).await;
        victim.thaw();
        scene.all_up().await;
    }
}

async fn healthy_or_not(
    scene: &Scene,
    plan: Plan,
    state: &'static str,
    extended: &mut crate::scene::Extended,
    figures: &mut Figures,
) {
    for _ in 0..plan.acquires {
        let Some((acquire, release)) = scene.cycle().await else {
            continue;
        };
        figures.add("acquire", 3, state, acquire);
        figures.add("release", 3, state, release);
    }
    for _ in 0..plan.extensions {
        let took = scene.next_extension(extended).await;
        figures.add("extend", 3, state, took);
    }
}
