//! What the parts do together, as the programs of users put them together, and the direction of imports.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test may fail by panic"
)]

mod book;
mod examples;
mod layers;
mod page;
mod reference;
mod words;
#[cfg(feature = "sqlite")]
mod workers;
