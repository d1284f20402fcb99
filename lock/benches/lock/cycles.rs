//! Acquire and release of locks without contention, with 1, 32 and 256 of them at a time, beside those by hand and by other clients.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use tokio::task::JoinSet;
use watchkeeper_lock::{
    chance::Chance,
    clock::Clock,
    lock::{Claim, Claimed, LockError, Locks, NodeTroubles},
    node::Kind,
};

use crate::{
    Plan,
    asked::Asked,
    peers::{Cycled, Peer},
    processor::{Meter, Spent, Used},
    raw::ByHand,
    scene::{Nodes, Scene},
    table::{Goal, Row, Table, median, micros, p50, p99, time},
};

/// How many at a time, the least throughput, to that by hand, and the same where every call asks whether the node is still the
/// one that was admitted.
const LEAST: [(usize, f64, f64); 2] = [(32, 0.9, 0.8), (256, 1.2, 1.0)];
/// The longest median of a single cycle, to that by hand, with its hops between threads; and guarded.
const LONGEST: (f64, f64) = (1.5, 1.7);
/// The least throughput of guarded locks, to that of rslock.
const LEAST_TO_RSLOCK: f64 = 1.0;
/// The most processor time of a cycle, client and servers together, to that by hand: so many at a time on so many nodes.
const MOST_PROCESSOR: f64 = 1.2;
const PROCESSOR_AT: (usize, usize) = (32, 3);

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
    /// Percentiles of a cycle's time, by round.
    p50: Vec<Duration>,
    p99: Vec<Duration>,
    failed: Failures,
    /// Microseconds of all servers' scripts for a cycle, by round.
    script_us: Vec<f64>,
    /// Calls of scripts for a cycle, all servers together, by round.
    calls: Vec<f64>,
    processor: Spent,
}

