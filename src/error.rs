//! Why a worker did not start, or ended.

use std::path::PathBuf;

use crate::{config::Problems, lock::LockError};

/// Why a worker did not start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration has errors; nothing was started.
    #[error("{0}")]
    Config(Problems),
    /// The store could not be opened; nothing was started.
    #[error("cannot open the store {store}: {why}")]
    Store {
        /// Which, without credentials.
        store: String,
        /// Why, and what to do.
        why: String,
    },
    /// The status page could not be served; nothing was started.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The configured address.
        address: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A job cannot be made from its configuration; nothing was started.
    #[error("job {name}: {why}")]
    Job {
        /// The job.
        name: String,
        /// Why.
        why: String,
    },
    /// The lock service failed in a way that waiting cannot cure.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Threads or signals could not be set up.
    #[error("cannot set up the process: {0}")]
    Process(#[source] std::io::Error),
}

/// A result with [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
