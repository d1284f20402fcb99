//! What the tests of this crate need beyond a fleet by numbers: processes that are started one by one, each with its own jobs.

use std::{
    collections::BTreeMap,
    ops::Deref,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::mpsc;

use super::{
    cluster::Cluster,
    process::{Plan, Process},
};
use crate::{
    chance::Chance,
    clock::Clock,
    event::Event,
    fleet::Fleet,
    job::{Job, Spec},
    node::Expiry,
    sim::world::World,
    sim_clock::SimTime,
    worker::{
        assemble::Setup,
        presence::{self, Pace},
        ready::{Body, Ready},
        supervisor::JobChanges,
    },
};

/// The jobs of one process: names, work and specs.
pub(crate) type Jobs<'a> = Vec<(&'a str, Body, Spec)>;

/// One replica, and the process it is. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Member {
    process: Process,
    /// The clocks of its machine.
    pub(crate) time: SimTime,
    /// Everything it has told.
    pub(crate) told: Arc<Mutex<Vec<Event>>>,
    /// How often the keeper would have aborted the process.
    pub(crate) aborts: Arc<Mutex<u32>>,
    /// The jobs that it is configured to run.
    pub(crate) jobs: Arc<Mutex<BTreeMap<String, Spec>>>,
    /// Where it is told of others.
    pub(crate) changer: mpsc::Sender<JobChanges>,
}

// === impl Cluster ===

impl Cluster {
    /// Nodes without faults, unless a test strikes them.
    pub(crate) fn new(nodes: usize) -> Self {
        Self::seeded(nodes, 7)
    }

    pub(crate) fn seeded(nodes: usize, seed: u64) -> Self {
        Self::over(SimTime::new(), nodes, seed, World::timing(), Expiry::Server)
    }

    /// Whose holders are over when they were watched standing still, as on masters of Redis.
    pub(crate) fn observed(nodes: usize) -> Self {
        Self::over(SimTime::new(), nodes, 7, World::timing(), Expiry::Observed)
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

    pub(crate) fn join_with(&self, name: &str, jobs: Jobs<'_>, failover: bool) -> Member {
        self.join_as(name, jobs, failover, 0, true)
    }

    /// With this priority, as a candidate or not.
    pub(crate) fn join_as(
        &self,
        name: &str,
        jobs: Jobs<'_>,
        failover: bool,
        priority: i32,
        candidate: bool,
    ) -> Member {
        let number = name.bytes().fold(self.seed, |n, b| n * 31 + u64::from(b));
        let specs = jobs.iter();
        let specs = specs.map(|(name, _, spec)| ((*name).to_owned(), spec.clone()));
        let specs = Arc::new(Mutex::new(specs.collect()));
        let (changer, changes) = mpsc::channel(1);
        let (told, aborts) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let (heard, count) = (told.clone(), aborts.clone());
        let time = self.time.sibling();
        let jobs = jobs.into_iter().map(ready).collect();
        let setup = Setup {
            failover,
            priority,
            candidate,
            ..Setup::of(name, name, &time, jobs)
        };
        let plan = Plan {
            setup,
            time: time.clone(),
            chance: Chance::seeded(number),
            changes,
            pace: None,
            look_every: None,
            told: Box::new(move |event| heard.lock().unwrap().push(event)),
            aborted: Box::new(move || *count.lock().unwrap() += 1),
        };
        Member {
            process: Process::start(self, plan).unwrap(),
            time,
            told,
            aborts,
            jobs: specs,
            changer,
        }
    }
}

pub(crate) fn ready((name, body, spec): (&str, Body, Spec)) -> Ready {
    Ready::new(name, body, Arc::new(spec)).unwrap()
}

// === impl Member ===

impl Member {
    pub(crate) fn leads(&self) -> bool {
        !self.tasks.is_crashed()
            && self
                .ctx
                .local_status
                .leases()
                .iter()
                .any(|(_, l)| l.is_held())
    }

    pub(crate) fn drain(&self) {
        self.ctx.gate.drain().cancel();
    }

    /// What people ask with, over the nodes of this replica.
    pub(crate) fn client(&self) -> Fleet {
        Fleet::over(&self.ctx.locks, "test")
    }

    /// Tells the others of itself from now on, also while it drains.
    pub(crate) fn publish(&self) {
        let publish = presence::publish(self.me.clone(), self.ctx.clone(), Pace::default());
        self.ctx.spawn.spawn(publish);
    }

    pub(crate) fn heard(&self, what: impl Fn(&Event) -> bool) -> bool {
        self.told.lock().unwrap().iter().any(what)
    }

    /// Whether a run has ended like this.
    pub(crate) fn ended_as(&self, wanted: &str) -> bool {
        self.heard(|e| matches!(e, Event::RunEnded { outcome, .. } if *outcome == wanted))
    }
}

impl Deref for Member {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}
