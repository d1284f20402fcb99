//! Fleets of real worker processes on real stores: killed, told to go, frozen, stalled. Costs about four minutes on two
//! cores, most of them spent waiting, five cases at a time.
//!
//! `cargo test -p watchkeeper-jobs --test fleet [FILTER]`. On Redis each case has three masters of its own on unix
//! sockets, or servers behind Sentinel or in a Cluster at addresses in 127.0.0.0/8, in PostgreSQL a schema of its own, in etcd a
//! server of its own; without a server those cases are ignored and say why, and `WATCHKEEPER_REQUIRE=redis,postgres,etcd` makes
//! that a failure.
//!
//! The evidence is what heartbeat jobs append to a file and what the workers log. Time is measured on the boot clock
//! between events, and limits are those that the product promises.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use store::Store;

#[macro_use]
#[path = "../shared/cases.rs"]
mod cases;
mod access;
mod beats;
mod calls;
#[path = "../shared/command.rs"]
mod command;
mod commands;
#[cfg(feature = "postgres")]
#[path = "../shared/database.rs"]
mod database;
#[cfg(feature = "postgres")]
mod demo;
#[cfg(feature = "etcd")]
mod elections;
#[cfg(feature = "etcd")]
#[path = "../shared/etcd.rs"]
mod etcd;
#[cfg(feature = "etcd")]
#[path = "../../../lock/tests/etcd/members.rs"]
mod etcd_members;
#[cfg(feature = "etcd")]
#[path = "../../../lock/tests/etcd/server.rs"]
mod etcd_server;
mod failover;
mod fleet;
#[cfg(any(feature = "etcd", feature = "postgres"))]
mod guarded;
mod health_check;
mod heavy;
mod intents;
mod leaders;
mod log;
mod mail;
mod many;
mod memory;
mod modes;
mod moves;
mod nodes;
mod notices;
mod pair;
mod paused;
#[cfg(feature = "postgres")]
#[path = "../../../lock/tests/postgres/pooler.rs"]
mod pooler;
#[cfg(feature = "postgres")]
#[path = "../../../lock/tests/postgres/server.rs"]
mod postgres;
mod recipients;
#[path = "../shared/redis_cluster.rs"]
mod redis_cluster;
#[path = "../shared/redis_failover.rs"]
mod redis_failover;
#[path = "../shared/redis_place.rs"]
mod redis_place;
#[path = "../shared/redis_sentinel.rs"]
mod redis_sentinel;
mod reload;
#[path = "../notifications/rough.rs"]
mod rough;
#[cfg(feature = "postgres")]
mod rows;
#[path = "../../../lock/tests/redis/server.rs"]
mod server;
#[path = "../../../lock/tests/faults/shim.rs"]
mod shim;
#[path = "../shared/spans.rs"]
mod spans;
mod spread;
mod stall;
mod store;
mod storm;
mod streams;
#[cfg(feature = "postgres")]
mod succession;
mod takeovers;
#[path = "../../../lock/tests/redis/tap.rs"]
mod tap;
mod tick_locks;
mod ticks;
mod traces;
mod views;
#[path = "../shared/wait.rs"]
mod wait;
mod watchdog;
mod watchers;

