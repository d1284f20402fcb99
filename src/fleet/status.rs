//! The state of the fleet, as every surface shows it: `status --json`, `/api/v1/fleet`, the status page, the log.
//!
//! Who leads a job is what the record of its lock says on a majority of the nodes. Each replica tells what else there is to
//! know in a [`Presence`] document beside the locks; whoever reads both merges them into one [`FleetStatus`]. The field
//! names below are a public interface.
//!
//! # Invariants
//! - S1 Of two documents of one replica the newest revision counts.       (the_newest_revision_of_a_replica_counts)
//! - S2 The leader of a job is the one whom its lock names, whatever documents say.
//!   (the_leader_is_whom_the_lock_names_whatever_documents_say)
//! - S3 Documents alone tell who was last seen to lead, never who does.   (documents_alone_tell_who_was_last_seen)
//! - S4 The order of documents changes nothing.                           (the_order_of_documents_changes_nothing)
//!
//! What became of a job's runs is told by documents of its own: [`runs`].
//! One lock in full, and which locks nobody will release: [`locks`]. Which process holds one: [`HolderStatus`].
//!
//! # Not promised
//! This is news, not authority: a document is as old as `seen_ms_ago` says, and a lock may change hands while this is read.
//! Who may act is decided by leases alone.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use super::history::{self as runs, RunRecord};
use crate::node::{Doc, Token, View};
pub use definitions::{DefinitionStatus, ReloadStatus};
pub use holders::{HOLDER_PREFIX, HolderStatus};
pub use locks::{LockDetail, LockState};
pub use progress::{Rate, RunProgress};
pub(crate) use {
    holders::Holders,
    merge::{Seen, has_lock},
};

mod definitions;
mod holders;
pub(crate) mod leaders;
pub mod leaks;
pub mod locks;
mod merge;
mod progress;
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
}

/// What a replica is in the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// Leads at least one job.
    Leader,
    /// Leads nothing and could.
    #[default]
    Standby,
    /// Is not a candidate; also whatever a newer version calls itself.
    #[serde(other)]
    Observer,
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
    /// Who leads it, by its lock; `null` when nobody does (and always for `batch` and `everywhere`), or when that is not
    /// known.
    pub leader: Option<LeaderStatus>,
    /// Whether `leader` is known: a majority of the lock nodes has answered. Always `true` where nobody ever leads.
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
    /// Why, in the words of who paused it; `null` when it is not paused.
    pub paused_why: Option<String>,
    /// Who paused it; `null` when it is not paused.
    pub paused_by: Option<String>,
    /// Since when, by the clock of who paused it; `null` when it is not paused.
    pub paused_since: Option<Timestamp>,
    /// Items still to be done, as last seen.
    pub backlog: Option<u64>,
    /// Items that do not go by themselves, or not at once, as last seen; `null` when there are none.
    pub held: Option<HeldItems>,
    /// Runs in flight, on all replicas.
    pub running: Vec<RunStatus>,
}

/// Items of a job that are not simply sent or still to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HeldItems {
    /// To be sent again when their time has come.
    pub retry: u64,
    /// Given up.
    pub dead: u64,
    /// May have been received, and are repeated.
    pub in_doubt: u64,
    /// Left to a person.
    pub parked: u64,
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

/// Who was last seen to lead a job of which the leader is not known.
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

/// A run in flight.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunStatus {
    /// The run.
    pub run_id: String,
    /// The replica's id; filled in when documents are merged.
    pub replica: String,
    /// The scheduled instant.
    pub tick: Timestamp,
    /// 1 for the first.
    pub attempt: u32,
    /// The token it acts under.
    pub token: Option<Token>,
    /// When it started.
    pub started: Timestamp,
    /// The batch, for jobs that work in batches.
    pub batch: Option<String>,
    /// Items done, when the job tells.
    pub done: Option<u64>,
    /// Items in all, when the job tells.
    pub total: Option<u64>,
    /// Items per second in the recent past, when there is anything to measure.
    pub per_second: Option<Rate>,
    /// Time until all are done, at this pace; `null` where that would be a guess.
    pub left_ms: Option<u64>,
    /// What it is at, in the job's words.
    pub message: Option<String>,
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
    /// How much longer at most it does not vote, as whoever watches it knows; `null` when it votes or nobody watches it.
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

