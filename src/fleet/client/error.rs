//! Why nothing was asked of a fleet, or nothing is known of it.

use super::super::intent::{MOST_TRIGGERS, TooMany};
use crate::lock::LockError;

/// Why nothing was asked for, or nothing can be said.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// No such job.
    #[error("there is no job {job:?}; {known}")]
    UnknownJob {
        /// As it was named.
        job: String,
        /// What to say instead.
        known: String,
    },
    /// No such replica.
    #[error("there is no replica {replica:?}; {known}")]
    UnknownReplica {
        /// As it was named.
        replica: String,
        /// What to say instead.
        known: String,
    },
    /// This cannot be asked of this job, trigger, replica or lock, or not now.
    #[error("{0}")]
    NotPossible(String),
    /// As many triggers are outstanding as may be.
    #[error("{0}")]
    TooManyTriggers(String),
    /// What the store keeps of the job cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// Too few nodes.
    #[error("only {answered} of {nodes} lock nodes answered: do it again when a majority answers")]
    TooFewNodes {
        /// That answered.
        answered: usize,
        /// Configured.
        nodes: usize,
    },
    /// Reading took so long that nothing was written any more.
    #[error("the lock nodes took too long to answer: nothing was asked for, do it again")]
    Late,
    /// The same when a part of it was written before.
    #[doc(hidden)] // for answers that must come in time: no client of a program has such a limit
    #[error(
        "the lock nodes took too long to answer: some of them are done, and not all: give the order again"
    )]
    Partly,
    /// A trigger that may stand on a few nodes.
    #[error("{why}; trigger {id} may stand on some of them all the same: see `triggers` first")]
    Doubtful {
        /// The id of the trigger.
        id: String,
        /// Why it is not known.
        why: String,
    },
    /// The nodes cannot be asked.
    #[error(transparent)]
    Locks(#[from] LockError),
}

impl FleetError {
    /// Whether the same question may be answered a moment later.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Self::TooFewNodes { .. } => true,
            Self::Locks(error) => error.passes(),
            _ => false,
        }
    }

    /// The same of an order of which other parts are written, where `others` says so.
    pub(super) fn after(self, others: bool) -> Self {
        match self {
            Self::Late if others => Self::Partly,
            error => error,
        }
    }

    /// Why a part of an order failed, and nothing of the whole.
    pub(super) fn of_a_part(&self) -> String {
        match self {
            Self::Late => "the lock nodes took too long to answer".to_owned(),
            error => error.to_string(),
        }
    }

    pub(super) fn too_many(job: &str, many: &TooMany) -> Self {
        Self::TooManyTriggers(match many {
            TooMany::OfJob(count) => format!(
                "{job} has {count} outstanding triggers, and no more are taken: wait, or withdraw some: \
                 `watchkeeper triggers withdraw ID`, or all with `watchkeeper triggers withdraw {job} --all`"
            ),
            TooMany::AtOnce(count) => format!(
                "{job} has {count} shards, and a fleet takes {MOST_TRIGGERS} outstanding triggers at most: trigger single \
                 shards, {job}.0 and so on"
            ),
            TooMany::OfFleet(count) => format!(
                "the fleet has {count} outstanding triggers, and no more are taken: wait, or withdraw some: \
                 `watchkeeper triggers` lists them, `watchkeeper triggers withdraw ID` withdraws one"
            ),
        })
    }
}
