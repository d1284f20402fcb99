//! Terms that wait to be told, and which of them are read and written together. Pure.

use std::collections::{BTreeSet, VecDeque};

use tokio::sync::oneshot;

use crate::{fleet::terms::TermRecord, lock::LockError};

/// Terms that are read and written together.
const TOGETHER: usize = 64;

/// Terms that wait to be told.
#[derive(Default)]
pub(super) struct Tellings {
    waiting: VecDeque<Telling>,
    /// Whether a task sees to them.
    attended: bool,
}

/// What is to be told of one term, and whom its outcome is told.
pub(super) struct Telling {
    pub(super) job: String,
    pub(super) record: TermRecord,
    pub(super) told: oneshot::Sender<Result<(), LockError>>,
}

// === impl Tellings ===

impl Tellings {
    /// Whether a task has to be begun that sees to it.
    pub(super) fn add(&mut self, telling: Telling) -> bool {
        self.waiting.push_back(telling);
        !std::mem::replace(&mut self.attended, true)
    }

    /// The oldest that wait, none of which is written over what another one of them writes. Without any the task may end.
    pub(super) fn take_together(&mut self) -> Option<Vec<Telling>> {
        let mut jobs = BTreeSet::new();
        let waiting = self.waiting.iter().take(TOGETHER);
        let some = waiting.take_while(|telling| jobs.insert(telling.job.as_str()));
        let some = some.count();
        self.attended = some > 0;
        self.attended.then(|| self.waiting.drain(..some).collect())
    }
}
