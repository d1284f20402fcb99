//! Where the ledger is written: beside the job's lock, or nowhere for a job without one.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;

use super::{Context, Recall};
use crate::{
    lease::LeaseView,
    ledger::{Ledger, LedgerError},
    lock::{Locks, WriteError},
};

/// The place of one job's ledger.
pub(crate) struct LedgerStore {
    place: Option<BesideLock>,
    /// What stood there at first, then what was written last.
    last: Mutex<Arc<str>>,
}

/// Beside the job's lock.
struct BesideLock {
    locks: Locks,
    lease: LeaseView,
    job: String,
    /// Told of all that is written.
    recall: Recall,
}

impl LedgerStore {
    /// Beside the lock, under this lease; `found` is what stood there at the acquisition.
    pub(crate) fn under(ctx: &Context, job: &str, lease: LeaseView, found: &str) -> Self {
        Self {
            place: Some(BesideLock {
                locks: ctx.locks.clone(),
                lease,
                job: job.to_owned(),
                recall: ctx.recall.clone(),
            }),
            last: Mutex::new(found.into()),
        }
    }

    /// Nowhere: forgotten with the process.
    pub(crate) fn local() -> Self {
        Self {
            place: None,
            last: Mutex::new("".into()),
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
        let last: Arc<str> = body.as_str().into();
        if let Some(place) = &self.place {
            let BesideLock {
                locks,
                lease,
                job,
                recall,
            } = place;
            locks.write(lease, body, not_before).await?;
            if ledger.decided_upto().is_some() {
                recall.wrote(job, lease.token(), last.clone());
            }
        }
        self.remember(last);
        Ok(())
    }

    /// Remembers the ledger in this process: all that a job without a lock needs.
    pub(crate) fn keep(&self, ledger: &Ledger) {
        self.remember(ledger.to_body().into());
    }

    fn remember(&self, body: Arc<str>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = body;
    }
}
