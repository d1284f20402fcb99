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
    ("settings", &["base", "node"]),
    ("lease", &["base", "node"]),
    ("event", &["lease"]),
    // For the place of the effect, which may be a program without anything else of ours: a token, and texts.
    ("fence", &["node"]),
    // What is known of a lock, then what is asked of its nodes, then who asks.
    ("expiry", &["base", "node", "settings"]),
    (
        "quorum",
        &["base", "event", "expiry", "lease", "node", "settings"],
    ),
    ("admission", &["base", "node", "quorum", "settings"]),
    (
        "keeper",
        &[
            "admission",
            "base",
            "event",
            "expiry",
            "lease",
            "node",
            "quorum",
            "settings",
        ],
    ),
    // The lock service of a process: no job, no election, no configuration.
    (
        "acquire",
        &[
            "admission",
            "base",
            "event",
            "expiry",
            "keeper",
            "lease",
            "node",
            "quorum",
            "settings",
        ],
    ),
    (
        "election",
        &["acquire", "base", "expiry", "lease", "node", "quorum"],
    ),
    // The names under which programs know all this.
    (
        "lock",
        &[
            "acquire",
            "admission",
            "expiry",
            "keeper",
            "node",
            "quorum",
            "settings",
        ],
    ),
];

/// Edges against the direction, each with its reason. One that is no longer needed must go.
const EXCEPTIONS: check::Exceptions = &[];

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
