//! Executes one run: hooks around it, panics caught, time limits kept, cancellation first and dropping second.
//!
//! # Invariants
//! - X1 A run hears of its cancellation before its code is polled again.   (a_run_sees_its_cancellation_first)
//! - X2 A cancelled run that does not end is dropped after its grace, and before its lease ends.
//!   (a_run_that_ignores_cancellation_is_dropped)
//! - X3 A run that is over before its code was polled at all does not begin.   (a_run_that_is_over_does_not_begin)
//! - X4 A hook that was begun before a run is called after it, however the run ended.
//!   (whatever_becomes_of_a_run_its_hooks_are_called_after_it)
//! - X5 Hooks are work of the run: what they do is over before its lease ends. (a_hook_that_hangs_is_dropped_in_time)
//! - X6 A run is not over before its blocking work is: nothing takes its place beside that.
//!   (a_run_is_over_when_its_blocking_work_is)
//! - X7 A run comes to its end, whatever of a user's code panics: also the text of an error, and what a dropped run or hook
//!   leaves behind.                                           (a_panic_of_what_a_run_leaves_behind_is_its_end)

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{Future, FutureExt};
use tracing::Instrument;

use super::span;
use crate::{
    clock::{Clock, Moment},
    human::Brief,
    job::{FailureKind, Hooks, JobError, Outcome, Run, RunEnd, RunHook},
    lease::LeaseView,
    panics::{caught_later, message},
};

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ended {
    /// The work is done.
    Done,
    /// There was nothing to do.
    Skipped(String),
    /// The job asks for another attempt after this pause.
    RetryAfter(Duration),
    /// It failed; whether another attempt makes sense.
    Failed { retry: bool, why: String },
    /// It took longer than it may.
    TimedOut,
    /// It was told to stop and did not finish.
    Cancelled(String),
    /// It panicked.
    Panicked(String),
}

/// How long a run may go on after it was told to stop.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// From the cancellation to the drop.
    pub(crate) grace: Duration,
    /// A process that still works so long before the end of its lease is ended; the drop comes earlier.
    pub(crate) abort_margin: Duration,
    /// Another lease that the work must not outlive: that of the replica, in failover mode.
    pub(crate) also: Option<LeaseView>,
    /// Called around the run.
    pub(crate) hooks: Hooks,
}

impl Ended {
    /// A bounded word for metrics and logs.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Skipped(_) => "skipped",
            Self::RetryAfter(_) => "retry",
            Self::Failed { .. } => "failed",
            Self::TimedOut => "timeout",
            Self::Cancelled(_) => "cancelled",
            Self::Panicked(_) => "panicked",
        }
    }

    /// The reason, or nothing.
    pub(crate) fn detail(&self) -> String {
        match self {
            Self::Done | Self::TimedOut => String::new(),
            Self::RetryAfter(pause) => format!("again in {}", Brief(*pause)),
            Self::Skipped(why) | Self::Cancelled(why) | Self::Panicked(why) => why.clone(),
            Self::Failed { why, .. } => why.clone(),
        }
    }

    /// The same where no attempt may follow: asking for another attempt is a failure then.
    pub(crate) fn of_last_attempt(self, is_last: bool) -> Self {
        match self {
            Self::RetryAfter(pause) if is_last => Self::Failed {
                retry: false,
                why: format!(
                    "it asked for another attempt after {}, and this was the last one (retry.attempts)",
                    Brief(pause)
                ),
            },
            other => other,
        }
    }
}

/// Runs `work` to its end, or to the end of its grace, with the hooks around it and under the run's span.
pub(crate) async fn execute(
    work: impl Future<Output = Result<Outcome, JobError>> + Send,
    run: &Run,
    limits: Limits,
    clock: &Clock,
) -> Ended {
    let all = within_hooks(work, run, &limits, clock);
    all.instrument(span::of(run)).await
}

async fn within_hooks(
    work: impl Future<Output = Result<Outcome, JobError>> + Send,
    run: &Run,
    limits: &Limits,
    clock: &Clock,
) -> Ended {
    // Frozen between its start and here: what has not begun does not begin any more.
    if run.check().is_err() {
        return stopped(run);
    }
    let hooks = limits.hooks.all();
    if hooks.is_empty() {
        return act(work, run, limits, clock).await;
    }
    let began = clock.now();
    let begun = AtomicUsize::new(0);
    let whole = async {
        for hook in hooks {
            // Counted first: what it has opened is closed, whatever becomes of it.
            begun.fetch_add(1, Ordering::Relaxed);
            hook.before(run).await?;
        }
        work.await
    };
    let ended = act(whole, run, limits, clock).await;
    let took = clock.now().since(began);
    let end = RunEnd::new(ended.word(), ended.detail(), took);
    let begun = hooks.get(..begun.into_inner()).unwrap_or_default();
    call_after(begun, run, &end, limits, clock).await;
    ended
}

