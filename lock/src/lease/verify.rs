//! Asking a majority of the nodes whether a lease still stands.

use tokio::sync::oneshot;

use super::{LeaseView, Loss, Note};
use crate::node::NodeError;

/// Why a lease was not confirmed. Whatever it is: do not act.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The lease is over: it was already, its time ran out meanwhile, or a majority shows another owner.
    #[error("the lease is over: {0}")]
    Lost(Loss),
    /// Too few nodes answered, or they did not agree. The lease is as it was, and extended as before: ask again later.
    #[error("not confirmed: {confirmed} of the {needed} nodes that are needed show this lease{}", list(.failed))]
    Unsure {
        /// Nodes that show this lease.
        confirmed: usize,
        /// Nodes that would have to.
        needed: usize,
        /// Nodes that gave no answer, and why.
        failed: Vec<(String, NodeError)>,
    },
    /// The work has no lock that could be verified.
    #[error("this work has no lock that could be verified")]
    NoLock,
    /// The lock service of this process has ended.
    #[error("the lock service of this process has ended")]
    Closed,
}

fn list(failed: &[(String, NodeError)]) -> String {
    let each = failed
        .iter()
        .map(|(name, trouble)| format!("; {name}: {trouble}"));
    each.collect()
}

impl LeaseView {
    /// Asks the nodes whether this lease still stands: for the moment before something that cannot be undone. Takes one
    /// round trip, and not much longer than the node timeout; calls made at the same time share it.
    ///
    /// `Ok` means: after this call began, a majority of the configured nodes showed this lease and no other, and its
    /// deadline has not passed yet. It finds what the local clock cannot: a lease that was broken by force, nodes
    /// that forgot it, a clock of ours that stood still.
    ///
    /// It is not a promise about the time after it. What was true when the nodes answered may be old when you act: a
    /// process can be frozen in between, for longer than its lease. Only a receiver that compares fencing tokens is safe
    /// from that; this makes the gap small, a token closes it.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    /// [`VerifyError::Lost`] when the lease is over; it ends here, as [`Loss::Taken`], when a majority shows another
    /// holder. [`VerifyError::Unsure`] when too few nodes answered: the lease stays as it is, but do not act.
    pub async fn verify(&self) -> Result<(), VerifyError> {
        if let Some(loss) = self.loss() {
            return Err(VerifyError::Lost(loss));
        }
        loop {
            let (reply, answer) = oneshot::channel();
            let view = self.clone();
            self.0.keeper.send(Note::Verify { view, reply });
            answer.await.map_err(|_| VerifyError::Closed)??;
            // The answer had to come through two threads: the clock has the last word.
            if let Some(loss) = self.loss() {
                return Err(VerifyError::Lost(loss));
            }
            // Frozen in the middle: what the nodes said is from before.
            if !self.in_doubt() {
                return Ok(());
            }
        }
    }
}
