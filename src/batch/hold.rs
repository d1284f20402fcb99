//! Under what a batch is worked on: a short claim, or the claim of a message that leaves a final record.

use std::time::Duration;

use crate::{
    job::Retry,
    lease::{Lease, LeaseView},
    once::Work,
    run::Ended,
};

/// Why a batch is stopped whose run tells of no progress.
pub(super) const NO_PROGRESS: &str = "the batch makes no progress";

/// A claimed batch.
pub(super) enum Hold {
    /// What is left of the work is seen where it lies.
    Claim(Lease),
    /// What became of the work stands in a record.
    Message(Work),
}

// === impl Hold ===

impl Hold {
    pub(super) fn view(&self) -> &LeaseView {
        match self {
            Self::Claim(lease) => lease.view(),
            Self::Message(work) => work,
        }
    }

    /// It is not to be worked on: it may have been done.
    pub(super) fn is_refused(&self) -> bool {
        match self {
            Self::Claim(_) => false,
            Self::Message(work) => work.is_too_old(),
        }
    }

    /// Which attempt this is, of all replicas, as far as that is known.
    pub(super) fn attempt(&self) -> u32 {
        match self {
            Self::Claim(_) => 1,
            Self::Message(work) => work.failures().saturating_add(1),
        }
    }

    /// The work has ended: writes down what became of it, then releases. How it has ended as far as others know.
    pub(super) async fn end(self, ended: Ended, retry: &Retry) -> Ended {
        let work = match self {
            Self::Claim(lease) => {
                lease.release().await;
                return ended;
            }
            Self::Message(work) => work,
        };
        let written = match &ended {
            Ended::Done | Ended::Skipped(_) => work.done().await,
            Ended::RetryAfter(pause) => work.failed(*pause, false).await,
            // Nothing but itself has stopped one that makes no progress: it would go round the replicas for ever.
            Ended::Cancelled(why) if why != NO_PROGRESS => {
                work.give_back().await;
                Ok(())
            }
            Ended::Failed { .. } | Ended::TimedOut | Ended::Panicked(_) | Ended::Cancelled(_) => {
                let pause = pause(retry, work.failures());
                work.failed(pause, true).await
            }
        };
        match written {
            Ok(()) => ended,
            Err(loss) => {
                Ended::Cancelled(format!("what became of it could not be written: {loss}"))
            }
        }
    }
}

/// The pause after an attempt that has failed, when so many have failed before.
pub(super) fn pause(retry: &Retry, failures: u32) -> Duration {
    let pause = retry.backoff.saturating_mul(1 << failures.min(16));
    pause.min(retry.max_backoff)
}
