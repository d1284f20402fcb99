//! Answers of several nodes on their way to one sender.

use std::{future::poll_fn, pin::Pin, task::Poll};

use futures_util::Future;

use super::link::Answering;
use crate::node::{Answer, NodeError};

/// What was asked of several nodes: few, so that all are looked at whenever one has answered.
#[derive(Default)]
pub(crate) struct Asked(Vec<(usize, Answering)>);

// === impl Asked ===

impl Asked {
    pub(crate) fn push(&mut self, node: usize, answer: Answering) {
        self.0.push((node, answer));
    }

    /// The next node that has answered, and what; `None` when all have. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<(usize, Result<Vec<Answer>, NodeError>)> {
        poll_fn(|cx| {
            if self.0.is_empty() {
                return Poll::Ready(None);
            }
            for i in 0..self.0.len() {
                let (node, answer) = &mut self.0[i];
                if let Poll::Ready(result) = Pin::new(answer).poll(cx) {
                    let node = *node;
                    drop(self.0.swap_remove(i));
                    return Poll::Ready(Some((node, result.map(|reply| reply.answers))));
                }
            }
            Poll::Pending
        })
        .await
    }
}
