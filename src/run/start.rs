//! The start of a run: it is prepared with all that it needs, and begins in a task of its own.

use std::future::Future;

use tokio::sync::oneshot;

use super::execute::{Ended, Limits, execute};
use crate::{
    clock::{Clock, Moment},
    job::{Hooks, JobError, Outcome, Run, RunSetup, Spec},
    lease::{LeaseView, Work},
    lock::Timing,
    panics::caught_later,
    spawn::Spawn,
};

/// A run that can begin at once.
pub(crate) struct PreparedRun {
    run: Run,
    limits: Limits,
}

impl PreparedRun {
    /// This run by the rules of its job: with its time limit, its grace, and the margins before the end of its lease.
    pub(crate) fn by(spec: &Spec, timing: &Timing, hooks: &Hooks, setup: RunSetup) -> Self {
        let grace = spec.grace;
        let ttl = setup.lease.as_ref().map_or(timing.ttl, LeaseView::ttl);
        let limits = Limits {
            grace,
            abort_margin: timing.abort_margin(ttl),
            also: setup.also.clone(),
            hooks: hooks.clone(),
        };
        let begins = setup.begins;
        let run = Run::of(RunSetup {
            grace,
            margin: timing.cancel_margin(ttl, grace),
            until: spec.timeout.map_or(Moment::NEVER, |limit| begins + limit),
            ..setup
        });
        Self { run, limits }
    }

    pub(crate) fn run(&self) -> &Run {
        &self.run
    }

    /// The run begins as soon as `may` allows it, or never when that says no. `then` accounts for its end and tells it to the
    /// receiver; the lease is kept for the run until that drops its mark.
    pub(crate) fn begin<W, T>(
        self,
        (spawn, clock): (&Spawn, &Clock),
        may: impl Future<Output = bool> + Send + 'static,
        work: impl FnOnce(Run) -> W + Send + 'static,
        then: impl FnOnce(Ended, Option<Work>, oneshot::Sender<Ended>) -> T + Send + 'static,
    ) -> oneshot::Receiver<Ended>
    where
        W: Future<Output = Result<Outcome, JobError>> + Send,
        T: Future<Output = ()> + Send,
    {
        let Self { run, limits } = self;
        let (tell, end) = oneshot::channel();
        // Before the task exists: the lease is not let go in between.
        let mark = run.lease().map(LeaseView::begin_work);
        let clock = clock.clone();
        spawn.spawn(async move {
            if !may.await {
                return;
            }
            // Whatever panics in there, the end is accounted for and told.
            let work = || execute(async { work(run.clone()).await }, &run, limits, &clock);
            let ended = caught_later(work).await.unwrap_or_else(Ended::Panicked);
            then(ended, mark, tell).await;
        });
        end
    }
}
