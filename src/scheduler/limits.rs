//! How long a term and its work may last: by the job's lease, by the replica's, and by the job's own rules,
//! `progress_deadline` and `max_term`.
//!
//! # Invariants
//! - L1 Nothing starts when it would be told to stop at once, because the lease is about to end: no attempt is lost for
//!   nothing.   (every_tick_is_started_once_per_attempt_whatever_dies)

use std::time::Duration;

use super::term::TermLoop;
use crate::{
    clock::Moment,
    due::{Decision, Plan},
    job::Run,
    lease::Unstoppable,
    run::stuck_at,
};

/// How soon a leader that holds back a start looks again whether its lease was extended.
pub(super) const LOOK_AT_LEASE: Duration = Duration::from_millis(50);

impl TermLoop<'_> {
    /// When another replica is to lead. In failover mode no other can: all jobs are where the replica lock is. A lock that
    /// was taken for a tick goes with the tick's work, and no earlier.
    pub(super) fn term_end(&self) -> Moment {
        match (&self.lease, self.pass.lease()) {
            (Some(lease), None) if !self.brief => lease.since() + self.engine.spec.max_term,
            _ => Moment::NEVER,
        }
    }

    /// Completes when one of the runs has said nothing for longer than its job allows; never without a run.
    pub(super) async fn stuck(&self, runs: &[Run]) {
        loop {
            let thawed = self.engine.ctx.locks.fitness().thawed();
            let limit = self.engine.spec.progress_deadline;
            let ends = runs
                .iter()
                .map(|run| stuck_at(run.progress_at(), thawed, limit));
            let at = ends.min().unwrap_or(Moment::NEVER);
            // What it says meanwhile moves it on. A keeper that is late has not told of its freeze yet.
            if self.clock().now() < at {
                self.clock().sleep_until(at).await;
            } else if self.in_doubt() {
                self.clock().sleep(LOOK_AT_LEASE).await;
            } else {
                return;
            }
        }
    }

    /// Whether what would start were told to stop at once, because the lease is about to end: an attempt would be lost
    /// for nothing. The lease may be extended yet. The same for a lease in doubt, which may be confirmed yet.
    pub(super) fn starts_too_late(&self, plan: &Plan) -> bool {
        let starts = |d: &Decision| matches!(d, Decision::Start { .. });
        (self.is_about_to_end() || self.in_doubt()) && plan.decisions.iter().any(starts)
    }

    fn is_about_to_end(&self) -> bool {
        let Some(lease) = self.lease.as_ref() else {
            return false;
        };
        let timing = self.engine.ctx.locks.timing();
        let margin = timing.cancel_margin(lease.ttl(), self.engine.spec.grace);
        lease.remaining() <= margin
    }

    /// Waits until the lease was extended and is beyond doubt, or is over: the same for a start whose writing took long.
    pub(super) async fn extended(&self) {
        while (self.is_about_to_end() || self.in_doubt()) && self.is_open() {
            tokio::select! {
                biased;
                () = self.closing() => return,
                () = self.clock().sleep(LOOK_AT_LEASE) => {}
            }
        }
    }

    /// Completes when the keeper has let the lease go although its work goes on: nothing can be written any more, and
    /// the loop does not wait for the run.
    pub(super) async fn abandoned(&self) {
        match &self.lease {
            Some(lease) if self.engine.spec.unstoppable == Unstoppable::Abandon => {
                lease.lost().await;
                // A run that can be stopped is stopped by then, or a little later.
                let margin = self.engine.ctx.locks.timing().abort_margin(lease.ttl());
                self.clock().sleep(margin).await;
            }
            _ => std::future::pending().await,
        }
    }
}
