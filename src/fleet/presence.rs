//! What a replica tells the others about itself, in documents beside the locks that end soon after it.
//!
//! - `presence/ID` is a summary of at most [`LARGEST_SUMMARY`](pages::LARGEST_SUMMARY) bytes: who it is, whether it is fit, how
//!   much it leads, and whether its definitions are those of others. It is written when it changes and kept alive by a touch:
//!   every other replica looks at it again and again, and at rest that look costs a number for the whole directory.
//! - `detail/ID/…` are pages: of what it is to its jobs where that is no candidate at rest (`standings`), of their definitions
//!   (`facts`), of ticks and runs (`runs`), and its summary uncut (`head`). Each is written when it changes. Replicas read the
//!   standings that moved; only a program that shows a fleet reads the others.
//!
//! [`teller::Teller`] decides what is written, [`replicas::Replicas`] what is read.

pub(crate) mod pages;
pub(crate) mod replicas;
pub(crate) mod teller;

use std::{fmt, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::status::{
    definitions::ReloadStatus,
    notices::NoticeStatus,
    progress::{Rate, RunProgress},
};
use crate::node::Token;

/// Time between two signs of life of a replica when nothing changes, and between two looks at the others.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);
/// A replica whose last sign of life is older is shown as silent: frozen, gone or cut off.
pub(crate) const SILENT: Duration = Duration::from_secs(4);
/// A summary that was not touched for so long is the last word of a dead replica.
pub(crate) const FRESH: Duration = Duration::from_secs(5);
/// A summary that is not touched is forgotten after this.
pub(crate) const LIFETIME: Duration = Duration::from_secs(7);

const _: () = assert!(
    INTERVAL.as_millis() * 2 <= SILENT.as_millis()
        && SILENT.as_millis() < FRESH.as_millis()
        && INTERVAL.as_millis() * 3 < LIFETIME.as_millis()
);

/// What a replica tells the others about itself, put together from its documents.
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
    /// Too few lock nodes answer it, and give it their votes, to take a lock.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut_off: bool,
    /// Address of its status page.
    pub admin: Option<String>,
    /// What became of its last reload; `null` before the first.
    pub reload: Option<ReloadStatus>,
    /// How it stands with the receivers of notices that its configuration names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<NoticeStatus>,
    /// Lock nodes that it watches on their way back to their vote.
    pub watches: Vec<NodeWatch>,
    /// What it knows of each of its jobs, as far as that was read.
    #[serde(skip)]
    pub jobs: Vec<JobPresence>,
    /// Grows with every writing; the largest counts.
    #[serde(skip)]
    pub rev: u64,
    /// Its last sign of life, by the reader's wall clock.
    #[serde(skip)]
    pub written_at: Timestamp,
}

/// A lock node that a replica watches until its votes count.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NodeWatch {
    /// The nomination on the node: the same for every replica, whatever name it has for the node.
    pub nomination: String,
    /// Until when, by the fleet's time.
    pub until: Timestamp,
}

/// What one replica knows of one job.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct JobPresence {
    /// The job.
    pub name: String,
    /// `leader`, `tick`, `batch` or `everywhere`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub coordination: String,
    /// The schedule as written.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub schedule: String,
    /// Its time zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// A hash of what the job's definition means; empty when the version does not tell.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub definition: String,
    /// When this replica loaded that definition, by the fleet's time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loaded: Option<Timestamp>,
    /// Other replicas have other definitions of it, as far as this one has heard: then it matters when each was loaded.
    #[serde(skip)]
    pub disputed: bool,
    /// Why this replica stands back from the job, when that is because another definition counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stands_back: Option<String>,
    /// The job's engine has died here, of a panic that said this: it begins again after a pause. Said until it has lived for a
    /// while.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_died: Option<String>,
    /// Why this replica cannot look for the job's work: a table that is not there, a store that does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// What this replica is to the job.
    #[serde(skip_serializing_if = "JobStanding::is_standby")]
    pub standing: JobStanding,
    /// The term's token, while leading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// Since when, while leading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What remained of the lease at `written_at`, at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
    /// Nodes beyond the majority that hold the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub margin: Option<i64>,
    /// What remains of the lease at least at every sign of life of this replica.
    #[serde(skip)]
    pub lasts_ms: Option<u64>,
    /// The last tick that was decided, as far as this replica knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_tick: Option<Timestamp>,
    /// The next tick, as this replica sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_tick: Option<Timestamp>,
    /// Whether this replica knows that the job is paused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// How the last run here ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_outcome: Option<String>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_ended: Option<Timestamp>,
    /// Items still to be done, as last seen here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backlog: Option<u64>,
    /// Since when the oldest of them could go, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backlog_since: Option<Timestamp>,
    /// Items that do not go by themselves, or not at once, as last seen here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldItems>,
    /// Runs in flight here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
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
pub(crate) enum JobStanding {
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

/// What the names of summaries begin with.
pub(crate) const PRESENCE_PREFIX: &str = "presence/";

/// The identity of a replica: `host-pid-nonce`. The nonce tells two processes apart that had the same id, as in
/// containers, where every worker is process 1.
#[doc(hidden)] // for the command, whose programs have names of the same form
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

/// Whether jobs of this coordination have a lock that one replica holds.
pub(crate) fn has_lock(coordination: &str) -> bool {
    !matches!(coordination, "batch" | "everywhere")
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

// === impl JobPresence ===

impl JobPresence {
    /// Whether the replica leads it beyond its next tick.
    pub(crate) fn is_led(&self) -> bool {
        self.standing == JobStanding::Leading && self.coordination != "tick"
    }
}

// === impl JobStanding ===

impl JobStanding {
    fn is_standby(&self) -> bool {
        *self == Self::Standby
    }
}

// === impl RunStatus ===

impl RunStatus {
    /// How far it is.
    #[must_use]
    pub(crate) fn progress(&self) -> RunProgress {
        RunProgress {
            done: self.done,
            total: self.total,
            per_second: self.per_second,
            left_ms: self.left_ms,
            message: self.message.clone(),
        }
    }
}
