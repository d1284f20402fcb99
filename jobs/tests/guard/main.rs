//! Commands under real guard processes: what they leave behind, and when.
//!
//! `cargo test -p watchkeeper-jobs --test guard [FILTER]`. This program is its own worker, too: faults need a process
//! that can be killed and frozen.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::process::ExitCode;

use libtest_mimic::Trial;

mod ends;
mod faults;
mod scene;
mod starts;
#[path = "../shared/wait.rs"]
mod wait;
mod worker;

/// Names each case by its module, so that a filter finds it.
macro_rules! cases {
    ($($module:ident :: { $($case:ident),+ $(,)? }),+ $(,)?) => {
        vec![$($(Trial::test(
            concat!(stringify!($module), "::", stringify!($case)),
            || { $module::$case(); Ok(()) },
        )),+),+]
    };
}

fn main() -> ExitCode {
    if let Some(ended) = watchkeeper_jobs::guard::serve_if_asked() {
        return ended;
    }
    if let Some(ended) = worker::main_if_asked() {
        return ended;
    }
    let cases = cases![
        starts::{
            a_command_gets_its_arguments_environment_and_directory,
            a_cleared_environment_holds_what_is_given_only,
            a_start_that_fails_is_told_by_its_reason,
            nothing_starts_under_a_lease_that_is_over,
            input_is_empty_when_output_is_captured,
            what_a_caller_wants_ignored_stays_ignored,
        },
        ends::{
            the_status_of_a_command_is_its_own,
            a_command_that_heeds_sigterm_ends_by_itself,
            a_command_that_ignores_sigterm_is_killed_after_its_grace,
            a_handle_that_is_dropped_ends_its_command,
            what_a_command_leaves_behind_is_ended,
            what_forks_all_the_time_does_not_outrun_its_end,
            output_of_any_length_costs_bounded_memory,
            a_lease_is_held_until_nothing_is_left,
            a_command_whose_name_is_cut_within_a_letter_is_ended,
        },
        faults::{
            a_killed_workers_command_is_gone_in_time,
            a_frozen_workers_command_is_gone_in_time,
            a_killed_guard_takes_its_command_along,
            a_guard_that_fails_ends_what_it_guards_first,
            a_guard_that_fails_after_the_end_tells_how_its_command_ended,
            a_guard_that_sees_no_processes_kills_its_command_in_time,
            a_lease_is_held_while_what_is_left_cannot_be_looked_for,
            a_killed_guard_leaves_nothing_that_has_wiped_its_environment,
            a_frozen_guard_is_given_up_in_time,
            a_command_outlives_its_first_lease_while_it_is_extended,
        },
    ];
    let mut arguments = libtest_mimic::Arguments::from_args();
    // Most of the time every case waits.
    arguments.test_threads.get_or_insert(4);
    libtest_mimic::run(&arguments, cases).exit_code()
}