/// What a replica tells the others about itself: a document beside the locks, with a lifetime.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Presence {
    /// Unique: host, process id, nonce. See [`replica_id`].
    pub id: String,
    /// What the values of its locks end with, so that they name it; empty when they do not.
    pub tag: String,
    /// The configured name.
    pub name: String,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// Version of the program.
    pub version: String,
    /// When the process started.
    pub started: Timestamp,
    /// `shared` or `failover`.
    pub mode: String,
    /// What it is at the moment.
    pub role: Role,
    /// Larger is preferred among the candidates for a job.
    pub priority: i32,
    /// Nothing new starts here.
    pub draining: bool,
    /// Why it is unfit; `null` when fit.
    pub unfit: Option<String>,
    /// Address of its status page.
    pub admin: Option<String>,
    /// What became of its last reload; `null` before the first.
    pub reload: Option<ReloadStatus>,
    /// Lock nodes that it watches on their way back to their vote.
    pub watches: Vec<NodeWatch>,
    /// What it knows of each of its jobs.
    pub jobs: Vec<JobPresence>,
    /// Grows with every writing; the largest counts.
    pub rev: u64,
    /// When this was written, by the writer's wall clock.
    pub written_at: Timestamp,
}

/// A lock node that a replica watches until its votes count.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeWatch {
    /// The nomination on the node: the same for everybody, whatever they call the node.
    pub nomination: String,
    /// How much longer, at the time of writing.
    pub left_ms: u64,
}

/// What one replica knows of one job.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobPresence {
    /// The job.
    pub name: String,
    /// `leader`, `tick`, `batch` or `everywhere`.
    pub coordination: String,
    /// The schedule as written.
    pub schedule: String,
    /// Its time zone.
    pub zone: Option<String>,
    /// A hash of what the job's definition means; empty when the version does not tell.
    pub definition: String,
    /// When this replica loaded that definition, by the fleet's time.
    pub loaded: Option<Timestamp>,
    /// Why this replica stands back from the job, when that is because another definition counts.
    pub stands_back: Option<String>,
    /// The job's engine has died here, of a panic that said this: it begins again after a pause. Said until it has lived for a
    /// while.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_died: Option<String>,
    /// What this replica is to the job.
    pub standing: Standing,
    /// The term's token, while leading.
    pub token: Option<Token>,
    /// Since when, while leading.
    pub since: Option<Timestamp>,
    /// What remained of the lease at `written_at`.
    pub remaining_ms: Option<u64>,
    /// Nodes beyond the majority that hold the lease.
    pub margin: Option<i64>,
    /// How long after `written_at` other replicas may go by the claim to lead: at least the lease and one interval between
    /// documents. Without it, as long as the document lives.
    pub believe_ms: Option<u64>,
    /// The last tick that was decided, as far as this replica knows.
    pub last_tick: Option<Timestamp>,
    /// The next tick, as this replica sees it.
    pub next_tick: Option<Timestamp>,
    /// Whether this replica knows that the job is paused.
    pub paused: bool,
    /// How the last run here ended.
    pub last_outcome: Option<String>,
    /// When it ended.
    pub last_ended: Option<Timestamp>,
    /// Items still to be done, as last seen here.
    pub backlog: Option<u64>,
    /// Items that do not go by themselves, or not at once, as last seen here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldItems>,
    /// Runs in flight here.
    pub running: Vec<RunStatus>,
}

/// What a replica is to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Standing {
    /// Holds the job's term.
    Leading,
    /// Would take over.
    #[default]
    StandingBy,
    /// Works on it beside others: batches, or a job that runs everywhere.
    Working,
    /// Does nothing for it: not a candidate, unfit, draining; also whatever a newer version calls it.
    #[serde(other)]
    Off,
}

/// A document is no presence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PresenceError {
    /// It is not JSON of the expected shape.
    #[error("not a presence document")]
    Json(#[from] serde_json::Error),
    /// It names nobody, or somebody else than its own name says.
    #[error("the document names the replica `{0}`")]
    Id(String),
}

/// What the names of presence documents begin with.
pub const PRESENCE_PREFIX: &str = "presence/";

/// The identity of a replica: `host-pid-nonce`. The nonce tells two processes apart that had the same id, as in
/// containers, where every worker is process 1.
#[must_use]
pub fn replica_id(host: &str, pid: u32, nonce: &str) -> String {
    format!("{host}-{pid}-{nonce}")
}

