//! The state of the fleet, as every surface shows it: `status --json`, `/api/v1/fleet`, the status page, the log.
//!
//! Who leads a job is what the record of its lock says on a majority of the nodes. Each replica tells what else there is to
//! know in a presence document beside the locks; a reader merges both into one [`FleetStatus`]. The field
//! names below are a public interface.
//!
//! # Invariants
//! - S1 Of two documents of one replica the newest revision counts.       (the_newest_revision_of_a_replica_counts)
//! - S2 The leader of a job is the replica that its lock names, whatever documents say.
//!   (the_leader_is_whom_the_lock_names_whatever_documents_say)
//! - S3 Documents alone tell which replica was last seen to lead, never which does.   (documents_alone_tell_who_was_last_seen)
//! - S4 The order of documents changes nothing.                           (the_order_of_documents_changes_nothing)
//!
//! What became of a job's runs is told by documents of its own: [`RunRecord`].
//! One lock in full, and which locks nothing will release: [`LockDetail`], [`Leak`]. Which process holds one: [`HolderStatus`].
//!
//! # Not promised
//! This is news, not authority: a document is as old as `seen_ms_ago` says, and a lock may change hands while this is read.
//! Who may act is decided by leases alone.
//!
//! # Example
//! ```
//! use watchkeeper::fleet::status::FleetStatus;
//!
//! /// Jobs without a leader; a job whose leader is not known is not one of them.
//! fn leaderless(fleet: &FleetStatus) -> Vec<&str> {
//!     let led = fleet.jobs.iter().filter(|job| job.coordination == "leader");
//!     let without = led.filter(|job| job.leader_known && job.leader.is_none());
//!     without.map(|job| job.name.as_str()).collect()
//! }
//! // In production `Fleet::connect(&config).await?.status().await?`.
//! assert!(leaderless(&FleetStatus::default()).is_empty());
//! ```

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::history::RUNNING;
pub use super::presence::{HeldItems, Role, RunStatus, replica_id};
pub(crate) use super::{
    history::{self as runs, RunRecord},
    presence::{JobPresence, JobStanding, NodeWatch, Presence, SILENT},
};
use crate::{job::shard::whole, node::Token};
pub use definitions::{DefinitionStatus, ReloadStatus};
pub(crate) use holders::HOLDER_PREFIX;
pub use holders::HolderStatus;
pub(crate) use holders::Holders;
pub use leaks::{Leak, LeakKind};
pub use locks::{LedgerStatus, LockDetail, LockState, NodeLock};
pub use notices::NoticeStatus;
pub use progress::{Rate, RunProgress};

pub(super) mod definitions;
mod holders;
pub(crate) mod leaders;
pub(crate) mod leaks;
mod lock_list;
pub(crate) mod locks;
pub(crate) mod merge;
pub(super) mod notices;
pub(super) mod progress;
mod shards;
#[cfg(test)]
mod tests;

/// What the fleet looks like.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetStatus {
    /// Every replica that was heard of lately, by name.
    pub replicas: Vec<ReplicaStatus>,
    /// Every job that any replica knows, by name.
    pub jobs: Vec<JobStatus>,
    /// The lock nodes, in configured order, as the asked replica sees them.
    pub nodes: Vec<NodeStatus>,
}

/// One running worker.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicaStatus {
    /// Unique: host, process id, nonce.
    pub id: String,
    /// The configured name.
    pub name: String,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// Version of the program.
    pub version: String,
    /// `shared` or `failover`; empty where the replica does not tell.
    pub mode: String,
    /// What it is at the moment.
    pub role: Role,
    /// Larger is preferred among the candidates for a job.
    pub priority: i32,
    /// Nothing new starts here.
    pub draining: bool,
    /// Whether it is fit to work.
    pub fit: bool,
    /// Why it is unfit.
    pub unfit: Option<String>,
    /// When the process started.
    pub started: Timestamp,
    /// Age of this news.
    pub seen_ms_ago: u64,
    /// Address of its status page.
    pub admin: Option<String>,
    /// What became of its last reload; `null` before the first.
    pub reload: Option<ReloadStatus>,
    /// How it stands with the receivers of notices that its configuration names, by their names.
    pub notices: Vec<NoticeStatus>,
}

