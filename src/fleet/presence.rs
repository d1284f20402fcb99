//! What a replica tells the others about itself: a document beside the locks, written again and again while it lives.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::status::{
    definitions::ReloadStatus,
    progress::{Rate, RunProgress},
};
use crate::node::{Doc, Token};

/// Time between two documents of a replica when nothing changes, and between two looks at those of the others.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);
/// A replica whose last document is older is shown as silent: frozen, gone or cut off.
pub(crate) const SILENT: Duration = Duration::from_secs(4);
/// A document that was not written anew for so long is the last word of a dead replica.
pub(crate) const FRESH: Duration = Duration::from_secs(5);
/// A document without a successor is forgotten after this.
pub(crate) const LIFETIME: Duration = Duration::from_secs(7);

const _: () = assert!(
    INTERVAL.as_millis() * 2 <= SILENT.as_millis()
        && SILENT.as_millis() < FRESH.as_millis()
        && INTERVAL.as_millis() * 3 < LIFETIME.as_millis()
);

/// What a replica tells the others about itself: a document beside the locks, with a lifetime.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Presence {
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
pub(crate) struct NodeWatch {
    /// The nomination on the node: the same for everybody, whatever they call the node.
    pub nomination: String,
    /// How much longer, at the time of writing.
    pub left_ms: u64,
}

/// What one replica knows of one job.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct JobPresence {
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
    /// Why this replica cannot look for the job's work: a table that is not there, a store that does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
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
#[allow(
    clippy::enum_variant_names,
    reason = "a candidate that waits is said to stand by"
)]
pub(crate) enum Standing {
    /// Holds the job's term.
    Leading,
    /// Would take over.
    #[default]
    #[serde(rename = "standing-by")]
    Standby,
    /// Works on it beside others: batches, or a job that runs everywhere.
    Working,
    /// Does nothing for it: not a candidate, unfit, draining; also whatever a newer version calls it.
    #[serde(other)]
    Off,
}

/// A document is no presence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum PresenceError {
    /// It is not JSON of the expected shape.
    #[error("not a presence document")]
    Json(#[from] serde_json::Error),
    /// It names no replica, or another one than its own name says.
    #[error("the document names the replica `{0}`")]
    Id(String),
}

/// What the names of presence documents begin with.
pub(crate) const PRESENCE_PREFIX: &str = "presence/";

/// The identity of a replica: `host-pid-nonce`. The nonce tells two processes apart that had the same id, as in
/// containers, where every worker is process 1.
#[must_use]
pub fn replica_id(host: &str, pid: u32, nonce: &str) -> String {
    format!("{host}-{pid}-{nonce}")
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
    pub(crate) fn document_name(&self) -> String {
        format!("{PRESENCE_PREFIX}{}", self.id)
    }

    /// The document's content.
    ///
    /// # Errors
    /// None that can happen with these types.
    pub(crate) fn to_json(&self) -> Result<String, PresenceError> {
        Ok(serde_json::to_string(self)?)
    }

    /// Reads a document's content. Unknown fields are ignored: a newer version may be running beside this one.
    ///
    /// # Errors
    /// [`PresenceError`]; a listing leaves such a document out.
    pub(crate) fn from_json(body: &str) -> Result<Self, PresenceError> {
        let presence: Self = serde_json::from_str(body)?;
        if presence.id.is_empty() {
            return Err(PresenceError::Id(presence.id));
        }
        Ok(presence)
    }

    /// Reads a document.
    ///
    /// # Errors
    /// [`PresenceError`]; a listing leaves such a document out.
    pub(crate) fn from_doc(doc: &Doc) -> Result<Self, PresenceError> {
        let mut presence = Self::from_json(&doc.body)?;
        if presence.document_name() != doc.name {
            return Err(PresenceError::Id(presence.id));
        }
        presence.rev = doc.rev;
        Ok(presence)
    }

    /// Every presence among `docs`, from any number of nodes; others are left out.
    #[must_use]
    pub(crate) fn from_docs<'a>(docs: impl IntoIterator<Item = &'a Doc>) -> Vec<Self> {
        docs.into_iter()
            .filter_map(|doc| Self::from_doc(doc).ok())
            .collect()
    }
}

// === impl RunStatus ===

impl RunStatus {
    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> RunProgress {
        RunProgress {
            done: self.done,
            total: self.total,
            per_second: self.per_second,
            left_ms: self.left_ms,
            message: self.message.clone(),
        }
    }
}
