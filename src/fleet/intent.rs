//! What people ask of a fleet: to pause a job, to run it now, to hand it over, to drain a replica. Values and their documents.
//!
//! An intent is a document `intent/KIND.NAME` on every lock node. A replica that knows one writes it again where it is missing,
//! and a node that has lost its memory is told the others' intents before it votes: a pause outlives a rolling restart of
//! all nodes, and of all replicas, as long as they do not lose it at one time.
//!
//! # Invariants
//! - I1 What is said later wins, whatever the clocks say: its revision is larger than any that was read before.
//!   (what_is_said_later_wins)
//! - I2 Of two things said at one time one wins, the same on every replica. (one_of_two_said_at_a_time_wins)
//! - I3 Ids of triggers grow with time, and a floor is above all ids of its time.   (ids_of_triggers_grow_with_time)
//! - I4 Outstanding triggers are bounded, per job and per fleet, for the client that asks and the replica that reads.
//!   (triggers_are_refused_from_the_limit_on, a_replica_reads_of_too_many_triggers_the_first_of_each_job)
//! - I5 A trigger that is withdrawn before its start stands in the ledger never starts.
//!   (what_is_said_to_be_withdrawn_never_runs, a_withdrawn_trigger_that_comes_back_does_not_run)
//! # When things fail
//! An intent carries a command: the job's leader decides what the job does, and writes it into its ledger. A trigger is started once
//! because the ledger knows its id, whatever becomes of its document.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::node::{Doc, Token};

mod outstanding;
#[cfg(test)]
mod tests;

pub(crate) use crate::ledger::ids::trigger_floor;
pub use crate::ledger::params::{TriggerParams, TriggerParamsError};
pub(crate) use outstanding::Outstanding;
pub(crate) use outstanding::TooMany;

/// The directory of intents.
pub(crate) const DIRECTORY: &str = "intent/";
/// How long what was said last of a job is remembered where no replica writes it again.
pub(crate) const LIFETIME: Duration = Duration::from_secs(400 * 24 * 3600);
/// How long a trigger that has not started is asked for.
pub(crate) const TRIGGER_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// How long it can be read what became of a trigger, and how long a resignation or a drain is asked for.
pub(crate) const NEWS_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// Triggers of one job that may be asked for and not ended: a request for more is refused.
pub(crate) const MOST_TRIGGERS_OF_JOB: usize = 100;
/// The same for all jobs of a fleet.
pub(crate) const MOST_TRIGGERS: usize = 1_000;
/// Ended triggers of which it is still told what became of them, of one job and of all that have some, a share each; the oldest
/// are forgotten before their time.
pub(crate) const MOST_ENDED: (usize, usize) = (100, 500);

/// Bytes of a reason, by whichever way it is given.
pub(crate) const MOST_REASON: usize = 1024;

/// Bits of a revision that chance decides, so that two clients that read the same do not write the same.
const CHANCE_BITS: u32 = 16;

/// Whether a job is paused.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Pause {
    /// The job.
    pub job: String,
    /// Nothing of it starts.
    pub paused: bool,
    /// Why, in the words of the operator; empty when nothing was said.
    pub reason: String,
    /// Who asked for it.
    pub by: String,
    /// When that was, by the asker's clock: the pause began or ended.
    pub at: Timestamp,
}

/// An intent for one run of a job, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Trigger {
    /// The job.
    pub job: String,
    /// Unique; grows with time.
    pub id: String,
    /// Who asked for it.
    pub by: String,
    /// Parameters that it gives its run, until that has ended.
    #[serde(rename = "params", skip_serializing_if = "TriggerParams::is_empty")]
    pub given: TriggerParams,
    /// When that was, by the asker's clock.
    pub asked: Timestamp,
    /// Who asks that it does not start; empty where it is still to start.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub withdrawn_by: String,
    /// What became of it. News: whether it was started the ledger knows.
    pub state: TriggerState,
    /// The replica that wrote the state.
    pub replica: String,
    /// The id of its run; empty before it has started.
    pub run_id: String,
    /// How its run ended, as in the history; `expired` when no replica led the job in time, `withdrawn`, `unknown` when the lock nodes have
    /// forgotten it. Empty before the end.
    pub outcome: String,
    /// Why; empty when there is nothing to say.
    pub detail: String,
    /// When no attempt at it followed any more, by the clock of the replica that says so.
    pub ended: Option<Timestamp>,
}

/// What became of a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TriggerState {
    /// No replica has taken note of it.
    #[default]
    Asked = 1,
    /// The job's leader will run it as soon as nothing else runs.
    Accepted = 2,
    /// It is not to start any more. Whether it has meanwhile the ledger knows, and its leader says.
    Withdrawing = 3,
    /// Its run has started.
    Started = 4,
    /// No attempt at it follows.
    Ended = 5,
}

/// An intent that a job's leader gives up its term.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Resign {
    /// The job.
    pub job: String,
    /// The term to be given up, and all before it.
    pub token: Token,
    /// The id of the replica that is to lead next, if it can.
    pub to: Option<String>,
    /// Who asked for it.
    pub by: String,
    /// When that was, by the asker's clock.
    pub at: Timestamp,
    /// Only once none of its runs is in flight, and only if `to` would still take over.
    pub between_runs: bool,
}

