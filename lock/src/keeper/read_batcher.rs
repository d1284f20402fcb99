//! Gathers requests to look at locks until one look is made for all of them.
//!
//! Every candidate and every waiter of a process asks by itself. A standby for a hundred locks would ask each node a hundred times where
//! once is enough. So the first request since the last look waits for [`GATHER`], and its caller then looks for all.
//!
//! A record may be long: the ledger of a job with a large checkpoint has some 16 KiB. What a look asks for at once is therefore
//! cut to a quarter where it came too late, and doubled only where as much came in a part of the time: a slow way to the nodes makes looks
//! longer, and does not make them fail for good. Nodes that refuse, or are known to be down, say nothing of that.
//!
//! # Invariants
//! - W5 However long the records are, all that is listed is seen, as long as sixteen of them come in time together.
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
/// Locks that are asked for at once, at most, which is two calls to each node, and at least.
const MOST_AT_ONCE: usize = 2 * MOST_OPS;
const LEAST_AT_ONCE: usize = 16;
/// So often in a row a part of a look may come too late: each is a quarter of the one before, and the last one of the least.
pub(super) const TOO_LATE: u32 = (MOST_AT_ONCE / LEAST_AT_ONCE).ilog2() / 2 + 2;

/// What became of a part of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// A majority has answered, and needed so long beyond the way there and back.
    After(Duration),
    /// Too few have answered in time.
    TooLate,
    /// Too few have answered, and none of the others for want of time.
    Refused,
}

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

    /// Takes note of a part of a look, which has asked for so many.
    pub(super) fn took(&self, asked: usize, came: Came, timeout: Duration) {
        let next = next_at_once(self.at_once(), asked, came, timeout);
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

/// What is twice as much takes twice as long, at most: so a part that was quick enough to be doubled is in time. One that asked for
/// less than was permitted shows nothing of more.
fn next_at_once(at_once: usize, asked: usize, came: Came, timeout: Duration) -> usize {
    match came {
        Came::TooLate => at_once.min(asked / 4).max(LEAST_AT_ONCE),
        Came::After(waited) if asked >= at_once && waited < timeout / 4 => {
            (at_once * 2).min(MOST_AT_ONCE)
        }
        Came::After(_) | Came::Refused => at_once,
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

    const TIMEOUT: Duration = Duration::from_millis(50);

    #[test]
    fn twice_as_many_are_asked_for_only_where_they_come_in_time() {
        for each in [1, 20, 100, 999, 3_000].map(Duration::from_micros) {
            let took = |at_once: usize| each * u32::try_from(at_once).unwrap();
            let (mut at_once, mut settled) = (MOST_AT_ONCE, false);
            for _ in 0..100 {
                let in_time = took(at_once) < TIMEOUT;
                assert!(in_time || !settled, "{at_once} of {each:?}");
                settled |= in_time;
                let came = match in_time {
                    true => Came::After(took(at_once)),
                    false => Came::TooLate,
                };
                at_once = next_at_once(at_once, at_once, came, TIMEOUT);
                // Others that ask for little, and at once have it.
                for few in [1, 6, at_once - 1] {
                    let came = Came::After(Duration::ZERO);
                    assert_eq!(next_at_once(at_once, few, came, TIMEOUT), at_once);
                }
            }
            assert!(settled, "{each:?}");
        }
    }

    #[test]
    fn nodes_that_refuse_change_nothing() {
        let next = |came| next_at_once(100, 100, came, TIMEOUT);
        assert_eq!(next(Came::Refused), 100);
        assert_eq!(next(Came::After(TIMEOUT / 3)), 100);
        assert_eq!(
            next_at_once(LEAST_AT_ONCE, 1, Came::TooLate, TIMEOUT),
            LEAST_AT_ONCE
        );
    }
}
