//! Locks and fences on a real PostgreSQL server. Costs about half a minute.
//!
//! `cargo test --test postgres [FILTER]`. Without the server's programs every case is ignored and says why;
//! `WATCHKEEPER_REQUIRE=postgres` makes that a failure. As root the server runs as the user postgres, or nobody.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod bank;
mod calls;
mod failover;
mod fences;
mod node;
#[path = "../../src/base/paper.rs"]
mod paper;
mod pooler;
mod proxy;
mod refusals;
mod server;
mod swapped;

/// The suites of every store lie with those that need no server.
#[macro_use]
#[path = "../it"]
#[allow(
    dead_code,
    unused_macros,
    unreachable_pub,
    reason = "other stores use the rest"
)]
mod it {
    pub use watchkeeper_lock::conformance;

    pub mod holders;
    #[macro_use]
    pub mod locks;
}
use it::{conformance, holders};
/// As it is called where it is shared.
use server as postgres;
use watchkeeper_lock::every_case;

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

/// As the common suite calls it.
macro_rules! case {
    ($group:ident, $case:ident) => {
        concat!(stringify!($group), "::", stringify!($case))
    };
}

/// Every case of the common suite, in a namespace of its own.
macro_rules! common_cases {
    ($server:ident: $($group:ident: [$($case:ident,)*],)*) => {
        vec![$($(server::trial(
            concat!("conformance::", stringify!($group), "::", stringify!($case)),
            &$server,
            |server| node::run(conformance::play(case!($group, $case), node::lab(server))),
        ),)*)*]
    };
}

/// Every case of the suite of locks that needs no faults.
macro_rules! lock_cases {
    ($server:ident, $expiry:ident:
        every: [$($module:ident::$case:ident,)*], faulty: [$($bad_module:ident::$bad:ident,)*],) => {
        vec![$(server::trial(
            concat!("locks::", stringify!($expiry), "::", stringify!($module), "::", stringify!($case)),
            &$server,
            |server| {
                let scene = node::scene(server, watchkeeper_lock::node::Expiry::$expiry);
                node::run(it::locks::$module::$case(scene));
            },
        ),)*]
    };
}

/// The suites behind a pooler that gives each transaction another connection.
macro_rules! pooled_cases {
    ($server:ident: $($group:ident: [$($case:ident,)*],)*) => {
        vec![$($({
            let server = $server.clone();
            pooler::trial(
                concat!("pooled::", stringify!($group), "::", stringify!($case)),
                move || node::run(conformance::play(case!($group, $case), node::pooled_lab(server.get()))),
            )
        },)*)*]
    };
    ($server:ident:
        every: [$($module:ident::$case:ident,)*], faulty: [$($bad_module:ident::$bad:ident,)*],) => {
        vec![$({
            let server = $server.clone();
            pooler::trial(
                concat!("pooled::locks::", stringify!($module), "::", stringify!($case)),
                move || node::run(it::locks::$module::$case(node::pooled_scene(server.get()))),
            )
        },)*]
    };
}

/// Cases with servers of their own.
macro_rules! own_cases {
    ($server:ident: $($case:ident),+ $(,)?) => {
        vec![$(server::trial(
            concat!("node::", stringify!($case)),
            &$server,
            node::$case,
        )),+]
    };
}

fn main() {
    let arguments = libtest_mimic::Arguments::from_args();
    let server = server::Shared::with(&node::DURABLE);
    let mut cases = own_cases![server:
        every_rule_of_admission,
        other_clients_hear_of_a_release,
        a_listener_that_begins_late_says_so,
        a_user_without_rights_is_told_what_makes_the_tables,
        a_server_that_forgets_in_a_power_cut_is_refused,
        what_is_granted_waits_for_the_disk_whatever_the_database_is_set_to,
        the_view_says_until_when_a_lease_lasts,
        a_damaged_row_costs_its_lock_alone,
        a_name_that_is_too_long_costs_itself_alone,
    ];
    cases.extend(cases![server: failover::{
        no_two_hold_a_lock_while_the_server_is_killed,
        a_server_that_was_killed_votes_at_once_with_all_it_knew,
        a_promoted_standby_does_not_vote,
        a_lease_lost_by_a_promotion_is_granted_again_when_the_longest_is_over,
        an_old_primary_that_starts_again_is_not_used,
        an_old_primary_that_lives_on_is_left_before_its_successor_grants,
        a_process_that_was_stopped_meanwhile_leaves_an_old_primary_at_once,
        a_server_that_refuses_may_be_the_successor,
        a_standby_is_refused,
        of_several_servers_the_primary_is_shown,
        a_database_that_takes_no_writes_is_refused_until_it_does,
        a_server_that_is_set_read_only_takes_no_writes_of_living_connections,
        a_copy_from_before_is_noticed,
        connections_beside_each_other_see_no_copy_from_before,
        a_release_is_heard_where_a_standby_is_named_first,
        tables_that_were_made_again_do_not_vote,
    }]);
    cases.extend(cases![server: calls::{
        a_client_that_freezes_between_its_flights_delays_others_for_a_while_only,
        an_extension_takes_two_ways_there_and_back_and_a_cycle_four,
        ten_cycles_of_a_lock_take_forty_one_ways_at_most,
        an_extension_of_a_row_that_has_gone_meanwhile_is_not_told_as_done,
        an_extension_leaves_a_row_alone_that_was_changed_meanwhile,
        a_call_carries_more_extensions_than_anything_else,
        pages_and_extensions_read_no_more_than_themselves,
    }]);
    cases.extend(cases![server: swapped::{
        a_pooler_that_was_not_noticed_is_noticed_before_anything_is_written,
    }]);
    cases.extend(cases![server: refusals::{
        an_old_server_is_refused_by_its_version,
        a_row_that_is_left_out_grants_nothing,
        tables_of_another_layout_are_refused_and_left_alone,
        a_full_database_grants_nothing_and_votes_when_there_is_room,
        a_refused_connection_is_not_tried_again_with_each_call,
        a_certificate_that_is_not_trusted_is_refused_with_the_remedy,
        a_wrong_password_to_listen_with_is_told_once,
    }]);
    cases.extend(every_case!(common_cases server));
    cases.extend(every_lock_case!(lock_cases server, Server));
    cases.extend(every_lock_case!(lock_cases server, Observed));
    cases.extend(every_case!(pooled_cases server));
    cases.extend(every_lock_case!(pooled_cases server));
    let of_pooler = server.clone();
    cases.push(pooler::trial(
        "pooled::nothing_is_heard_behind_a_pooler_and_so_it_is_asked",
        move || node::nothing_is_heard_behind_a_pooler_and_so_it_is_asked(of_pooler.get()),
    ));
    cases.push(pooler::trial(
        "pooled::behind_a_pooler_it_waits_for_the_disk_too",
        node::behind_a_pooler_it_waits_for_the_disk_too,
    ));
    cases.extend(cases![server:
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
    ]);
    let conclusion = libtest_mimic::run(&arguments, cases);
    // The last handle: leaving the process by `exit` would leave the server behind.
    drop(server);
    conclusion.exit();
}
