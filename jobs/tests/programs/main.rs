//! `lock` and `elect` as shells know them: real processes, real stores. Costs about 60 seconds, most of them waiting.
//!
//! `cargo test -p watchkeeper-jobs --test programs [FILTER]`. On Redis each case has three masters of its own on unix
//! sockets, or servers behind Sentinel or in a Cluster at addresses in 127.0.0.0/8, in etcd a server of its own; without a server
//! those cases are ignored and say why, and `WATCHKEEPER_REQUIRE=redis,postgres,etcd` makes that a failure.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use store::Store;

mod access;
#[macro_use]
#[path = "../shared/cases.rs"]
mod cases;
#[path = "../shared/command.rs"]
mod command;
mod config;
#[cfg(feature = "postgres")]
#[path = "../shared/database.rs"]
mod database;
mod elect;
#[cfg(feature = "etcd")]
#[path = "../shared/etcd.rs"]
mod etcd;
#[cfg(feature = "etcd")]
#[path = "../../../lock/tests/etcd/members.rs"]
mod etcd_members;
#[cfg(feature = "etcd")]
#[path = "../../../lock/tests/etcd/server.rs"]
mod etcd_server;
mod examples;
mod exits;
mod far;
#[cfg(any(feature = "postgres", feature = "etcd"))]
mod full;
mod library;
mod lists;
mod operator;
#[cfg(feature = "postgres")]
mod owner;
#[cfg(any(feature = "postgres", feature = "etcd"))]
#[path = "../../../lock/tests/etcd/papers.rs"]
#[allow(dead_code, reason = "other suites use the rest")]
mod papers;
#[cfg(feature = "postgres")]
#[path = "../../../lock/tests/postgres/pooler.rs"]
mod pooler;
#[cfg(feature = "postgres")]
#[path = "../../../lock/tests/postgres/server.rs"]
mod postgres;
mod process;
mod raw;
#[path = "../shared/redis_cluster.rs"]
mod redis_cluster;
#[path = "../shared/redis_failover.rs"]
mod redis_failover;
#[path = "../shared/redis_place.rs"]
mod redis_place;
#[path = "../shared/redis_sentinel.rs"]
mod redis_sentinel;
mod restarts;
mod rounds;
mod scene;
#[path = "../../../lock/tests/redis/server.rs"]
mod server;
mod signals;
#[path = "../shared/spans.rs"]
mod spans;
mod store;
mod terminal;
mod traces;
mod turns;
#[path = "../shared/wait.rs"]
mod wait;

