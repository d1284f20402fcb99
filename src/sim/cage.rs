//! Holds all tasks of one simulated replica: they can be frozen, thawed and crashed together.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;

use crate::spawn::{Spawn, Spawner};

/// The tasks of one replica.
#[derive(Clone, Default)]
pub(crate) struct Cage(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    frozen: bool,
    crashed: bool,
    wakers: Vec<Waker>,
}

struct Caged {
    cage: Cage,
    task: Option<BoxFuture<'static, ()>>,
}

impl Cage {
    pub(crate) fn spawn(&self) -> Spawn {
        Spawn::new(self.clone())
    }

    pub(crate) fn freeze(&self) {
        self.0.lock().unwrap().frozen = true;
    }

    pub(crate) fn thaw(&self) {
        self.change(|state| state.frozen = false);
    }

    /// The process is gone: its tasks are dropped where they stand, and nothing they own is told to anybody.
    pub(crate) fn crash(&self) {
        self.change(|state| state.crashed = true);
    }

    pub(crate) fn is_crashed(&self) -> bool {
        self.0.lock().unwrap().crashed
    }

    fn change(&self, f: impl FnOnce(&mut State)) {
        let wakers = {
            let mut state = self.0.lock().unwrap();
            f(&mut state);
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Spawner for Cage {
    #[allow(clippy::disallowed_methods, reason = "the simulation's own runtime")]
    fn spawn(&self, task: BoxFuture<'static, ()>) -> JoinHandle<()> {
        tokio::spawn(Caged {
            cage: self.clone(),
            task: Some(task),
        })
    }
}

impl Future for Caged {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        {
            let mut state = self.cage.0.lock().unwrap();
            if !state.crashed {
                // A task that sleeps outside must hear of the crash, too.
                state.wakers.push(cx.waker().clone());
                if state.wakers.len() > 512 {
                    state.wakers.dedup_by(|a, b| a.will_wake(b));
                }
            }
            if state.frozen && !state.crashed {
                return Poll::Pending;
            }
        }
        if self.cage.is_crashed() {
            self.task = None;
            return Poll::Ready(());
        }
        let Some(task) = self.task.as_mut() else {
            return Poll::Ready(());
        };
        let done = task.as_mut().poll(cx);
        if done.is_ready() {
            self.task = None;
        }
        done
    }
}
