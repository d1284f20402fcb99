//! The testing kit, used as a user of the library does.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a user's code has no clippy.toml of ours"
)]

mod alone;
mod batches;
#[cfg(feature = "sqlite")]
mod customers;
mod failing;
mod guide;
mod shards;
mod speed;
mod stock;

#[test]
fn the_guide_shows_what_runs_here() {
    let (_, code) = include_str!("guide.rs").split_once("\n\n").unwrap();
    let guide = include_str!("../../docs/guides/testing.md");
    assert!(
        guide.contains(code),
        "copy tests/testing/guide.rs into docs/guides/testing.md"
    );
}
