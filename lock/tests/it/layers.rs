//! The direction of the arrows between modules: which module may use which.
//!
//! The table is the architecture. It is written from the bottom to the top, and a module may use only what stands above
//! its line here, so there are no circles; what breaks that rule has a reason in [`EXCEPTIONS`]. A new edge is a
//! conversation: change the table in the same commit, and say why.

#[allow(unreachable_pub, reason = "shared by two crates")]
mod check;

/// Module, and the modules it may use. Bottom first.
const LAYERS: check::Layers = &[
    // Handles and plain values.
    ("base", &[]),
    // One lock server, and what is held on a majority of them.
    // Random pauses between attempts to connect, lest a fleet comes at one instant.
    // A store in a file asks whose file it is.
    ("node", &["base"]),
    ("lease", &["base", "node"]),
    ("term", &["lease", "node"]),
    ("event", &["lease", "node"]),
    // For the place of the effect, which may be a program without anything else of ours: a token, and texts.
    ("fence", &["node"]),
    // The lock service of a process: no job, no election, no configuration.
    ("lock", &["base", "event", "lease", "node"]),
    ("keeper", &["base", "event", "lease", "lock", "node"]),
    ("election", &["base", "lock", "node", "term"]),
];

/// Edges against the direction, each with its reason. One that is no longer needed must go.
const EXCEPTIONS: check::Exceptions = &[(
    "lock",
    "keeper",
    "the handle of a process starts the keeper that it talks to",
)];

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
fn paths_are_found_in_nested_uses_and_outside_them() {
    let text = "use crate::{\n    a::b,\n    c::{d, e},\n    f,\n};\n\
                // crate::comment\n\
                fn g() { crate::h::i(); $crate::j::k(); }\n\
                #[cfg(test)]\nmod tests {\n    use crate::l;\n}\n";
    assert_eq!(check::targets(text), ["a", "c", "f", "h"]);
}