// === impl HeldItems ===

impl HeldItems {
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for HeldItems {
    /// `6 dead, 1 parked`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (self.dead, "dead"),
            (self.parked, "parked"),
            (self.in_doubt, "in doubt"),
            (self.retry, "to be sent again"),
        ];
        let some = all.iter().filter(|(n, _)| *n > 0);
        let words: Vec<String> = some.map(|(n, word)| format!("{n} {word}")).collect();
        f.write_str(&words.join(", "))
    }
}

// === impl Presence ===

impl Presence {
    /// The document's name.
    #[must_use]
    pub fn document_name(&self) -> String {
        format!("{PRESENCE_PREFIX}{}", self.id)
    }

    /// The document's content.
    ///
    /// # Errors
    /// None that can happen with these types.
    pub fn to_json(&self) -> Result<String, PresenceError> {
        Ok(serde_json::to_string(self)?)
    }

    /// Reads a document's content. Unknown fields are ignored: a newer version may be running beside this one.
    ///
    /// # Errors
    /// [`PresenceError`]; whoever lists the fleet leaves such a document out.
    pub fn from_json(body: &str) -> Result<Self, PresenceError> {
        let presence: Self = serde_json::from_str(body)?;
        if presence.id.is_empty() {
            return Err(PresenceError::Id(presence.id));
        }
        Ok(presence)
    }

    /// Reads a document.
    ///
    /// # Errors
    /// [`PresenceError`]; whoever lists the fleet leaves such a document out.
    pub fn from_doc(doc: &Doc) -> Result<Self, PresenceError> {
        let mut presence = Self::from_json(&doc.body)?;
        if presence.document_name() != doc.name {
            return Err(PresenceError::Id(presence.id));
        }
        presence.rev = doc.rev;
        Ok(presence)
    }

    /// Every presence among `docs`, from any number of nodes; others are left out.
    #[must_use]
    pub fn from_docs<'a>(docs: impl IntoIterator<Item = &'a Doc>) -> Vec<Self> {
        docs.into_iter()
            .filter_map(|doc| Self::from_doc(doc).ok())
            .collect()
    }
}

// === impl FleetStatus ===

impl FleetStatus {
    /// Merges what the replicas told into one picture at `now` (wall time). Who leads is not told by documents: it is not
    /// known here.
    #[must_use]
    pub fn from_presences(
        presences: impl IntoIterator<Item = Presence>,
        nodes: Vec<NodeStatus>,
        now: Timestamp,
    ) -> Self {
        Self::merged(presences, nodes, now, &Seen::default())
    }

    /// The same, with what was read of the jobs' locks.
    pub(crate) fn merged(
        presences: impl IntoIterator<Item = Presence>,
        nodes: Vec<NodeStatus>,
        now: Timestamp,
        seen: &Seen<'_>,
    ) -> Self {
        merge::fleet(presences.into_iter().collect(), nodes, now, seen)
    }

    /// How many more nodes may fail before nobody can hold a lock; negative when too few vote already, `None`
    /// without nodes.
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
    pub fn replica(&self, id: &str) -> Option<&ReplicaStatus> {
        self.replicas.iter().find(|replica| replica.id == id)
    }

    /// A job by name.
    #[must_use]
    pub fn job(&self, name: &str) -> Option<&JobStatus> {
        self.jobs.iter().find(|job| job.name == name)
    }
}

// === impl JobStatus ===

impl JobStatus {
    /// The run under way for the longest time.
    #[must_use]
    pub fn running_since(&self) -> Option<Timestamp> {
        self.running.iter().map(|run| run.started).min()
    }

    /// Whether this job ought to have a leader at all times.
    #[must_use]
    pub fn wants_leader(&self) -> bool {
        self.coordination == "leader"
    }
}

// === impl LeaderStatus ===

impl LeaderStatus {
    /// Its name for people, also while nothing but its lock is known of it.
    #[must_use]
    pub fn shown(&self) -> &str {
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

    /// What the nodes show of their locks, by key: one list of views for each node that answered, of `configured`
    /// nodes.
    #[must_use]
    pub fn from_views(answers: &[Vec<View>], configured: usize) -> Vec<Self> {
        merge::locks(answers, configured)
    }
}
