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

/// A method for each key: its documentation, `key(argument) = value`.
macro_rules! keys {
    ($($(#[$doc:meta])* $key:ident($($argument:ident: $type:ty)?) = $value:expr;)*) => {
        impl Spec {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $key(mut self $(, $argument: $type)?) -> Self {
                    self.$key = $value;
                    self
                }
            )*
        }
    };
}

keys! {
    /// The time zone of the schedule: `"Europe/Rome"`.
    zone(zone: impl Into<String>) = zone.into();

    /// No tick before this: `"2026-12-24T18:00:00Z"`, or `"2026-12-24T18:00"` or `"2026-12-24"` in the job's zone.
    starting(time: impl Into<String>) = Some(time.into());

    /// No tick after this, written as for [`starting`](Spec::starting); a date alone is the end of that day.
    until(time: impl Into<String>) = Some(time.into());

    /// Days of the zone's calendar without ticks: `["2026-12-25", "12-24", "Sat-Sun"]`.
    except(days: impl IntoIterator<Item = impl Into<String>>) = days.into_iter().map(Into::into).collect();

    /// Makes as many jobs of this one, 1 to 10,000, named `NAME.0`, `NAME.1` and so on, each with a lock, a ledger and a leader of
    /// its own: parts of one work that are spread over the fleet. A run knows its part by
    /// [`RunFacts::shard`](crate::job::RunFacts::shard) and [`RunFacts::shards`](crate::job::RunFacts::shards). People see and command
    /// all of them by the name of the job, or one by its own.
    shards(shards: usize) = Some(shards);

    /// Delays each start by less than this, so that jobs due at the same instant do not all start at it. The delay is a
    /// function of the job's name and the tick, the same on every replica, and shorter than the time to the next tick; the
    /// tick keeps its instant in the ledger and in [`Run::tick`](crate::Run::tick).
    jitter(most: Duration) = Some(most);

    /// How a numeric weekday is read.
    dialect(dialect: Dialect) = Some(dialect);

    /// Which of the runs that are due together on one replica starts first, where the lock nodes cannot take the starts of all of them at
    /// once: the one with the larger number; 0 unless set. Of equals the one goes first that has waited longest, the last time counted in.
    priority(priority: i32) = priority;

    /// Which replicas do the work.
    coordination(coordination: Coordination) = coordination;

    /// How long the job's lease lasts without an extension.
    ttl(ttl: Duration) = Some(ttl);

    /// How long one run may take.
    timeout(timeout: Duration) = Some(timeout);

    /// How long a run that was told to stop may take to end.
    grace(grace: Duration) = grace;

    /// What happens when a run fails: `3` attempts, or a whole [`Retry`].
    retry(retry: impl Into<Retry>) = retry.into();

    /// Which of the ticks found too late run.
    misfire(misfire: Misfire) = misfire;

    /// How many of them run with [`Misfire::All`]: the latest ones.
    misfire_limit(limit: usize) = limit;

    /// None older than this runs.
    misfire_window(window: Duration) = Some(window);

    /// What happens to a run whose replica died.
    interrupted(interrupted: Interrupted) = interrupted;

    /// What happens to a tick that falls due while as many runs go on as may at a time.
    overlap(overlap: Overlap) = overlap;

    /// How many runs of the job may go on at a time, under one leader: 1 to 16. A retry that waits takes no place; the run
    /// of a trigger takes one, and waits for it.
    concurrency(runs: usize) = Some(runs);

    /// How long a run may say nothing by [`Run::progress`](crate::Run::progress) before it counts as stuck: it is told to
    /// stop while its lease is extended, and the job goes to another replica. Its start counts; time in which the process
    /// was frozen does not.
    progress_deadline(limit: Duration) = Some(limit);

    /// How long one replica leads before the fleet may move the job, between two runs, to a replica that leads fewer jobs
    /// or has a larger priority: a minute unless set. A drain, `resign`, unfitness and `max_term` do not wait for it.
    /// Without effect in failover mode, and for jobs without a leader, those of [`Coordination::Tick`] among them.
    min_term(limit: Duration) = limit;

    /// How long one replica leads before it hands over: 24 hours unless set. Only if another candidate of its priority, or
    /// of a larger one, stands by, as far as the replicas have told each other; else the time begins anew, and the work goes on. A run in flight gets the
    /// worker's drain timeout to end by itself; a `continuous` one is told to stop. Without effect in failover mode, and
    /// for jobs without a leader.
    max_term(limit: Duration) = limit;

    /// What happens when a run that was told to stop does not end within its grace: [`Unstoppable::Abort`] unless set.
    /// [`Unstoppable::Abandon`] is for jobs that are [`fenced`](Spec::fenced) alone. In failover mode the lock of the
    /// replica stands above it, and that one aborts.
    unstoppable(what: Unstoppable) = what;

    /// Declares that every effect of a run goes where its fencing token is compared, so that two runs at a time do no
    /// harm: what the older one does is refused. See [`crate::fence`].
    fenced() = true;

    /// Whose definition of the job counts while the replicas of the fleet disagree on it: [`Disagreement::Newest`] unless
    /// set. Without effect in failover mode, where the active replica's does.
    definition(rule: Disagreement) = rule;

    /// Whether the job runs at all.
    enabled(enabled: bool) = enabled;

    /// The job's own parameters.
    params(params: Value) = params;
}
