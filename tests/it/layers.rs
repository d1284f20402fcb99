//! The direction of the arrows between modules: which module may use which.
//!
//! The table is the architecture. It is written from the bottom to the top, and a module may use only what stands above
//! its line here, so there are no circles; what breaks that rule has a reason in [`EXCEPTIONS`]. A new edge is a
//! conversation: change the table in the same commit, and say why.

#[path = "../../lock/tests/it/layers/check.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared by two crates")]
mod check;

/// Module, and the modules it may use, but for the crate of the locks, which all may use. Bottom first.
const LAYERS: check::Layers = &[
    ("escape", &[]),
    ("network", &[]),
    ("signals", &[]),
    ("terminal", &["escape"]),
    ("event", &[]),
    // Ticks: pure decisions.
    ("schedule", &[]),
    // What people ask of a fleet: values and documents.
    ("intent", &[]),
    // An open run keeps what its trigger gave it.
    ("ledger", &["intent"]),
    ("due", &["intent", "ledger", "schedule"]),
    // What a user writes, and what every surface shows.
    ("job", &["due", "schedule"]),
    ("status", &["ledger"]),
    ("explain", &["intent", "ledger", "schedule", "status"]),
    // Runs of jobs under a term, and batches under claims.
    (
        "scheduler",
        &[
            "due", "event", "intent", "job", "ledger", "schedule", "status",
        ],
    ),
    (
        "batch",
        &["event", "job", "schedule", "scheduler", "status"],
    ),
    // Around the worker: they read events and status, and decide nothing.
    ("telemetry", &["event", "status", "terminal"]),
    // Orders over HTTP carry what a trigger gives its run.
    ("admin", &["intent", "network", "status", "telemetry"]),
    // Configuration is composed of the settings of those below; only the two above it read it.
    ("config", &["due", "job", "ledger", "network", "schedule"]),
    ("error", &["config", "escape"]),
    (
        "worker",
        &[
            "admin",
            "batch",
            "config",
            "due",
            "error",
            "event",
            "intent",
            "job",
            "ledger",
            "schedule",
            "scheduler",
            "signals",
            "status",
            "telemetry",
        ],
    ),
    // Whole replicas in tests: the worker without its process.
    (
        "testing",
        &[
            "batch",
            "event",
            "intent",
            "job",
            "scheduler",
            "status",
            "worker",
        ],
    ),
    (
        "cli",
        &[
            "config",
            "error",
            "explain",
            "intent",
            "ledger",
            "schedule",
            "status",
            "telemetry",
            "terminal",
            "worker",
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
