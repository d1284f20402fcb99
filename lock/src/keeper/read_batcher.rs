//! Gathers requests to look at locks until one look is made for all of them.
//!
//! Every candidate and every waiter of a process asks by itself. A standby for a hundred locks would ask each node a hundred times where
//! once is enough. So the first request since the last look waits for [`GATHER`], and its caller then looks for all.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use crate::expiry::LockState;

/// For how long requests are gathered.
pub(super) const GATHER: Duration = Duration::from_millis(1);

/// Requests that wait for the next look.
#[derive(Default)]
pub(super) struct ReadBatcher(Mutex<Vec<Request>>);

pub(super) struct Request {
    pub(super) keys: Vec<String>,
    reply: oneshot::Sender<Vec<LockState>>,
}

// === impl ReadBatcher ===

impl ReadBatcher {
    /// Takes in a request; whether it is the first since the last look, whose caller then looks for all.
    pub(super) fn add(&self, keys: Vec<String>, reply: oneshot::Sender<Vec<LockState>>) -> bool {
        let mut waiting = self.requests();
        waiting.push(Request { keys, reply });
        waiting.len() == 1
    }

    /// Hands out what has come together.
    pub(super) fn take(&self) -> Vec<Request> {
        std::mem::take(&mut *self.requests())
    }

    fn requests(&self) -> MutexGuard<'_, Vec<Request>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Request ===

impl Request {
    /// Answers with its part of `seen`, which is in the order of the keys.
    pub(super) fn answer(self, seen: &[LockState]) {
        let find = |key: &String| {
            let at = seen.binary_search_by(|s| s.key.cmp(key)).ok()?;
            seen.get(at).cloned()
        };
        let seen = self.keys.iter().filter_map(find).collect();
        // A caller that has gone needs no answer.
        let _ = self.reply.send(seen);
    }
}