fn main() -> std::process::ExitCode {
    if std::env::var_os(stall::WORKER).is_some() {
        return stall::worker();
    }
    wait::watch_processors();
    let mut arguments = libtest_mimic::Arguments::from_args();
    // Most of the time every case waits.
    arguments.test_threads.get_or_insert(3);
    let mut cases = on![masters:
        commands::{
            fifty_workers_die_or_freeze_and_no_two_commands_run_at_once,
            a_spare_replica_starts_no_command_beside_the_active_ones,
            a_drained_worker_ends_its_command_first,
            what_a_command_wrote_is_in_the_history,
            the_last_line_of_a_running_command_is_its_progress,
        },
        storm::{
            a_storm_of_faults_loses_and_doubles_no_tick,
            wrong_wall_clocks_of_replicas_move_no_tick,
        },
        stall::{
            a_job_that_blocks_every_thread_costs_its_process_and_never_runs_twice,
            a_job_that_blocks_every_thread_keeps_a_lease_that_is_held_for_it,
            blocking_work_that_does_not_listen_never_runs_twice,
            a_run_without_progress_is_taken_over_in_time,
        },
        ticks::{ sixty_ticks_and_five_dead_leaders_with_late_ticks_made_up_for },
        tick_locks::{ ticks_without_a_leader_run_once_and_spread_over_the_workers },
        leaders::{
            a_killed_leader_is_replaced_within_ttl_and_a_half_second,
            an_idle_leader_hands_over_at_once,
            a_leader_ends_its_run_before_it_hands_over,
            a_frozen_leader_never_acts_in_its_old_term_again,
        },
        takeovers::{ a_spare_replica_takes_over_within_a_ttl_and_a_third },
        nodes::{
            a_standby_waits_quietly,
            without_a_majority_nobody_leads,
            a_fleet_outlasts_a_start_without_its_masters,
        },
        modes::{
            a_spare_replica_does_nothing_until_the_active_one_goes,
            a_service_runs_once_and_moves_to_its_hot_standby,
        },
        moves::{ a_fleet_moves_here_and_no_tick_runs_twice },
        spread::{
            one_standby_of_two_takes_over_and_then_the_last_one,
            a_drained_replica_goes_and_its_namesake_stays,
            jobs_spread_over_replicas_that_join_later,
        },
        reload::{
            the_newest_definition_of_a_job_counts_during_a_rolling_change,
            a_refused_definition_waits_until_all_replicas_have_it,
        },
        mail::{ a_table_is_sent_although_a_sender_is_killed },
        streams::{
            readers_that_are_killed_lose_and_double_nothing,
            a_reader_that_is_frozen_past_its_leases_doubles_nothing,
            messages_of_dead_members_are_taken_over,
            a_slow_member_and_its_successor_do_not_both_handle_a_message,
            a_poison_message_goes_to_the_dead_list_and_holds_up_no_other,
            a_stream_that_is_lost_and_comes_back_is_read_on,
            what_is_left_of_a_stream_is_shown_as_its_backlog,
        },
        many::{ six_hundred_jobs_cost_three_calls_a_round_and_two_writes_a_tick },
        intents::{
            a_trigger_runs_once_although_its_leader_is_killed_at_once,
            a_job_is_handed_over_on_request,
            a_thousand_triggers_that_wait_cost_no_lease_and_more_are_refused,
        },
        access::{ whoever_lacks_the_token_sees_no_output_and_orders_nothing },
        views::{
            no_view_names_two_leaders_or_a_dead_one,
            a_view_without_nodes_says_that_it_does_not_know,
        },
    ];
    cases.extend(on![masters_guarded:
        intents::{ a_paused_job_stays_paused_through_a_rolling_restart_of_all_masters },
        views::{ a_master_without_a_vote_is_shown_with_the_time_left },
        memory::{ ticks_that_all_masters_have_forgotten_are_said_by_their_span },
        moves::{ what_was_decided_moves_along_and_no_tick_is_lost_or_runs_twice },
    ]);
    #[cfg(feature = "postgres")]
    cases.push(moves::trial_from_a_database());
    cases.extend(on![masters_single:
        memory::{
            ticks_that_all_masters_have_forgotten_are_said_by_their_span,
            a_master_whose_clock_jumped_a_day_ahead_costs_half_a_minute_and_no_tick_runs_twice,
        },
    ]);
    cases.extend(on![embedded:
        moves::{ a_fleet_goes_on_in_another_layout_and_no_tick_is_lost_or_runs_twice },
        health_check::{ the_health_check_of_the_image_sees_a_worker_that_stands_still },
        calls::{ a_call_is_repeated_under_its_key_and_a_successor_has_a_larger_token },
        commands::{
            fifty_workers_die_or_freeze_and_no_two_commands_run_at_once,
            a_spare_replica_starts_no_command_beside_the_active_ones,
            a_drained_worker_ends_its_command_first,
            what_a_command_wrote_is_in_the_history,
        },
        stall::{
            a_job_that_blocks_every_thread_costs_its_process_and_never_runs_twice,
            a_run_without_progress_is_taken_over_in_time,
        },
        watchdog::{ a_keeper_that_stands_still_gives_no_sign_of_life },
        ticks::{ twenty_ticks_and_two_dead_leaders_with_one_run_for_late_ticks },
        tick_locks::{ ticks_without_a_leader_run_once_and_spread_over_the_workers },
        leaders::{
            a_killed_leader_is_replaced_within_ttl_and_a_half_second,
            an_idle_leader_hands_over_at_once,
            a_leader_ends_its_run_before_it_hands_over,
            a_frozen_leader_never_acts_in_its_old_term_again,
        },
        takeovers::{ a_spare_replica_takes_over_within_a_ttl_and_a_third },
        nodes::{ a_standby_waits_quietly, without_a_majority_nobody_leads },
        modes::{
            a_spare_replica_does_nothing_until_the_active_one_goes,
            a_service_runs_once_and_moves_to_its_hot_standby,
        },
        spread::{
            one_standby_of_two_takes_over_and_then_the_last_one,
            a_drained_replica_goes_and_its_namesake_stays,
            jobs_spread_over_replicas_that_join_later,
        },
        reload::{
            a_reload_leaves_alone_what_it_does_not_change,
            a_faulty_file_changes_nothing_and_says_why,
            a_failover_fleet_reloads_under_way_and_sends_every_row_once,
            the_newest_definition_of_a_job_counts_during_a_rolling_change,
            a_refused_definition_waits_until_all_replicas_have_it,
        },
        mail::{ a_table_is_sent_although_a_sender_is_killed },
        streams::{
            readers_that_are_killed_lose_and_double_nothing,
            a_reader_that_is_frozen_past_its_leases_doubles_nothing,
        },
        paused::{ a_pause_that_one_sender_was_asked_for_is_kept_by_all },
        notices::{ a_job_that_breaks_is_told_once_although_its_leader_is_killed },
        intents::{
            a_trigger_runs_once_although_its_leader_is_killed_at_once,
            a_job_is_handed_over_on_request,
        },
        access::{
            whoever_lacks_the_token_sees_no_output_and_orders_nothing,
            two_thousand_large_bodies_of_strangers_cost_no_memory,
            commands_and_their_guards_have_none_of_our_secrets,
        },
        views::{ no_view_names_two_leaders_or_a_dead_one },
        traces::{
            a_run_of_two_attempts_is_one_trace_and_its_commands_know_their_places,
            what_is_called_and_sent_to_knows_its_place,
            a_receiver_of_traces_that_hangs_costs_no_lease_and_no_tick,
        },
    ]);
    cases.extend(on![masters_one_frozen:
        leaders::{
            a_killed_leader_is_replaced_within_ttl_and_a_half_second,
            an_idle_leader_hands_over_at_once,
            a_leader_ends_its_run_before_it_hands_over,
        },
        nodes::{ a_standby_waits_quietly, a_minority_of_frozen_masters_does_no_harm },
    ]);
    cases.extend(on![sentinel:
        leaders::{ a_killed_leader_is_replaced_within_ttl_and_a_half_second },
        failover::{ a_killed_master_costs_its_leases_and_no_tick_runs_twice },
    ]);
    #[cfg(feature = "postgres")]
    cases.extend(on![postgres:
        commands::{ fifty_workers_die_or_freeze_and_no_two_commands_run_at_once },
        storm::{ a_storm_of_faults_loses_and_doubles_no_tick },
        leaders::{
            a_killed_leader_is_replaced_within_ttl_and_a_half_second,
            an_idle_leader_hands_over_at_once,
            a_frozen_leader_never_acts_in_its_old_term_again,
        },
        takeovers::{ a_spare_replica_takes_over_within_a_ttl_and_a_third },
        nodes::{ without_a_majority_nobody_leads },
        mail::{ a_table_is_sent_although_a_sender_is_killed },
        streams::{ a_reader_that_is_frozen_past_its_leases_doubles_nothing },
    ]);
    #[cfg(feature = "postgres")]
    cases.extend(on![postgres_pooled:
        leaders::{ a_killed_leader_is_replaced_within_ttl_and_a_half_second },
    ]);
    #[cfg(feature = "postgres")]
    cases.extend(on![postgres_own: ticks::{ twenty_ticks_of_a_database_that_crashes }]);
    #[cfg(feature = "etcd")]
    cases.extend(on![etcd:
        ticks::{ twenty_ticks_and_two_dead_leaders_with_one_run_for_late_ticks },
        leaders::{
            a_killed_leader_is_replaced_within_ttl_and_a_half_second,
            an_idle_leader_hands_over_at_once,
            a_frozen_leader_never_acts_in_its_old_term_again,
        },
        nodes::{ without_a_majority_nobody_leads },
        streams::{ a_reader_that_is_frozen_past_its_leases_doubles_nothing },
    ]);
    #[cfg(feature = "postgres")]
    cases.extend(on![postgres_standby:
        failover::{ a_killed_master_costs_its_leases_and_no_tick_runs_twice },
    ]);
    #[cfg(feature = "postgres")]
    cases.extend(on![postgres_guarded:
        leaders::{ a_killed_leader_is_replaced_within_ttl_and_a_half_second },
        moves::{ what_was_decided_moves_along_and_no_tick_is_lost_or_runs_twice },
    ]);
    #[cfg(feature = "etcd")]
    cases.extend(on![etcd_guarded:
        leaders::{ a_killed_leader_is_replaced_within_ttl_and_a_half_second },
        moves::{ what_was_decided_moves_along_and_no_tick_is_lost_or_runs_twice },
    ]);
    #[cfg(feature = "postgres")]
    cases.extend(on![postgres:
        moves::{ a_fleet_goes_on_in_another_layout_and_no_tick_is_lost_or_runs_twice },
    ]);
    #[cfg(feature = "postgres")]
    cases.extend(rows::trials());
    #[cfg(feature = "postgres")]
    cases.extend(demo::trials());
    cases.extend(pair::trials());
    // For figures, not for every day.
    let mut long = on![masters:
        takeovers::{ five_takeovers_of_a_failover_pair, five_takeovers_by_a_candidate },
        streams::{ fifty_thousand_messages_are_handled_once_by_five_readers },
        recipients::{ each_recipient_has_its_rows_in_order_whatever_fails },
        watchers::{
            a_job_whose_leader_and_watchers_are_killed_is_led_again,
            a_job_whose_leader_and_watchers_are_frozen_is_led_again,
        },
    ];
    long.extend(on![embedded:
        takeovers::{ five_takeovers_of_a_failover_pair, five_takeovers_by_a_candidate },
        recipients::{ each_recipient_has_its_rows_in_order_whatever_fails },
    ]);
    #[cfg(feature = "postgres")]
    long.push(succession::trial());
    long.extend(on![cluster:
        leaders::{ a_killed_leader_is_replaced_within_ttl_and_a_half_second },
        failover::{ a_killed_master_costs_its_leases_and_no_tick_runs_twice },
    ]);
    long.extend(on![sentinel: nodes::{ without_a_majority_nobody_leads }]);
    long.extend(on![sentinel, cluster:
        commands::{
            a_spare_replica_starts_no_command_beside_the_active_ones,
            a_drained_worker_ends_its_command_first,
        },
        storm::{
            a_storm_of_faults_loses_and_doubles_no_tick,
            a_storm_of_faults_around_a_failover_doubles_no_tick_and_hides_no_loss,
        },
        ticks::{
            sixty_ticks_and_five_dead_leaders_with_late_ticks_made_up_for,
            twenty_ticks_across_four_failovers,
        },
        tick_locks::{ ticks_without_a_leader_run_once_and_spread_over_the_workers },
        leaders::{
            an_idle_leader_hands_over_at_once,
            a_leader_ends_its_run_before_it_hands_over,
            a_frozen_leader_never_acts_in_its_old_term_again,
        },
        takeovers::{ a_spare_replica_takes_over_within_a_ttl_and_a_third },
        nodes::{ a_standby_waits_quietly },
        modes::{
            a_spare_replica_does_nothing_until_the_active_one_goes,
            a_service_runs_once_and_moves_to_its_hot_standby,
        },
        moves::{ a_fleet_moves_here_and_no_tick_runs_twice },
        intents::{
            a_trigger_runs_once_although_its_leader_is_killed_at_once,
            a_job_is_handed_over_on_request,
        },
        views::{ no_view_names_two_leaders_or_a_dead_one },
    ]);
    #[cfg(feature = "postgres")]
    long.extend(demo::trials_on_failover());
    #[cfg(feature = "postgres")]
    long.extend(on![postgres_own: ticks::{ sixty_ticks_of_a_database_that_crashes }]);
    #[cfg(feature = "postgres")]
    long.extend(on![postgres_pooled_deaf:
        commands::{ fifty_workers_die_or_freeze_and_no_two_commands_run_at_once },
        leaders::{ a_killed_leader_is_replaced_within_ttl_and_a_half_second },
        ticks::{ sixty_ticks_and_five_dead_leaders_with_late_ticks_made_up_for },
    ]);
    #[cfg(feature = "postgres")]
    long.extend(on![postgres, postgres_pooled:
        commands::{
            a_spare_replica_starts_no_command_beside_the_active_ones,
            a_drained_worker_ends_its_command_first,
        },
        stall::{ a_run_without_progress_is_taken_over_in_time },
        ticks::{ sixty_ticks_and_five_dead_leaders_with_late_ticks_made_up_for },
        tick_locks::{ ticks_without_a_leader_run_once_and_spread_over_the_workers },
        leaders::{ a_leader_ends_its_run_before_it_hands_over },
        nodes::{ a_standby_waits_quietly },
        modes::{
            a_spare_replica_does_nothing_until_the_active_one_goes,
            a_service_runs_once_and_moves_to_its_hot_standby,
        },
        spread::{
            one_standby_of_two_takes_over_and_then_the_last_one,
            jobs_spread_over_replicas_that_join_later,
        },
        intents::{
            a_trigger_runs_once_although_its_leader_is_killed_at_once,
            a_job_is_handed_over_on_request,
        },
        views::{ no_view_names_two_leaders_or_a_dead_one },
    ]);
    #[cfg(feature = "postgres")]
    long.extend(on![postgres_pooled:
        storm::{ a_storm_of_faults_loses_and_doubles_no_tick },
        commands::{ fifty_workers_die_or_freeze_and_no_two_commands_run_at_once },
        leaders::{
            an_idle_leader_hands_over_at_once,
            a_frozen_leader_never_acts_in_its_old_term_again,
        },
        takeovers::{ a_spare_replica_takes_over_within_a_ttl_and_a_third },
        nodes::{ without_a_majority_nobody_leads },
        mail::{ a_table_is_sent_although_a_sender_is_killed },
    ]);
    #[cfg(feature = "etcd")]
    long.extend(on![etcd:
        commands::{
            fifty_workers_die_or_freeze_and_no_two_commands_run_at_once,
            a_spare_replica_starts_no_command_beside_the_active_ones,
            a_drained_worker_ends_its_command_first,
        },
        storm::{ a_storm_of_faults_loses_and_doubles_no_tick },
        stall::{ a_run_without_progress_is_taken_over_in_time },
        ticks::{
            sixty_ticks_and_five_dead_leaders_with_late_ticks_made_up_for,
            twenty_ticks_of_a_database_that_crashes,
        },
        tick_locks::{ ticks_without_a_leader_run_once_and_spread_over_the_workers },
        leaders::{ a_leader_ends_its_run_before_it_hands_over },
        takeovers::{ a_spare_replica_takes_over_within_a_ttl_and_a_third },
        nodes::{ a_standby_waits_quietly },
        modes::{
            a_spare_replica_does_nothing_until_the_active_one_goes,
            a_service_runs_once_and_moves_to_its_hot_standby,
        },
        spread::{
            one_standby_of_two_takes_over_and_then_the_last_one,
            jobs_spread_over_replicas_that_join_later,
        },
        mail::{ a_table_is_sent_although_a_sender_is_killed },
        intents::{
            a_trigger_runs_once_although_its_leader_is_killed_at_once,
            a_job_is_handed_over_on_request,
        },
        views::{ no_view_names_two_leaders_or_a_dead_one },
    ]);
    // What the daily run asks of Redis or of the file alone.
    #[cfg(all(feature = "etcd", feature = "postgres"))]
    long.extend(on![postgres, etcd:
        storm::{ wrong_wall_clocks_of_replicas_move_no_tick },
        stall::{
            a_job_that_blocks_every_thread_costs_its_process_and_never_runs_twice,
            a_job_that_blocks_every_thread_keeps_a_lease_that_is_held_for_it,
            blocking_work_that_does_not_listen_never_runs_twice,
        },
        spread::{ a_drained_replica_goes_and_its_namesake_stays },
        reload::{
            the_newest_definition_of_a_job_counts_during_a_rolling_change,
            a_refused_definition_waits_until_all_replicas_have_it,
        },
        views::{ a_view_without_nodes_says_that_it_does_not_know },
        commands::{
            what_a_command_wrote_is_in_the_history,
            the_last_line_of_a_running_command_is_its_progress,
        },
    ]);
    #[cfg(feature = "etcd")]
    long.push(moves::trial_from_masters());
    #[cfg(feature = "etcd")]
    long.extend(on![etcd: nodes::{ a_fleet_outlasts_a_start_without_its_masters }]);
    #[cfg(feature = "postgres")]
    long.extend(on![postgres_own: nodes::{ a_fleet_outlasts_a_start_without_its_masters }]);
    #[cfg(feature = "etcd")]
    long.extend(on![etcd_guarded: ticks::{ twenty_ticks_of_a_database_that_crashes }]);
    #[cfg(feature = "postgres")]
    long.extend(on![postgres_guarded: ticks::{ twenty_ticks_of_a_database_that_crashes }]);
    #[cfg(all(feature = "etcd", feature = "postgres"))]
    long.push(demo::trial_on_etcd());
    #[cfg(feature = "etcd")]
    long.extend(on![etcd_cluster:
        elections::{ a_killed_leader_is_replaced_while_its_store_elects_another },
        storm::{ a_storm_of_faults_loses_and_doubles_no_tick },
        ticks::{ twenty_ticks_of_a_cluster_that_loses_its_leaders },
        leaders::{ a_killed_leader_is_replaced_within_ttl_and_a_half_second },
        nodes::{ without_a_majority_nobody_leads },
    ]);
    cases.extend(long.into_iter().map(|case| case.with_ignored_flag(true)));
    let cases = heavy::spread(cases);
    let conclusion = libtest_mimic::run(&arguments, cases);
    #[cfg(feature = "postgres")]
    database::end();
    conclusion.exit_code()
}
