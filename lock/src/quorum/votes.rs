//! Whether so many nodes answer, and give their votes, that anything can be decided: as far as this process knows.
//!
//! A thousand candidates that find out each by itself, again and again, that nothing can be led keep a machine busy that may be the
//! very one whose slowness is the reason. They wait for this instead.
//!
//! # Not promised  That it is so still: the nodes decide. Those that wait look from time to time all the same.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use super::tally::majority;
use crate::latest;

/// Which nodes vote, by what they have told last.
pub(crate) struct Votes {
    nodes: Mutex<Vec<bool>>,
    enough: latest::Sender<bool>,
    /// Whether any node has ever answered.
    answered: AtomicBool,
}

impl Votes {
    /// Of so many nodes: each votes until it is known not to.
    pub(crate) fn of(nodes: usize) -> Self {
        Self {
            nodes: Mutex::new(vec![true; nodes]),
            enough: latest::Sender::new(true),
            answered: AtomicBool::new(false),
        }
    }

    /// A node has answered.
    pub(super) fn answers(&self) {
        if !self.has_answered() {
            self.answered.store(true, Ordering::SeqCst);
        }
    }

    /// Whether any node has ever answered.
    pub(crate) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::SeqCst)
    }

    /// Takes note of whether a node votes. It is asked for in turn: of two threads that tell of one node the last one knows best.
    pub(super) fn set(&self, node: usize, votes: impl FnOnce() -> bool) {
        // Each change is one step.
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = nodes.get_mut(node) else {
            return;
        };
        *known = votes();
        let enough = nodes.iter().filter(|votes| **votes).count() >= majority(nodes.len());
        self.enough
            .send_if_modified(|known| std::mem::replace(known, enough) != enough);
    }

    /// Whether enough vote.
    pub(crate) fn are_enough(&self) -> bool {
        *self.enough.borrow()
    }

    /// Completes when enough vote. Cancel-safe.
    pub(crate) async fn until_enough(&self) {
        // Its sender lives as long as `self`.
        let _ = self.enough.subscribe().wait_for(|enough| *enough).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_of_the_nodes_is_enough() {
        let votes = Votes::of(3);
        assert!(votes.are_enough(), "nothing is known yet");
        votes.set(0, || false);
        assert!(votes.are_enough());
        votes.set(2, || false);
        assert!(!votes.are_enough());
        votes.set(0, || true);
        assert!(votes.are_enough());
    }
}
