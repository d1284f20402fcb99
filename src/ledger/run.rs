//! An open run, as the ledger keeps it.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::params::TriggerParams;
use crate::node::Token;

/// A run that has started and not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenRun {
    /// The tick in RFC 3339, or the trigger's id.
    pub id: String,
    /// The scheduled instant; for a trigger, the instant of its first start.
    pub tick: Timestamp,
    /// 1 for the first.
    pub attempt: u32,
    /// Running or waiting for its next attempt.
    pub state: RunState,
    /// The lease under which this attempt was started.
    pub token: Token,
    /// The next attempt starts no earlier.
    #[serde(default)]
    pub(crate) not_before: Option<Timestamp>,
    /// The attempt died with its holder.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) interrupted: bool,
    /// A newer tick takes its place: it was told to stop, and no other attempt follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) replaced: bool,
    /// It took a place that ticks up to this one had asked for: they wait for its end, and do not replace it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ahead_of: Option<Timestamp>,
    /// Number of this attempt among all that the job has started; 0 when an older version started it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) seq: u64,
    /// What the last attempt left for the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint: Option<Value>,
    /// When it left that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint_at: Option<Timestamp>,
    /// What its trigger gives every attempt besides the configuration.
    #[serde(
        default,
        rename = "params",
        skip_serializing_if = "TriggerParams::is_empty"
    )]
    pub(crate) given: TriggerParams,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// Where an open run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// An attempt was started.
    Running,
    /// The last attempt has ended; the next one starts at `not_before`.
    Retry,
}

/// One attempt of one run: what must not start twice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunKey {
    /// As in [`OpenRun::id`].
    pub(crate) id: String,
    /// 1 for the first.
    pub(crate) attempt: u32,
}

// === impl OpenRun ===

impl OpenRun {
    /// This attempt.
    #[must_use]
    pub(crate) fn key(&self) -> RunKey {
        RunKey {
            id: self.id.clone(),
            attempt: self.attempt,
        }
    }

    /// The first attempt starts.
    pub(super) fn first(id: String, tick: Timestamp, token: Token, seq: u64) -> Self {
        Self {
            id,
            tick,
            attempt: 1,
            state: RunState::Running,
            token,
            not_before: None,
            interrupted: false,
            replaced: false,
            ahead_of: None,
            seq,
            checkpoint: None,
            checkpoint_at: None,
            given: TriggerParams::default(),
            rest: Map::new(),
        }
    }
}

pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Retry => "waiting for a retry",
        })
    }
}