/// An intent that a replica ends its work, hands over what it leads, and goes. It names one process: a replica that has its name later
/// is another one.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Drain {
    /// The id of the replica: host, process id, nonce.
    pub replica: String,
    /// Who asked for it.
    pub by: String,
    /// When that was, by the asker's clock.
    pub at: Timestamp,
}

/// Any of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Pause or resume.
    Pause(Pause),
    /// Run now.
    Trigger(Trigger),
    /// Hand over.
    Resign(Resign),
    /// End and go.
    Drain(Drain),
}

/// The next revision of a document: larger than `read`, the largest that was read, and different from the one that another
/// replica makes of the same `read`, but for a chance of one in 65,536.
#[must_use]
pub(crate) fn next_revision(read: Option<u64>, chance: u16) -> u64 {
    let change = read.unwrap_or(0) >> CHANCE_BITS;
    ((change + 1) << CHANCE_BITS) | u64::from(chance)
}

// === impl Intent ===

impl Intent {
    /// Reads a document; `None` when it is no intent that this version knows, or not of this name.
    #[must_use]
    pub(crate) fn from_doc(doc: &Doc) -> Option<Self> {
        fn read<T: DeserializeOwned>(doc: &Doc) -> Option<T> {
            serde_json::from_str(&doc.body).ok()
        }
        let (kind, _) = doc.name.strip_prefix(DIRECTORY)?.split_once('.')?;
        let intent = match kind {
            "pause" => Self::Pause(read(doc)?),
            "trigger" => Self::Trigger(read(doc)?),
            "resign" => Self::Resign(read(doc)?),
            "drain" => Self::Drain(read(doc)?),
            _ => return None,
        };
        (intent.document() == doc.name).then_some(intent)
    }

    /// The document's name.
    #[must_use]
    pub(crate) fn document(&self) -> String {
        match self {
            Self::Pause(pause) => pause_document(&pause.job),
            Self::Trigger(trigger) => trigger_document(&trigger.job, &trigger.id),
            Self::Resign(resign) => resign_document(&resign.job),
            Self::Drain(drain) => drain_document(&drain.replica),
        }
    }

    /// The document with this revision.
    #[must_use]
    pub(crate) fn to_doc(&self, rev: u64) -> Doc {
        let body = match self {
            Self::Pause(pause) => serde_json::to_value(pause),
            Self::Trigger(trigger) => serde_json::to_value(trigger),
            Self::Resign(resign) => serde_json::to_value(resign),
            Self::Drain(drain) => serde_json::to_value(drain),
        };
        Doc {
            name: self.document(),
            rev,
            // Strings, numbers and string keys: always serializable.
            body: body.unwrap_or_default().to_string(),
        }
    }

    /// How long it is asked for from `now` on; `None` when it is over, and need not be written again.
    #[must_use]
    pub(crate) fn remaining(&self, now: Timestamp) -> Option<Duration> {
        let (since, lifetime) = match self {
            Self::Pause(_) => return Some(LIFETIME),
            // A copy of the intent may outlive this news, and come back: the ledger knows its id, also where it was
            // withdrawn.
            Self::Trigger(trigger) => match trigger.ended {
                Some(ended) => (ended, NEWS_LIFETIME),
                None => (trigger.asked, TRIGGER_LIFETIME + NEWS_LIFETIME),
            },
            Self::Resign(resign) => (resign.at, NEWS_LIFETIME),
            Self::Drain(drain) => (drain.at, NEWS_LIFETIME),
        };
        let age = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        lifetime.checked_sub(age).filter(|left| !left.is_zero())
    }
}

// === impl Trigger ===

impl Trigger {
    /// The revision of this state: a later state is newer, whichever replica writes it.
    #[must_use]
    pub(crate) fn revision(&self) -> u64 {
        self.state as u64
    }

    /// As it is shown: of its parameters the names alone.
    #[doc(hidden)] // for the commands
    #[must_use]
    pub fn shown(&self) -> Value {
        let mut shown = serde_json::to_value(self).unwrap_or_default();
        if let Some(fields) = shown.as_object_mut() {
            fields.insert("params".to_owned(), self.given.names().into());
        }
        shown
    }

    /// Whether it has waited for too long to be started at `now`.
    #[must_use]
    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        let age = Duration::try_from(now.duration_since(self.asked)).unwrap_or_default();
        age > TRIGGER_LIFETIME
    }
}

/// The name of the document that says whether a job is paused.
#[must_use]
pub(crate) fn pause_document(job: &str) -> String {
    format!("{DIRECTORY}pause.{job}")
}

/// The name of a trigger's document.
#[must_use]
pub(crate) fn trigger_document(job: &str, id: &str) -> String {
    format!("{DIRECTORY}trigger.{job}.{id}")
}

/// The job and the id of the trigger whose document has this name.
pub(crate) fn trigger_of(document: &str) -> Option<(&str, &str)> {
    let rest = document.strip_prefix(DIRECTORY)?.strip_prefix("trigger.")?;
    rest.rsplit_once('.')
}

/// The name of the document that asks for a resignation.
#[must_use]
pub(crate) fn resign_document(job: &str) -> String {
    format!("{DIRECTORY}resign.{job}")
}

/// The name of the document that asks a replica to drain.
#[must_use]
pub(crate) fn drain_document(replica: &str) -> String {
    format!("{DIRECTORY}drain.{replica}")
}
