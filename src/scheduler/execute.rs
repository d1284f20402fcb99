//! Executes one run: panics caught, time limits kept, cancellation first and dropping second.
//!
//! # Invariants
//! - X1 A run hears of its cancellation before its code is polled again.   (a_run_sees_its_cancellation_first)
//! - X2 A cancelled run that does not end is dropped after its grace, and before its lease ends.
//!   (a_run_that_ignores_cancellation_is_dropped)
//! - X3 A run that is over before its code was polled at all does not begin.   (a_run_that_is_over_does_not_begin)

use std::{any::Any, panic::AssertUnwindSafe, time::Duration};

use futures_util::{Future, FutureExt};

use crate::{
    clock::{Clock, Moment},
    job::{FailureKind, JobError, Outcome, Run},
    lease::LeaseView,
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
            Self::RetryAfter(pause) => format!("again in {pause:?}"),
            Self::Skipped(why) | Self::Cancelled(why) | Self::Panicked(why) => why.clone(),
            Self::Failed { why, .. } => why.clone(),
        }
    }
}

/// Runs `work` to its end, or to the end of its grace.
pub(crate) async fn execute(
    work: impl Future<Output = Result<Outcome, JobError>> + Send,
    run: &Run,
    limits: Limits,
    clock: &Clock,
) -> Ended {
    // Frozen between its start and here: what has not begun does not begin any more.
    if run.check().is_err() {
        return stopped(run);
    }
    let work = run.supervise(AssertUnwindSafe(work).catch_unwind());
    let result = tokio::select! {
        // The work first: what has ended has ended, whatever the clock says.
        biased;
        result = work => Some(result),
        () = given_up(run, &limits, clock) => None,
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
    loop {
        // Extensions of the lease go on while the work winds down, so its end is read anew.
        let leases = run.lease().into_iter().chain(&limits.also);
        let lease_end = leases
            .map(LeaseView::deadline)
            .min()
            .unwrap_or(Moment::NEVER);
        let before_abort = lease_end.back(limits.abort_margin + limits.abort_margin / 2);
        // A process that was frozen past its deadline still gives the run a moment to see its end.
        let drop_at = (told + limits.grace)
            .min(before_abort)
            .max(told + limits.abort_margin / 2);
        if clock.now() >= drop_at {
            return;
        }
        clock.sleep_until(drop_at).await;
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::RunFacts;

    #[tokio::test]
    async fn a_run_that_is_over_does_not_begin() {
        let clock = Clock::system();
        let facts = RunFacts {
            job: "job".to_owned(),
            id: String::new(),
            tick: clock.wall(),
            attempt: 1,
            replica: String::new(),
            batch: None,
            params: serde_json::Value::Null,
            checkpoint: None,
        };
        let run = Run::new(facts, clock.clone(), None, Duration::ZERO, Moment::NEVER);
        run.stop("it was frozen for too long");
        let limits = Limits {
            grace: Duration::ZERO,
            abort_margin: Duration::ZERO,
            also: None,
        };
        let work = async { panic!("it has begun") };
        let ended = execute(work, &run, limits, &clock).await;
        assert_eq!(
            ended,
            Ended::Cancelled("it was frozen for too long".to_owned())
        );
    }
}
