//! One term of a job, or the time in which a job without a lock may run: what its steps know, and may do.

use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::{engine::Engine, ledger_store::LedgerStore, rest::LOOK_AGAIN};
use crate::{
    clock::Clock,
    lease::{LeaseView, Loss},
    ledger::Ledger,
    lock::WriteError,
    node::Token,
    run::Pass,
};

/// One term.
pub(super) struct TermLoop<'a> {
    pub(super) engine: &'a Engine,
    pub(super) store: &'a LedgerStore,
    /// None for a job that runs everywhere.
    pub(super) lease: Option<LeaseView>,
    pub(super) pass: &'a Pass,
    /// Whether the term ends with its work: when nothing of the job is open and no retry is near.
    pub(super) brief: bool,
    /// Whether nothing was written under its lease yet; else it goes on under another definition.
    pub(super) is_first: bool,
    /// Cancelled when a replica that leads without a lock is not fit to go on; a lock's keeper says so by its lease.
    pub(super) unfit: Option<CancellationToken>,
}

/// The term is over, or nothing more can be done in it.
pub(super) struct Over;

/// Why a term was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TermEnd {
    /// Its lease says why, or it was handed over.
    Over,
    /// It has lasted long enough, and another candidate stands by.
    MaxTerm,
    /// An operator or a peer asked for it.
    Resigned,
    /// There is a new definition of the job, and nothing of it runs.
    Changed,
    /// Another replica has a newer definition of the job, and nothing of it runs here.
    Outdated,
    /// There is nothing to do before the next tick.
    Idle,
    /// Its ledger cannot be read here: a program of a later version has written it.
    Unread,
}

impl TermLoop<'_> {
    /// Writes the ledger, as long as there is time for it: a store that does not answer must not keep the active replica
    /// from standing down before its own lease ends.
    pub(super) async fn write(
        &self,
        ledger: &Ledger,
        not_before: Option<Timestamp>,
    ) -> Result<(), WriteError> {
        tokio::select! {
            biased;
            written = self.store.write(ledger, not_before) => written,
            () = self.out_of_time() => Err(WriteError::Lost(Loss::Expired)),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        !self.pass.is_over()
            && !self.is_unfit()
            && self.lease.as_ref().is_none_or(LeaseView::is_open)
    }

    pub(super) fn is_unfit(&self) -> bool {
        let unfit = self.unfit.as_ref();
        unfit.is_some_and(CancellationToken::is_cancelled)
    }

    pub(super) async fn unfit(&self) {
        match &self.unfit {
            // Boxed: a term under a lock has no room for it.
            Some(unfit) => Box::pin(unfit.cancelled()).await,
            None => std::future::pending().await,
        }
    }

    pub(super) async fn sleep_until(&self, wake: Option<Timestamp>) {
        let left = wake.map(|at| Duration::try_from(at.duration_since(self.wall())));
        let pause = match left {
            // A timer ends on a whole millisecond after its time: never look before the tick.
            Some(left) => left.unwrap_or_default().min(LOOK_AGAIN),
            None => LOOK_AGAIN,
        };
        self.clock().sleep(pause).await;
    }

    pub(super) fn token(&self) -> Token {
        self.lease.as_ref().map_or(Token(0), LeaseView::token)
    }

    /// What time it is for ticks: by the nodes' clocks, so that it is the same wherever the job is led.
    pub(super) fn wall(&self) -> Timestamp {
        self.engine.ctx.locks.wall()
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.engine.ctx.clock
    }

    /// Whether this process was frozen, and its leases are not confirmed yet.
    pub(super) fn in_doubt(&self) -> bool {
        let leases = self.lease.iter().chain(self.pass.lease());
        leases.into_iter().any(LeaseView::in_doubt)
    }

    pub(super) async fn closing(&self) {
        let lease = async {
            match &self.lease {
                Some(lease) => drop(lease.closing().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.pass.over() => {}
            () = self.unfit() => {}
            () = lease => {}
        }
    }

    async fn out_of_time(&self) {
        let Some(replica) = self.pass.lease() else {
            return std::future::pending().await;
        };
        let timing = self.engine.ctx.locks.timing();
        let abort_margin = timing.abort_margin(replica.ttl());
        // What comes after: the release of the term, which waits for its nodes.
        let margin = abort_margin + abort_margin / 2 + timing.node_timeout * 2;
        loop {
            // Extensions move it on.
            let at = replica.deadline().back(margin);
            if self.clock().now() >= at {
                return;
            }
            self.clock().sleep_until(at).await;
        }
    }
}
