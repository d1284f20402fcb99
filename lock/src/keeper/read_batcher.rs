//! Looking at locks: requests that come together are one call per node.
//!
//! Every candidate and every waiter of a process looks by itself. A standby of a hundred jobs would ask each node a
//! hundred times where once is enough. Locks on the `watchlist` go along when they are due.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use super::Shared;
use crate::expiry::LockState;

/// For how long requests are gathered.
const GATHER: Duration = Duration::from_millis(1);

/// Requests that wait for the next look.
#[derive(Default)]
pub(crate) struct ReadBatcher(Mutex<Vec<Request>>);

struct Request {
    keys: Vec<String>,
    reply: oneshot::Sender<Vec<LockState>>,
}

impl Shared {
    /// Looks at these locks together with all others that are asked for now.
    pub(super) async fn look_together(
        &self,
        keys: Vec<String>,
        reply: oneshot::Sender<Vec<LockState>>,
    ) {
        let first = {
            let mut waiting = self.requests();
            waiting.push(Request { keys, reply });
            waiting.len() == 1
        };
        if !first {
            return;
        }
        self.cluster.clock.sleep(GATHER).await;
        let together = std::mem::take(&mut *self.requests());
        let mut keys: Vec<String> = together.iter().flat_map(|r| r.keys.clone()).collect();
        keys.extend(self.watchlist.take_due(self.cluster.clock.now()));
        keys.sort_unstable();
        keys.dedup();
        let seen = self.look(keys).await;
        for request in together {
            let find = |key: &String| {
                let at = seen.binary_search_by(|s| s.key.cmp(key)).ok()?;
                seen.get(at).cloned()
            };
            // A caller that has gone needs no answer.
            let _ = request
                .reply
                .send(request.keys.iter().filter_map(find).collect());
        }
    }

    fn requests(&self) -> std::sync::MutexGuard<'_, Vec<Request>> {
        let requests = self.reads.0.lock();
        requests.unwrap_or_else(PoisonError::into_inner)
    }
}
