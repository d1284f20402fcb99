//! When a holder is over: what this process has watched of it, and what is known of a lock.

mod sighting;
pub(crate) mod watch;

pub use sighting::Sighting;
pub(crate) use sighting::together;