/// One side in one round.
struct Round {
    cycles: usize,
    time: Duration,
    p50: Duration,
    p99: Duration,
    failed: Failures,
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
        let wanted = |name: &str| name == "by hand" || plan.wants(name);
        let sides: Vec<_> = sides.into_iter().filter(|(name, _)| wanted(name)).collect();
        let mut peers = match plan.wants("peers") {
            true => Peer::start_all(&plan, &scene.servers, table),
            false => Vec::new(),
        };
        let loads = [1, 32, 256].into_iter();
        for at_a_time in loads.filter(|load| plan.at.is_none_or(|only| only == *load)) {
            let mut done: Vec<Done> = sides.iter().map(|_| Done::default()).collect();
            let mut theirs: Vec<Done> = peers.iter().map(|_| Done::default()).collect();
            let mut hops = Vec::new();
            // The first round warms up.
            for round in 0..=plan.rounds {
                for ((_, side), done) in sides.iter().zip(&mut done) {
                    let meter = Meter::here(&scene);
                    let one = load(side, at_a_time, plan.busy, &scene.clock).await;
                    let spent = meter.read(&scene).await;
                    if round > 0 {
                        done.add(one, spent);
                    }
                }
                let beside = peers.iter_mut().zip(&mut theirs);
                for (peer, done) in beside.filter(|_| at_a_time > 1) {
                    let meter = Meter::there(peer.pid(), &scene);
                    let one = peer.cycle(at_a_time, plan.busy).into();
                    let spent = meter.read(&scene).await;
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
            let named: Vec<_> = sides.iter().map(|(name, _)| *name).zip(&done).collect();
            show(&named, at_a_time, nodes, &hops, table);
            if at_a_time > 1 {
                let peers: Vec<_> = peers.iter().map(|p| p.peer).zip(&theirs).collect();
                show_peers(&named, &peers, at_a_time, nodes, table);
            }
        }
    }
}

fn show(
    sides: &[(&str, &Done)],
    at_a_time: usize,
    nodes: usize,
    hops: &[Duration],
    table: &mut Table,
) {
    let by_hand = sides[0].1;
    for (name, done) in &sides[1..] {
        let row = Row::new(format!("{name}, {at_a_time} at a time"), nodes)
            .ours(done.text())
            .beside(by_hand.text())
            .columns(done.processor.columns(Some(&by_hand.processor)))
            .more(done.beside(by_hand));
        let is_public = !name.contains("below") && !name.contains("hand");
        let guarded = name.contains("guarded");
        let row = if at_a_time == 1 {
            let row = row.figure(micros(p50(&done.p50)) / micros(p50(&by_hand.p50)));
            if is_public && nodes > 1 {
                row.goal(Goal::AtMost(if guarded { LONGEST.1 } else { LONGEST.0 }))
            } else {
                row
            }
        } else {
            let row = row.figure(done.rate_to(by_hand));
            let least = LEAST.iter().find(|least| least.0 == at_a_time);
            match least.filter(|_| is_public) {
                Some((_, least, with_guard)) => {
                    row.goal(Goal::AtLeast(if guarded { *with_guard } else { *least }))
                }
                None => row,
            }
        };
        table.add(row);
        if is_public && at_a_time == PROCESSOR_AT.0 {
            let row = Row::new(
                format!("processor time a cycle, {name}, {at_a_time} at a time"),
                nodes,
            )
            .ours(done.processor.text())
            .beside(by_hand.processor.text())
            .figure(done.processor.to(&by_hand.processor));
            table.add(if nodes == PROCESSOR_AT.1 && !guarded {
                row.goal(Goal::AtMost(MOST_PROCESSOR))
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

/// The other clients beside those by hand, and our guarded locks beside them.
fn show_peers(
    sides: &[(&str, &Done)],
    peers: &[(Peer, &Done)],
    at_a_time: usize,
    nodes: usize,
    table: &mut Table,
) {
    let by_hand = sides[0].1;
    let guarded = sides.iter().find(|(name, _)| *name == "locks, guarded");
    for (peer, theirs) in peers {
        let name = peer.name();
        let row = Row::new(format!("{name}, {at_a_time} at a time"), nodes)
            .ours(theirs.text())
            .beside(by_hand.text())
            .figure(theirs.rate_to(by_hand))
            .columns(theirs.processor.columns(Some(&by_hand.processor)))
            .more(theirs.beside(by_hand));
        table.add(row);
        let Some((ours, done)) = guarded else {
            continue;
        };
        let row = Row::new(format!("{ours}, to {name}, {at_a_time} at a time"), nodes)
            .ours(done.text())
            .beside(theirs.text())
            .figure(done.rate_to(theirs))
            .columns(done.processor.columns(Some(&theirs.processor)))
            .more(json!({ "processor": done.processor.to(&theirs.processor) }));
        table.add(match peer {
            Peer::Rslock => row.goal(Goal::AtLeast(LEAST_TO_RSLOCK)),
            Peer::NodeRedlock => row,
        });
    }
}

/// Keeps one side busy with so many cycles at a time, each on a key of its own.
async fn load(side: &Side, at_a_time: usize, busy: Duration, clock: &Clock) -> Round {
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
    let (mut took, mut failed) = (Vec::new(), Failures::new());
    while let Some(worker) = workers.join_next().await {
        let (its, lost) = worker.unwrap();
        took.extend(its);
        add_all(&mut failed, lost);
    }
    Round {
        cycles: took.len(),
        time: clock.now().since(start),
        p50: p50(&took),
        p99: p99(&took),
        failed,
    }
}

fn add_all(failed: &mut Failures, more: Failures) {
    for (why, times) in more {
        *failed.entry(why).or_default() += times;
    }
}

// === impl Round ===

impl From<Cycled> for Round {
    fn from(cycled: Cycled) -> Self {
        let failed = Failures::from([("refused", cycled.failed)]);
        Self {
            cycles: cycled.cycles,
            time: cycled.time,
            p50: cycled.p50,
            p99: cycled.p99,
            failed: failed.into_iter().filter(|(_, times)| *times > 0).collect(),
        }
    }
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
    fn add(&mut self, one: Round, (asked, used): (Asked, Used)) {
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let (cycles, script_us) = (one.cycles as f64, asked.script_us as f64);
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        self.calls.push(asked.scripts as f64 / cycles.max(1.0));
        self.rates.push(cycles / one.time.as_secs_f64());
        self.script_us.push(script_us / cycles.max(1.0));
        self.processor.add(used, cycles);
        self.p50.push(one.p50);
        self.p99.push(one.p99);
        add_all(&mut self.failed, one.failed);
    }

    /// Throughput, round by round: what slowed one side slowed the other.
    fn rate_to(&self, beside: &Self) -> f64 {
        let ratios = self.rates.iter().zip(&beside.rates).map(|(a, b)| a / b);
        median(ratios.collect())
    }

    fn text(&self) -> String {
        let failed = self
            .failed
            .iter()
            .map(|(why, times)| format!(", {times} x {why}"));
        let failed: String = failed.collect();
        let thousands = median(self.rates.clone()) / 1e3;
        let (p50, p99) = (time(p50(&self.p50)), time(p50(&self.p99)));
        format!("{thousands:.1} k/s, {p50}, p99 {p99}{failed}")
    }

    /// For programs.
    fn beside(&self, by_hand: &Self) -> Value {
        json!({
            "p50_us": micros(p50(&self.p50)), "p99_us": micros(p50(&self.p99)), "failed": self.failed,
            "per_second": median(self.rates.clone()), "script_us_per_cycle": median(self.script_us.clone()),
            "calls_per_cycle": median(self.calls.clone()),
            "client_us_per_cycle": self.processor.client_us(), "servers_us_per_cycle": self.processor.servers_us(),
            "processor": self.processor.to(&by_hand.processor),
            "by_hand_per_second": median(by_hand.rates.clone()),
            "by_hand_script_us_per_cycle": median(by_hand.script_us.clone()),
            "by_hand_client_us_per_cycle": by_hand.processor.client_us(),
            "by_hand_servers_us_per_cycle": by_hand.processor.servers_us(),
        })
    }
}
