//! A thousand leases of one process, renewed by its keeper.

use std::time::Duration;

use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use watchkeeper_lock::{
    event::Event,
    lease::Lease,
    lock::{Claim, Claimed},
    node::Kind,
};

use crate::{
    Plan,
    raw::ByHand,
    scene::Scene,
    table::{Goal, Row, Table, median, micros, p50, time},
};

const LEASES: usize = 1_000;
const CHUNK: usize = 250;
/// A round every half second.
const TTL: Duration = Duration::from_millis(1_500);
/// The longest, to the chunked calls: of locks, whose records are extended as well, and of claims.
const LONGEST: (f64, f64) = (1.6, 1.3);

pub(crate) async fn measure(plan: Plan, table: &mut Table) {
    for nodes in plan.nodes([1, 3]) {
        for kind in [Kind::Lock, Kind::Claim] {
            one(nodes, kind, plan, table).await;
        }
    }
}

/// So many leases of one call, so that they are renewed together. On a busy machine that may take longer than a node
/// may: then again.
async fn hold_all(scene: &Scene, kind: Kind) -> Vec<Lease> {
    let mut held = Vec::new();
    for attempt in 0..10 {
        let claims = (0..LEASES).map(|i| Claim {
            key: format!("lock/many-{attempt}-{i}"),
            kind,
            ttl: Some(TTL),
        });
        let claimed = scene.locks.claim(claims.collect()).await.unwrap();
        held = claimed
            .into_iter()
            .filter_map(|claimed| match claimed {
                Claimed::Acquired(lease) => Some(lease),
                _ => None,
            })
            .collect();
        if held.len() == LEASES {
            break;
        }
        held.clear();
        scene.locks.settle().await;
        scene.quiet().await;
    }
    held
}

async fn one(nodes: usize, kind: Kind, plan: Plan, table: &mut Table) {
    let scene = Scene::start(nodes).await;
    let by_hand = ByHand::connect(&scene.urls()).await;
    let keys: Vec<_> = (0..LEASES).map(|i| format!("raw-{i}")).collect();
    assert!(by_hand.acquire_many(&keys, "me").await);
    let mut events = scene.locks.events().observe();
    let held = hold_all(&scene, kind).await;
    let leases = held.len();
    if leases < LEASES {
        let row = Row::new(format!("{LEASES} extensions, {kind:?}"), nodes);
        table.add(row.ours("never held: the nodes took longer than their time limit"));
        return;
    }

    let (mut ours, mut raw, mut script_us) = (Vec::new(), Vec::new(), Vec::new());
    let (mut with_record, mut seq) = (Vec::new(), 0);
    let (mut at_once, mut slowest, mut lost) = (0, Duration::ZERO, 0);
    let mut before = scene.asked();
    let until = scene.clock.now() + TTL / 3 * u32::try_from(plan.trials.max(3)).unwrap();
    while scene.clock.now() < until {
        // A round has ended when its news do.
        match scene
            .clock
            .timeout(Duration::from_millis(100), events.recv())
            .await
        {
            Ok(Ok(Event::Renewed { took, ok, .. })) => {
                at_once += 1;
                slowest = slowest.max(took);
                lost += usize::from(!ok);
            }
            Ok(Err(RecvError::Closed)) => break,
            Ok(_) => {}
            Err(_) if at_once == 0 => {}
            Err(_) => {
                if at_once >= leases {
                    ours.push(slowest);
                    let spent = scene.asked().since(before);
                    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
                    script_us.push(spent.script_us as f64 / nodes as f64);
                }
                for _ in 0..5 {
                    let (took, kept) = scene.timed(by_hand.extend_many(&keys, "me", CHUNK)).await;
                    assert!(kept, "nobody else wants them");
                    raw.push(took);
                    seq += 1;
                    let extended = by_hand.extend_many_records(&keys, "me", CHUNK, seq);
                    let (took, kept) = scene.timed(extended).await;
                    assert!(kept, "nobody else wants them");
                    with_record.push(took);
                }
                (at_once, slowest) = (0, Duration::ZERO);
                before = scene.asked();
            }
        }
    }
    let row = Row::new(format!("{leases} extensions, {kind:?}"), nodes)
        .ours(format!(
            "{} ({} rounds, {lost} failed)",
            time(p50(&ours)),
            ours.len()
        ))
        .beside(format!(
            "{}, with records {}",
            time(p50(&raw)),
            time(p50(&with_record))
        ))
        .figure(micros(p50(&ours)) / micros(p50(&raw)))
        .more(json!({
            "script_us_per_node": median(script_us),
            "to_calls_with_records": micros(p50(&ours)) / micros(p50(&with_record)),
        }));
    table.add(if nodes == 3 {
        row.goal(Goal::AtMost(match kind {
            Kind::Lock => LONGEST.0,
            Kind::Claim => LONGEST.1,
        }))
    } else {
        row
    });
}
