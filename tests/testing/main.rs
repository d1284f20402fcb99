//! The testing kit, used as a user of the library does.

#![allow(
    clippy::disallowed_methods,
    reason = "a user's code has no clippy.toml of ours"
)]

mod alone;
mod failing;
mod speed;
mod stock;
