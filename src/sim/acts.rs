//! What the tests of terms, runs and batches have in common.

use std::time::Duration;

use crate::testing::cluster::{Act, Fleet, Member, Starts};
use crate::{
    job::{Job, JobError, Outcome, Run},
    node::memory::MemoryNode,
};

/// Who holds `lock/x` on a node.
pub(crate) fn holder(node: &MemoryNode) -> Option<String> {
    let now = node.time();
    node.inspect(|state| state.holder("lock/x", now).map(str::to_owned))
}

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Runs until told to stop.
pub(crate) fn patient() -> impl Job {
    Act(|run: Run| {
        Box::pin(async move {
            run.cancelled().await;
            Err(JobError::from("stopped"))
        }) as _
    })
}

/// Does nothing, at once, and notes it.
pub(crate) fn quick(starts: &Starts) -> impl Job + use<> {
    let starts = starts.clone();
    Act(move |run: Run| {
        starts.note(&run);
        Box::pin(async { Ok(Outcome::Done) }) as _
    })
}

pub(crate) async fn leader<'a>(fleet: &Fleet, of: &[&'a Member]) -> &'a Member {
    for _ in 0..10_000 {
        if let Some(leader) = of.iter().find(|m| m.leads()) {
            return leader;
        }
        fleet.sleep(ms(5)).await;
    }
    panic!("nobody leads");
}
