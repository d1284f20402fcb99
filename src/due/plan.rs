//! What a decision is made from, and what it says.

use std::{borrow::Cow, time::Duration};

use jiff::Timestamp;
use serde_json::Value;

use super::policy::{Interrupted, Policy};
use crate::{
    ledger::{Ledger, RunKey, Skipped},
    node::Token,
    schedule::Schedule,
};

/// How long after the start of the latest tick was due it still counts as on time.
pub(crate) const TOLERANCE: Duration = Duration::from_secs(1);
/// How long after its last start a continuous job that has ended is started again.
pub(crate) const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// How long ticks that fall into a pause may be collected before they are written down.
pub(crate) const PAUSED_PAUSE: Duration = Duration::from_secs(10);
/// How long overlapping ticks may be collected before they are written down.
pub(crate) const OVERLAP_PAUSE: Duration = Duration::from_secs(1);
/// Ticks that will not run are counted up to this number.
pub(crate) const COUNT_LIMIT: u64 = 10_000;

/// What a decision is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    /// The job's ledger as it stands on a majority of nodes.
    pub(crate) ledger: &'a Ledger,
    /// The job's schedule.
    pub(crate) schedule: &'a Schedule,
    /// The job's rules.
    pub(crate) policy: &'a Policy,
    /// Civil time.
    pub(crate) now: Timestamp,
    /// The token of the lease under which the plan will be carried out.
    pub(crate) token: Token,
    /// The runs that this replica has started and whose outcome it has not recorded yet.
    pub(crate) alive: &'a [RunKey],
    /// Whether anything may start: not while the holder winds down. What fell due beside a free place is left to the
    /// next decision then.
    pub(crate) may_start: bool,
    /// Ids of triggers that ask for a run, oldest first; those that were started before are passed over.
    pub(crate) triggers: &'a [String],
    /// Ticks that are undecided up to here have fallen into a pause. The job is paused while this lies ahead.
    pub(crate) paused_upto: Option<Timestamp>,
}

/// What to do now, and when to ask again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// What was decided, in the order in which it is to be reported; starts come last.
    pub(crate) decisions: Vec<Decision>,
    /// The ledger with all of it recorded. When there are decisions, write it before acting on them.
    pub(crate) ledger: Ledger,
    /// When to ask again at the latest; absent when only an event can bring work.
    pub(crate) wake: Option<Timestamp>,
    /// How far the ledger is ahead of the clock; until then no tick is due.
    pub(crate) ahead: Option<Duration>,
}

/// One thing that was decided.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// The job was never seen before.
    FirstSight {
        /// Nothing up to here runs.
        upto: Timestamp,
    },
    /// Start this attempt.
    Start {
        /// The tick in RFC 3339, or the trigger's id.
        id: String,
        /// The scheduled instant.
        tick: Timestamp,
        /// 1 for the first.
        attempt: u32,
        /// The attempt before died with its holder.
        interrupted: bool,
        /// What the attempt before left.
        checkpoint: Option<Value>,
    },
    /// These ticks were found too late and will not run.
    Missed {
        /// Which.
        ticks: Ticks,
        /// By which rule.
        why: WhyMissed,
    },
    /// These ticks fell due while all places were taken and will not run.
    Overlap {
        /// Which.
        ticks: Ticks,
    },
    /// These ticks fell due while all places were taken and run when one is free.
    Queued {
        /// Which.
        ticks: Ticks,
    },
    /// A newer tick takes the place of this run: tell it to stop. No other attempt of it follows.
    Replaced {
        /// Which attempt.
        key: RunKey,
        /// The tick that waits for its place.
        by: Timestamp,
    },
    /// A run was found whose holder died.
    Interrupted {
        /// As in `Start`.
        id: String,
        /// The scheduled instant.
        tick: Timestamp,
        /// The attempt that died.
        attempt: u32,
        /// What becomes of it.
        action: Interrupted,
        /// It is left because no attempt remains.
        exhausted: bool,
    },
}

/// Ticks in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// The first.
    pub(crate) from: Timestamp,
    /// The last.
    pub(crate) to: Timestamp,
    /// How many; [`COUNT_LIMIT`] stands for that many or more.
    pub(crate) count: u64,
}

/// By which rule a late tick does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WhyMissed {
    /// The job skips late ticks.
    Skip,
    /// It is older than the window.
    Window,
    /// Later ticks took the places.
    Limit,
    /// The lock nodes have forgotten what became of it.
    Unknown,
    /// The job was paused.
    Paused,
}

/// A schedule as a ledger sees it.
pub(crate) trait WithoutSpans {
    /// Without the ticks that have run ahead of their time.
    fn without_spans(&self, ledger: &Ledger) -> Cow<'_, Schedule>;
}

impl WithoutSpans for Schedule {
    fn without_spans(&self, ledger: &Ledger) -> Cow<'_, Schedule> {
        self.without(ledger.ran_ahead().iter().map(|span| (span.from, span.to)))
    }
}

// === impl Ticks, Plan, WhyMissed ===

impl Ticks {
    /// One tick.
    pub(crate) fn single(tick: Timestamp) -> Self {
        Self {
            from: tick,
            to: tick,
            count: 1,
        }
    }

    /// As the ledger remembers them.
    pub(crate) fn skipped(self, why: &str) -> Skipped {
        let Self { from, to, count } = self;
        Skipped {
            from,
            to,
            count,
            why: why.to_owned(),
        }
    }
}

impl Plan {
    /// The runs to start, once the ledger is written.
    pub(crate) fn starts(&self) -> impl Iterator<Item = &Decision> {
        let starts = |d: &&Decision| matches!(d, Decision::Start { .. });
        self.decisions.iter().filter(starts)
    }
}

impl WhyMissed {
    /// A bounded word for events and metrics.
    #[must_use]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "misfire",
            Self::Window => "window",
            Self::Limit => "limit",
            Self::Unknown => "unknown",
            Self::Paused => "paused",
        }
    }
}
