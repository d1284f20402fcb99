//! All nodes answer: ours beside the same by hand.

use std::time::Duration;

use crate::{Plan, figures::Figures, raw::ByHand, scene::Scene};

/// Renewals are rare and meet idle processors; so must the calls that they are compared with.
const REST: Duration = Duration::from_millis(10);

pub(crate) async fn measure(nodes: usize, plan: Plan, figures: &mut Figures) {
    let scene = Scene::start(nodes).await;
    let by_hand = ByHand::connect(&scene).await;
    scene.all_up().await;
    let owner = scene.locks.chance().id();
    for _ in 0..plan.warm_up {
        scene.cycle().await;
        by_hand.acquire(&owner).await;
        by_hand.release(&owner).await;
    }

    let mut add = |what, took| figures.add(what, nodes, "healthy", took);
    for _ in 0..plan.blocks {
        for _ in 0..plan.acquires {
            let Some((acquire, release)) = scene.cycle().await else {
                continue;
            };
            add("acquire", acquire);
            add("release", release);
            add("cycle", acquire + release);
        }
        for _ in 0..plan.acquires {
            let (acquire, ()) = scene.timed(by_hand.acquire(&owner)).await;
            let (release, ()) = scene.timed(by_hand.release(&owner)).await;
            add("acquire by hand", acquire);
            add("release by hand", release);
            add("cycle by hand", acquire + release);
        }
        for _ in 0..plan.acquires {
            let (took, _) = scene.timed(scene.locks.nodes()).await;
            add("two thread hops", took);
        }
    }

    by_hand.acquire(&owner).await;
    let mut extended = scene.extended().await;
    for _ in 0..plan.blocks * plan.extensions {
        add("extend", scene.next_extension(&mut extended).await);
        scene.clock.sleep(REST).await;
        let (took, ()) = scene.timed(by_hand.extend(&owner)).await;
        add("extend by hand", took);
    }
}
