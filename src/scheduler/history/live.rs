//! What runs in flight have left to read so far, for those who watch them.
//!
//! A run that leaves text while it goes on is told of in `live/JOB/NN`, beside its record. It is news that the next one replaces:
//! nothing waits for it, and nothing is tried again but with the next text.
//!
//! # Invariants
//! - H3 However many runs leave however much, a replica tells 16 texts every two seconds and no more, those first that have waited
//!   longest; one that leaves nothing costs no call.   (however_many_runs_leave_text_few_of_it_is_told_at_a_time)

use std::{
    sync::{Arc, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::join_all;

use super::{
    History,
    live_runs::{Due, LiveRuns},
};
use crate::{
    job::Run,
    status::{RunRecord, runs::LIVE_LIFETIME},
};

/// Between two looks at what runs have left.
pub(super) const EVERY: Duration = Duration::from_secs(2);

impl History {
    /// From now on what this run leaves is told, until the answer is dropped.
    pub(super) fn follow(&self, run: &Run, record: &RunRecord) -> Arc<()> {
        let (name, _) = self.documents(record);
        let (now, document) = (self.0.clock.now(), RunRecord::live_beside(&name));
        let (in_flight, is_first) = self.live().add(run, document, now);
        if is_first {
            self.0.spawn.spawn(self.clone().tell_live());
        }
        in_flight
    }

    async fn tell_live(self) {
        loop {
            self.0.clock.sleep(EVERY).await;
            let (now, at) = (self.0.clock.now(), self.0.locks.wall());
            let Some(due) = self.live().due(now, at) else {
                return;
            };
            join_all(due.into_iter().map(|due| self.tell_text(due))).await;
        }
    }

    async fn tell_text(&self, due: Due) {
        let body = due.text.to_body();
        let locks = &self.0.locks;
        let put = locks.put_doc(&due.document, due.rev, LIVE_LIFETIME, body);
        match put.await {
            Ok(_) => self.live().told(due.id, due.number, self.0.clock.now()),
            Err(error) => {
                tracing::debug!(%error, "what a run has left so far could not be written")
            }
        }
    }

    fn live(&self) -> MutexGuard<'_, LiveRuns> {
        // Every change is complete before the lock is given back.
        self.0.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
