//! Whether this replica's jobs may be candidates: the drain, and in failover mode the replica lock.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{
    latest,
    lease::{LeaseView, Work},
};

/// The gate in front of all jobs of a replica. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    state: Arc<latest::Sender<State>>,
    drain: CancellationToken,
    /// The same of the whole worker, in the gate of one job.
    worker: CancellationToken,
}

#[derive(Clone, Debug)]
enum State {
    /// Every job may pass: shared mode.
    Open,
    /// This replica holds the replica lock.
    Held(LeaseView),
    /// Another replica does, or none.
    Closed,
}

/// Leave to be a candidate. While it lives the replica lock is not handed over.
#[derive(Debug)]
pub(crate) struct Pass {
    gate: Gate,
    lease: Option<LeaseView>,
    _work: Option<Work>,
}

impl Gate {
    /// A gate that is always open.
    pub(crate) fn open() -> Self {
        Self::new(State::Open)
    }

    /// A gate that only the holder of the replica lock may pass.
    pub(crate) fn failover() -> Self {
        Self::new(State::Closed)
    }

    fn new(state: State) -> Self {
        let drain = CancellationToken::new();
        Self {
            state: Arc::new(latest::Sender::new(state)),
            worker: drain.clone(),
            drain,
        }
    }

    /// The gate of one job: its drain is over when the worker drains, and may be before.
    pub(crate) fn of_job(&self) -> Self {
        Self {
            state: self.state.clone(),
            drain: self.drain.child_token(),
            worker: self.worker.clone(),
        }
    }

    /// The token that is cancelled when the worker drains.
    pub(crate) fn drain(&self) -> &CancellationToken {
        &self.drain
    }

    pub(crate) fn hold(&self, lease: LeaseView) {
        self.state.send_replace(State::Held(lease));
    }

    pub(crate) fn close(&self) {
        self.state.send_replace(State::Closed);
    }

    /// Whether this replica holds the replica lock, and lets its jobs pass.
    pub(crate) fn is_held(&self) -> bool {
        matches!(&*self.state.borrow(), State::Held(lease) if lease.is_held())
    }

    /// Waits until this replica may be a candidate; `None` once it drains.
    pub(crate) async fn pass(&self) -> Option<Pass> {
        let mut news = self.state.subscribe();
        loop {
            if self.drain.is_cancelled() {
                return None;
            }
            let state = news.borrow_and_update().clone();
            let lease = match state {
                State::Open => Some(None),
                State::Held(lease) if lease.is_open() => Some(Some(lease)),
                State::Held(_) | State::Closed => None,
            };
            if let Some(lease) = lease {
                let work = lease.as_ref().map(LeaseView::begin_work);
                return Some(Pass {
                    gate: self.clone(),
                    lease,
                    _work: work,
                });
            }
            tokio::select! {
                biased;
                () = self.drain.cancelled() => return None,
                changed = news.changed() => if changed.is_err() { return None },
            }
        }
    }
}

impl Pass {
    /// Whether nothing new may start: the worker drains, or the replica lock is about to go.
    pub(crate) fn is_over(&self) -> bool {
        self.gate.drain.is_cancelled() || self.is_lost()
    }

    /// Whether the replica lock is about to go, so that not even what was decided before may start. A drain alone is
    /// no reason: it waits for that.
    pub(crate) fn is_lost(&self) -> bool {
        self.lease.as_ref().is_some_and(|l| !l.is_open())
    }

    /// Waits until nothing new may start.
    pub(crate) async fn over(&self) {
        tokio::select! {
            biased;
            () = self.gate.drain.cancelled() => {}
            () = self.lost() => {}
        }
    }

    /// Waits until not even what was begun may go on: the replica lock is about to go. A drain alone lets it.
    pub(crate) async fn lost(&self) {
        match &self.lease {
            // Boxed: only a failover replica has room for it in each of its jobs.
            Some(lease) => drop(Box::pin(lease.closing()).await),
            None => std::future::pending().await,
        }
    }

    /// The replica lock's lease, in failover mode.
    pub(crate) fn lease(&self) -> Option<&LeaseView> {
        self.lease.as_ref()
    }

    /// Why what runs is told to stop while the gate drains.
    pub(crate) fn why_draining(&self) -> &'static str {
        match self.gate.worker.is_cancelled() {
            true => "the worker drains",
            false => "a reload has ended or changed the job",
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.gate.drain.is_cancelled()
    }
}
