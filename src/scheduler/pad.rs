//! Where the ledger is written: beside the job's lock, or nowhere for a job without one.

use jiff::Timestamp;

use crate::{
    lease::LeaseView,
    ledger::{Ledger, LedgerError},
    lock::{Locks, WriteError},
};

/// The place of one job's ledger.
pub(crate) struct Pad {
    place: Option<(Locks, LeaseView)>,
    found: String,
}

impl Pad {
    /// Beside the lock, under this lease; `found` is what stood there at the acquisition.
    pub(crate) fn under(locks: Locks, lease: LeaseView, found: String) -> Self {
        Self {
            place: Some((locks, lease)),
            found,
        }
    }

    /// Nowhere: forgotten with the process.
    pub(crate) fn local() -> Self {
        Self {
            place: None,
            found: String::new(),
        }
    }

    /// What the predecessors left.
    pub(crate) fn found(&self) -> Result<Ledger, LedgerError> {
        Ledger::from_body(&self.found)
    }

    /// Writes the ledger to q nodes; they refuse while `not_before` lies in their future.
    pub(crate) async fn write(
        &self,
        ledger: &Ledger,
        not_before: Option<Timestamp>,
    ) -> Result<(), WriteError> {
        match &self.place {
            Some((locks, lease)) => locks.write(lease, ledger.to_body(), not_before).await,
            None => Ok(()),
        }
    }
}
