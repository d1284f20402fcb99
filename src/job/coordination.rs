//! Which replicas work on a job, and whose definition of it counts.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Which replicas do the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Coordination {
    /// One replica leads the job and runs it; the others stand by.
    #[default]
    Leader,
    /// The job's lock is taken for each tick, by whichever replica comes first.
    Tick,
    /// Every replica runs it; batches of work are claimed.
    Batch,
    /// Every replica runs it, without a lock.
    Everywhere,
}

/// Whose definition of a job counts while the replicas of a fleet disagree on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Disagreement {
    /// That of the replica which loaded it last. The others finish what they run of the job and stand back from it, as long
    /// as such a replica is there to lead it.
    #[default]
    Newest,
    /// That under which the job is led, or was led last, until all replicas have another one. No other replica begins a term.
    Refuse,
}

impl fmt::Display for Coordination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Leader => "leader",
            Self::Tick => "tick",
            Self::Batch => "batch",
            Self::Everywhere => "everywhere",
        })
    }
}
