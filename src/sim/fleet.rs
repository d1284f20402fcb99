//! Whole replicas with jobs, in virtual time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};

use super::world::World;
use crate::{
    chance::Chance,
    clock::Clock,
    event::Event,
    job::{Health, Hooks, Job, JobError, Outcome, Run, Spec},
    node::{Expiry, Node, memory::MemoryNode},
    scheduler::{Context, Intents},
    sim_clock::SimTime,
    spawn::Spawn,
    testing::{
        cage::Cage,
        process::{Plan, Process},
    },
    worker::{crew::JobChanges, registry::Body, replica::Ready},
};

/// Nodes without faults, unless a test strikes them, and the replicas over them.
pub(crate) struct Fleet {
    pub(crate) time: SimTime,
    pub(crate) nodes: Vec<MemoryNode>,
    /// Called around the runs of all that join from now on.
    pub(crate) hooks: Hooks,
    expiry: Expiry,
    seed: u64,
}

/// One replica of a fleet.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) cage: Cage,
    pub(crate) time: SimTime,
    pub(crate) ctx: Context,
    /// Everything it has told.
    pub(crate) told: Arc<Mutex<Vec<Event>>>,
    /// How often the keeper would have aborted the process.
    pub(crate) aborts: Arc<Mutex<u32>>,
    /// The jobs that it is configured to run.
    pub(super) jobs: Arc<Mutex<BTreeMap<String, Spec>>>,
    /// Where it is told of others.
    pub(super) orders: mpsc::Sender<JobChanges>,
    /// True once its replica has wound down.
    over: watch::Receiver<bool>,
}

/// A job made of a closure.
pub(crate) struct Act<F>(pub(crate) F);

pub(crate) type Ran = BoxFuture<'static, Result<Outcome, JobError>>;

#[async_trait]
impl<F: Fn(Run) -> Ran + Send + Sync + 'static> Job for Act<F> {
    async fn run(&self, run: Run) -> Result<Outcome, JobError> {
        (self.0)(run).await
    }
}

/// A job whose fitness a test decides.
pub(crate) struct Moody<F> {
    pub(crate) act: Act<F>,
    pub(crate) unfit: Arc<Mutex<Option<String>>>,
}

#[async_trait]
impl<F: Fn(Run) -> Ran + Send + Sync + 'static> Job for Moody<F> {
    async fn run(&self, run: Run) -> Result<Outcome, JobError> {
        self.act.run(run).await
    }

    async fn health(&self) -> Health {
        self.unfit
            .lock()
            .unwrap()
            .clone()
            .map_or(Health::Fit, Health::Unfit)
    }
}

// === impl Fleet ===

impl Fleet {
    pub(crate) fn new(nodes: usize) -> Self {
        Self::seeded(nodes, 7)
    }

    pub(crate) fn seeded(nodes: usize, seed: u64) -> Self {
        let time = SimTime::new();
        let node = |n| {
            let (spawn, chance) = (Spawn::system(), Chance::seeded(seed + n));
            MemoryNode::simulated(format!("n{n}"), time.sibling().clock(), spawn, chance)
        };
        let nodes = (0..nodes as u64).map(node).collect();
        let hooks = Hooks::default();
        Self {
            time,
            nodes,
            hooks,
            expiry: Expiry::Server,
            seed,
        }
    }

