//! What a run is made of, before it is shared.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;

use super::JobError;
use crate::{
    clock::{Clock, Moment},
    lease::LeaseView,
    lock::Locks,
    trace::AttemptTrace,
};

/// What a run is for. `Debug` tells neither parameters nor checkpoint: they may hold secrets.
#[derive(Clone)]
pub struct RunFacts {
    /// The job's name; of a shard `NAME.3`.
    pub job: String,
    /// A sortable unique id.
    pub id: String,
    /// The scheduled instant; the start of the term for `continuous`.
    pub tick: Timestamp,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// The name of this replica.
    pub replica: String,
    /// The batch that is processed, for `batch` jobs.
    pub batch: Option<String>,
    /// Which shard of the job this is, counted from 0; 0 for a job without shards.
    pub shard: usize,
    /// How many shards the job has; 1 for a job without shards.
    pub shards: usize,
    /// The job's parameters: as configured, with those of its trigger laid over them.
    pub params: serde_json::Value,
    /// What the last attempt left by [`Run::save_checkpoint`](crate::Run::save_checkpoint).
    pub checkpoint: Option<serde_json::Value>,
}

/// Everything that a run is made of.
pub(crate) struct RunSetup {
    pub(crate) facts: RunFacts,
    pub(crate) clock: Clock,
    /// Under which it acts; none for jobs that run everywhere.
    pub(crate) lease: Option<LeaseView>,
    /// Those of the worker.
    pub(crate) locks: Option<Locks>,
    /// Another lease that nothing of this run may outlive: the replica's, in failover mode.
    pub(crate) also: Option<LeaseView>,
    /// How long before the end of the lease it is told to stop.
    pub(crate) margin: Duration,
    /// Its own time limit.
    pub(crate) until: Moment,
    /// From being told to stop to being dropped; 10 seconds unless set.
    pub(crate) grace: Duration,
    /// Now unless set: a run may be made a little before it begins.
    pub(crate) begins: Moment,
    pub(crate) checkpoints: Option<Arc<dyn Checkpoints>>,
    /// When the checkpoint was left.
    pub(crate) checkpoint_at: Option<Timestamp>,
    /// Names of the parameters that its trigger gave it.
    pub(crate) given: Vec<String>,
    /// Where it stands in a trace, where traces are told.
    pub(crate) trace: Option<AttemptTrace>,
}

/// Where checkpoints go.
#[async_trait]
pub(crate) trait Checkpoints: Send + Sync + 'static {
    /// Stores the checkpoint beside the lock, on a majority of nodes.
    ///
    /// # Errors
    /// When it could not be stored while the lease was held.
    async fn save(&self, checkpoint: serde_json::Value) -> Result<(), JobError>;
}

// === impl RunSetup, RunFacts ===

impl RunSetup {
    /// A run without a lock, a time limit, and a place for checkpoints, unless these are set.
    pub(crate) fn new(facts: RunFacts, clock: Clock) -> Self {
        Self {
            facts,
            lease: None,
            locks: None,
            also: None,
            margin: Duration::ZERO,
            until: Moment::NEVER,
            grace: Duration::from_secs(10),
            begins: clock.now(),
            checkpoints: None,
            checkpoint_at: None,
            given: Vec::new(),
            trace: None,
            clock,
        }
    }
}

impl fmt::Debug for RunFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunFacts")
            .field("job", &self.job)
            .field("id", &self.id)
            .field("tick", &self.tick)
            .field("attempt", &self.attempt)
            .field("replica", &self.replica)
            .field("batch", &self.batch)
            .field("shard", &self.shard)
            .finish_non_exhaustive()
    }
}
