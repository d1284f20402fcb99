//! The heart of a worker's runtime: when it stands still, so do the jobs, and the keeper must know.

use std::time::Duration;

use crate::lock::Locks;

/// Time between two beats.
pub(super) const BEAT: Duration = Duration::from_millis(50);

/// Beats until the task is dropped.
pub(super) async fn beat(locks: Locks) {
    let fitness = locks.fitness().clone();
    // Shorter than a third of a lease, or the lease would be lost before the stall is noticed.
    let limit = (locks.timing().ttl / 4).max(BEAT * 5);
    fitness.beat();
    fitness.expect_beats(Some(limit));
    loop {
        fitness.beat();
        locks.clock().sleep(BEAT).await;
    }
}
