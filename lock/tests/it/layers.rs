//! The direction of the arrows between modules: which module may use which.
//!
//! The table is the architecture. It is written from the bottom to the top, and a module may use only what stands above
//! its line here, so there are no circles; what breaks that rule has a reason in [`EXCEPTIONS`]. A new edge is a
//! conversation: change the table in the same commit, and say why.
//!
//! Files of one module use each other in no circle either, but for those in [`CIRCLES`].

#[allow(dead_code, unreachable_pub, reason = "shared by three crates")]
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
    // The one way in which programs open a store.
    ("open", &["acquire", "base", "node", "settings"]),
    (
        "election",
        &["acquire", "base", "expiry", "lease", "node", "quorum"],
    ),
    (
        "once",
        &[
            "acquire",
            "admission",
            "base",
            "expiry",
            "lease",
            "node",
            "quorum",
        ],
    ),
    // For those who write a node.
    ("conformance", &["base", "node"]),
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

/// Files that lead to each other, each circle with its reason. One that is gone must go.
const CIRCLES: check::Circles = &[
    (
        &[
            "acquire/builder.rs",
            "acquire/mod.rs",
            "acquire/rate.rs",
            "acquire/slots.rs",
            "acquire/start.rs",
            "acquire/wait_queue.rs",
        ],
        "the handle of the lock service makes the builders, which acquire through it",
    ),
    (
        &["lease/held.rs", "lease/shared.rs"],
        "a lease is shared by a method of its own, and what shares it holds it",
    ),
    (
        &["lease/keeper_handle.rs", "lease/mod.rs", "lease/verify.rs"],
        "a lease speaks to its keeper through the handle, which carries its views and its verification",
    ),
    (
        &[
            "node/error.rs",
            "node/expiry.rs",
            "node/guard.rs",
            "node/mod.rs",
            "node/op.rs",
        ],
        "the trait of a node and the values of its calls are one vocabulary",
    ),
    (
        &["node/memory/faults.rs", "node/memory/mod.rs"],
        "a faulty link carries calls to the node that keeps the faults of all its links",
    ),
    (
        &["node/redis/link.rs", "node/redis/link/sent.rs"],
        "a link sends a request, which takes the link's connection out of service when no answer comes",
    ),
    (
        &["node/redis/mod.rs", "node/redis/tls.rs"],
        "the node names its files of TLS, and has them read",
    ),
    (
        &[
            "node/rules/gate.rs",
            "node/rules/mod.rs",
            "node/rules/turn.rs",
            "node/rules/wait_queue.rs",
        ],
        "gate and queue decide by the rows, of which they are a part, in the turn of a call that the rows' module begins",
    ),
    (
        &[
            "quorum/link.rs",
            "quorum/link/alone.rs",
            "quorum/link/caller_links.rs",
        ],
        "a call that its sender carries is made over the link, and the links of callers wait for each other's senders",
    ),
    (
        &[
            "settings/etcd.rs",
            "settings/fleet.rs",
            "settings/mod.rs",
            "settings/redis_nodes.rs",
            "settings/timing.rs",
            "settings/tls.rs",
        ],
        "the settings are one struct, checked and read part by part",
    ),
];

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

#[test]
fn a_circle_is_found_wherever_it_hides() {
    check::a_circle_is_found_wherever_it_hides();
}
