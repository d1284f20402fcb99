//! How a lease reaches the keeper that renews it, and the keeper's sign of life.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use super::{LeaseView, ReleaseReport, Returned, VerifyError};
use crate::clock::Moment;

/// What is told to a keeper without waiting, however much it has to do: dropped values must not be lost on their way.
pub(crate) enum Note {
    /// Work ended, a cordon, a loss: judge this lease anew.
    Changed(u64),
    /// Its holder gives it back.
    Back(Returned),
    /// Its holder wants to know from a majority whether it still stands.
    Verify {
        view: LeaseView,
        reply: oneshot::Sender<Result<(), VerifyError>>,
    },
    /// A waiter has left a lock's queue.
    Leave { key: String, ticket: String },
}

/// When the keeper last looked at its leases. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pulse(Arc<AtomicU64>);

/// Releases where the holder is.
pub(crate) trait TakesBack: Send + Sync {
    /// Ends the belief, takes the lease out of the keeper's care and tells the nodes, at once; the answer is how that went.
    /// `None` where the keeper has to do it, when it is handed back; at most the belief has ended.
    fn take_back(&self, view: &LeaseView) -> Option<BoxFuture<'static, ReleaseReport>>;
}

/// Tells the keeper about a lease.
#[derive(Clone)]
pub(crate) struct KeeperHandle {
    pub(crate) to: mpsc::UnboundedSender<Note>,
    pub(crate) pulse: Pulse,
    /// A keeper that has not looked for so long is late.
    pub(crate) late_after: Duration,
    /// The keeper owns it, for as long as there is a lease.
    pub(crate) takes_back: Option<Weak<dyn TakesBack>>,
}

// === impl Pulse ===

impl Pulse {
    /// The keeper has looked.
    pub(crate) fn beat(&self, now: Moment) {
        let nanos = u64::try_from(now.since_boot().as_nanos()).unwrap_or(u64::MAX);
        self.0.store(nanos, Ordering::SeqCst);
    }

    fn last(&self) -> Moment {
        Moment::from_boot(Duration::from_nanos(self.0.load(Ordering::SeqCst)))
    }
}

// === impl KeeperHandle ===

impl KeeperHandle {
    /// A keeper that is gone needs no news.
    pub(super) fn send(&self, note: Note) {
        let _ = self.to.send(note);
    }

    /// Whether the keeper should have looked by now, and has not; it need not have before the lease was handed out.
    pub(super) fn is_late(&self, now: Moment, since: Moment) -> bool {
        now.since(self.pulse.last().max(since)) > self.late_after
    }

    #[cfg(test)]
    pub(crate) fn detached() -> Self {
        Self {
            to: mpsc::unbounded_channel().0,
            pulse: Pulse::default(),
            late_after: Duration::MAX,
            takes_back: None,
        }
    }
}

impl fmt::Debug for KeeperHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeeperHandle")
    }
}
