//! What a simulation consists of, before it begins.

use std::{fmt, sync::Arc, time::Duration};

use jiff::{Timestamp, Zoned};

use super::Replica;
use crate::{
    batch::BatchJob,
    human::Span,
    job::{Coordination, Job, Spec, shard::names_of},
    worker::ready::{Body, Ready},
};

/// Makes the work of one replica.
type Make = Arc<dyn Fn(Replica) -> Body + Send + Sync>;

/// A fleet that is to be simulated: how many replicas and lock nodes, and which jobs. See [the module](super).
#[derive(Clone)]
pub struct Sim {
    pub(super) replicas: u32,
    pub(super) nodes: usize,
    pub(super) starting: Timestamp,
    pub(super) ttl: Duration,
    pub(super) latency: Duration,
    pub(super) drain_timeout: Duration,
    pub(super) failover: bool,
    pub(super) jobs: Vec<Recruit>,
    pub(super) seed: u64,
    pub(super) checked: bool,
}

/// A job of the fleet.
#[derive(Clone)]
pub(super) struct Recruit {
    pub(super) name: String,
    pub(super) spec: Spec,
    make: Make,
}

// === impl Sim ===

impl Sim {
    /// Three replicas over three lock nodes, on 2026-01-01T00:00:00Z, without jobs.
    #[must_use]
    pub fn new() -> Self {
        Self {
            replicas: 3,
            nodes: 3,
            starting: at("2026-01-01T00:00:00Z"),
            ttl: Duration::from_secs(10),
            latency: Duration::from_millis(2),
            drain_timeout: Duration::from_secs(30),
            failover: false,
            jobs: Vec::new(),
            seed: 1,
            checked: true,
        }
    }

    /// So many replicas, named `r1`, `r2` and so on.
    #[must_use]
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.replicas = replicas;
        self
    }

    /// So many lock nodes: 1, 3 or 5, named `n1`, `n2` and so on. They behave as independent masters of Redis do: guarded
    /// against the loss of their memory, and admitted when the simulation begins.
    ///
    /// # Panics
    /// For another number.
    #[must_use]
    pub fn nodes(mut self, nodes: usize) -> Self {
        assert!(
            [1, 3, 5].contains(&nodes),
            "{nodes} lock nodes: a fleet has 1, 3 or 5"
        );
        self.nodes = nodes;
        self
    }

    /// Civil time at the beginning: `"2026-03-27T07:59:00[Europe/Rome]"`, or `"2026-03-27T06:59:00Z"`.
    ///
    /// # Panics
    /// When it is neither.
    #[must_use]
    pub fn starting(mut self, time: &str) -> Self {
        self.starting = at(time);
        self
    }

    /// Decides how long messages take, who is quicker in an election, and all else that is left to chance: the same seed
    /// plays the same story. The variable `WATCHKEEPER_SIM_SEED` of the environment wins over it.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// How long a lease lasts without an extension, as `locks.ttl`: 10 seconds unless set.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long a message to a lock node or back takes at most: 2 milliseconds unless set.
    #[must_use]
    pub fn latency(mut self, most: Duration) -> Self {
        self.latency = most;
        self
    }

    /// How long runs may go on when a replica is stopped, as `worker.drain_timeout`: 30 seconds unless set.
    #[must_use]
    pub fn drain_timeout(mut self, limit: Duration) -> Self {
        self.drain_timeout = limit;
        self
    }

    /// The replicas are a failover pair, as with `worker.mode = "failover"`: one of them leads every job.
    #[must_use]
    pub fn failover(mut self) -> Self {
        self.failover = true;
        self
    }

    /// Leaves out what is checked at the end: for stories in which it cannot hold, such as a majority of lock nodes
    /// that lose their memory.
    #[must_use]
    pub fn unchecked(mut self) -> Self {
        self.checked = false;
        self
    }

    /// Adds a job, with all its shards. `make` makes it anew whenever a replica starts, as its process would: what a job keeps in memory is
    /// gone after [`Fleet::kill`](super::Fleet::kill); what stands for the world outside, the closure shares between them.
    ///
    /// # Panics
    /// When the spec makes no schedule.
    #[must_use]
    pub fn job<J: Job>(
        self,
        name: &str,
        make: impl Fn(Replica) -> J + Send + Sync + 'static,
        spec: Spec,
    ) -> Self {
        self.add(
            name,
            spec,
            Arc::new(move |of| Body::Job(Arc::new(make(of)))),
        )
    }

    /// Adds a batch job, likewise.
    ///
    /// # Panics
    /// When the spec makes no schedule.
    #[must_use]
    pub fn batch_job<J: BatchJob>(
        self,
        name: &str,
        make: impl Fn(Replica) -> J + Send + Sync + 'static,
        spec: Spec,
    ) -> Self {
        let spec = spec.coordination(Coordination::Batch);
        self.add(
            name,
            spec,
            Arc::new(move |of| Body::Batch(Arc::new(make(of)))),
        )
    }

    fn add(mut self, name: &str, spec: Spec, make: Make) -> Self {
        if let Err(error) = spec.schedule_of(name) {
            panic!("job {name:?} has no schedule: {error}");
        }
        // Each shard is a job.
        let recruits = names_of(name, &spec).into_iter().map(|name| Recruit {
            name,
            spec: spec.clone(),
            make: make.clone(),
        });
        self.jobs.extend(recruits);
        self
    }
}

impl Default for Sim {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.jobs.iter().map(|job| &job.name);
        f.debug_struct("Sim")
            .field("replicas", &self.replicas)
            .field("nodes", &self.nodes)
            .field("starting", &self.starting)
            .field("ttl", &Span(self.ttl))
            .field("seed", &self.seed)
            .field("jobs", &names.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl Recruit {
    /// How many runs of it may be under way at a time: of a batch job, of one batch.
    pub(super) fn most_at_once(&self) -> usize {
        match self.spec.coordination {
            Coordination::Everywhere => usize::MAX,
            Coordination::Batch => 1,
            Coordination::Leader | Coordination::Tick => self.spec.places(),
        }
    }

    /// The job as a replica runs it.
    pub(super) fn ready(&self, of: Replica, watch: impl FnOnce(Body) -> Body) -> Ready {
        match Ready::new(
            &self.name,
            watch((self.make)(of)),
            Arc::new(self.spec.clone()),
        ) {
            Ok(ready) => ready,
            Err(error) => panic!("job {:?} has no schedule: {error}", self.name),
        }
    }
}

// === helpers ===

/// An instant as people write it.
pub(super) fn at(time: &str) -> Timestamp {
    let zoned = time.parse::<Zoned>().map(|zoned| zoned.timestamp());
    let Ok(found) = zoned.or_else(|_| time.parse::<Timestamp>()) else {
        panic!(
            "{time:?} is no instant: write \"2026-03-27T08:00:00[Europe/Rome]\" or \"2026-03-27T08:00:00+01:00\""
        );
    };
    found
}
