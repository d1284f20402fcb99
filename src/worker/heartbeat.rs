//! The heart of a worker's runtime: when it stands still, so do the jobs, and the keeper must know. Whether both turn is judged
//! here for all who ask: `/livez`, and the watchdog of a service manager.

use std::time::Duration;

use crate::{human::Brief, keeper::Fitness, lock::Locks};

/// Time between two beats.
pub(super) const BEAT: Duration = Duration::from_millis(50);

/// What has not beaten for so long does not turn any more: the process is to be restarted.
const STANDS_STILL: Duration = Duration::from_secs(5);

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

/// Whether runtime and keeper turn, by the age of their last beats.
///
/// # Errors
/// What stands still.
pub(super) fn turns(fitness: &Fitness) -> Result<(), String> {
    judge(fitness.silence(), fitness.keeper_silence())
}

/// `None` for what does not beat.
fn judge(runtime: Option<Duration>, keeper: Option<Duration>) -> Result<(), String> {
    for (what, silence) in [("runtime", runtime), ("lock keeper", keeper)] {
        if let Some(silence) = silence.filter(|silence| *silence > STANDS_STILL) {
            return Err(format!("the {what} has stood still for {}", Brief(silence)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_lives_while_runtime_and_keeper_beat() {
        let (fresh, old) = (Some(STANDS_STILL), Some(STANDS_STILL * 2));
        assert_eq!(judge(fresh, fresh), Ok(()));
        assert_eq!(judge(None, None), Ok(()), "nothing beats yet");
        assert!(judge(old, fresh).unwrap_err().contains("runtime"));
        assert!(judge(fresh, old).unwrap_err().contains("keeper"));
    }
}
