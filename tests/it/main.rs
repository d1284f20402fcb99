//! What every store must do, and what the parts do together.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test may fail by panic"
)]

#[macro_use]
mod conformance;
#[cfg(feature = "sqlite")]
mod embedded;
#[cfg(feature = "sqlite")]
mod fences;
#[cfg(feature = "sqlite")]
mod holders;
mod layers;

conformance!(memory, crate::conformance::memory);
#[cfg(feature = "sqlite")]
conformance!(sqlite, crate::conformance::sqlite);
