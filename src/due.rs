//! Which ticks are due, and what becomes of the others: decisions, without clock or store.
//!
//! The holder of a job's lock asks [`decide`] whenever something may have changed, and carries the plan out:
//!
//! ```text
//! gather facts -> decide -> plan
//! if the plan decides anything: write plan.ledger to the store, and only when that has succeeded report and start
//! wait until plan.wake, the end of a run, a trigger or the loss of the lock; then again
//! when a run has ended: decide once more while it still counts as alive, record its outcome in the ledger
//!     (`finish`, `retry_later`), write, and only then take it off the list of runs alive
//! when a write failed or its outcome is unknown: read the ledger again before the next decision
//! ```
//!
//! # Rules
//! - The first sight of a job decides everything up to now: nothing before it runs.
//! - With jitter a tick is due when its delay has passed, and its age counts from then on; its name stays its instant.
//! - A tick is *on time* when it is the latest one due and at most [`TOLERANCE`] old. Every other undecided one is a
//!   *misfire*, whoever was to blame. [`Misfire::Skip`] runs none of these; [`Misfire::Once`] runs the latest tick due,
//!   on time or not, for all; [`Misfire::All`] runs the latest `limit` of them in order. None older than the window
//!   runs. Those that must wait for their turn wait in the ledger.
//! - `concurrency` runs at a time: one, unless the job says otherwise. A tick that falls due while all places are taken is
//!   *overlap*, never a misfire. [`Overlap::Skip`] and [`Overlap::Allow`] do not run it; [`Overlap::Queue`] runs it when a
//!   place is free, in order, and only what the bounded queue has no room for does not run; [`Overlap::CancelPrevious`]
//!   stops the oldest run for good and then runs the tick, the latest ones if several wait. What is queued stands in the
//!   ledger: a takeover or a pause between two runs does not turn it into late ticks.
//! - A run that waits for its next attempt takes no place: a tick on time goes first, then retries, triggers, late and
//!   queued ticks by age. Triggers need a place as well, and wait. With [`Overlap::CancelPrevious`] all that waits has its
//!   turn by age: a tick by its instant, an attempt by when it may start, a trigger by when it was asked for. Each tick
//!   stops one run at most, also when somebody older takes that place; a later tick stops him like any other. So nobody
//!   starves of runs that outlast the interval.
//! - Ticks that fell due while nobody led, behind as many dead runs as there are places, are for [`Overlap::Queue`] late as
//!   with [`Misfire::All`], whatever the misfire rule: a takeover loses none of them within limit and window. With
//!   [`Overlap::CancelPrevious`] a tick that runs late gives the oldest dead run no other attempt.
//! - A run found open that is not alive here has died with its holder: it is *interrupted*, reported, and started again
//!   with the next attempt or left, as the job says; an attempt beyond `attempts` is never started.
//! - A continuous job has no ticks: while nothing of it is open it starts, at most once in [`RESTART_PAUSE`].
//! - Paused: no tick, no retry of one and no continuous run starts; what runs goes on. Every tick that is undecided or
//!   waits when the pause is seen, or at its end, is missed, whatever the misfire rule says. Triggers run all the same,
//!   with their retries: a person asked for them.
//! - A trigger whose id the ledger knows is passed over, so each is started once per attempt.
//! - A ledger that was decided under another schedule is decided up to now: nothing before the change fires under the new one.
//!   See [`account_for_change`].
//! - A clock that went back decides nothing until it has caught up with the ledger; [`Plan::ahead`] says by how much. When it
//!   stays so, the ledger was decided by a clock that had jumped ahead: it is taken back, and what may have been started ahead
//!   of its time stays decided. See [`take_back`].
//! - What the lock nodes have forgotten is decided, by what living replicas know of it, and reported as unknown; ticks that
//!   fell due while no node voted are late like any others. See [`account_for_loss`].
//!
//! # Invariants
//! - D1 No attempt is started twice, whatever dies when. D2 Every tick between first sight and `decided_upto` was
//!   started, missed or overlap, or waits; none is two of these. D3 Never more than `concurrency` runs at a time.
//!   (all: `every_tick_is_accounted_for_and_no_attempt_starts_twice`)

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    ledger::{Ledger, Refused, RunKey, Skipped},
    node::Token,
    schedule::Schedule,
};
pub use ahead::{TakenBack, WithoutSpans, take_back};
pub use changed::{Changed, account_for_change};
pub use memory_loss::{Accounted, Loss, account_for_loss};
use table::Table;

