//! The documents of a fleet: what its replicas tell, what people ask of them, and what became of runs.

#[cfg(any(test, feature = "cli", feature = "admin", feature = "testing"))]
#[cfg_attr(
    not(any(feature = "cli", feature = "admin")),
    allow(dead_code, reason = "tests ask for less than people do")
)]
pub(crate) mod client;
pub mod explain;
pub mod history;
pub mod holding;
pub mod intent;
pub mod status;
#[cfg_attr(
    not(any(feature = "cli", feature = "admin")),
    allow(dead_code, reason = "the dump shows less than people ask for")
)]
pub(crate) mod view;
