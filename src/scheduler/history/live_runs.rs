//! The runs in flight, and which of their texts is told next. Pure.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use jiff::Timestamp;

use crate::{
    clock::Moment,
    job::{Run, WeakRun},
    status::runs::{LIVE_LIFETIME, LiveText},
};

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
pub(super) struct Due {
    pub(super) id: u64,
    pub(super) document: String,
    pub(super) rev: u64,
    pub(super) text: LiveText,
    pub(super) number: u64,
}

// === impl LiveRuns ===

impl LiveRuns {
    /// One more, which has begun now, until the first answer is dropped. Whether a task is to see to them.
    pub(super) fn add(&mut self, run: &Run, document: String, now: Moment) -> (Arc<()>, bool) {
        let in_flight = Arc::new(());
        self.last += 1;
        self.runs.push(LiveRun {
            id: self.last,
            in_flight: Arc::downgrade(&in_flight),
            run: run.downgrade(),
            document,
            told: 0,
            at: now,
            rev: 0,
        });
        let attended = std::mem::replace(&mut self.attended, true);
        (in_flight, !attended)
    }

    /// What is to be told now; `None` when no run is in flight, and the task may end.
    pub(super) fn due(&mut self, now: Moment, at: Timestamp) -> Option<Vec<Due>> {
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

    pub(super) fn told(&mut self, id: u64, number: u64, now: Moment) {
        // They are in the order of their ids.
        let place = self.runs.binary_search_by_key(&id, |one| one.id);
        if let Some(one) = place.ok().and_then(|place| self.runs.get_mut(place)) {
            (one.told, one.at) = (number, now);
        }
    }
}
