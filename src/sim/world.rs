//! A simulated fleet: nodes, replicas, faults, and the checks that run beside them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;

use crate::{
    chance::Chance,
    clock::Clock,
    lease::LeaseView,
    ledger,
    lock::{FleetConfig, Locks, Timing, mutant::Mutant},
    node::rules::mutants::REVIVE_RELEASED,
    node::{
        Announcements, Answer, Call, Expiry, GuardSettings, Kind, Node, NodeError, NodeMs, Op,
        Reply, RestartGuard, Token, memory::MemoryNode,
    },
    sim_clock::SimTime,
    spawn::Spawn,
    testing::process_tasks::ProcessTasks,
};

pub(crate) const TTL: Duration = Duration::from_secs(1);
const TTL_MS: u64 = 1000;

/// What a schedule may do, drawn per seed: a uniform choice goes blind.
#[derive(Clone, Debug)]
pub(crate) struct Weights {
    pub(crate) delay_ms: u64,
    pub(crate) lose_requests: f64,
    pub(crate) lose_replies: f64,
    pub(crate) duplicate: f64,
    pub(crate) faults_every_ms: u64,
    pub(crate) rate: f64,
    /// How often a client opens a new connection before a call.
    pub(crate) restless: f64,
}

/// One schedule.
pub(crate) struct World {
    pub(crate) time: SimTime,
    pub(crate) chance: Chance,
    pub(crate) nodes: Vec<MemoryNode>,
    pub(crate) weights: Weights,
    pub(crate) checker: Checker,
    pub(crate) mutant: Mutant,
    /// Whether nodes lose their memory, and whether their clients guard against it.
    pub(crate) memory: Memory,
    /// What ends the lease of a silent holder, where nodes lose their memory.
    expiry: Expiry,
}

/// What becomes of what nodes remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// It lasts.
    Kept,
    /// It is lost now and then, without a guard.
    Lost,
    /// It is lost now and then, under the guard.
    Guarded,
}

/// One simulated replica.
#[derive(Clone)]
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) tasks: ProcessTasks,
    pub(crate) locks: Locks,
    pub(crate) chance: Chance,
    pub(crate) clock: Clock,
    pub(crate) spawn: Spawn,
}

/// Sees every acquisition and every executed call; remembers the first violation.
#[derive(Clone, Default)]
pub(crate) struct Checker(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    leases: BTreeMap<String, Vec<(String, ProcessTasks, LeaseView)>>,
    tokens: BTreeMap<String, u64>,
    released: BTreeMap<String, BTreeSet<(String, String)>>,
    /// By node and lock: the owner that was written last.
    written: BTreeMap<(String, String), String>,
    /// By node and lock: the last grant, and when it was given.
    granted: BTreeMap<(String, String), (Token, NodeMs)>,
    /// Nodes lose their memory: what was granted there is no promise.
    forgetful: bool,
    violation: Option<String>,
    /// Every executed call, where a test asks for that.
    trace: Option<Vec<String>>,
    acquisitions: u64,
    renewals: u64,
    healed: u64,
    confirms: u64,
    broken: u64,
}

/// How often the interesting things happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) acquisitions: u64,
    pub(crate) renewals: u64,
    pub(crate) healed: u64,
    pub(crate) confirms: u64,
    pub(crate) broken: u64,
}

/// A client's way to a node that now and then reconnects: calls on two connections overtake each other.
struct Rewired {
    node: MemoryNode,
    line: Mutex<Arc<MemoryNode>>,
    chance: Chance,
    restless: f64,
}

impl Rewired {
    fn to(node: &MemoryNode, chance: &Chance, restless: f64) -> Arc<dyn Node> {
        let (node, line) = (node.clone(), Mutex::new(Arc::new(node.clone())));
        let chance = chance.clone();
        Arc::new(Self {
            node,
            line,
            chance,
            restless,
        })
    }
}

#[async_trait]
impl Node for Rewired {
    fn name(&self) -> &str {
        self.node.name()
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        let line = {
            let mut line = self.line.lock().unwrap();
            if self.chance.hits(self.restless) {
                *line = Arc::new(self.node.clone());
            }
            // The same connection: a clone of the node itself would be another one.
            Arc::clone(&line)
        };
        line.call(call).await
    }

    fn another(&self) -> Option<Arc<dyn Node>> {
        Some(Self::to(&self.node, &self.chance, self.restless))
    }

    async fn announcements(&self) -> Option<Announcements> {
        self.node.announcements().await
    }
}

