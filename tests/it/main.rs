//! What every store must do, and what the parts do together.

#[macro_use]
mod conformance;

conformance!(memory, crate::conformance::memory);
#[cfg(feature = "sqlite")]
conformance!(sqlite, crate::conformance::sqlite);
