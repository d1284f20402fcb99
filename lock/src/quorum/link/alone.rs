//! A call that its sender carries to its end, unless the pump has to.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    task::{Context, Poll, Waker},
};

use futures_util::future::BoxFuture;

use super::{
    Link,
    queue::{not_later_than, shortest_ttl},
};
use crate::{
    clock::Moment,
    node::{NodeError, Op, Reply},
};

/// What is under way.
pub(super) type Carried = BoxFuture<'static, Result<Reply, NodeError>>;

/// A call that its sender carries.
pub(crate) struct Alone {
    pub(super) sent: Moment,
    pub(super) deadline: Moment,
    pub(super) ops: usize,
    /// Its sender has gone.
    pub(super) left: AtomicBool,
    state: Mutex<State>,
}

enum State {
    /// Its sender carries it, and is woken by it.
    Here(Carried, Option<Waker>),
    /// The pump carries it, and wakes its sender.
    Elsewhere(Option<Waker>),
    Over(Option<Result<Reply, NodeError>>),
}

/// Its end, where it was carried.
pub(super) enum Looked {
    Here(Result<Reply, NodeError>),
    Elsewhere(Result<Reply, NodeError>),
}

// === impl Alone ===

impl Alone {
    /// Not under way before it is looked at.
    pub(super) fn new(link: &Link, ops: Vec<Op>, now: Moment) -> Self {
        let ends = not_later_than(now, shortest_ttl(&ops));
        let (expected, deadline) = (ops.len(), now + link.0.timeout);
        let call = link.node_call(ops, deadline, ends);
        Self {
            sent: now,
            deadline,
            ops: expected,
            left: AtomicBool::new(false),
            state: Mutex::new(State::Here(call, None)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries it on, as its sender.
    pub(super) fn look(&self, cx: &mut Context<'_>) -> Poll<Looked> {
        let mut state = self.state();
        let waker = match &mut *state {
            State::Here(call, waker) => {
                if let Poll::Ready(result) = call.as_mut().poll(cx) {
                    *state = State::Over(None);
                    return Poll::Ready(Looked::Here(result));
                }
                waker
            }
            State::Elsewhere(waker) => waker,
            State::Over(result) => {
                let result = result.take().unwrap_or_else(|| Err(super::lost()));
                return Poll::Ready(Looked::Elsewhere(result));
            }
        };
        if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Whether its sender has to carry it on.
    pub(super) fn is_here(&self) -> bool {
        matches!(&*self.state(), State::Here(..))
    }

    /// Takes it from its sender, which is woken at its end.
    pub(super) fn take(&self) -> Option<Carried> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Over(None)) {
            State::Here(call, waker) => {
                *state = State::Elsewhere(waker);
                Some(call)
            }
            other => {
                *state = other;
                None
            }
        }
    }

    /// Keeps its end for its sender.
    pub(super) fn keep(&self, result: Result<Reply, NodeError>) {
        let before = std::mem::replace(&mut *self.state(), State::Over(Some(result)));
        if let State::Elsewhere(Some(waker)) = before {
            waker.wake();
        }
    }
}

/// What the pump has taken from its sender, which also hears of a pump that is gone.
pub(super) struct Adopted(pub(super) Arc<Alone>);

impl Drop for Adopted {
    fn drop(&mut self) {
        let open = matches!(&*self.0.state(), State::Elsewhere(_));
        if open {
            self.0.keep(Err(super::lost()));
        }
    }
}
