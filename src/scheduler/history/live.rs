//! What runs in flight have left to read so far, for those who watch them.
//!
//! A run that leaves text while it goes on is told of in `live/JOB/NN`, beside its record. It is news that the next one replaces:
//! nothing waits for it, and nothing is tried again but with the next text.
//!
//! # Invariants
//! - H3 However many runs leave however much, a replica tells [`AT_ONCE`] texts every [`EVERY`] and no more, those first that have waited
//!   longest; one that leaves nothing costs no call.   (however_many_runs_leave_text_few_of_it_is_told_at_a_time)

use std::{
    sync::{Arc, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures_util::future::join_all;
use jiff::Timestamp;

use super::History;
use crate::{
    clock::Moment,
    job::{Run, WeakRun},
    status::{
        RunRecord,
        runs::{LIVE_LIFETIME, LiveText},
    },
};

/// Between two looks at what runs have left.
pub(super) const EVERY: Duration = Duration::from_secs(2);
/// Texts that are told at one look: of 8 KiB at most, they are 64 KiB a second.
pub(super) const AT_ONCE: usize = 16;
/// What has not changed for so long is told again, so that it stays for as long as its run.
const AGAIN: Duration = Duration::from_secs(LIVE_LIFETIME.as_secs() / 2);

/// The runs in flight.
#[derive(Default)]
pub(super) struct LiveRuns {
    runs: Vec<LiveRun>,
    /// Whether a task sees to them.
    attended: bool,
    last: u64,
}

/// One of them, until its entry has gone.
struct LiveRun {
    id: u64,
    in_flight: Weak<()>,
    run: WeakRun,
    document: String,
    /// Which of its texts was told, and when.
    told: u64,
    at: Moment,
    /// That of the last try.
    rev: u64,
}

/// A text that is to be told.
struct Due {
    id: u64,
    document: String,
    rev: u64,
    text: LiveText,
    number: u64,
}

impl History {
    /// From now on what this run leaves is told, until the answer is dropped.
    pub(super) fn follow(&self, run: &Run, record: &RunRecord) -> Arc<()> {
        let in_flight = Arc::new(());
        let (name, _) = self.documents(record);
        let mut live = self.live();
        live.last += 1;
        let one = LiveRun {
            id: live.last,
            in_flight: Arc::downgrade(&in_flight),
            run: run.downgrade(),
            document: RunRecord::live_beside(&name),
            told: 0,
            at: self.0.clock.now(),
            rev: 0,
        };
        live.runs.push(one);
        let attended = std::mem::replace(&mut live.attended, true);
        drop(live);
        if !attended {
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

// === impl LiveRuns ===

impl LiveRuns {
    /// What is to be told now; `None` when no run is in flight, and the task may end.
    fn due(&mut self, now: Moment, at: Timestamp) -> Option<Vec<Due>> {
        self.runs.retain(|run| run.in_flight.strong_count() > 0);
        if self.runs.is_empty() {
            self.attended = false;
            return None;
        }
        let mut due: Vec<(&mut LiveRun, Run)> = Vec::new();
        for one in &mut self.runs {
            let Some(run) = one.run.upgrade() else {
                continue;
            };
            let is_old = one.told > 0 && now >= one.at + AGAIN;
            if run.texts() > one.told || is_old {
                due.push((one, run));
            }
        }
        due.sort_by_key(|(one, _)| one.at);
        let texts = due.into_iter().take(AT_ONCE).map(|(one, run)| {
            one.rev = LiveText::revision(at, one.rev);
            let (number, text) = run.last_text();
            Due {
                id: one.id,
                document: one.document.clone(),
                rev: one.rev,
                text: LiveText {
                    run_id: run.id().to_owned(),
                    text,
                },
                number,
            }
        });
        Some(texts.collect())
    }

    fn told(&mut self, id: u64, number: u64, now: Moment) {
        // They are in the order of their ids.
        let place = self.runs.binary_search_by_key(&id, |one| one.id);
        if let Some(one) = place.ok().and_then(|place| self.runs.get_mut(place)) {
            (one.told, one.at) = (number, now);
        }
    }
}
