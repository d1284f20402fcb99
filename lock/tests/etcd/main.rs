//! Locks in real etcd servers, of one member and of three. Costs about a minute and a half, most of it spent waiting, in four
//! threads on two cores.
//!
//! `cargo test --test etcd [FILTER]`. Without the programs of etcd every case is ignored and says why;
//! `WATCHKEEPER_REQUIRE=etcd` makes that a failure. The servers listen on addresses of their own in 127.0.0.0/8, and are as
//! quick as the disk on which the folder for temporary files lies.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod access;
mod cleaning;
mod cluster;
mod crowd;
mod large;
mod members;
mod memory;
mod node;
#[path = "../../src/base/paper.rs"]
mod paper;
mod papers;
mod proxy;
mod scene;
mod server;
mod turns;

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

    #[macro_use]
    pub mod locks;
}
use it::conformance;
/// As it is called where it is shared.
use server as etcd_server;
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

/// Cases with servers of their own.
macro_rules! own_cases {
    ($($module:ident :: { $($case:ident),+ $(,)? }),+ $(,)?) => {
        vec![$($(server::trial_of_its_own(
            concat!(stringify!($module), "::", stringify!($case)),
            $module::$case,
        )),+),+]
    };
}

/// Every case of the common suite, in a namespace of its own.
macro_rules! common_cases {
    ($server:ident: $($group:ident: [$($case:ident,)*],)*) => {
        vec![$($(server::trial(
            concat!("conformance::", stringify!($group), "::", stringify!($case)),
            &$server,
            |server| {
                let case = concat!(stringify!($group), "::", stringify!($case));
                scene::run(conformance::play(case, scene::lab(server)));
            },
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
                let scene = scene::scene(server, watchkeeper_lock::node::Expiry::$expiry);
                scene::run(it::locks::$module::$case(scene));
            },
        ),)*]
    };
}

fn main() {
    let arguments = libtest_mimic::Arguments::from_args();
    let server = server::Shared::default();
    // The longest first.
    let mut cases = own_cases![
        cluster::{
            no_lease_is_lost_while_one_member_after_the_other_is_killed,
            no_lease_is_lost_while_the_leader_moves_and_stands_still,
            no_two_hold_a_lock_while_the_only_member_is_killed,
            without_a_majority_of_members_nothing_is_granted,
            a_member_that_stood_still_shows_nothing_old,
            every_endpoint_is_inspected,
        },
        memory::{
            a_lease_lost_with_a_cluster_is_granted_again_when_the_longest_is_over,
            a_full_database_is_refused_until_there_is_room,
            a_copy_from_before_is_refused,
            a_cluster_made_from_a_backup_does_not_vote,
            nothing_is_written_into_another_cluster_among_the_endpoints,
        },
        node::{
            a_server_that_starts_is_not_taken_for_a_copy_from_before,
            a_server_that_was_killed_votes_at_once_with_all_it_knew,
            other_clients_hear_of_a_release_also_after_a_restart,
            a_listener_begins_anew_in_a_cluster_made_from_a_backup,
            a_listener_begins_anew_in_a_copy_from_before,
        },
        access::{
            a_user_with_the_right_password_is_let_in_and_a_wrong_one_is_shown_to_nobody,
            missing_rights_are_named_and_used_as_soon_as_they_are_given,
            a_token_that_the_server_has_forgotten_is_asked_for_again,
            a_change_of_rights_ends_no_login,
            locks_live_behind_tls_and_another_ca_is_refused_with_the_remedy,
            another_name_than_the_certificates_is_refused,
            a_client_certificate_is_shown_where_one_is_wanted,
        },
    ];
    cases.extend(cases![server:
        crowd::{
            of_many_who_wait_for_one_lock_each_has_its_turns,
            of_many_who_ask_for_one_lock_all_the_time_each_has_it_once,
            many_who_want_locks_of_their_own_overtake_nobody,
        },
        cleaning::{ what_is_gone_is_deleted_and_the_keys_do_not_grow },
        large::{
            a_call_of_many_writings_is_executed_in_parts,
            a_part_that_is_refused_is_told_for_itself_alone,
        },
        node::{
            every_rule_of_admission,
            a_look_costs_one_request_and_a_change_two,
            what_is_promised_again_is_compared_and_not_written,
            what_is_granted_again_without_writing_is_compared,
            what_was_decided_on_an_old_look_is_decided_anew,
            what_was_deleted_meanwhile_is_no_absence,
            what_was_written_without_an_answer_is_found_by_the_same_attempt,
            where_nothing_listens_there_is_no_node_and_the_next_endpoint_is_asked,
            fleets_beside_each_other_see_their_own_locks_alone,
        },
        memory::{
            keys_that_were_made_again_do_not_vote,
            a_damaged_key_costs_its_lock_alone,
            an_empty_key_is_a_lock_that_nobody_has,
            a_damaged_document_counts_as_absent,
            a_first_key_that_makes_no_sense_is_refused,
            keys_of_another_layout_are_refused_and_left_alone,
        },
        access::{
            a_user_is_let_in_where_nobody_has_to_log_in,
            a_port_without_tls_never_serves,
        },
    ]);
    cases.extend(every_case!(common_cases server));
    cases.extend(every_lock_case!(lock_cases server, Observed));
    let conclusion = libtest_mimic::run(&arguments, cases);
    // The last handle: leaving the process by `exit` would leave the server behind.
    drop(server);
    conclusion.exit();
}
