//! Gathers requests to look at locks until one look is made for all of them.
//!
//! Every candidate and every waiter of a process asks by itself. A standby for a hundred locks would ask each node a hundred times where
//! once is enough. So the first request since the last look waits for [`GATHER`], and its caller then looks for all.
//!
//! A record may be long: the ledger of a job with a large checkpoint has some 16 KiB. What a look asks for at once is therefore
//! bounded by what came in time of late, so that a slow way to the nodes makes looks longer, and does not make them fail for good.
//!
//! # Invariants
//! - W5 However long the records are, all that is listed is seen, as long as each of them would come in time alone.
//!   (records_that_together_come_too_late_are_asked_for_in_parts, twice_as_many_are_asked_for_only_where_they_come_in_time)

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::oneshot;

use crate::{expiry::LockState, quorum::link::MOST_OPS};

/// For how long requests are gathered.
pub(super) const GATHER: Duration = Duration::from_millis(1);
/// Locks that are asked for at once, at most: two calls to each node.
const MOST_AT_ONCE: usize = 2 * MOST_OPS;
/// So often in a row a part of a look may be answered by too few, each half as large as the one before.
pub(super) const IN_VAIN: u32 = MOST_AT_ONCE.ilog2() + 1;

/// Requests that wait for the next look.
pub(super) struct ReadBatcher {
    waiting: Mutex<Vec<Request>>,
    /// Locks that are asked for at once.
    at_once: AtomicUsize,
}

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

    /// How many locks to ask for at once.
    pub(super) fn at_once(&self) -> usize {
        self.at_once.load(Ordering::Relaxed)
    }

    /// Takes note of a part of a look: what a majority needed for its answers, beyond the way there and back. `None` when too few
    /// have answered.
    pub(super) fn took(&self, waited: Option<Duration>, timeout: Duration) {
        let next = next_at_once(self.at_once(), waited.unwrap_or(timeout), timeout);
        // Of two looks at one time either will do.
        self.at_once.store(next, Ordering::Relaxed);
    }

    fn requests(&self) -> MutexGuard<'_, Vec<Request>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ReadBatcher {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            at_once: AtomicUsize::new(MOST_AT_ONCE),
        }
    }
}

/// What is twice as much takes twice as long, at most: so a part that was quick enough to be doubled is in time.
fn next_at_once(at_once: usize, waited: Duration, timeout: Duration) -> usize {
    if waited > timeout / 4 {
        (at_once / 2).max(1)
    } else if waited < timeout / 8 {
        (at_once * 2).min(MOST_AT_ONCE)
    } else {
        at_once
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_as_many_are_asked_for_only_where_they_come_in_time() {
        const TIMEOUT: Duration = Duration::from_millis(50);
        for each in [1, 20, 100, 999, 12_500, 49_000].map(Duration::from_micros) {
            let took = |at_once: usize| each * u32::try_from(at_once).unwrap();
            let (mut at_once, mut settled) = (MOST_AT_ONCE, false);
            for _ in 0..100 {
                let in_time = took(at_once) < TIMEOUT;
                assert!(in_time || !settled, "{at_once} of {each:?}");
                settled |= in_time;
                let waited = if in_time { took(at_once) } else { TIMEOUT };
                at_once = next_at_once(at_once, waited, TIMEOUT);
            }
            assert!(settled, "{each:?}");
        }
        assert_eq!(next_at_once(1, TIMEOUT, TIMEOUT), 1);
    }
}
