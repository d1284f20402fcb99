//! How a job is scheduled and coordinated.

/// Schedule, coordination and limits of one job.
#[derive(Clone, Debug, Default)]
pub struct Spec {}
