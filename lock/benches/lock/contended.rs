//! Sixteen processes that all want one lock, again and again.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    Plan,
    peers::{Contended, Peer, Program},
    processor::{Meter, Spent},
    scene::Scene,
    table::{Goal, Row, Table, median, micros, p50, percentile, time},
};

const CONTENDERS: usize = 16;
const SECTIONS: usize = 20;
const SECTION: Duration = Duration::from_millis(1);
/// Of all contenders.
#[allow(clippy::cast_precision_loss, reason = "some hundreds")]
const TURNS: f64 = (CONTENDERS * SECTIONS) as f64;
const PATIENCE: Duration = Duration::from_secs(60);
/// The most calls, to one for each acquire and release on each node.
const MOST_CALLS: f64 = 2.0;
/// The longest wait, in milliseconds.
const LONGEST_MS: f64 = 100.0;
/// The longest time of all sections together, to rslock's with its own retries.
const LONGEST_TO_RSLOCK: f64 = 1.3;

pub(crate) async fn measure(plan: Plan, table: &mut Table) {
    for nodes in plan.nodes([1, 3, 5]) {
        let scene = Scene::start(nodes).await;
        let mut contenders = Vec::new();
        for _ in 0..CONTENDERS {
            contenders.push(scene.others().await);
        }
        let least = 2 * CONTENDERS * SECTIONS * nodes;
        let (mut calls, mut longest, mut total, mut waits) = (vec![], vec![], vec![], vec![]);
        let (mut failed, mut processor) = (0, Spent::default());
        let peers = Peer::start_all(&plan, &scene.servers, table);
        let mut peers: Vec<_> = peers.into_iter().map(Beside::new).collect();
        for run in 0..plan.trials.div_ceil(12) {
            let meter = Meter::here(&scene);
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
            let (asked, used) = meter.read(&scene).await;
            #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
            calls.push(asked.scripts as f64);
            processor.add(used, TURNS);
            failed += CONTENDERS * SECTIONS - waited.len();
            longest.push(percentile(&waited, 100));
            waits.extend(waited);
            for peer in &mut peers {
                peer.run(&scene).await;
            }
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
            .goal(Goal::AtMost(MOST_CALLS))
            .columns(processor.columns(None));
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
        for peer in &peers {
            peer.show(&total, &processor, nodes, table);
        }
    }
}

/// Another client, and what it did in all runs.
struct Beside {
    program: Program,
    done: Vec<Contended>,
    processor: Spent,
}

// === impl Beside ===

impl Beside {
    fn new(mut program: Program) -> Self {
        // Connected before anything is measured.
        program.contend(CONTENDERS, 1, Duration::ZERO);
        Self {
            program,
            done: Vec::new(),
            processor: Spent::default(),
        }
    }

    async fn run(&mut self, scene: &Scene) {
        let meter = Meter::there(self.program.pid(), scene);
        let done = self.program.contend(CONTENDERS, SECTIONS, SECTION);
        self.processor.add(meter.read(scene).await.1, TURNS);
        self.done.push(done);
    }

    fn show(&self, ours: &[Duration], processor: &Spent, nodes: usize, table: &mut Table) {
        let of = |time: fn(&Contended) -> Duration| self.done.iter().map(time).collect::<Vec<_>>();
        let (total, waits, longest) = (of(|d| d.time), of(|d| d.p50), of(|d| d.longest));
        let ratios = ours
            .iter()
            .zip(&total)
            .map(|(a, b)| micros(*a) / micros(*b));
        let peer = self.program.peer;
        let row = Row::new(format!("their time in all, to {}", peer.name()), nodes)
            .ours(time(p50(ours)))
            .beside(format!(
                "{}; waits: p50 {}, longest {}",
                time(p50(&total)),
                time(p50(&waits)),
                time(p50(&longest))
            ))
            .figure(median(ratios.collect()))
            .columns(processor.columns(Some(&self.processor)));
        table.add(match peer {
            Peer::Rslock => row.goal(Goal::AtMost(LONGEST_TO_RSLOCK)),
            Peer::NodeRedlock => row,
        });
    }
}
