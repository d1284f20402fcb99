//! Where the answers of the server come from, and what it is told to serve.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{
    clock::Clock,
    event::Events,
    fleet::{
        JobFacts, RunFilter, TriggerParams,
        audit::{AuditEntry, InForce},
        client::recent::RecentRuns,
        history::RunRecord,
        items::{ItemOrder, ItemPage, ItemsAsked, WhichItems},
        status::{FleetStatus, LockDetail, LockStatus},
    },
    network::Network,
    secret::Secret,
    spawn::Spawn,
    telemetry::metrics::Metrics,
};

/// Runs of a job that are remembered.
const MOST_RUNS: usize = 100;

/// Where the answers come from: the worker.
#[async_trait]
pub(crate) trait AdminSource: Send + Sync + 'static {
    /// The id of this replica.
    fn replica(&self) -> String;

    /// What time it is for the fleet: what the others answer here is dated by it. Must not wait.
    fn wall(&self) -> Timestamp;

    /// The fleet, as far as it can be seen now; at least this replica.
    async fn fleet(&self) -> FleetStatus;

    /// The replicas and the nodes as they are now, and of the jobs these alone, by their names or those of their shards; a job with
    /// shards where all of them are named. What that costs does not depend on how many others there are.
    async fn some(&self, names: &BTreeSet<String>) -> FleetStatus;

    /// The fleet as this replica knows it by itself, without a question to the store: of what others lead that they were seen to.
    /// Must not wait.
    fn known(&self) -> FleetStatus;

    /// How many jobs this replica has, each shard counted. Must not wait.
    fn jobs(&self) -> usize;

    /// Every lock.
    ///
    /// # Errors
    /// Why they cannot be listed now.
    async fn locks(&self) -> Result<Vec<LockStatus>, String>;

    /// The last `limit` runs of `job`, newest last; `None` when no replica knows the job.
    ///
    /// # Errors
    /// Why they cannot be read now.
    async fn runs(&self, job: &str, limit: usize) -> Result<Option<Vec<RunRecord>>, String> {
        self.some_runs(job, &RunFilter::default(), limit).await
    }

    /// The same of those that are wanted.
    ///
    /// # Errors
    /// Why they cannot be read now.
    async fn some_runs(
        &self,
        job: &str,
        filter: &RunFilter,
        limit: usize,
    ) -> Result<Option<Vec<RunRecord>>, String>;

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

    /// The orders that were given over HTTP and are remembered.
    ///
    /// # Errors
    /// Why they cannot be read now.
    async fn audit(&self) -> Result<Vec<AuditEntry>, String>;

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

    /// An order of a person, written down with who and why before it is given.
    ///
    /// # Errors
    /// [`OrderError`]; nothing is known to have been written then, but after [`OrderError::NotKnown`].
    async fn give(&self, asked: Asked) -> Result<Done, OrderError> {
        match asked.what {
            What::Job(job, order) => self.order(&job, order).await,
            What::Drain(replica) => self.drain(&replica).await,
            What::Withdraw(id) => self.withdraw(&id).await,
            What::Break { .. } => Err(OrderError::NotPossible("no lock is broken here".to_owned())),
            What::Items { .. } => Err(OrderError::NotPossible("no items are kept here".to_owned())),
            What::PauseAll { .. } | What::ResumeAll => {
                let why = "jobs are paused by their names alone here";
                Err(OrderError::NotPossible(why.to_owned()))
            }
        }
    }

    /// Items of a job that do not go by themselves, from the database of the job.
    ///
    /// # Errors
    /// [`OrderError`]: why they cannot be listed, here or now.
    async fn items(&self, job: &str, _asked: ItemsAsked) -> Result<ItemPage, OrderError> {
        let why = format!("the items of {job} cannot be shown here");
        Err(OrderError::NotPossible(why))
    }

    /// Where a person finds a trace, by the configuration of this replica: an address with a place for its id.
    fn trace_link(&self) -> Option<String> {
        None
    }

    /// Who hears of it when this job breaks, by the configuration of this replica.
    fn told_of(&self, _job: &str) -> Vec<String> {
        Vec::new()
    }

    /// What decides on the ticks and runs of this job, by the keys of the configuration of this replica; nothing of one that it does
    /// not have.
    fn rules_of(&self, _job: &str) -> Vec<(String, String)> {
        Vec::new()
    }

    /// What a page shows of a job besides its status; `None` when no replica knows the job.
    ///
    /// # Errors
    /// Why it cannot be read now.
    async fn facts(&self, job: &str) -> Result<Option<JobFacts>, String> {
        let runs = self.runs(job, MOST_RUNS).await?;
        Ok(runs.map(|runs| JobFacts {
            runs,
            ..JobFacts::default()
        }))
    }

    /// The last runs of all jobs that are asked for, newest first.
    ///
    /// # Errors
    /// Why they cannot be read now.
    async fn recent(&self, _asked: RecentAsked) -> Result<RecentRuns, String> {
        Err("the runs of all jobs cannot be shown here".to_owned())
    }

    /// One run in full; `None` when it is not remembered.
    ///
    /// # Errors
    /// Why it cannot be read now.
    async fn run(&self, job: &str, run_id: &str) -> Result<Option<RunRecord>, String> {
        let runs = self.runs(job, MOST_RUNS).await?.unwrap_or_default();
        Ok(runs.into_iter().find(|run| run.run_id == run_id))
    }

    /// What was asked for, by whichever way, and still stands.
    ///
    /// # Errors
    /// Why it cannot be read now.
    async fn in_force(&self) -> Result<Vec<InForce>, String> {
        Ok(Vec::new())
    }

    /// One lock, node by node.
    ///
    /// # Errors
    /// Why it cannot be read now.
    async fn lock(&self, key: &str) -> Result<LockDetail, String> {
        Err(format!("{key} cannot be shown here"))
    }
}