mod ahead;
mod changed;
mod memory_loss;
mod policy;
mod table;
#[cfg(test)]
mod tests;

pub use policy::{Interrupted, Misfire, MisfirePolicy, Overlap, Policy, PolicyError};

/// How long after the start of the latest tick was due it still counts as on time.
pub const TOLERANCE: Duration = Duration::from_secs(1);
/// How long after its last start a continuous job that has ended is started again.
pub const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// How long ticks that fall into a pause may be collected before they are written down.
pub const PAUSED_PAUSE: Duration = Duration::from_secs(10);
/// How long overlapping ticks may be collected before they are written down.
pub const OVERLAP_PAUSE: Duration = Duration::from_secs(1);
/// Ticks that will not run are counted up to this number.
pub const COUNT_LIMIT: u64 = 10_000;

/// What a decision is made from.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The job's ledger as it stands on a majority of nodes.
    pub ledger: &'a Ledger,
    /// The job's schedule.
    pub schedule: &'a Schedule,
    /// The job's rules.
    pub policy: &'a Policy,
    /// Civil time.
    pub now: Timestamp,
    /// The token of the lease under which the plan will be carried out.
    pub token: Token,
    /// The runs that this replica has started and whose outcome it has not recorded yet.
    pub alive: &'a [RunKey],
    /// Whether anything may start: not while the holder winds down. What fell due beside a free place is left to the
    /// next decision then.
    pub may_start: bool,
    /// Ids of triggers that ask for a run, oldest first; those that were started before are passed over.
    pub triggers: &'a [String],
    /// Ticks that are undecided up to here have fallen into a pause. The job is paused while this lies ahead.
    pub paused_upto: Option<Timestamp>,
}

/// What to do now, and when to ask again.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What was decided, in the order in which it is to be reported; starts come last.
    pub decisions: Vec<Decision>,
    /// The ledger with all of it recorded. When there are decisions, write it before acting on them.
    pub ledger: Ledger,
    /// When to ask again at the latest; absent when only an event can bring work.
    pub wake: Option<Timestamp>,
    /// How far the ledger is ahead of the clock; until then no tick is due.
    pub ahead: Option<Duration>,
}

/// One thing that was decided.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
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
pub struct Ticks {
    /// The first.
    pub from: Timestamp,
    /// The last.
    pub to: Timestamp,
    /// How many; [`COUNT_LIMIT`] stands for that many or more.
    pub count: u64,
}

/// By which rule a late tick does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WhyMissed {
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

/// Decides what to do now.
///
/// # Errors
/// [`Refused::Outranked`]: a later holder has written the ledger; this replica holds the lock no longer.
pub fn decide(facts: &Facts<'_>) -> Result<Plan, Refused> {
    if let Some(run) = facts
        .ledger
        .open()
        .iter()
        .find(|run| run.token > facts.token)
    {
        return Err(Refused::Outranked {
            id: run.id.clone(),
            token: run.token,
        });
    }
    let schedule = facts.schedule.without_spans(facts.ledger);
    let facts = Facts {
        schedule: &schedule,
        ..*facts
    };
    Table::new(&facts).decide()
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
    pub fn starts(&self) -> impl Iterator<Item = &Decision> {
        let starts = |d: &&Decision| matches!(d, Decision::Start { .. });
        self.decisions.iter().filter(starts)
    }
}

impl WhyMissed {
    /// A bounded word for events and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "misfire",
            Self::Window => "window",
            Self::Limit => "limit",
            Self::Unknown => "unknown",
            Self::Paused => "paused",
        }
    }
}
