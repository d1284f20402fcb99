//! Where the ledger is written: beside the job's lock, or nowhere for a job without one.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

use crate::{
    lease::LeaseView,
    ledger::{Ledger, LedgerError},
    lock::{Locks, WriteError},
};

/// The place of one job's ledger.
pub(crate) struct Pad {
    place: Option<(Locks, LeaseView)>,
    /// What stood there at first, then what was written last.
    last: Mutex<String>,
}

impl Pad {
    /// Beside the lock, under this lease; `found` is what stood there at the acquisition.
    pub(crate) fn under(locks: Locks, lease: LeaseView, found: String) -> Self {
        Self {
            place: Some((locks, lease)),
            last: Mutex::new(found),
        }
    }

    /// Nowhere: forgotten with the process.
    pub(crate) fn local() -> Self {
        Self {
            place: None,
            last: Mutex::default(),
        }
    }

    /// What the predecessors left, or this replica wrote since.
    pub(crate) fn found(&self) -> Result<Ledger, LedgerError> {
        Ledger::from_body(&self.last.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes the ledger to q nodes; they refuse while `not_before` lies in their future.
    pub(crate) async fn write(
        &self,
        ledger: &Ledger,
        not_before: Option<Timestamp>,
    ) -> Result<(), WriteError> {
        let body = ledger.to_body();
        if let Some((locks, lease)) = &self.place {
            locks.write(lease, body.clone(), not_before).await?;
        }
        self.remember(body);
        Ok(())
    }

    /// Remembers the ledger in this process: all that a job without a lock needs.
    pub(crate) fn keep(&self, ledger: &Ledger) {
        self.remember(ledger.to_body());
    }

    fn remember(&self, body: String) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = body;
    }
}
