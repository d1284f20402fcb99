//! What stores that are reached over a network have in common: one call after the other, and what is known of a server's memory.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    task::Poll,
};

use tokio::sync::{Mutex as Turnstile, OwnedMutexGuard, oneshot};

use super::{GuardSettings, RestartGuard};
use crate::spawn::Spawn;

/// Does `work` when it is its turn: in the order in which callers first polled this. It goes on when its caller has gone, so that
/// nothing is left half done; what has not begun by then is left out. `None` when it died on the way.
pub(crate) async fn in_turn<S: Send + 'static, T: Send + 'static, F>(
    turnstile: &Arc<Turnstile<S>>,
    spawn: &Spawn,
    work: impl FnOnce(OwnedMutexGuard<S>) -> F + Send + 'static,
) -> Option<T>
where
    F: Future<Output = T> + Send,
{
    // The place in the order is taken by the first poll, of whoever calls.
    let mut turn = Box::pin(Arc::clone(turnstile).lock_owned());
    let mut taken = None;
    poll_fn(|cx| {
        if let Poll::Ready(guard) = turn.as_mut().poll(cx) {
            taken = Some(guard);
        }
        Poll::Ready(())
    })
    .await;
    let (answer, answered) = oneshot::channel();
    spawn.spawn(async move {
        let state = match taken {
            Some(state) => state,
            None => turn.await,
        };
        // Nobody waits for it any more, and nothing of it has left.
        if answer.is_closed() {
            return;
        }
        _ = answer.send(work(state).await);
    });
    answered.await.ok()
}

/// How much of which life's memory was seen: what is asked from now on shows no less.
#[derive(Debug, Default)]
pub(crate) struct Furthest {
    seen: Mutex<Option<(String, u64)>>,
    /// Why its memory is out of reach for good.
    gone: OnceLock<String>,
}

impl Furthest {
    /// What had been seen before a call was asked.
    pub(crate) fn so_far(&self) -> Option<(String, u64)> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }

    pub(crate) fn has_seen(&self, life: &str, far: u64) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.as_mut().filter(|(of, _)| of == life) {
            Some((_, most)) => *most = far.max(*most),
            None => *seen = Some((life.to_owned(), far)),
        }
    }

    /// Why the memory is a copy from before, once one was met. Also when that has grown again: what it knows is old.
    pub(crate) fn gone(&self) -> Option<&str> {
        self.gone.get().map(String::as_str)
    }

    /// It is one: from now on and for good.
    pub(crate) fn is_gone(&self, why: String) -> &str {
        self.gone.get_or_init(|| why)
    }
}

/// What callers compare, on a node whose maker may have left it open.
#[derive(Debug)]
pub(crate) struct Compared {
    guard: GuardSettings,
    agreed: OnceLock<String>,
}

impl Compared {
    pub(crate) fn new(guard: GuardSettings) -> Self {
        Self {
            guard,
            agreed: OnceLock::new(),
        }
    }

    /// What all programs of its fleet have in common, where its maker has named nothing. Whether it compares that.
    pub(crate) fn agree(&self, config: &str) -> bool {
        self.guard.mode == RestartGuard::Off
            && self.guard.config.is_empty()
            && self.agreed.get_or_init(|| config.to_owned()) == config
    }

    /// What is compared, and whether what may be forgotten is waited for; `None` where nothing is compared.
    pub(crate) fn with(&self) -> Option<(&str, bool)> {
        let config = self.agreed.get().unwrap_or(&self.guard.config);
        let guarded = self.guard.mode != RestartGuard::Off;
        (guarded || !config.is_empty()).then_some((config, guarded))
    }
}
