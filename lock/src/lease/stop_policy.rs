//! What is to become of work that does not end in time.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// What happens when work that was told to stop does not end.
///
/// Withholding renewals from work that cannot be stopped would make a second runner, so first it is told to stop, while
/// its lease is extended, for as long as its grace. This says what comes then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unstoppable {
    /// The lease is extended no more, and shortly before it ends the process is aborted.
    #[default]
    Abort,
    /// The lease is extended as long as the work lasts, so that no other replica can begin it. When it cannot be
    /// extended, the process is aborted all the same.
    Hold,
    /// The lease is released and the work left alone: a second runner may start beside it. Only for work whose every
    /// effect is refused to an old fencing token.
    Abandon,
}

impl fmt::Display for Unstoppable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Abort => "abort",
            Self::Hold => "hold",
            Self::Abandon => "abandon",
        })
    }
}

/// What the keeper has to know of the work under a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)] // for the worker
pub struct StopPolicy {
    /// How long cancelled work may take; that of the lock service unless set.
    pub grace: Option<Duration>,
    /// What happens when it takes longer.
    pub unstoppable: Unstoppable,
}