/// Both modes in turn.
fn either(seed: u64) -> Expiry {
    if seed.is_multiple_of(2) {
        Expiry::Server
    } else {
        Expiry::Observed
    }
}

// === impl World ===

impl World {
    pub(crate) fn new(seed: u64, nodes: usize, mutant: Mutant) -> Self {
        let time = SimTime::new();
        let chance = Chance::seeded(seed);
        let pick = |chance: &Chance, of: &[f64]| {
            of[usize::try_from(chance.below(of.len() as u64)).unwrap()]
        };
        let weights = Weights {
            delay_ms: [0, 2, 10, 45][usize::try_from(chance.below(4)).unwrap()],
            lose_requests: pick(&chance, &[0.0, 0.02, 0.2]),
            lose_replies: pick(&chance, &[0.0, 0.02, 0.2]),
            duplicate: pick(&chance, &[0.0, 0.1]),
            faults_every_ms: [150, 400, 1500][usize::try_from(chance.below(3)).unwrap()],
            rate: 0.004,
            restless: pick(&chance, &[0.0, 0.03, 0.3]),
        };
        // A deadline that is late by a reply shows only where replies take long and holders stop renewing.
        let weights = match mutant.deadline_from_reply {
            true => Weights {
                delay_ms: 45,
                lose_requests: 0.0,
                lose_replies: 0.0,
                faults_every_ms: 150,
                rate: 0.0,
                ..weights
            },
            false => weights,
        };
        let checker = Checker::default();
        // A dead owner's extension must overtake its release: seldom without such weather.
        let weights = match REVIVE_RELEASED.get() {
            true => Weights {
                delay_ms: 45,
                duplicate: 0.2,
                restless: 0.3,
                ..weights
            },
            false => weights,
        };
        let nodes = (0..nodes)
            .map(|n| {
                let own = time.sibling();
                own.set_offset(i64::try_from(chance.below(100_000)).unwrap());
                let seeded = Chance::seeded(seed ^ ((n as u64 + 1) << 32));
                let node =
                    MemoryNode::simulated(format!("n{n}"), own.clock(), Spawn::system(), seeded);
                let faults = node.faults();
                let delay = Duration::from_millis(weights.delay_ms);
                faults.delay_requests(Duration::ZERO, delay);
                faults.delay_replies(Duration::ZERO, delay);
                faults.lose_requests(weights.lose_requests);
                faults.lose_replies(weights.lose_replies);
                faults.duplicate(weights.duplicate);
                checker.watch(&node);
                node
            })
            .collect();
        Self {
            time,
            chance,
            nodes,
            weights,
            checker,
            mutant,
            memory: Memory::Kept,
            expiry: either(seed),
        }
    }

    /// The same, with nodes that lose their memory.
    pub(crate) fn forgetful(seed: u64, nodes: usize, memory: Memory) -> Self {
        let world = Self::new(seed, nodes, Mutant::default());
        world.checker.0.lock().unwrap().forgetful = true;
        Self {
            memory,
            // Every second seed is played.
            expiry: either(seed / 2),
            ..world
        }
    }

    fn fleet(&self) -> FleetConfig {
        FleetConfig {
            layout: 2,
            nodes: self.nodes.len(),
            max_ttl: Self::timing().max_ttl,
            expiry: self.expiry,
            generation: 1,
            guard: RestartGuard::Call,
            raw_keys: false,
            drift_ppm: 10_000,
            failover: false,
        }
    }

    pub(crate) fn timing() -> Timing {
        Timing {
            ttl: TTL,
            max_ttl: TTL * 2,
            node_timeout: Duration::from_millis(50),
            grace: Duration::from_millis(300),
            kept_longer: ledger::KEPT_LONGER,
            ..Timing::default()
        }
    }

    /// Most fleets that guard their nodes are founded before anything goes wrong: that takes all of their nodes, for as long as the
    /// longest lease and a little.
    pub(crate) async fn founded(&self) {
        if self.memory == Memory::Guarded && self.chance.hits(0.8) {
            self.time.clock().sleep(TTL * 4).await;
        }
    }

    /// After a while something goes wrong with one of the machines or with a node, or all gets well. A machine that dies has a
    /// successor.
    pub(crate) async fn trouble(&self, fleet: &mut [Machine], successor: impl FnOnce() -> Machine) {
        let pause = 1 + self.chance.below(self.weights.faults_every_ms * 2);
        self.time.clock().sleep(Duration::from_millis(pause)).await;
        let victim = usize::try_from(self.chance.below(fleet.len() as u64)).unwrap();
        match self.chance.below(10) {
            0 => {
                fleet[victim].tasks.crash();
                fleet[victim] = successor();
            }
            1 | 2 => fleet[victim].tasks.freeze(),
            3 | 4 => fleet[victim].tasks.thaw(),
            5 => {
                fleet.iter().for_each(|m| m.tasks.thaw());
                self.calm();
            }
            _ => self.strike(),
        }
    }

