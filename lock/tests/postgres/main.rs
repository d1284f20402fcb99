//! Fences on a real PostgreSQL server. Costs about five seconds.
//!
//! `cargo test --test postgres [FILTER]`. Without the server's programs every case is ignored and says why;
//! `WATCHKEEPER_REQUIRE=postgres` makes that a failure. As root the server runs as the user postgres, or nobody.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod bank;
mod fences;
mod server;

/// Shared with the suites of other stores.
#[path = "../it/holders.rs"]
mod holders;

/// Names each case by its path, so that a filter finds it.
macro_rules! cases {
    ($server:ident: $($module:ident :: { $($case:ident),+ $(,)? }),+ $(,)?) => {
        vec![$($(server::trial(
            concat!(stringify!($module), "::", stringify!($case)),
            &$server,
            $module::$case,
        )),+),+]
    };
}

fn main() {
    let arguments = libtest_mimic::Arguments::from_args();
    let server = server::Shared::default();
    let cases = cases![server:
        fences::{
            a_stale_holder_is_refused,
            a_holder_that_was_stale_by_its_release_is_refused,
            a_stale_holder_is_refused_by_the_column,
            a_stale_holder_is_refused_by_the_column_of_a_new_row,
            without_the_fence_the_stale_write_goes_through,
            a_stale_holder_waits_for_its_successor_and_is_refused,
            a_successor_waits_for_the_open_transaction_and_comes_last,
            a_successor_that_gives_up_leaves_no_trace,
            writers_of_one_row_are_compared_with_what_the_other_left,
            under_stricter_isolation_a_conflict_is_an_error_and_then_a_refusal,
            under_stricter_isolation_the_present_holder_passes_at_its_next_attempt,
            a_session_that_the_server_ends_lets_its_successor_in,
            a_job_without_a_lock_is_refused_here_and_by_the_table,
            resources_are_fenced_apart,
        },
    ];
    let conclusion = libtest_mimic::run(&arguments, cases);
    // The last handle: leaving the process by `exit` would leave the server behind.
    drop(server);
    conclusion.exit();
}
