//! The keys of a [`Spec`], in code.

use std::time::Duration;

use serde_json::Value;

use super::Spec;
use crate::{
    due::{Interrupted, Misfire, Overlap},
    job::{
        coordination::{Coordination, Disagreement},
        retry::Retry,
    },
    lease::Unstoppable,
    schedule::Dialect,
};

impl Spec {
    /// The time zone of the schedule: `"Europe/Rome"`.
    #[must_use]
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = zone.into();
        self
    }

    /// No tick before this: `"2026-12-24T18:00:00Z"`, or `"2026-12-24T18:00"` or `"2026-12-24"` in the job's zone.
    #[must_use]
    pub fn starting(mut self, time: impl Into<String>) -> Self {
        self.starting = Some(time.into());
        self
    }

    /// No tick after this, written as for [`starting`](Spec::starting); a date alone is the end of that day.
    #[must_use]
    pub fn until(mut self, time: impl Into<String>) -> Self {
        self.until = Some(time.into());
        self
    }

    /// Days of the zone's calendar without ticks: `["2026-12-25", "12-24", "Sat-Sun"]`.
    #[must_use]
    pub fn except<T: Into<String>>(mut self, days: impl IntoIterator<Item = T>) -> Self {
        self.except = days.into_iter().map(Into::into).collect();
        self
    }

    /// Delays each start by less than this, so that jobs due at the same instant do not all start at it. The delay is a
    /// function of the job's name and the tick, the same on every replica, and shorter than the time to the next tick; the
    /// tick keeps its instant in the ledger and in [`Run::tick`](crate::Run::tick).
    #[must_use]
    pub fn jitter(mut self, most: Duration) -> Self {
        self.jitter = Some(most);
        self
    }

    /// How a numeric weekday is read.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = Some(dialect);
        self
    }

    /// Which replicas do the work.
    #[must_use]
    pub fn coordination(mut self, coordination: Coordination) -> Self {
        self.coordination = coordination;
        self
    }

    /// How long the job's lease lasts without an extension.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long one run may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How long a run that was told to stop may take to end.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// What happens when a run fails: `3` attempts, or a whole [`Retry`].
    #[must_use]
    pub fn retry(mut self, retry: impl Into<Retry>) -> Self {
        self.retry = retry.into();
        self
    }

    /// Which of the ticks found too late run.
    #[must_use]
    pub fn misfire(mut self, misfire: Misfire) -> Self {
        self.misfire = misfire;
        self
    }

    /// How many of them run with [`Misfire::All`]: the latest ones.
    #[must_use]
    pub fn misfire_limit(mut self, limit: usize) -> Self {
        self.misfire_limit = limit;
        self
    }

    /// None older than this runs.
    #[must_use]
    pub fn misfire_window(mut self, window: Duration) -> Self {
        self.misfire_window = Some(window);
        self
    }

    /// What happens to a run whose replica died.
    #[must_use]
    pub fn interrupted(mut self, interrupted: Interrupted) -> Self {
        self.interrupted = interrupted;
        self
    }

    /// What happens to a tick that falls due while as many runs go on as may at a time.
    #[must_use]
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// How many runs of the job may go on at a time, under one leader: 1 to 16. A retry that waits takes no place; the run
    /// of a trigger takes one, and waits for it.
    #[must_use]
    pub fn concurrency(mut self, runs: usize) -> Self {
        self.concurrency = Some(runs);
        self
    }

    /// How long a run may say nothing by [`Run::progress`](crate::Run::progress) before it counts as stuck: it is told to
    /// stop while its lease is renewed, and the job goes to another replica. Its start counts; time in which the process
    /// was frozen does not.
    #[must_use]
    pub fn progress_deadline(mut self, limit: Duration) -> Self {
        self.progress_deadline = Some(limit);
        self
    }

    /// How long one replica leads before the fleet may move the job, between two runs, to a replica that leads fewer jobs
    /// or has a larger priority: a minute unless set. A drain, `resign`, unfitness and `max_term` do not wait for it.
    /// Without effect in failover mode, and for jobs without a leader, those of [`Coordination::Tick`] among them.
    #[must_use]
    pub fn min_term(mut self, limit: Duration) -> Self {
        self.min_term = limit;
        self
    }

    /// How long one replica leads before it hands over: 24 hours unless set. Only if another candidate of its priority, or
    /// of a larger one, stands by, as far as the replicas have told each other; else the time begins anew, and the work goes on. A run in flight gets the
    /// worker's drain timeout to end by itself; a `continuous` one is told to stop. Without effect in failover mode, and
    /// for jobs without a leader.
    #[must_use]
    pub fn max_term(mut self, limit: Duration) -> Self {
        self.max_term = limit;
        self
    }

    /// What happens when a run that was told to stop does not end within its grace: [`Unstoppable::Abort`] unless set.
    /// [`Unstoppable::Abandon`] is for jobs that are [`fenced`](Spec::fenced) alone. In failover mode the lock of the
    /// replica stands above it, and that one aborts.
    #[must_use]
    pub fn unstoppable(mut self, what: Unstoppable) -> Self {
        self.unstoppable = what;
        self
    }

    /// Declares that every effect of a run goes where its fencing token is compared, so that two runs at a time do no
    /// harm: what the older one does is refused. See [`crate::fence`].
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.fenced = true;
        self
    }

    /// Whose definition of the job counts while the replicas of the fleet disagree on it: [`Disagreement::Newest`] unless
    /// set. Without effect in failover mode, where the active replica's does.
    #[must_use]
    pub fn definition(mut self, rule: Disagreement) -> Self {
        self.definition = rule;
        self
    }

    /// Whether the job runs at all.
    #[must_use]
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// The job's own parameters.
    #[must_use]
    pub fn params(mut self, params: Value) -> Self {
        self.params = params;
        self
    }
}