impl ReplicaStatus {
    /// Whether its last news is older than it should be: it is frozen, gone or cut off.
    #[doc(hidden)] // for the commands and the page: `seen_ms_ago` says it
    #[must_use]
    pub fn is_silent(&self) -> bool {
        u128::from(self.seen_ms_ago) > SILENT.as_millis()
    }
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobStatus {
    /// Its name.
    pub name: String,
    /// `leader`, `tick`, `batch` or `everywhere`.
    pub coordination: String,
    /// The schedule as written.
    pub schedule: String,
    /// Its time zone.
    pub zone: Option<String>,
    /// Its definitions, when the replicas disagree on them; empty when they agree.
    pub definitions: Vec<DefinitionStatus>,
    /// Who leads it, by its lock; `null` when no replica does (and always for `batch` and `everywhere`), or when that is not
    /// known.
    pub leader: Option<LeaderStatus>,
    /// Whether `leader` is known: a majority of the lock nodes has answered. Always `true` where no replica ever leads.
    pub leader_known: bool,
    /// While the leader is not known: who was last seen to lead, where that is remembered.
    pub last_seen: Option<LastSeen>,
    /// The last tick that was decided.
    pub last_tick: Option<Timestamp>,
    /// The next tick.
    pub next_tick: Option<Timestamp>,
    /// How the last run ended; what is under way stands in `running`.
    pub last_outcome: Option<String>,
    /// When it ended.
    pub last_ended: Option<Timestamp>,
    /// Nothing of it starts until it is resumed.
    pub paused: bool,
    /// Why, in the words of the operator who paused it; `null` when it is not paused.
    pub paused_why: Option<String>,
    /// Who paused it; `null` when it is not paused.
    pub paused_by: Option<String>,
    /// Since when, by the clock of the command that paused it; `null` when it is not paused.
    pub paused_since: Option<Timestamp>,
    /// Items still to be done, as last seen.
    pub backlog: Option<u64>,
    /// Since when the oldest of them could go; `null` where that is not known.
    pub backlog_since: Option<Timestamp>,
    /// Items that do not go by themselves, or not at once, as last seen; `null` when there are none.
    pub held: Option<HeldItems>,
    /// Why its work cannot be looked for, where a replica says so, and on how many of them.
    pub trouble: Option<JobTrouble>,
    /// Runs in flight, on all replicas.
    pub running: Vec<RunStatus>,
    /// How many shards of it there are on the replicas; `null` for a job without shards. What stands above is said of all of them
    /// together: no replica leads it alone, its next tick is that of the first shard to be due, and it is paused when all are.
    pub shards: Option<usize>,
    /// How many of its shards a replica is known to lead.
    pub shards_led: usize,
    /// How many of its shards have ended their last run neither `done` nor `skipped`.
    pub shards_failing: usize,
    /// How many of its shards are paused.
    pub shards_paused: usize,
    /// Each of its shards, in order, where that is asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_shard: Vec<Self>,
}

/// Why the work of a job cannot be looked for.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct JobTrouble {
    /// Names of the replicas that say so.
    pub replicas: Vec<String>,
    /// What the first of them says.
    pub why: String,
}

impl fmt::Display for JobTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cannot look for work: {}",
            self.replicas.join(", "),
            self.why
        )
    }
}

/// Who leads a job.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LeaderStatus {
    /// The replica's id; empty while the replica that the lock names has not been heard of, and for foreign clients.
    pub replica: String,
    /// The replica's name.
    pub name: String,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// The term's fencing token.
    pub token: Token,
    /// Since when; `null` until its replica has told.
    pub since: Option<Timestamp>,
    /// What remains of the lease unless it is extended, by the lock nodes; `null` when unknown.
    pub remaining_ms: Option<u64>,
    /// Nodes that hold the lease beyond the majority it needs.
    pub margin: Option<i64>,
}

/// The replica that was last seen to lead a job whose leader is not known.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LastSeen {
    /// The replica's id.
    pub replica: String,
    /// The replica's name.
    pub name: String,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// Its term's fencing token.
    pub token: Token,
    /// When it said so, by its clock.
    pub at: Timestamp,
    /// How long ago that was.
    pub ms_ago: u64,
}

/// One lock node.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Its name, without credentials.
    pub name: String,
    /// Whether it answers.
    pub up: bool,
    /// Whether its votes count. One that is new, was started again or has lost its memory answers, and does not vote yet.
    pub votes: bool,
    /// How much longer at most it does not vote, as its watchers know; `null` when it votes or has none.
    pub votes_in_ms: Option<u64>,
    /// Why it does not answer or vote: a bounded word; `null` when it does both.
    pub cause: Option<String>,
    /// The last error in full.
    pub error: Option<String>,
    /// Round trip of the last call that it answered, in microseconds.
    pub rtt_us: Option<u64>,
    /// Its wall clock minus that of the machine which answers, in milliseconds; 0 when that is within the error.
    pub offset_ms: Option<i64>,
}

