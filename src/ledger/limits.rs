//! Versions of a ledger, how much it holds, and how long it is kept.

use std::time::Duration;

/// For how long at least the record of a released lock is kept that holds a ledger: long enough for a yearly job. A fleet
/// that was stopped for longer than other records are kept would see its jobs for the first time, and never hear of the
/// ticks in between.
pub(crate) const KEPT_LONGER: &[(&str, Duration)] =
    &[("job/", Duration::from_secs(400 * 24 * 3600))];
/// The version this program writes.
pub(crate) const VERSION: u32 = 1;
/// The version it writes as long as there is something in [`Ledger::ran_ahead`], which older programs would run again.
pub(crate) const WITH_SPANS: u32 = 2;
/// Open runs a ledger takes.
pub(crate) const MAX_OPEN: usize = 16;
/// Waiting ticks a ledger takes, and as many queued ones.
pub(crate) const MAX_WAITING: usize = 100;
/// Triggers a ledger remembers.
pub(crate) const MAX_RECENT: usize = 64;
/// Withdrawn triggers a ledger remembers.
pub(crate) const MAX_WITHDRAWN: usize = 200;
/// Rows of ticks that were skipped a ledger remembers.
pub(crate) const MAX_SKIPPED: usize = 16;
/// Bytes of a checkpoint as JSON.
pub(crate) const MAX_CHECKPOINT: usize = 16 * 1024;
