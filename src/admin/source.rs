//! Where the answers of the server come from, and what it is told to serve.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{
    clock::Clock,
    fleet::{
        TriggerParams,
        history::RunRecord,
        status::{FleetStatus, LockStatus},
    },
    network::Network,
    secret::Secret,
    telemetry::metrics::Metrics,
};

/// Where the answers come from: the worker.
#[async_trait]
pub(crate) trait AdminSource: Send + Sync + 'static {
    /// The id of this replica.
    fn replica(&self) -> String;

    /// What time it is for the fleet: what the others answer here is dated by it. Must not wait.
    fn wall(&self) -> Timestamp;

    /// The fleet, as far as it can be seen now; at least this replica.
    async fn fleet(&self) -> FleetStatus;

    /// Every lock.
    ///
    /// # Errors
    /// Why they cannot be listed now.
    async fn locks(&self) -> Result<Vec<LockStatus>, String>;

    /// The last `limit` runs of `job`, newest last; `None` when no replica knows the job.
    ///
    /// # Errors
    /// Why they cannot be read now.
    async fn runs(&self, job: &str, limit: usize) -> Result<Option<Vec<RunRecord>>, String>;

    /// Whether the process turns: runtime and keeper have both beaten within the last seconds. Must not wait.
    ///
    /// # Errors
    /// What stands still.
    fn live(&self) -> Result<(), String>;

    /// Whether this replica is able to do its part: not draining, fit, and a store was reached once. Must not wait.
    ///
    /// # Errors
    /// What is in the way: `NAME: WHY`, of which the name is shown to every client, or a sentence for every client.
    fn ready(&self) -> Result<(), String>;

    /// Whether this replica leads `job` now; `None` when it does not know the job. Must not wait.
    fn leads(&self, job: &str) -> Option<bool>;

    /// Whether this replica leads anything now. Must not wait.
    fn leads_any(&self) -> bool;

    /// Asks something of `job`.
    ///
    /// # Errors
    /// [`OrderError`]; nothing is known to have been written then.
    async fn order(&self, job: &str, order: Order) -> Result<Done, OrderError>;

    /// The triggers that are not done with, of one job or of all.
    ///
    /// # Errors
    /// Why they cannot be read now.
    async fn triggers(&self, job: Option<&str>) -> Result<serde_json::Value, String>;

    /// Asks that a trigger does not start.
    ///
    /// # Errors
    /// [`OrderError`]; [`OrderError::NotPossible`] when it has started.
    async fn withdraw(&self, id: &str) -> Result<Done, OrderError>;

    /// Asks a replica, by id or name, to drain.
    ///
    /// # Errors
    /// [`OrderError`]; nothing is known to have been written then.
    async fn drain(&self, replica: &str) -> Result<Done, OrderError>;
}

/// What is asked of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Start nothing of it.
    Pause {
        /// Why; may be empty.
        reason: String,
    },
    /// End the pause.
    Resume,
    /// Run once, now.
    Trigger {
        /// Parameters that are laid over the job's own.
        given: TriggerParams,
    },
    /// Its leader hands it over.
    Resign {
        /// The name or id of the replica that is to lead next.
        to: Option<String>,
    },
}

/// It is written on a majority of the lock nodes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Done {
    /// What is known of it, as the commands print it with `--json`.
    pub answer: serde_json::Value,
    /// Whether the replicas that it concerns have heard of it.
    pub heard: bool,
}

/// Why something was not asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OrderError {
    /// The job or the replica is not known.
    Unknown(String),
    /// This cannot be asked of it.
    NotPossible(String),
    /// The job cannot take these parameters.
    Misfit(String),
    /// As many are asked for as may be.
    TooMany(String),
    /// The lock nodes do not answer.
    Unavailable(String),
}

/// What the server serves.
#[derive(Clone)]
pub(crate) struct Admin {
    /// The worker.
    pub source: Arc<dyn AdminSource>,
    /// Its metrics.
    pub metrics: Metrics,
    /// Its clock.
    pub clock: Clock,
    /// What a request must say that changes something or shows outputs; without it no client can.
    pub token: Option<Secret>,
    /// Names, besides addresses and `localhost`, under which it may be asked.
    pub hosts: Vec<String>,
    /// Proxies whose word on where a request comes from is believed.
    pub proxies: Vec<Network>,
    /// Nothing can be changed here.
    pub read_only: bool,
}