/// One lock, as `locks --json` and `/api/v1/locks` show it.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LockStatus {
    /// The lock.
    pub key: String,
    /// The random value of its holder, or of its last one; empty when never held.
    pub owner: String,
    /// That owner's token.
    pub token: Token,
    /// Remaining life of the key: on a majority if it is held, else the longest leftover; `null` when free or
    /// without a time to live.
    pub remaining_ms: Option<u64>,
    /// Whether a majority of the nodes shows this owner in the key.
    pub held: bool,
    /// Nodes that show this owner in the key.
    pub nodes: usize,
    /// Whether the last holder has released it.
    pub released: bool,
    /// The id of the replica that holds it, where it tells of itself.
    pub replica: Option<String>,
    /// The process that holds it, where it tells of itself: a replica, or a program under `lock` or `elect`.
    pub holder: Option<HolderStatus>,
}

// === impl FleetStatus ===

impl FleetStatus {
    /// How many more nodes may fail before no lock can be held; negative when too few vote already, `None`
    /// without nodes.
    #[doc(hidden)] // for the commands
    #[must_use]
    pub fn node_margin(&self) -> Option<i64> {
        if self.nodes.is_empty() {
            return None;
        }
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let up = self
            .nodes
            .iter()
            .filter(|node| node.up && node.votes)
            .count();
        Some(count(up) - count(self.nodes.len() / 2 + 1))
    }

    /// A replica by id.
    #[must_use]
    pub(crate) fn replica(&self, id: &str) -> Option<&ReplicaStatus> {
        self.replicas.iter().find(|replica| replica.id == id)
    }

    /// A job by name, or a shard of one.
    #[must_use]
    pub fn job(&self, name: &str) -> Option<&JobStatus> {
        let shards = |job: &'_ JobStatus| job.name == whole(name);
        let shards = self.jobs.iter().filter(|job| shards(job));
        let mut shards = shards.flat_map(|job| &job.by_shard);
        let mut jobs = self.jobs.iter();
        jobs.find(|job| job.name == name)
            .or_else(|| shards.find(|shard| shard.name == name))
    }
}

// === impl RunRecord ===

impl RunRecord {
    /// Says how far those of the runs are that are in flight, where the fleet tells.
    pub(crate) fn add_progress<'a>(
        runs: impl IntoIterator<Item = &'a mut Self>,
        fleet: &FleetStatus,
    ) {
        for run in runs.into_iter().filter(|run| run.outcome == RUNNING) {
            let job = fleet.job(&run.job);
            let mut flying = job.into_iter().flat_map(|job| &job.running);
            let same = flying.find(|flying| flying.run_id == run.run_id);
            run.progress = same
                .map(RunStatus::progress)
                .filter(|told| !told.is_empty());
        }
    }
}

// === impl JobStatus ===

impl JobStatus {
    /// What the replicas disagree about, in sentences; none when they agree.
    #[doc(hidden)] // for the commands
    #[must_use]
    pub fn disagreement(&self) -> Vec<String> {
        self.definitions.iter().map(ToString::to_string).collect()
    }

    /// The run under way for the longest time.
    #[doc(hidden)] // for the commands
    #[must_use]
    pub fn running_since(&self) -> Option<Timestamp> {
        self.running.iter().map(|run| run.started).min()
    }

    /// Whether this job ought to have a leader at all times.
    #[doc(hidden)] // for the commands
    #[must_use]
    pub fn wants_leader(&self) -> bool {
        self.coordination == "leader" && self.shards.is_none()
    }
}

// === impl LeaderStatus ===

impl LeaderStatus {
    /// Its name for people, also while nothing but its lock is known of it.
    #[must_use]
    pub(crate) fn shown(&self) -> &str {
        if self.name.is_empty() {
            "a replica not yet heard of"
        } else {
            &self.name
        }
    }
}

// === impl LockStatus ===

impl LockStatus {
    /// Says which process holds it, where it tells of itself.
    #[must_use]
    pub(crate) fn with_holder(mut self, holders: &Holders) -> Self {
        let held = self.remaining_ms.is_some() || self.held;
        self.holder = holders.holder(&self.owner).filter(|_| held).cloned();
        let replica = self
            .holder
            .as_ref()
            .filter(|holder| holder.command.is_none());
        self.replica = replica.map(|holder| holder.id.clone());
        self
    }
}
