//! What the metrics of a worker read from its replica whenever they are asked for.

use super::ready::Ready;
use crate::{
    job::Coordination,
    lease::LeaseView,
    lock::LockError,
    scheduler::Context,
    telemetry::metrics::{HeldTerm, Metrics},
};

/// Connects the metrics to a replica that runs these jobs.
pub(super) async fn connect(
    metrics: &Metrics,
    ctx: &Context,
    jobs: &[Ready],
) -> Result<(), LockError> {
    for job in jobs.iter().filter(|job| job.spec.enabled) {
        declare(metrics, job, ctx);
    }
    for node in ctx.locks.nodes().await? {
        metrics.declare_node(&node.name, node.answers);
    }
    let local_status = ctx.local_status.clone();
    metrics.asks().terms.of(move || {
        let held = local_status
            .leases()
            .into_iter()
            .filter(|(_, lease)| lease.is_held());
        let term = |(job, lease): (String, LeaseView)| HeldTerm {
            job,
            token: lease.token(),
            remaining: lease.remaining(),
            margin: lease.margin(),
        };
        held.map(term).collect()
    });
    let (local_status, locks) = (ctx.local_status.clone(), ctx.locks.clone());
    metrics
        .asks()
        .overdue
        .of(move || local_status.overdue(locks.wall()));
    let (local_status, intents) = (ctx.local_status.clone(), ctx.intents.clone());
    metrics.asks().paused.of(move || {
        let jobs = local_status.names().into_iter();
        jobs.map(|job| (intents.is_paused(&job), job))
            .map(|(paused, job)| (job, paused))
            .collect()
    });
    let local_status = ctx.local_status.clone();
    metrics.asks().resting.of(move || local_status.resting());
    let local_status = ctx.local_status.clone();
    metrics.asks().left.of(move || local_status.left());
    let local_status = ctx.local_status.clone();
    metrics
        .asks()
        .ahead
        .of(move || local_status.ahead_of_clock());
    let (local_status, locks) = (ctx.local_status.clone(), ctx.locks.clone());
    metrics
        .asks()
        .waiting
        .of(move || local_status.waiting(locks.wall()));
    Ok(())
}

/// Shows a job in the metrics before anything of it has happened.
pub(super) fn declare(metrics: &Metrics, job: &Ready, ctx: &Context) {
    ctx.local_status.expect(&job.name);
    let led = !job.body.is_batch() && job.spec.coordination == Coordination::Leader;
    metrics.declare_job(&job.name, led);
    let has_ticks = !job.body.is_batch()
        && !job.schedule.is_continuous()
        && job.schedule.next_after(ctx.locks.wall()).is_some();
    if has_ticks {
        metrics.expect_success(&job.name);
    }
}
