//! Where links leave answers for a sender that asks several nodes.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use crate::node::{NodeError, Reply};

/// Where links leave answers for one sender.
#[derive(Default)]
pub(crate) struct AnswerQueue(Mutex<Answers>);

#[derive(Default)]
struct Answers {
    answers: VecDeque<(usize, Result<Reply, NodeError>)>,
    /// The sender is woken when there are so many.
    enough: usize,
    waker: Option<Waker>,
}

/// The slot of one node's answer.
pub(crate) struct AnswerSlot {
    queue: Arc<AnswerQueue>,
    node: usize,
    answered: bool,
}

// === impl AnswerQueue ===

impl AnswerQueue {
    /// A slot for the answer of this node.
    pub(crate) fn slot(self: &Arc<Self>, node: usize) -> AnswerSlot {
        AnswerSlot {
            queue: self.clone(),
            node,
            answered: false,
        }
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        // Changed by short, complete steps.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next answer, once there are enough.
    pub(crate) fn poll(
        &self,
        enough: usize,
        cx: &mut Context<'_>,
    ) -> Poll<(usize, Result<Reply, NodeError>)> {
        let mut arrived = self.answers();
        if arrived.answers.len() >= enough
            && let Some(answer) = arrived.answers.pop_front()
        {
            arrived.waker = None;
            return Poll::Ready(answer);
        }
        arrived.enough = enough;
        if !arrived
            .waker
            .as_ref()
            .is_some_and(|w| w.will_wake(cx.waker()))
        {
            arrived.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

// === impl AnswerSlot ===

impl AnswerSlot {
    /// Leaves the answer; whether its sender was woken.
    pub(crate) fn answer(mut self, result: Result<Reply, NodeError>) -> bool {
        self.leave(result)
    }

    fn leave(&mut self, result: Result<Reply, NodeError>) -> bool {
        self.answered = true;
        let mut arrived = self.queue.answers();
        arrived.answers.push_back((self.node, result));
        let enough = arrived.answers.len() >= arrived.enough;
        let waker = arrived.waker.take_if(|_| enough);
        drop(arrived);
        waker.map(Waker::wake).is_some()
    }

    /// Its sender looks for the answer itself.
    pub(crate) fn dispense(mut self) {
        self.answered = true;
    }
}

impl Drop for AnswerSlot {
    fn drop(&mut self) {
        if !self.answered {
            self.leave(Err(lost()));
        }
    }
}

/// The answer when the task that carried a call is gone, and with it what has become of the call.
pub(crate) fn lost() -> NodeError {
    NodeError::Timeout(std::time::Duration::ZERO)
}

/// The answer when the keeper has ended and nothing leaves any more.
pub(crate) fn ended() -> NodeError {
    NodeError::Unreachable("the keeper has ended".to_owned())
}
