//! Acquire and release of locks without contention, with 1, 32 and 256 of them at a time.

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;
use tokio::task::JoinSet;
use watchkeeper_lock::{
    chance::Chance,
    clock::Clock,
    lock::{Claim, Claimed, LockError, Locks, NodeTroubles},
    node::Kind,
};

use crate::{
    Plan,
    raw::ByHand,
    scene::{Nodes, Scene},
    table::{Goal, Row, Table, median, micros, p50, p99, time},
};

/// The least throughput, to that by hand.
const LEAST: f64 = 0.9;
/// The same where every call asks whether the node is still the one that was admitted.
const LEAST_GUARDED: f64 = 0.75;
/// The longest median of a single cycle, to that by hand, without the hops between threads.
const LONGEST: f64 = 1.5;

/// Who cycles.
#[derive(Clone)]
enum Side {
    ByHand(ByHand),
    /// With a token and a record.
    Least(ByHand),
    Locks(Locks),
    Claims(Locks),
    Nodes(Nodes, Kind, Chance),
}

/// Cycles that did not succeed, by cause.
type Failures = BTreeMap<&'static str, usize>;

/// What one side did in all rounds.
#[derive(Default)]
struct Done {
    /// Cycles in a second, by round.
    rates: Vec<f64>,
    took: Vec<Duration>,
    failed: Failures,
    /// Microseconds of all servers for a cycle, by round.
    server_us: Vec<f64>,
}

pub(crate) async fn measure(plan: Plan, table: &mut Table) {
    for nodes in plan.nodes([1, 3, 5]) {
        let scene = Scene::start(nodes).await;
        let by_hand = ByHand::connect(&scene.urls()).await;
        let chance = Chance::system();
        let (below, at_rest) = (scene.nodes(), by_hand.clone());
        let guarded = scene.guarded().await;
        let sides = [
            ("by hand", Side::ByHand(by_hand.clone())),
            ("by hand, token and record", Side::Least(by_hand)),
            ("locks", Side::Locks(scene.locks.clone())),
            ("claims", Side::Claims(scene.locks.clone())),
            ("locks, guarded", Side::Locks(guarded.clone())),
            ("claims, guarded", Side::Claims(guarded)),
            (
                "locks below the keeper",
                Side::Nodes(below.clone(), Kind::Lock, chance.clone()),
            ),
            (
                "claims below the keeper",
                Side::Nodes(below, Kind::Claim, chance),
            ),
        ];
        for at_a_time in [1, 32, 256] {
            let mut done: Vec<Done> = sides.iter().map(|_| Done::default()).collect();
            let mut hops = Vec::new();
            // The first round warms up.
            for round in 0..=plan.rounds {
                for ((_, side), done) in sides.iter().zip(&mut done) {
                    let before = scene.asked();
                    let one = load(side, at_a_time, plan.busy, &scene.clock).await;
                    let spent = scene.asked().since(before).script_us;
                    scene.quiet().await;
                    if round > 0 {
                        done.add(one, spent);
                    }
                }
                for _ in 0..if at_a_time == 1 { 200 } else { 0 } {
                    // As in a cycle: the keeper's thread sleeps until a server has answered, and is woken.
                    at_rest.ping().await;
                    hops.push(scene.timed(scene.locks.nodes()).await.0);
                }
            }
            show(&sides, &done, at_a_time, nodes, &hops, table);
        }
    }
}

fn show(
    sides: &[(&str, Side)],
    done: &[Done],
    at_a_time: usize,
    nodes: usize,
    hops: &[Duration],
    table: &mut Table,
) {
    let by_hand = &done[0];
    for ((name, _), done) in sides.iter().zip(done).skip(1) {
        let row = Row::new(format!("{name}, {at_a_time} at a time"), nodes)
            .ours(done.text())
            .beside(by_hand.text())
            .more(json!({
                "p50_us": micros(p50(&done.took)), "p99_us": micros(p99(&done.took)), "failed": done.failed,
                "per_second": median(done.rates.clone()), "script_us_per_cycle": median(done.server_us.clone()),
                "by_hand_per_second": median(by_hand.rates.clone()),
                "by_hand_script_us_per_cycle": median(by_hand.server_us.clone()),
            }));
        let is_public = !name.contains("below") && !name.contains("hand");
        if at_a_time == 1 {
            // Two answers are awaited, each on the other side of the keeper's thread.
            let hops = if is_public {
                2.0 * micros(p50(hops))
            } else {
                0.0
            };
            let figure = (micros(p50(&done.took)) - hops) / micros(p50(&by_hand.took));
            let row = row.figure(figure);
            let judged = is_public && nodes > 1;
            table.add(if judged {
                row.goal(Goal::AtMost(LONGEST))
            } else {
                row
            });
        } else {
            // Round by round: what slowed one side slowed the other.
            let ratios = done.rates.iter().zip(&by_hand.rates).map(|(a, b)| a / b);
            let row = row.figure(median(ratios.collect()));
            table.add(if is_public {
                let guarded = name.contains("guarded");
                row.goal(Goal::AtLeast(if guarded { LEAST_GUARDED } else { LEAST }))
            } else {
                row
            });
        }
    }
    if at_a_time == 1 {
        let row = Row::new("two thread hops", nodes).ours(time(p50(hops)));
        table.add(row);
    }
}

