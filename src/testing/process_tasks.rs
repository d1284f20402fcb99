//! All tasks of one simulated process: they are frozen, thawed and crashed together.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;

use crate::spawn::{Spawn, Spawner};

/// The tasks of one simulated process. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct ProcessTasks(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    frozen: bool,
    crashed: bool,
    /// Those of the living tasks.
    wakers: BTreeMap<u64, Waker>,
    next: u64,
}

struct Task {
    tasks: ProcessTasks,
    id: u64,
    task: Option<BoxFuture<'static, ()>>,
}

impl ProcessTasks {
    pub(crate) fn spawn(&self) -> Spawn {
        Spawn::new(self.clone())
    }

    pub(crate) fn freeze(&self) {
        self.state().frozen = true;
    }

    pub(crate) fn thaw(&self) {
        self.change(|state| state.frozen = false);
    }

    /// The process is gone: its tasks are dropped where they stand, and what they own tells no other process.
    pub(crate) fn crash(&self) {
        self.change(|state| state.crashed = true);
    }

    pub(crate) fn is_crashed(&self) -> bool {
        self.state().crashed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete before the lock is given back.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, f: impl FnOnce(&mut State)) {
        let wakers = {
            let mut state = self.state();
            f(&mut state);
            std::mem::take(&mut state.wakers)
        };
        wakers.into_values().for_each(Waker::wake);
    }
}

impl Spawner for ProcessTasks {
    #[allow(clippy::disallowed_methods, reason = "the simulation's own runtime")]
    fn spawn(&self, task: BoxFuture<'static, ()>) -> JoinHandle<()> {
        let id = {
            let mut state = self.state();
            state.next += 1;
            state.next
        };
        tokio::spawn(Task {
            tasks: self.clone(),
            id,
            task: Some(task),
        })
    }
}

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let crashed = {
            let mut state = self.tasks.state();
            if state.frozen && !state.crashed {
                state.wakers.insert(self.id, cx.waker().clone());
                return Poll::Pending;
            }
            // A task that sleeps must hear of a crash, too.
            let known = state
                .wakers
                .get(&self.id)
                .is_some_and(|w| w.will_wake(cx.waker()));
            if !known {
                state.wakers.insert(self.id, cx.waker().clone());
            }
            state.crashed
        };
        let done = match self.task.as_mut() {
            Some(task) if !crashed => task.as_mut().poll(cx),
            _ => Poll::Ready(()),
        };
        if done.is_ready() {
            self.task = None;
            self.tasks.state().wakers.remove(&self.id);
        }
        done
    }
}
