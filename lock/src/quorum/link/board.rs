//! Where links leave answers for a sender that asks several nodes.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use crate::node::{NodeError, Reply};

/// Where links leave answers for one sender.
#[derive(Default)]
pub(crate) struct Board(Mutex<Posted>);

#[derive(Default)]
struct Posted {
    answers: VecDeque<(usize, Result<Reply, NodeError>)>,
    /// The sender is woken when there are so many.
    enough: usize,
    waker: Option<Waker>,
}

/// The place of one node's answer.
pub(crate) struct Place {
    board: Arc<Board>,
    node: usize,
    answered: bool,
}

// === impl Board ===

impl Board {
    /// A place for the answer of this node.
    pub(crate) fn place(self: &Arc<Self>, node: usize) -> Place {
        Place {
            board: self.clone(),
            node,
            answered: false,
        }
    }

    fn posted(&self) -> MutexGuard<'_, Posted> {
        // Changed by short, complete steps.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next answer, once there are enough.
    pub(crate) fn poll(
        &self,
        enough: usize,
        cx: &mut Context<'_>,
    ) -> Poll<(usize, Result<Reply, NodeError>)> {
        let mut posted = self.posted();
        if posted.answers.len() >= enough
            && let Some(answer) = posted.answers.pop_front()
        {
            posted.waker = None;
            return Poll::Ready(answer);
        }
        posted.enough = enough;
        if !posted
            .waker
            .as_ref()
            .is_some_and(|w| w.will_wake(cx.waker()))
        {
            posted.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

// === impl Place ===

impl Place {
    /// Leaves the answer; whether its sender was woken.
    pub(crate) fn answer(mut self, result: Result<Reply, NodeError>) -> bool {
        self.leave(result)
    }

    fn leave(&mut self, result: Result<Reply, NodeError>) -> bool {
        self.answered = true;
        let mut posted = self.board.posted();
        posted.answers.push_back((self.node, result));
        let enough = posted.answers.len() >= posted.enough;
        let waker = posted.waker.take_if(|_| enough);
        drop(posted);
        waker.map(Waker::wake).is_some()
    }

    /// Its sender looks for the answer itself.
    pub(crate) fn dispense(mut self) {
        self.answered = true;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.answered {
            self.leave(Err(ended()));
        }
    }
}

/// The answer when the keeper has ended and cannot give one.
pub(crate) fn ended() -> NodeError {
    NodeError::Unreachable("the keeper has ended".to_owned())
}
