//! What a hundred locks cost while nothing happens: their holder, and a standby.

use std::time::Duration;

use tokio::task::JoinSet;
use watchkeeper_lock::{
    election::Elector,
    lock::{Claim, Claimed, Locks},
};

use crate::{
    Plan,
    scene::Scene,
    table::{Goal, Row, Table},
};

const LOCKS: usize = 100;
const NODES: usize = 3;
/// Calls a second, of all nodes together.
const STANDBY: f64 = 15.0;
/// Calls a second of one node.
const HOLDER: f64 = 2.0;
/// Until all have seen who holds what.
const SETTLED: Duration = Duration::from_millis(1_500);

pub(crate) async fn measure(plan: Plan, table: &mut Table) {
    let scene = Scene::start(NODES).await;
    let names: Vec<_> = (0..LOCKS).map(|i| format!("idle-{i}")).collect();
    let claims = names.iter().flat_map(|name| {
        [
            Claim::named(format!("lock/{name}")),
            Claim::named(format!("elect/{name}")),
        ]
    });
    let claims: Vec<_> = claims.collect();
    // Both kinds of waiter find the same: a hundred each. On a busy machine that may take longer than a node may: then again.
    let mut all = Vec::new();
    for _ in 0..10 {
        all = scene.locks.claim(claims.clone()).await.unwrap();
        if all
            .iter()
            .all(|claimed| matches!(claimed, Claimed::Acquired(_)))
        {
            break;
        }
        all.clear();
        scene.locks.settle().await;
        scene.quiet().await;
    }
    let (locks, terms): (Vec<_>, Vec<_>) = all
        .into_iter()
        .filter(|claimed| matches!(claimed, Claimed::Acquired(_)))
        .enumerate()
        .partition(|(i, _)| i % 2 == 0);
    assert_eq!((locks.len(), terms.len()), (LOCKS, LOCKS));
    let others = scene.others().await;

    drop(terms);
    scene.locks.settle().await;
    let holder = calls_a_second(&scene, plan.idle).await;
    #[allow(clippy::cast_precision_loss, reason = "three of them")]
    let row = Row::new("holder of 100, calls a second and node", NODES)
        .ours(format!("{holder:.1} in all"))
        .figure(holder / NODES as f64)
        .goal(Goal::AtMost(HOLDER));
    table.add(row);

    let mut waiters = JoinSet::new();
    for name in &names {
        let (others, name) = (others.clone(), name.clone());
        waiters.spawn(async move { drop(others.lock(&name).wait(Duration::MAX).acquire().await) });
    }
    standby(
        "waiters for 100 locks, calls a second",
        &scene,
        holder,
        plan,
        table,
    )
    .await;
    waiters.shutdown().await;

    // Held again, for those that campaign.
    let claims = names
        .iter()
        .map(|name| Claim::named(format!("elect/{name}")));
    let terms = scene.locks.claim(claims.collect()).await.unwrap();
    let both = calls_a_second(&scene, plan.idle).await;
    campaign(&others, &names, &mut waiters);
    standby(
        "candidates for 100 terms, calls a second",
        &scene,
        both,
        plan,
        table,
    )
    .await;
    waiters.shutdown().await;
    drop((locks, terms));
}

fn campaign(others: &Locks, names: &[String], waiters: &mut JoinSet<()>) {
    for name in names {
        let elector = Elector::new(others, name);
        waiters.spawn(async move { drop(elector.campaign().await) });
    }
}

/// What comes on top of the holder's calls.
async fn standby(what: &str, scene: &Scene, holder: f64, plan: Plan, table: &mut Table) {
    scene.clock.sleep(SETTLED.min(plan.idle)).await;
    let more = calls_a_second(scene, plan.idle).await - holder;
    let row = Row::new(what, NODES)
        .ours(format!("{more:.1} in all"))
        .figure(more)
        .goal(Goal::AtMost(STANDBY));
    table.add(row);
}

async fn calls_a_second(scene: &Scene, time: Duration) -> f64 {
    let before = scene.asked();
    scene.clock.sleep(time).await;
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let calls = scene.asked().since(before).scripts as f64;
    calls / time.as_secs_f64()
}
