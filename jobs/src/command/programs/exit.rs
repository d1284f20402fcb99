//! Exit statuses of ours; CMD's own are passed on.

/// The usage was wrong, the store could not be reached, or the lease was lost and CMD stopped.
pub(crate) const FAILED: u8 = 125;
