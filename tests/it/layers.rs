//! The direction of the arrows between modules: which module may use which.
//!
//! The table is the architecture. It is written from the bottom to the top, and a module may use only what stands above
//! its line here, so there are no circles; what breaks that rule has a reason in [`EXCEPTIONS`]. A new edge is a
//! conversation: change the table in the same commit, and say why.
//!
//! Files of one module use each other in no circle either, but for those in [`CIRCLES`].

#[path = "../../lock/tests/it/layers/check.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared by three crates")]
mod check;

/// Module, and the modules it may use, but for the crate of the locks, which all may use. Bottom first.
const LAYERS: check::Layers = &[
    ("escape", &[]),
    ("network", &[]),
    ("signals", &[]),
    ("terminal", &["escape"]),
    ("event", &[]),
    // What passes a trace on is told by runs, and sent by the telemetry.
    ("trace", &[]),
    // Ticks: values and decisions. An open run keeps what its trigger gave it.
    ("schedule", &[]),
    ("ledger", &[]),
    ("due", &["ledger", "schedule"]),
    // What a user writes.
    ("job", &["due", "schedule", "trace"]),
    // What the ledger says is to be told of a job, on its way to people: the scheduler tells it, the worker brings the receivers.
    ("notice", &["escape", "event", "job", "ledger"]),
    // The fleet's documents, and the one client of all who ask it.
    // An explanation names the rule by which a tick was skipped: hence `due`.
    ("fleet", &["due", "job", "ledger", "schedule"]),
    // One run, of a tick or of a batch; then the terms and claims under which they run.
    ("run", &["job"]),
    (
        "scheduler",
        &[
            "due", "event", "fleet", "job", "ledger", "notice", "run", "schedule", "trace",
        ],
    ),
    (
        "batch",
        &["event", "fleet", "job", "run", "schedule", "scheduler"],
    ),
    // Around the worker: they read events and status, and decide nothing.
    ("telemetry", &["event", "fleet", "job", "terminal", "trace"]),
    // The API tells of events as they happen.
    ("admin", &["event", "fleet", "network", "telemetry"]),
    // Configuration is composed of the settings of those below; only the worker and the commands read it.
    (
        "config",
        &[
            "due",
            "escape",
            "job",
            "ledger",
            "network",
            "notice",
            "schedule",
            "telemetry",
        ],
    ),
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
            "fleet",
            "job",
            "ledger",
            "notice",
            "run",
            "schedule",
            "scheduler",
            "signals",
            "telemetry",
            "trace",
        ],
    ),
    // Whole replicas in tests: the worker without its process.
    (
        "testing",
        &[
            "batch",
            "event",
            "fleet",
            "job",
            "notice",
            "run",
            "scheduler",
            "trace",
            "worker",
        ],
    ),
    (
        "cli",
        // What goes on until it is told to end listens as the worker does: hence `signals`.
        &[
            "config",
            "error",
            "fleet",
            "job",
            "ledger",
            "network",
            "schedule",
            "signals",
            "telemetry",
            "terminal",
            "worker",
        ],
    ),
];

/// Edges against the direction, each with its reason. One that is no longer needed must go.
const EXCEPTIONS: check::Exceptions = &[];

/// Files that lead to each other, each circle with its reason. One that is gone must go.
const CIRCLES: check::Circles = &[];

/// What the commands, the page, the API and the worker's own signals learn of a fleet, they ask the client for: one way to read,
/// and what is read once serves all who ask.
const INNER: check::Inner = &[
    ("fleet/view", "ask `fleet::Fleet`"),
    ("fleet/explain", "ask `fleet::Fleet`"),
];

#[test]
fn the_fleet_is_read_by_its_client_alone() {
    check::what_is_inner_is_used_by_its_module_alone(INNER);
}

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