/// Keeps one side busy with so many cycles at a time, each on a key of its own.
async fn load(side: &Side, at_a_time: usize, busy: Duration, clock: &Clock) -> (Done, Duration) {
    let mut workers = JoinSet::new();
    let start = clock.now();
    for worker in 0..at_a_time {
        let (side, clock) = (side.clone(), clock.clone());
        workers.spawn(async move {
            let (mut took, mut failed) = (Vec::new(), Failures::new());
            let (key, owner) = (format!("cycle-{worker}"), side.owner());
            loop {
                let began = clock.now();
                if began.since(start) >= busy {
                    return (took, failed);
                }
                match side.cycle(&key, &owner).await {
                    Ok(()) => took.push(clock.now().since(began)),
                    Err(why) => {
                        *failed.entry(why).or_default() += 1;
                        // As any caller would: a task that fails at once must not keep the others from their work.
                        clock.sleep(Duration::from_millis(1)).await;
                    }
                }
            }
        });
    }
    let mut all = Done::default();
    while let Some(worker) = workers.join_next().await {
        let (took, failed) = worker.unwrap();
        all.took.extend(took);
        all.failures(failed);
    }
    (all, clock.now().since(start))
}

// === impl Side ===

impl Side {
    fn owner(&self) -> String {
        Chance::system().id()
    }

    async fn cycle(&self, key: &str, owner: &str) -> Result<(), &'static str> {
        let lease = match self {
            Self::ByHand(by_hand) => {
                let done = by_hand.cycle(&format!("by-hand/{key}"), owner).await;
                return done.then_some(()).ok_or("held");
            }
            Self::Least(by_hand) => {
                let key = format!("least/{key}");
                let done = by_hand.cycle_with_token(&key, owner).await;
                return done.then_some(()).ok_or("held");
            }
            Self::Nodes(nodes, kind, chance) => {
                let key = format!("below/{kind:?}/{key}");
                let done = nodes.cycle(&key, *kind, chance).await;
                return done.then_some(()).ok_or("no answer");
            }
            Self::Locks(locks) => match locks.lock(key).acquire().await {
                Ok(lease) => lease,
                Err(LockError::Held { .. }) => return Err("held"),
                Err(LockError::NoQuorum(nodes)) => return Err(cause(&nodes)),
                Err(_) => return Err("too slow"),
            },
            Self::Claims(locks) => {
                let claims = vec![Claim::short(format!("batch/bench/{key}"))];
                match locks.claim(claims).await.unwrap().pop() {
                    Some(Claimed::Acquired(lease)) => lease,
                    Some(Claimed::Held { .. }) => return Err("held"),
                    Some(Claimed::NoQuorum(nodes)) => return Err(cause(&nodes)),
                    _ => return Err("too slow"),
                }
            }
        };
        let told = lease.release().await.nodes;
        (told > 0).then_some(()).ok_or("release untold")
    }
}

fn cause(nodes: &NodeTroubles) -> &'static str {
    nodes
        .nodes
        .first()
        .map_or("nobody", |(_, trouble)| trouble.cause())
}

// === impl Done ===

impl Done {
    fn add(&mut self, (one, in_time): (Self, Duration), server_us: u64) {
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let (cycles, server_us) = (one.took.len() as f64, server_us as f64);
        self.rates.push(cycles / in_time.as_secs_f64());
        self.server_us.push(server_us / cycles.max(1.0));
        self.took.extend(one.took);
        self.failures(one.failed);
    }

    fn failures(&mut self, failed: Failures) {
        for (why, times) in failed {
            *self.failed.entry(why).or_default() += times;
        }
    }

    fn text(&self) -> String {
        let failed = self
            .failed
            .iter()
            .map(|(why, times)| format!(", {times} x {why}"));
        let failed: String = failed.collect();
        let thousands = median(self.rates.clone()) / 1e3;
        let (p50, p99) = (time(p50(&self.took)), time(p99(&self.took)));
        format!("{thousands:.1} k/s, {p50}, p99 {p99}{failed}")
    }
}
