//! Job authors meet two failures only: worth retrying, or not.

use std::{error::Error, fmt};

/// Why a run failed. Made from any error by `?` (worth retrying) or by [`JobError::fatal`] (not).
pub struct JobError {
    kind: FailureKind,
    source: Box<dyn Error + Send + Sync>,
}

/// Whether another attempt makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Worth retrying, as the job's `retry` says.
    Retry,
    /// Another attempt would fail the same way.
    Fatal,
}

impl JobError {
    /// A failure that another attempt would meet again.
    pub fn fatal(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            kind: FailureKind::Fatal,
            source: cause.into(),
        }
    }

    /// A failure worth retrying, the same as `?` makes.
    pub fn retry(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            kind: FailureKind::Retry,
            source: cause.into(),
        }
    }

    /// Whether another attempt makes sense.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.kind
    }
}

// `JobError` is not itself an `Error`: that is what lets `?` take every error.
impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for JobError {
    fn from(cause: E) -> Self {
        Self::retry(cause)
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source)?;
        let mut cause = self.source.source();
        while let Some(inner) = cause {
            write!(f, ": {inner}")?;
            cause = inner.source();
        }
        Ok(())
    }
}

impl fmt::Debug for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind)
    }
}
