//! How many round trips a cycle costs, behind a network that takes longer than anything else.

use std::time::Duration;

use serde_json::json;
use watchkeeper_lock::node::Expiry;

use crate::{
    Plan,
    proxy::Proxy,
    raw::ByHand,
    scene::{Scene, locks_at},
    table::{Goal, Row, Table, micros, p50, time},
};

/// Each way; timers add about a millisecond.
const DELAY: Duration = Duration::from_millis(2);
/// The most round trips of a cycle.
const MOST: f64 = 2.2;

pub(crate) async fn measure(plan: Plan, table: &mut Table) {
    for nodes in plan.nodes([1, 3, 5]) {
        let near = Scene::start(nodes).await;
        let proxies: Vec<_> = near
            .servers
            .iter()
            .map(|s| Proxy::before(s, DELAY))
            .collect();
        let urls: Vec<_> = proxies.iter().map(Proxy::url).collect();
        let locks = locks_at(&urls, Expiry::Observed);
        near.all_up(&locks).await;
        let by_hand = ByHand::connect(&urls).await;
        let (mut acquire, mut release, mut cycle) = (Vec::new(), Vec::new(), Vec::new());
        let (mut raw, mut trip) = (Vec::new(), Vec::new());
        for _ in 0..plan.trials * 3 {
            let (took, lease) = near.timed(locks.lock("far").acquire()).await;
            let Ok(lease) = lease else { continue };
            let (rest, _) = near.timed(lease.release()).await;
            acquire.push(took);
            release.push(rest);
            cycle.push(took + rest);
            raw.push(near.timed(by_hand.cycle("far", "me")).await.0);
            trip.push(near.timed(by_hand.ping()).await.0);
        }
        let trips = |took: &[Duration]| micros(p50(took)) / micros(p50(&trip));
        let row = Row::new("round trips of a cycle", nodes)
            .ours(format!("{} in {:.2}", time(p50(&cycle)), trips(&cycle)))
            .beside(format!(
                "{} in {:.2}; one is {}",
                time(p50(&raw)),
                trips(&raw),
                time(p50(&trip))
            ))
            .figure(trips(&cycle))
            .goal(Goal::AtMost(MOST))
            .more(json!({ "acquire": trips(&acquire), "release": trips(&release) }));
        table.add(row);
        for (what, took) in [("of its acquire", acquire), ("of its release", release)] {
            let row = Row::new(what, nodes).ours(time(p50(&took)));
            table.add(row.figure(trips(&took)));
        }
    }
}