/// Which runs of all jobs are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecentAsked {
    /// A part of the job's name; of all jobs where it is empty.
    pub job_has: String,
    /// Which of their runs.
    pub filter: RunFilter,
    /// How many, at most.
    pub most: usize,
    /// With what they left to read.
    pub outputs: bool,
}

/// What a person asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Who asks, as far as that is known.
    pub who: String,
    /// Why.
    pub reason: String,
    /// What.
    pub what: What,
}

/// What can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Something of a job.
    Job(String, Order),
    /// That a replica, by id or name, drains.
    Drain(String),
    /// That a trigger does not start.
    Withdraw(String),
    /// That a lease ends by force.
    Break {
        /// The lock.
        key: String,
        /// Whose lease; by default that of the owner on most nodes.
        owner: Option<String>,
    },
    /// That nothing starts of any job that there is.
    PauseAll {
        /// Why.
        reason: String,
    },
    /// That every pause ends.
    ResumeAll,
    /// That items of a job are sent again, put aside or discarded.
    Items {
        /// The job.
        job: String,
        /// What is to become of them.
        order: ItemOrder,
        /// Which they are.
        which: WhichItems,
    },
}

/// What an order about all jobs is about.
pub(crate) const ALL_JOBS: &str = "jobs";

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

// === impl OrderError ===

impl OrderError {
    /// Why.
    pub(crate) fn why(&self) -> &str {
        match self {
            Self::Unknown(why)
            | Self::NotPossible(why)
            | Self::Misfit(why)
            | Self::TooMany(why)
            | Self::Unavailable(why)
            | Self::NoItems(why)
            | Self::NotKnown(why) => why,
        }
    }
}

// === impl What ===

impl What {
    /// The word for it, and what it is about.
    pub(crate) fn words(&self) -> (&'static str, &str) {
        match self {
            Self::Job(job, Order::Pause { .. }) => ("pause", job.as_str()),
            Self::Job(job, Order::Resume) => ("resume", job.as_str()),
            Self::Job(job, Order::Trigger { .. }) => ("trigger", job.as_str()),
            Self::Job(job, Order::Resign { .. }) => ("resign", job.as_str()),
            Self::Drain(replica) => ("drain", replica.as_str()),
            Self::Withdraw(id) => ("withdraw", id.as_str()),
            Self::Break { key, .. } => ("break", key.as_str()),
            Self::PauseAll { .. } => ("pause_all", ALL_JOBS),
            Self::ResumeAll => ("resume_all", ALL_JOBS),
            Self::Items { job, order, .. } => (order.word(), job.as_str()),
        }
    }

    /// The items that it is about, in a line; empty where it is about none.
    pub(crate) fn items(&self) -> String {
        match self {
            Self::Items { which, .. } => which.in_words(),
            _ => String::new(),
        }
    }

    /// Whose lease it is about; empty where that is not said.
    pub(crate) fn owner(&self) -> &str {
        match self {
            Self::Break { owner, .. } => owner.as_deref().unwrap_or_default(),
            _ => "",
        }
    }

    /// To which replica it hands over; empty where that is not said.
    pub(crate) fn to(&self) -> &str {
        match self {
            Self::Job(_, Order::Resign { to }) => to.as_deref().unwrap_or_default(),
            _ => "",
        }
    }
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
    /// The database of the job does not answer, or refuses.
    NoItems(String),
    /// What was asked may be done in whole or in part, or be done yet: an answer was late or lost, or too few nodes have answered.
    NotKnown(String),
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
    /// Its tasks: what was begun is ended although the client has gone that asked for it.
    pub spawn: Spawn,
    /// What happens in it.
    pub events: Events,
    /// What a request must say that changes something or shows outputs; without it no client can.
    pub token: Option<Secret>,
    /// Names, besides addresses and `localhost`, under which it may be asked.
    pub hosts: Vec<String>,
    /// Proxies whose word on where a request comes from is believed.
    pub proxies: Vec<Network>,
    /// The header in which they say who asks.
    pub user_header: Option<String>,
    /// Nothing can be changed here.
    pub read_only: bool,
}