fn main() {
    wait::watch_processors();
    let mut arguments = libtest_mimic::Arguments::from_args();
    // Most of the time every case waits.
    arguments.test_threads.get_or_insert(4);
    let mut cases = on![masters:
        examples::{ a_nightly_backup_is_made_once_in_the_fleet, a_daemon_has_a_hot_standby },
        rounds::{ twenty_rounds_of_faults_leave_one_service },
        turns::{
            twenty_at_once_take_turns,
            of_several_that_try_once_one_wins,
            a_killed_holder_is_followed_within_one_ttl,
            a_try_gives_up_on_the_living_and_follows_the_dead_within_one_ttl,
        },
        exits::{
            the_commands_status_is_ours,
            a_lock_that_is_not_had_in_time_has_a_status_of_its_own,
            a_store_that_does_not_answer_is_named,
            a_wait_without_limit_outlasts_its_store,
            a_limit_is_a_limit_whatever_the_nodes_do,
            a_lost_lock_stops_the_command_and_is_a_failure,
        },
        signals::{
            a_command_is_told_to_stop_and_the_lock_released,
            whoever_asks_twice_means_it,
            a_wait_ends_at_once_and_leaves_nothing,
        },
        elect::{
            a_standby_takes_over_when_the_command_ends,
            a_killed_leader_is_followed_within_one_ttl,
            a_restart_lets_others_go_first,
            a_standby_that_is_told_to_stop_has_not_failed,
        },
        raw::{
            a_verbatim_key_is_shared_with_other_clients,
            commands_get_their_share_beside_foreign_clients,
            a_foreign_value_commands_no_terminal,
            a_password_from_a_file_is_used_and_none_is_shown,
        },
        config::{ a_configuration_of_another_program_will_do },
        far::{ a_fleet_far_away_answers_commands },
        operator::{
            a_broken_holder_stops_before_the_next_begins,
            a_break_for_another_owner_touches_nobody,
            a_healthy_store_has_no_error,
            a_foreign_value_is_shown_and_never_broken,
            a_key_without_end_is_found_and_ended,
            the_holder_of_a_lock_can_be_found,
            every_fault_of_a_master_is_found_with_its_remedy,
            two_addresses_of_one_server_are_found,
            a_user_without_rights_is_told_which,
            the_rights_that_are_named_suffice,
        },
        restarts::{
            a_rolling_restart_without_persistence_ends_no_leadership,
            a_restart_of_a_single_server_costs_the_longest_lease_and_says_so,
            a_limited_wait_ends_in_time_although_nodes_have_lost_their_memory,
            only_new_nodes_are_let_in_at_once,
            another_configuration_is_refused_until_the_fleet_is_changed,
        },
        lists::{
            lists_that_differ_are_found_with_their_remedy,
            a_fleet_under_other_addresses_votes_and_is_moved_to_them,
            a_fleet_grows_from_three_nodes_to_five,
            a_fleet_that_waits_for_its_nodes_says_for_which,
            new_nodes_are_let_in_at_once_as_one_fleet,
        },
    ];
    cases.extend(on![embedded:
        library::{ the_librarys_own_snippet_and_the_command_exclude_each_other },
        examples::{ a_web_service_is_called_once_a_tick },
        rounds::{ twenty_rounds_of_faults_leave_one_service },
        terminal::{
            a_command_has_the_terminal_to_itself,
            a_stopped_holder_loses_the_lock_and_its_command,
            a_closed_terminal_ends_the_command_and_frees_the_lock,
        },
        turns::{
            twenty_at_once_take_turns,
            of_several_that_try_once_one_wins,
            a_killed_holder_is_followed_within_one_ttl,
            a_try_gives_up_on_the_living_and_follows_the_dead_within_one_ttl,
        },
        exits::{
            the_commands_status_is_ours,
            a_lock_that_is_not_had_in_time_has_a_status_of_its_own,
            a_wrong_usage_is_a_failure_of_ours,
            a_file_that_is_kept_locked_is_named_and_waited_for,
            a_worker_waits_for_a_file_that_is_kept_locked,
        },
        signals::{
            a_command_is_told_to_stop_and_the_lock_released,
            whoever_asks_twice_means_it,
            a_wait_ends_at_once_and_leaves_nothing,
        },
        elect::{
            a_standby_takes_over_when_the_command_ends,
            a_killed_leader_is_followed_within_one_ttl,
            a_restart_lets_others_go_first,
            a_standby_that_is_told_to_stop_has_not_failed,
        },
        traces::{
            a_program_under_a_lock_is_a_part_of_its_callers_trace,
            without_a_receiver_the_callers_trace_is_passed_on,
        },
        config::{
            a_configuration_of_another_program_will_do,
            a_place_that_nobody_named_is_refused,
            a_watchkeeper_inside_a_command_is_not_confused,
            a_command_and_its_guard_get_none_of_our_secrets,
        },
        operator::{
            a_broken_holder_stops_before_the_next_begins,
            a_break_for_another_owner_touches_nobody,
            a_healthy_store_has_no_error,
            the_holder_of_a_lock_can_be_found,
            a_store_that_is_not_there_is_not_made,
        },
    ]);
    cases.extend(on![sentinel, cluster:
        turns::{ a_killed_holder_is_followed_within_one_ttl },
        elect::{ a_killed_leader_is_followed_within_one_ttl },
        operator::{
            a_healthy_store_has_no_error,
            the_rights_that_are_named_suffice_across_servers,
        },
    ]);
    cases.push(server::trial(
        "masters::operator::servers_that_hide_their_configuration_cost_a_warning",
        operator::servers_that_hide_their_configuration_cost_a_warning,
    ));
    #[cfg(feature = "postgres")]
    cases.extend(on![postgres:
        turns::{ twenty_at_once_take_turns, a_killed_holder_is_followed_within_one_ttl },
        elect::{
            a_killed_leader_is_followed_within_one_ttl,
            a_standby_that_is_told_to_stop_has_not_failed,
        },
        config::{ a_configuration_of_another_program_will_do },
        operator::{
            a_broken_holder_stops_before_the_next_begins,
            a_break_for_another_owner_touches_nobody,
            a_healthy_store_has_no_error,
        },
    ]);
    #[cfg(feature = "postgres")]
    cases.extend(on![postgres_own:
        exits::{
            a_store_that_does_not_answer_is_named,
            a_store_that_goes_away_stops_the_command,
            a_wait_without_limit_outlasts_its_store,
        },
    ]);
    #[cfg(feature = "etcd")]
    cases.extend(on![etcd:
        turns::{ twenty_at_once_take_turns, a_killed_holder_is_followed_within_one_ttl },
        exits::{
            a_store_that_does_not_answer_is_named,
            a_store_that_goes_away_stops_the_command,
            a_wait_without_limit_outlasts_its_store,
        },
        elect::{
            a_killed_leader_is_followed_within_one_ttl,
            a_standby_that_is_told_to_stop_has_not_failed,
        },
        config::{ a_configuration_of_another_program_will_do },
        operator::{
            a_broken_holder_stops_before_the_next_begins,
            a_break_for_another_owner_touches_nobody,
            a_healthy_store_has_no_error,
        },
    ]);
    cases.push(access::trial_with_mounts(
        "embedded::access::a_worker_whose_file_has_no_room_does_not_start",
        access::a_worker_whose_file_has_no_room_does_not_start,
    ));
    #[cfg(feature = "postgres")]
    {
        let own = |name, case: fn()| postgres::trial_of_its_own(name, case);
        cases.push(own(
            "postgres::access::a_worker_that_is_not_let_in_does_not_start",
            access::a_worker_that_postgres_does_not_let_in_does_not_start,
        ));
        cases.push(own(
            "postgres::access::a_worker_whose_store_wants_a_person_does_not_start",
            access::a_worker_whose_postgres_wants_a_person_does_not_start,
        ));
        cases.push(own(
            "postgres::access::a_worker_that_does_not_trust_its_store_does_not_start",
            access::a_worker_that_does_not_trust_its_postgres_does_not_start,
        ));
        cases.push(own(
            "postgres::owner::what_is_printed_makes_the_tables_and_the_rights_of_the_book_suffice",
            owner::what_is_printed_makes_the_tables_and_the_rights_of_the_book_suffice,
        ));
        cases.push(own(
            "postgres::owner::a_password_is_taken_from_a_file_and_no_other_is_shown",
            owner::a_password_is_taken_from_a_file_and_no_other_is_shown,
        ));
        cases.push(own(
            "postgres::owner::doctor_tells_of_a_server_that_does_not_wait_for_its_disk",
            owner::doctor_tells_of_a_server_that_does_not_wait_for_its_disk,
        ));
        cases.push(pooler::trial(
            "postgres_pooled::owner::doctor_tells_whether_a_pooler_stands_before_the_database",
            owner::doctor_tells_whether_a_pooler_stands_before_the_database,
        ));
        cases.push(pooler::trial(
            "postgres_pooled::access::a_worker_behind_a_pooler_says_that_it_hears_of_no_release",
            access::a_worker_behind_a_pooler_says_that_it_hears_of_no_release,
        ));
        cases.push(full::trial_of_postgres(
            "postgres::full::a_worker_waits_until_it_has_room",
            full::a_worker_waits_until_postgres_has_room,
        ));
        cases.push(full::trial_of_postgres(
            "postgres::full::a_leader_stands_by_until_it_has_room",
            full::a_leader_stands_by_until_postgres_has_room,
        ));
    }
    #[cfg(feature = "etcd")]
    {
        let own = |name, case: fn()| etcd_server::trial_of_its_own(name, case);
        cases.push(own(
            "etcd::access::a_worker_that_is_not_let_in_does_not_start",
            access::a_worker_that_etcd_does_not_let_in_does_not_start,
        ));
        cases.push(own(
            "etcd::access::a_worker_that_does_not_trust_its_store_does_not_start",
            access::a_worker_that_does_not_trust_its_etcd_does_not_start,
        ));
        cases.push(own(
            "etcd::access::a_worker_without_rights_does_not_start",
            access::a_worker_without_rights_in_etcd_does_not_start,
        ));
        cases.push(own(
            "etcd::full::a_worker_waits_until_it_has_room",
            full::a_worker_waits_until_etcd_has_room,
        ));
        cases.push(own(
            "etcd::full::a_leader_stands_by_until_it_has_room",
            full::a_leader_stands_by_until_etcd_has_room,
        ));
    }
    // For figures, not for every day.
    let mut long = on![masters: elect::{ five_takeovers_of_a_killed_leader }];
    long.extend(on![embedded: elect::{ five_takeovers_of_a_killed_leader }]);
    #[cfg(feature = "postgres")]
    long.push(postgres::trial_of_its_own(
        "postgres::owner::doctor_tells_what_a_server_is_and_how_its_standbys_follow",
        owner::doctor_tells_what_a_server_is_and_how_its_standbys_follow,
    ));
    #[cfg(feature = "postgres")]
    long.extend(on![postgres_own: exits::{ a_limit_is_a_limit_whatever_the_server_does }]);
    #[cfg(feature = "postgres")]
    long.extend(on![postgres:
        examples::{ a_nightly_backup_is_made_once_in_the_fleet, a_daemon_has_a_hot_standby },
        rounds::{ twenty_rounds_of_faults_leave_one_service },
        turns::{
            of_several_that_try_once_one_wins,
            a_try_gives_up_on_the_living_and_follows_the_dead_within_one_ttl,
        },
        exits::{
            the_commands_status_is_ours,
            a_lock_that_is_not_had_in_time_has_a_status_of_its_own,
        },
        signals::{
            a_command_is_told_to_stop_and_the_lock_released,
            a_wait_ends_at_once_and_leaves_nothing,
        },
        elect::{
            a_standby_takes_over_when_the_command_ends,
            a_restart_lets_others_go_first,
        },
        operator::{ the_holder_of_a_lock_can_be_found },
    ]);
    #[cfg(feature = "etcd")]
    long.extend(on![etcd:
        examples::{ a_nightly_backup_is_made_once_in_the_fleet, a_daemon_has_a_hot_standby },
        rounds::{ twenty_rounds_of_faults_leave_one_service },
        turns::{
            of_several_that_try_once_one_wins,
            a_try_gives_up_on_the_living_and_follows_the_dead_within_one_ttl,
        },
        exits::{
            the_commands_status_is_ours,
            a_lock_that_is_not_had_in_time_has_a_status_of_its_own,
            a_limit_is_a_limit_whatever_the_server_does,
        },
        signals::{
            a_command_is_told_to_stop_and_the_lock_released,
            a_wait_ends_at_once_and_leaves_nothing,
        },
        elect::{
            a_standby_takes_over_when_the_command_ends,
            a_restart_lets_others_go_first,
        },
        operator::{ the_holder_of_a_lock_can_be_found },
    ]);
    #[cfg(feature = "etcd")]
    long.extend(on![etcd_cluster: rounds::{ twenty_rounds_of_faults_leave_one_service }]);
    cases.extend(long.into_iter().map(|case| case.with_ignored_flag(true)));
    let conclusion = libtest_mimic::run(&arguments, cases);
    #[cfg(feature = "postgres")]
    database::end();
    conclusion.exit();
}
