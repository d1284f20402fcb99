//! The direction of the arrows between the modules of this crate, and between its files: see `tests/it/layers.rs`.

#[path = "../../../lock/tests/it/layers/check.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared by three crates")]
mod check;

/// Module, and the modules it may use. Bottom first.
const LAYERS: check::Layers = &[
    ("demo_table", &[]),
    ("receiver", &[]),
    ("guard", &[]),
    ("web", &[]),
    ("kinds", &["guard", "web"]),
    ("command", &["demo_table", "guard", "kinds", "receiver"]),
];

/// Edges against the direction, each with its reason. One that is no longer needed must go.
const EXCEPTIONS: check::Exceptions = &[];

/// Files that lead to each other, each circle with its reason. One that is gone must go.
const CIRCLES: check::Circles = &[];

#[test]
fn modules_use_only_what_lies_below_them() {
    check::modules_use_only_what_lies_below_them(LAYERS, EXCEPTIONS);
}

#[test]
fn the_table_has_no_circles() {
    check::the_table_has_no_circles(LAYERS);
}

#[test]
fn the_table_names_every_module() {
    check::the_table_names_every_module(LAYERS);
}

#[test]
fn every_exception_is_still_needed() {
    check::every_exception_is_still_needed(EXCEPTIONS);
}

#[test]
fn files_use_each_other_in_no_circle() {
    check::files_use_each_other_in_no_circle(CIRCLES);
}