    /// Whose holders are over when they were watched standing still, as on masters of Redis.
    pub(crate) fn observed(nodes: usize) -> Self {
        let expiry = Expiry::Observed;
        Self {
            expiry,
            ..Self::new(nodes)
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        self.time.clock()
    }

    pub(crate) async fn sleep(&self, pause: Duration) {
        self.clock().sleep(pause).await;
    }

    /// A process that runs this job.
    pub(crate) fn join(&self, name: &str, job: impl Job, spec: Spec) -> Member {
        self.join_with(name, vec![("job", Body::Job(Arc::new(job)), spec)], false)
    }

    pub(crate) fn join_with(
        &self,
        name: &str,
        jobs: Vec<(&str, Body, Spec)>,
        failover: bool,
    ) -> Member {
        self.join_as(name, jobs, failover, 0, true)
    }

    /// With this priority, as a candidate or not.
    pub(crate) fn join_as(
        &self,
        name: &str,
        jobs: Vec<(&str, Body, Spec)>,
        failover: bool,
        priority: i32,
        candidate: bool,
    ) -> Member {
        let time = self.time.sibling();
        let number = name.bytes().fold(self.seed, |n, b| n * 31 + u64::from(b));
        let nodes = self
            .nodes
            .iter()
            .map(|n| Arc::new(n.clone()) as Arc<dyn Node>)
            .collect();
        let specs = jobs
            .iter()
            .map(|(name, _, spec)| ((*name).to_owned(), spec.clone()));
        let specs = Arc::new(Mutex::new(specs.collect()));
        let jobs = jobs.into_iter().map(ready);
        let (orders, desk) = mpsc::channel(1);
        let aborts = Arc::new(Mutex::new(0));
        let count = aborts.clone();
        let plan = Plan {
            id: name.to_owned(),
            name: name.to_owned(),
            nodes,
            time: time.clone(),
            chance: Chance::seeded(number),
            timing: World::timing(),
            guard: None,
            expiry: self.expiry,
            jobs: jobs.collect(),
            desk,
            failover,
            drain_timeout: Duration::from_secs(5),
            priority,
            candidate,
            hooks: self.hooks.clone(),
            intents: Intents::default(),
            look_every: None,
            aborted: Box::new(move || *count.lock().unwrap() += 1),
        };
        let Process { cage, ctx, over } = Process::start(plan).unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let (ears, mut heard) = (told.clone(), ctx.events.observe());
        Spawn::system().spawn(async move {
            while let Ok(event) = heard.recv().await {
                ears.lock().unwrap().push(event);
            }
        });
        Member {
            cage,
            time,
            ctx,
            told,
            aborts,
            jobs: specs,
            orders,
            over,
        }
    }
}

pub(super) fn ready((name, body, spec): (&str, Body, Spec)) -> Ready {
    Ready {
        name: name.to_owned(),
        body,
        schedule: Arc::new(spec.schedule_of(name).unwrap()),
        policy: spec.policy(),
        spec: Arc::new(spec),
    }
}

// === impl Member ===

impl Member {
    pub(crate) fn leads(&self) -> bool {
        !self.cage.is_crashed() && self.ctx.board.leases().iter().any(|(_, l)| l.is_held())
    }

    pub(crate) fn drain(&self) {
        self.ctx.gate.drain().cancel();
    }

    /// Waits until its replica has wound down.
    pub(crate) async fn ended(&self) {
        let mut over = self.over.clone();
        over.wait_for(|over| *over).await.unwrap();
    }

    pub(crate) fn heard(&self, what: impl Fn(&Event) -> bool) -> bool {
        self.told.lock().unwrap().iter().any(what)
    }
}

/// Every start of every run, over a whole fleet: `(tick, attempt)` and who.
#[derive(Clone, Default)]
pub(crate) struct Starts(Arc<Mutex<Started>>);

/// Who started which attempt of which tick.
type Started = BTreeMap<(Timestamp, u32), Vec<String>>;

impl Starts {
    pub(crate) fn note(&self, run: &Run) {
        let mut starts = self.0.lock().unwrap();
        let who = run.facts().replica.clone();
        starts
            .entry((run.tick(), run.attempt()))
            .or_default()
            .push(who);
    }

    /// P4: nothing was started twice.
    pub(crate) fn assert_once(&self) {
        for ((tick, attempt), who) in &*self.0.lock().unwrap() {
            assert_eq!(
                who.len(),
                1,
                "{tick}, attempt {attempt}: started by {who:?}"
            );
        }
    }

    pub(crate) fn ticks(&self) -> Vec<Timestamp> {
        let mut ticks: Vec<_> = self
            .0
            .lock()
            .unwrap()
            .keys()
            .map(|(tick, _)| *tick)
            .collect();
        ticks.dedup();
        ticks
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}
