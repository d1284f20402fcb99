//! The testing kit, used as a user of the library does.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a user's code has no clippy.toml of ours"
)]

mod alone;
mod batches;
mod failing;
mod readme;
mod speed;
mod stock;

#[test]
fn the_chapter_of_the_readme_is_what_runs_here() {
    let (_, code) = include_str!("readme.rs").split_once("\n\n").unwrap();
    let readme = include_str!("../../README.md");
    assert!(
        readme.contains(code),
        "copy tests/testing/readme.rs into the README"
    );
}
