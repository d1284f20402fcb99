//! Whether the job is known to be broken, and what people are still to be told of that.
//!
//! It stands in the ledger, so that it is written together with the end that it comes from, is the same for the whole fleet,
//! and survives each leader.
//!
//! This module is the value and the decision; `notices` beside it is what a ledger does with them.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The last change that there is something to tell of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Trouble {
    /// What the job has become by it.
    pub(crate) what: Became,
    /// When that was decided; no other change of the job has this time.
    pub(crate) at: Timestamp,
    /// Since when the job is, or was, broken.
    pub(crate) since: Timestamp,
    /// What it comes from.
    pub(crate) by: Cause,
    /// Receivers that have it already, or were given up, by their names, as long as others are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) done: Vec<String>,
    /// No receiver is to be told any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) told: bool,
    /// No receiver has heard of it: there was none, or each was given up. The next end of its kind is told in its place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) unheard: bool,
}

/// What a job can become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Became {
    /// A run has failed, and no attempt follows.
    Failed,
    /// Ticks were passed over.
    Missed,
    /// A run went well after one of these.
    Recovered,
}

/// The end of a run, or the ticks that were passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cause {
    /// The scheduled instant; the first of those that were passed over.
    pub(crate) tick: Timestamp,
    /// The last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last: Option<Timestamp>,
    /// How many were passed over.
    #[serde(default, skip_serializing_if = "super::run::is_zero")]
    pub(crate) count: u64,
    /// The run's id, where it is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) run: String,
    /// Its last attempt.
    #[serde(default)]
    pub(crate) attempt: u32,
    /// How it ended, or by which rule the ticks were passed over: a bounded word.
    pub(crate) outcome: String,
    /// Why, in short.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) detail: String,
}

/// What has just been decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A run went well.
    Well,
    /// A run has failed for good.
    Failed,
    /// Ticks were passed over.
    Missed,
}

impl Trouble {
    pub(super) fn is_broken(&self) -> bool {
        self.what != Became::Recovered
    }
}

/// What there is to tell, if the state of the job changes. A failure is worse than a tick that was missed, and is told after it, too.
pub(super) fn change(
    before: Option<&Trouble>,
    seen: Seen,
    by: Cause,
    now: Timestamp,
) -> Option<Trouble> {
    let was = before.filter(|before| before.is_broken());
    let heard = was.is_none_or(|was| !was.unheard);
    let what = match (was.map(|was| was.what), seen) {
        (None, Seen::Well) | (Some(Became::Failed), Seen::Missed) => return None,
        (Some(Became::Failed), Seen::Failed) | (Some(_), Seen::Missed) if heard => return None,
        (Some(_), Seen::Well) => Became::Recovered,
        (_, Seen::Failed) => Became::Failed,
        (_, Seen::Missed) => Became::Missed,
    };
    let after = |before: &Trouble| before.at.checked_add(SignedDuration::from_millis(1)).ok();
    let at = before.and_then(after).map_or(now, |after| after.max(now));
    Some(Trouble {
        what,
        at,
        since: was.map_or(at, |was| was.since),
        by,
        done: Vec::new(),
        told: false,
        unheard: false,
    })
}

/// What cannot be read there is left out: it is news, and no authority.
pub(super) fn lenient<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Box<Trouble>>, D::Error> {
    let value = Value::deserialize(from)?;
    Ok(serde_json::from_value(value).ok())
}