/// Calls what was begun in the reverse order, each at least once, and drops what has not ended in time.
async fn call_after(
    begun: &[Arc<dyn RunHook>],
    run: &Run,
    end: &RunEnd,
    limits: &Limits,
    clock: &Clock,
) {
    let from = clock.now();
    for hook in begun.iter().rev() {
        let called = caught_later(|| async {
            tokio::select! {
                // The hook first: it sees the end of every run, however little time is left.
                biased;
                () = hook.after(run, end) => {}
                () = until_dropped(run, limits, clock, |before_abort| before_abort.min(from + limits.grace)) => {
                    tracing::warn!("a hook has not ended in time after the run, and was dropped");
                }
            }
        });
        // The call itself, or what is dropped of it, may panic, too.
        if let Err(panic) = called.await {
            tracing::warn!(panic, "a hook has panicked after the run");
        }
    }
}

async fn act(
    work: impl Future<Output = Result<Outcome, JobError>> + Send,
    run: &Run,
    limits: &Limits,
    clock: &Clock,
) -> Ended {
    let ended = caught_later(|| to_its_end(work, run, limits, clock)).await;
    let ended = ended.unwrap_or_else(Ended::Panicked);
    if !run.is_quiet() {
        tracing::warn!(
            outcome = ended.word(),
            "the run is over, but blocking work of it goes on: it counts as open until that ends, too"
        );
        run.quiet().await;
    }
    ended
}

/// The work is dropped in here: its destructors may panic.
async fn to_its_end(
    work: impl Future<Output = Result<Outcome, JobError>> + Send,
    run: &Run,
    limits: &Limits,
    clock: &Clock,
) -> Ended {
    let work = run.supervise(AssertUnwindSafe(work).catch_unwind());
    let result = tokio::select! {
        // The work first: what has ended has ended, whatever the clock says.
        biased;
        result = work => Some(result),
        () = given_up(run, limits, clock) => None,
    };
    match result {
        Some(Ok(Ok(Outcome::Done))) => Ended::Done,
        Some(Ok(Ok(Outcome::Skip(why)))) => Ended::Skipped(why),
        Some(Ok(Ok(Outcome::RetryAfter(pause)))) => Ended::RetryAfter(pause),
        // An error after the cancellation is its consequence.
        Some(Ok(Err(_))) | None if run.check().is_err() => stopped(run),
        Some(Ok(Err(error))) => {
            let retry = error.kind() == FailureKind::Retry;
            Ended::Failed {
                retry,
                why: error.to_string(),
            }
        }
        Some(Err(panic)) => Ended::Panicked(message(&*panic)),
        None => stopped(run),
    }
}

fn stopped(run: &Run) -> Ended {
    if run.timed_out() {
        Ended::TimedOut
    } else {
        Ended::Cancelled(run.why())
    }
}

/// Completes when a cancelled run has used up its grace.
async fn given_up(run: &Run, limits: &Limits, clock: &Clock) {
    run.cancelled().await;
    let told = clock.now();
    // What hooks do afterwards is over before the lease ends, too.
    let for_hooks = match limits.hooks.all() {
        [] => Duration::ZERO,
        _ => limits.abort_margin / 2,
    };
    until_dropped(run, limits, clock, |before_abort| {
        // A process that was frozen past its deadline still gives the run a moment to see its end.
        (told + limits.grace)
            .min(before_abort.back(for_hooks))
            .max(told + limits.abort_margin / 2)
    })
    .await;
}

/// Completes at `drop_at`, which is told the moment at which the work must be gone lest the process is ended.
async fn until_dropped(
    run: &Run,
    limits: &Limits,
    clock: &Clock,
    drop_at: impl Fn(Moment) -> Moment,
) {
    loop {
        // Extensions of the lease go on while the work winds down, so its end is read anew.
        let leases = run.lease().into_iter().chain(&limits.also);
        let lease_end = leases
            .map(LeaseView::deadline)
            .min()
            .unwrap_or(Moment::NEVER);
        let before_abort = lease_end.back(limits.abort_margin + limits.abort_margin / 2);
        let drop_at = drop_at(before_abort);
        if clock.now() >= drop_at {
            return;
        }
        clock.sleep_until(drop_at).await;
    }
}

#[cfg(test)]
mod tests;
