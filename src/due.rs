//! Which ticks are due, and what becomes of the others: decisions, without clock or store. Why a tick was skipped, and the word
//! for it: `WhySkipped`, in `plan.rs`.
//!
//! The holder of a job's lock asks `decide` whenever something may have changed, and carries the plan out:
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
//! - A tick is *on time* when it is the latest one due and at most `TOLERANCE` old. Every other undecided one is a
//!   *misfire*, whatever the cause. [`Misfire::Skip`] runs none of these; [`Misfire::Once`] runs the latest tick due,
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
//!   stops one run at most, also when an older run takes that place; a later tick stops that like any other. So no run
//!   starves of runs that outlast the interval.
//! - Ticks that fell due while no replica led, behind as many dead runs as there are places, are for [`Overlap::Queue`] late as
//!   with [`Misfire::All`], whatever the misfire rule: a takeover loses none of them within limit and window. With
//!   [`Overlap::CancelPrevious`] a tick that runs late gives the oldest dead run no other attempt.
//! - A run found open that is not alive here has died with its holder: it is *interrupted*, reported, and started again
//!   with the next attempt or left, as the job says; an attempt beyond `attempts` is never started.
//! - A continuous job has no ticks: while nothing of it is open it starts, at most once in `RESTART_PAUSE`.
//! - Paused: no tick, no retry of one and no continuous run starts; what runs goes on. Every tick that is undecided or
//!   waits when the pause is seen, or at its end, is missed, whatever the misfire rule says. Triggers run all the same,
//!   with their retries: a person asked for them.
//! - A trigger whose id the ledger knows is passed over, so each is started once per attempt.
//! - A ledger that was decided under another schedule is decided up to now: nothing before the change fires under the new one.
//!   See `account_for_change`.
//! - A clock that went back decides nothing until it has caught up with the ledger; `Plan::ahead` says by how much. When it
//!   stays so, the ledger was decided by a clock that had jumped ahead: it is taken back, and what may have been started ahead
//!   of its time stays decided. See `take_back`.
//! - What the lock nodes have forgotten is decided, by what living replicas know of it, and reported as unknown; ticks that
//!   fell due while no node voted are late like any others. See `account_for_loss`.
//!
//! # Invariants
//! - D1 No attempt is started twice, whatever dies when. D2 Every tick between first sight and `decided_upto` was
//!   started, missed or overlap, or waits; none is two of these. D3 Never more than `concurrency` runs at a time.
//!   (all: `every_tick_is_accounted_for_and_no_attempt_starts_twice`)

use crate::ledger::Refused;
use table::Table;

mod ahead;
mod changed;
mod memory_loss;
mod plan;
mod policy;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use ahead::take_back;
pub(crate) use changed::{Changed, account_for_change};
pub(crate) use memory_loss::{Accounted, Loss, account_for_loss};
pub(crate) use plan::{
    COUNT_LIMIT, Decision, Facts, Plan, TOLERANCE, Ticks, WhySkipped, WithoutSpans,
};
pub use policy::{Interrupted, Misfire, Overlap};
pub(crate) use policy::{MisfirePolicy, Policy};

/// Decides what to do now.
///
/// # Errors
/// [`Refused::Outranked`]: a later holder has written the ledger; this replica holds the lock no longer.
pub(crate) fn decide(facts: &Facts<'_>) -> Result<Plan, Refused> {
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
