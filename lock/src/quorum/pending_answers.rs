//! Answers of several nodes on their way to one sender.
//!
//! - The sender is woken when enough of them have come to decide something, and not for each.
//!   (a_sender_is_woken_when_there_are_enough_answers)
//! - What is asked is answered once, also by a link that ends.  (what_is_dropped_unanswered_has_an_answer)

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{Future, FutureExt};

use super::{
    link::{AnswerQueue, Answering, Link},
    members::Members,
};
use crate::node::{Answer, NodeError, Op, Reply};

/// Answers that are still to come from several nodes: few, so that all are looked at whenever one has answered.
#[derive(Default)]
pub(crate) struct PendingAnswers {
    queue: Arc<AnswerQueue>,
    /// Whose answers count, where they are votes.
    members: Option<Arc<Members>>,
    /// Answers that will come to the queue.
    posted: usize,
    /// Those that the sender has to look for itself.
    here: Vec<(usize, Answering)>,
    /// So many answers are waited for, or all there will be; then for each.
    wanted: usize,
}

// === impl PendingAnswers ===

impl PendingAnswers {
    /// For votes.
    pub(crate) fn of(members: Arc<Members>) -> Self {
        Self {
            members: Some(members),
            ..Self::default()
        }
    }

    /// Asks a node over this link.
    pub(crate) fn ask(&mut self, node: usize, link: &Link, ops: Vec<Op>) {
        let slot = self.queue.slot(node);
        let answering = link.ask_at(ops, slot);
        self.take_note(node, answering);
    }

    /// The same, for a sender that waits for two timeouts at most.
    pub(crate) fn ask_shortly(&mut self, node: usize, link: &Link, ops: Vec<Op>) {
        let slot = self.queue.slot(node);
        let answering = link.ask_shortly_at(ops, slot);
        self.take_note(node, answering);
    }

    fn take_note(&mut self, node: usize, answering: Option<Answering>) {
        match answering {
            Some(answering) => self.here.push((node, answering)),
            None => self.posted += 1,
        }
    }

    /// So many answers have to be there before anything can be decided.
    pub(crate) fn want(&mut self, answers: usize) {
        self.wanted = answers;
    }

    /// A node that has answered by now.
    pub(crate) fn by_now(&mut self) -> Option<(usize, Result<Vec<Answer>, NodeError>)> {
        self.wanted = 1;
        self.next().now_or_never().flatten()
    }

    /// The next node that has answered, and what; `None` when all have. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<(usize, Result<Vec<Answer>, NodeError>)> {
        let next = poll_fn(|cx| self.poll_next(cx)).await;
        let answers = |node, reply: Reply| match &self.members {
            Some(members) => members.votes_of(node, reply),
            None => reply.answers,
        };
        next.map(|(node, result)| (node, result.map(|reply| answers(node, reply))))
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<(usize, Result<Reply, NodeError>)>> {
        for i in 0..self.here.len() {
            let (node, answer) = &mut self.here[i];
            if let Poll::Ready(result) = Pin::new(answer).poll(cx) {
                let node = *node;
                drop(self.here.swap_remove(i));
                self.wanted = self.wanted.saturating_sub(1);
                return Poll::Ready(Some((node, result)));
            }
        }
        if self.posted == 0 {
            return match self.here.is_empty() {
                true => Poll::Ready(None),
                false => Poll::Pending,
            };
        }
        // A caller that looks for answers itself is woken by each of them anyway.
        let wanted = if self.here.is_empty() { self.wanted } else { 1 };
        let next = self.queue.poll(wanted.clamp(1, self.posted), cx);
        if next.is_ready() {
            self.posted -= 1;
            self.wanted = self.wanted.saturating_sub(1);
        }
        next.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        task::{Wake, Waker},
    };

    use super::{super::link::AnswerSlot, *};

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn refused() -> Result<Reply, NodeError> {
        Err(NodeError::Overload)
    }

    /// So many nodes are asked.
    fn pending(nodes: usize) -> (PendingAnswers, Vec<AnswerSlot>) {
        let mut pending = PendingAnswers::default();
        let slots = (0..nodes).map(|node| pending.queue.slot(node)).collect();
        pending.posted = nodes;
        (pending, slots)
    }

    #[test]
    fn a_sender_is_woken_when_there_are_enough_answers() {
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        let times = || woken.0.load(Ordering::SeqCst);
        let (mut pending, mut slots) = pending(5);
        pending.want(3);
        let mut next = |pending: &mut PendingAnswers| match pending.poll_next(&mut cx) {
            Poll::Ready(Some((node, _))) => Some(node),
            Poll::Ready(None) => Some(99),
            Poll::Pending => None,
        };
        assert_eq!(next(&mut pending), None);
        assert!(!slots.remove(4).answer(refused()) && !slots.remove(3).answer(refused()));
        assert_eq!(
            (next(&mut pending), times()),
            (None, 0),
            "two decide nothing"
        );
        assert!(slots.remove(2).answer(refused()));
        assert_eq!(times(), 1);
        let three = [next(&mut pending), next(&mut pending), next(&mut pending)];
        assert_eq!(three, [Some(4), Some(3), Some(2)]);
        assert_eq!(next(&mut pending), None);
        assert!(slots.remove(1).answer(refused()), "from then on each");
        assert_eq!((next(&mut pending), times()), (Some(1), 2));
        drop(slots);
        assert_eq!(
            (next(&mut pending), next(&mut pending)),
            (Some(0), Some(99))
        );
    }

    #[test]
    fn what_is_dropped_unanswered_has_an_answer() {
        let (mut pending, slots) = pending(2);
        pending.want(2);
        drop(slots);
        let mut cx = Context::from_waker(Waker::noop());
        for node in 0..2 {
            let next = pending.poll_next(&mut cx);
            assert!(matches!(next, Poll::Ready(Some((n, Err(_)))) if n == node));
        }
        assert!(matches!(pending.poll_next(&mut cx), Poll::Ready(None)));
    }
}