    /// A fresh process on a machine of its own.
    pub(crate) fn machine(&self, name: &str) -> Machine {
        let tasks = ProcessTasks::default();
        let time = self.time.sibling();
        time.set_offset(i64::try_from(self.chance.below(50_000)).unwrap());
        let spread = self.weights.rate;
        let rate = 1.0 - spread + 2.0 * spread * (self.chance.below(1000) as f64 / 1000.0);
        time.set_rate(rate);
        let chance = Chance::seeded(self.chance.below(u64::MAX));
        let (clock, spawn) = (time.clock(), tasks.spawn());
        // A clone of a node is a connection of its own.
        let guarded = self.memory == Memory::Guarded;
        let guard = match guarded {
            true => GuardSettings {
                mode: RestartGuard::Call,
                config: self.fleet().to_string(),
            },
            false => GuardSettings::default(),
        };
        let nodes = self
            .nodes
            .iter()
            .map(|n| n.clone().guarded(guard.clone()))
            .map(|n| Rewired::to(&n, &chance, self.weights.restless))
            .collect();
        let doomed = tasks.clone();
        let locks = Locks::over(nodes)
            .timing(Self::timing())
            .clock(clock.clone())
            .chance(chance.clone())
            .events(crate::event::Events::default().of_locks())
            .keeper_here(spawn.clone())
            .on_unstoppable(move |_| doomed.crash())
            .expiry(self.expiry)
            .mutant(self.mutant.for_client());
        let locks = match guarded {
            true => locks.guarded(self.fleet()),
            false => locks,
        };
        let locks = locks.start().unwrap();
        Machine {
            name: name.to_owned(),
            tasks,
            locks,
            chance,
            clock,
            spawn,
        }
    }

    /// One random fault at a node.
    pub(crate) fn strike(&self) {
        use crate::node::memory::Cut;
        let node =
            &self.nodes[usize::try_from(self.chance.below(self.nodes.len() as u64)).unwrap()];
        let faults = node.faults();
        if self.memory != Memory::Kept && self.chance.hits(0.3) {
            return match self.chance.below(3) {
                0 => faults.flush(),
                _ => faults.crash(),
            };
        }
        match self.chance.below(6) {
            0 => faults.freeze(),
            1 => faults.partition(Cut::Hang),
            2 => faults.partition(Cut::Refuse),
            3 => faults.restart_keeping_data(),
            _ => {
                faults.thaw();
                faults.heal();
            }
        }
    }

    /// All nodes are well again.
    pub(crate) fn calm(&self) {
        for node in &self.nodes {
            node.faults().clear();
        }
    }
}

// === impl Checker ===

impl Checker {
    fn watch(&self, node: &MemoryNode) {
        let (checker, name) = (self.clone(), node.name().to_owned());
        node.observe(move |executed| {
            checker.note(|| format!("{name}: {executed:?}"));
            let Ok(reply) = executed.result else { return };
            let mut seen = checker.0.lock().unwrap();
            for (op, answer) in executed.call.ops.iter().zip(&reply.answers) {
                seen.count(&name, op, answer);
                seen.nothing_later(&name, executed.at, op, answer);
            }
            seen.one_holder("a call");
        });
    }

    /// A lease was handed out; it belongs to `machine`.
    pub(crate) fn acquired(&self, machine: &Machine, lease: &LeaseView) {
        let mut seen = self.0.lock().unwrap();
        if !lease.is_held() {
            // Its holder was frozen between the acquisition and this line: no code acts on it.
            return;
        }
        seen.acquisitions += 1;
        if let Some(trace) = &mut seen.trace {
            trace.push(format!("{}: {lease:?}", machine.name));
        }
        let (key, token) = (lease.key().to_owned(), lease.token().0);
        let entry = (machine.name.clone(), machine.tasks.clone(), lease.clone());
        seen.leases.entry(key.clone()).or_default().push(entry);
        let before = seen.tokens.insert(key.clone(), token).unwrap_or(0);
        if token <= before {
            seen.violate(format!("{key}: token {token} after {before}"));
        }
        seen.one_holder("an acquisition");
    }

    /// From now on every executed call is kept.
    pub(crate) fn begin_trace(&self) {
        self.0.lock().unwrap().trace = Some(Vec::new());
    }

    pub(crate) fn end_trace(&self) -> Vec<String> {
        self.0.lock().unwrap().trace.take().unwrap_or_default()
    }

    fn note(&self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.0.lock().unwrap().trace {
            trace.push(line());
        }
    }

    pub(crate) fn violation(&self) -> Option<String> {
        self.0.lock().unwrap().violation.clone()
    }

    pub(crate) fn violate(&self, what: String) {
        self.0.lock().unwrap().violate(what);
    }

    pub(crate) fn counts(&self) -> Counts {
        let seen = self.0.lock().unwrap();
        Counts {
            acquisitions: seen.acquisitions,
            renewals: seen.renewals,
            healed: seen.healed,
            confirms: seen.confirms,
            broken: seen.broken,
        }
    }
}

impl Seen {
    fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// P1: at no instant do two living replicas believe in a lease of one lock.
    fn one_holder(&mut self, at: &str) {
        let mut found = None;
        for (key, leases) in &mut self.leases {
            leases.retain(|(_, tasks, lease)| !tasks.is_crashed() && lease.is_held());
            if let [(a, _, one), (b, _, two), ..] = &leases[..] {
                let held = |l: &LeaseView| format!("token {} for {:?}", l.token(), l.remaining());
                found = Some(format!(
                    "{key}: {a} ({}) and {b} ({}) both hold it at {at}",
                    held(one),
                    held(two)
                ));
            }
        }
        if let Some(what) = found {
            self.violate(what);
        }
    }

    /// E3: no round is written over what was granted later, while that stands.
    fn nothing_later(&mut self, node: &str, at: NodeMs, op: &Op, answer: &Answer) {
        let place = |key: &String| (node.to_owned(), key.clone());
        match (op, answer) {
            (Op::Acquire { key, kind, .. }, Answer::Granted { grant, .. })
                if *kind == Kind::Lock && !self.forgetful =>
            {
                self.granted.insert(place(key), (*grant, at));
            }
            (Op::Forget { key, .. }, Answer::Done) => {
                self.granted.remove(&place(key));
            }
            (Op::Extend { key, token, .. }, Answer::Healed { .. }) => {
                // A release is swept a ttl after it came, at the earliest.
                let stands = |(_, since): &&(Token, NodeMs)| at.0 < since.0 + TTL_MS;
                let last = self.granted.get(&place(key)).filter(stands);
                if let Some((later, _)) = last.filter(|(later, _)| later > token) {
                    let what = format!("{key}: token {token} was written over {later} on {node}");
                    self.violate(what);
                }
            }
            _ => {}
        }
    }

    /// R9 and the counters that show whether the schedules are worth anything.
    fn count(&mut self, node: &str, op: &Op, answer: &Answer) {
        let (key, owner) = match (op, answer) {
            (Op::Acquire { key, owner, .. }, Answer::Granted { .. }) => (key, owner),
            (Op::Extend { key, owner, .. }, Answer::Kept { .. }) => {
                self.renewals += 1;
                (key, owner)
            }
            (Op::Extend { key, owner, .. }, Answer::Healed { .. }) => {
                self.healed += 1;
                (key, owner)
            }
            (Op::Confirm { .. }, Answer::Done) => {
                self.confirms += 1;
                return;
            }
            (Op::Release { key, owner, .. }, Answer::Done) => {
                // Only what stood here was released here; an attempt that never arrived leaves no trace to compare.
                let stood = self.written.get(&(node.to_owned(), key.clone()));
                if stood == Some(owner) {
                    let released = self.released.entry(node.to_owned()).or_default();
                    released.insert((key.clone(), owner.clone()));
                }
                return;
            }
            (Op::Break { key, owner, .. }, Answer::Broken(before)) => {
                self.broken += u64::from(before.holder.as_ref() == Some(owner));
                let released = self.released.entry(node.to_owned()).or_default();
                released.insert((key.clone(), owner.clone()));
                return;
            }
            (Op::Forget { key, .. }, Answer::Done) => {
                self.written.remove(&(node.to_owned(), key.clone()));
                return;
            }
            _ => return,
        };
        let written = (node.to_owned(), key.clone());
        self.written.insert(written, owner.clone());
        let dead = self
            .released
            .get(node)
            .is_some_and(|r| r.contains(&(key.clone(), owner.clone())));
        if dead && !matches!(op, Op::Acquire { .. }) {
            let (key, node) = (key.clone(), node.to_owned());
            self.violate(format!("{key}: a released lease was revived on {node}"));
        }
    }
}
