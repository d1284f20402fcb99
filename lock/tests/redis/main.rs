//! The Redis node against real servers. Costs about a minute and a half.
//!
//! `cargo test --test redis [FILTER]`. Without a server every case is ignored and says why;
//! `WATCHKEEPER_REQUIRE=redis` makes that a failure. What every store must do, and what is a new life of a server, is also
//! asked of `valkey-server` beside `redis-server`, and of each server in the folder `WATCHKEEPER_SERVERS`: the cases begin
//! with the name of its program. Valkey also replaces a master with sentinels of its own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;

use libtest_mimic::Trial;
use watchkeeper_lock::{every_case, node::Node};

mod access;
mod bench;
mod cluster;
mod damage;
mod differential;
mod failover;
mod faults;
mod fences;
mod guard;
mod incarnation;
mod locks;
mod memory;
mod refusals;
mod semantics;
mod sentinel;
mod server;
#[cfg(feature = "redis-tls")]
mod tls;
mod twice;
mod wire;

/// The suite of every store lies with those that need no server.
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
use it::{
    conformance::{self, Lab},
    holders,
};

/// A case, named by its path, so that a filter finds it.
type Named = (&'static str, fn());

macro_rules! cases {
    ($($module:ident :: { $($case:ident),+ $(,)? }),+ $(,)?) => {
        [$($((
            concat!(stringify!($module), "::", stringify!($case)),
            $module::$case as fn(),
        )),+),+]
    };
}

/// As the common suite calls it.
macro_rules! case {
    ($group:ident, $case:ident) => {
        concat!(stringify!($group), "::", stringify!($case))
    };
}

/// Every case of the common suite, on an empty server of its own.
macro_rules! common_cases {
    (: $($group:ident: [$($case:ident,)*],)*) => {
        [$($((
            concat!("conformance::", stringify!($group), "::", stringify!($case)),
            (|| bench::run(async { conformance::play(case!($group, $case), lab()).await })) as fn(),
        ),)*)*]
    };
}

fn lab() -> Lab {
    let server = server::RedisServer::start();
    let settings = bench::settings(&server);
    Lab::new(server, move || {
        let client: Arc<dyn Node> = Arc::new(bench::node(&settings));
        Box::pin(async move { client })
    })
}

/// The same for a user with the documented rights and no others.
macro_rules! narrow_cases {
    (: $($group:ident: [$($case:ident,)*],)*) => {
        vec![$($(server::trial(
            concat!("narrow::", stringify!($group), "::", stringify!($case)),
            || bench::run(async { conformance::play(case!($group, $case), narrow_lab()).await }),
        ),)*)*]
    };
}

fn narrow_lab() -> Lab {
    let (server, settings) = access::smallest();
    Lab::new(server, move || {
        let client: Arc<dyn Node> = Arc::new(bench::node(&settings));
        Box::pin(async move { client })
    })
}

/// Every case of the suite of locks.
macro_rules! lock_cases {
    ($nodes:literal, $expiry:ident:
        every: [$($module:ident::$case:ident,)*], faulty: [$($bad_module:ident::$bad:ident,)*],) => {
        vec![$(lock_cases!($nodes, $expiry, $module, $case),)* $(lock_cases!($nodes, $expiry, $bad_module, $bad),)*]
    };
    ($nodes:literal, $expiry:ident, $module:ident, $case:ident) => {
        server::trial(
            concat!("locks::", stringify!($expiry), "::", $nodes, "::", stringify!($module), "::", stringify!($case)),
            || locks::play($nodes, watchkeeper_lock::node::Expiry::$expiry, it::locks::$module::$case),
        )
    };
}

/// What is a new life of a server, and what is none: the table of the book.
fn lives() -> Vec<Named> {
    let cases = cases![incarnation::{
            a_backup_is_no_loss,
            replicas_that_come_and_go_are_no_loss,
            a_reload_of_the_same_data_is_no_loss,
            the_end_of_the_backlog_is_no_loss_after_a_promotion,
            a_restart_is_a_loss_whatever_was_kept,
            a_table_that_is_gone_is_a_loss,
            the_table_of_another_database_is_a_loss,
            a_master_that_took_over_the_memory_of_another_has_lost_its_own,
            a_replica_confirms_nothing,
            a_planned_failover_is_a_loss_on_either_side,
            a_table_that_a_person_puts_back_is_not_noticed,
            eviction_switched_on_under_a_living_connection_is_noticed,
            eviction_is_noticed_before_anything_was_evicted,
    }];
    cases.to_vec()
}

/// What is also tried with the sentinels of Valkey.
fn failovers() -> Vec<Named> {
    let cases = cases![sentinel::{
            a_killed_master_is_replaced_and_nothing_is_granted_before_its_leases_are_over,
    }];
    cases.to_vec()
}

/// Cases whose servers must say where their connections come from.
fn in_networks(cases: &[Named]) -> Vec<Trial> {
    let (able, reason) = (
        server::knows_sources(),
        "this redis-server does not know bind-source-addr: it is older than 7",
    );
    let trials = cases
        .iter()
        .map(|(name, case)| server::trial_where(able, reason, name, *case));
    trials.collect()
}

fn usual(cases: &[Named]) -> Vec<Trial> {
    let trials = cases.iter().map(|(name, case)| server::trial(name, *case));
    trials.collect()
}

fn main() {
    let arguments = libtest_mimic::Arguments::from_args();
    let on_every_server = [&every_case!(common_cases)[..], &lives()].concat();
    let mut cases = usual(&on_every_server);
    let others = server::others();
    for program in &others {
        let on_it = on_every_server.iter();
        cases.extend(on_it.map(|(name, case)| server::trial_on(program, name, *case)));
        if server::is_valkey(program) {
            let on_it = failovers().into_iter();
            cases.extend(on_it.map(|(name, case)| server::trial_on(program, name, case)));
        }
    }
    cases.extend(server::no_valkey(&others));
    // First of those that wait.
    cases.extend(usual(
        &cases![memory::{ names_that_were_used_once_take_no_memory }],
    ));
    let long = usual(&cases![memory::{ a_million_names_that_were_used_once_take_no_memory }]);
    cases.extend(long.into_iter().map(|case| case.with_ignored_flag(true)));
    cases.extend(usual(&cases![
        sentinel::{
            a_killed_master_is_replaced_and_nothing_is_granted_before_its_leases_are_over,
            a_frozen_master_that_comes_back_late_grants_nothing,
            a_master_that_is_put_back_in_charge_has_lost_what_was_granted_meanwhile,
            without_a_majority_of_sentinels_no_vote_is_asked_for_and_it_comes_back,
            a_master_is_found_and_its_lock_kept,
            one_listed_sentinel_of_three_is_no_majority,
            each_sentinel_is_inspected_also_one_that_is_silent,
            a_sentinel_that_is_listed_twice_counts_once,
            a_sentinel_that_has_forgotten_the_others_is_no_majority,
            an_unknown_master_name_is_named,
            a_sentinel_that_wants_a_password_is_named,
            a_program_with_the_address_of_the_master_is_refused_by_name,
            however_its_sentinels_are_listed_a_fleet_is_one,
        },
        cluster::{
            a_killed_master_is_followed,
            a_slot_that_moves_is_followed,
            a_cluster_is_one_node,
            too_few_listed_nodes_are_no_majority,
        },
    ]));
    cases.extend(in_networks(&cases![
        sentinel::{
            a_master_that_is_cut_off_serves_its_side_no_longer_than_it_is_trusted,
            without_the_guard_a_master_that_is_cut_off_and_its_successor_have_a_holder_each,
            a_cut_lets_nothing_through_in_either_direction,
        },
    ]));
    let mut long = usual(&cases![
        sentinel::{
            a_master_that_wants_a_password_gets_it,
            a_planned_failover_moves_the_clients,
        },
        cluster::{ turns_go_on_across_a_failover_and_a_slot_that_moves },
    ]);
    long.extend(in_networks(
        &cases![sentinel::{ twenty_failovers_and_no_two_holders }],
    ));
    cases.extend(long.into_iter().map(|case| case.with_ignored_flag(true)));
    cases.extend(every_case!(narrow_cases));
    cases.extend(every_lock_case!(lock_cases 1, Server));
    cases.extend(every_lock_case!(lock_cases 3, Server));
    cases.extend(every_lock_case!(lock_cases 5, Server));
    cases.extend(every_lock_case!(lock_cases 1, Observed));
    cases.extend(every_lock_case!(lock_cases 3, Observed));
    cases.extend(every_lock_case!(lock_cases 5, Observed));
    cases.extend(usual(&cases![
        differential::{
            the_script_answers_as_memory_does,
            the_script_answers_as_memory_does_with_raw_keys,
            the_guarded_script_answers_as_memory_does,
        },
        semantics::{
            a_free_lock_is_granted_and_a_held_one_refused,
            an_attempt_sent_again_is_granted_with_the_same_number,
            what_is_released_is_never_granted_or_extended_again,
            counters_never_fall,
            confirm_raises_and_shows_larger_grants,
            extend_renews_heals_and_refuses,
            writes_are_ordered_by_token_and_revision,
            a_write_before_its_time_is_too_early,
            a_late_call_changes_nothing,
            claims_of_one_owner_share_one_grant,
            a_claim_is_never_healed,
            lists_show_locks_and_claims_by_prefix,
            documents_are_replaced_by_larger_revisions_only,
            no_page_of_documents_keeps_a_server_for_long,
            a_look_at_who_lives_costs_no_more_the_more_there_are,
            no_page_of_the_table_keeps_a_server_for_long,
            one_call_is_one_step,
        },
        wire::{
            the_lock_is_a_plain_string_key_with_a_time_to_live,
            a_foreign_value_is_respected_and_never_deleted,
            a_foreign_value_is_never_taken_by_the_record_and_never_cut,
            a_key_of_another_type_counts_as_held,
            a_key_of_another_type_costs_nothing_but_itself,
            a_row_of_another_shape_costs_its_lock_alone,
            a_large_table_is_walked_in_small_pages,
            raw_keys_that_never_end_are_found,
            one_call_is_one_command,
            keys_of_ours_share_one_hash_tag_and_leave_nothing_behind,
            large_numbers_stay_exact,
            other_clients_hear_of_a_release,
            a_full_call_stays_within_the_arguments_of_the_server,
        },
        access::{
            a_wrong_password_is_an_access_error_without_the_secret,
            a_user_without_rights_is_an_access_error,
            database_numbers_are_kept_apart,
            a_replica_is_refused,
            an_evicting_server_is_refused,
            run_ids_tell_servers_apart,
            an_address_that_leads_to_the_server_of_another_node_is_refused,
            the_documented_user_hears_of_releases,
            each_right_that_is_missing_is_named_with_the_remedy,
        },
        faults::{
            a_flushed_script_is_taught_again,
            calls_that_lose_the_script_together_keep_their_order,
            commands_of_one_client_keep_their_order,
            a_frozen_node_times_out_promptly_then_fails_at_once_and_comes_back,
            a_server_that_is_slow_keeps_its_connections,
            a_node_frozen_from_the_start_delays_nobody,
            an_answer_that_waited_while_we_were_stalled_counts,
            a_frozen_node_is_noticed_though_every_caller_gives_up_early,
            what_waits_in_a_frozen_server_does_nothing_after_its_time,
            a_restarted_server_is_found_again,
            announcements_survive_a_restart,
            a_listener_that_begins_late_says_so,
            a_node_outlives_the_runtime_that_connected_it,
            locks_outlive_the_runtime_that_used_them_first,
        },
        damage::{
            where_the_memory_is_full_what_is_new_is_refused_alone,
            a_counter_out_of_range_costs_what_needs_it_alone,
            a_marker_that_is_none_of_ours_is_none,
            a_node_with_a_marker_that_is_none_of_ours_is_watched_and_votes_again,
            an_identity_that_is_none_of_ours_spoils_no_founding,
            a_memory_loss_that_makes_no_sense_was_before_now,
            a_damaged_body_costs_a_fleet_nothing_but_itself,
            a_document_with_a_revision_of_nonsense_is_absent_and_replaced,
            a_large_foreign_value_is_cut_in_the_server,
            a_large_body_is_moved_only_for_its_heir,
            a_body_that_was_taken_away_is_inherited_by_none,
            a_body_of_which_nonsense_is_known_is_kept_and_inherited_by_none,
            a_body_without_a_lease_ends,
            names_that_are_over_leave_nothing_behind,
            a_damaged_counter_on_one_of_three_is_not_spread,
            a_search_finds_what_is_damaged_and_changes_nothing,
            a_forgotten_script_costs_only_what_was_under_way,
        },
        twice::{the_short_scripts_do_as_the_loop_does,},
        refusals::{
            a_full_memory_still_extends_and_releases,
            a_table_of_another_type_is_refused_by_its_name,
            a_server_that_cannot_save_refuses_as_misconf,
            somebody_elses_script_makes_it_busy_and_nothing_of_ours_is_killed,
            a_loading_server_is_waited_for,
            a_master_that_became_a_replica_is_looked_at_anew,
            rights_taken_away_are_missed_by_name_and_found_again,
            a_raw_key_that_the_user_may_not_touch_is_refused_and_the_others_are_not,
            a_server_that_wants_replicas_refuses_until_it_wants_none,
            a_password_that_comes_and_goes_is_named,
            a_cluster_without_slots_is_down,
            a_server_that_hangs_up_is_not_stormed,
        },
        guard::{
            every_rule_of_admission,
            a_server_that_restarts_empty_does_not_vote,
            a_flushed_server_does_not_vote,
            an_old_snapshot_does_not_vote,
            a_promoted_replica_does_not_vote,
            a_master_that_was_a_replica_for_a_while_does_not_vote,
            g1_a_nomination_ends_the_votes_of_connections_that_do_not_ask,
            a_replica_for_a_while_is_noticed_by_every_call_also_over_a_living_connection,
        },
        fences::{
            a_stale_holder_is_refused,
            a_holder_that_was_stale_by_its_release_is_refused,
            a_stale_holder_is_refused_by_a_script_of_the_user,
            without_the_fence_the_stale_write_goes_through,
            a_watched_fence_stops_a_transaction_that_a_later_holder_overtook,
            tokens_are_compared_exactly_and_kept_as_they_came,
            only_a_token_passes,
            a_key_that_is_no_fence_refuses_everybody,
        },
    ]));
    #[cfg(feature = "redis-tls")]
    cases.extend(tls::cases());
    libtest_mimic::run(&arguments, cases).exit();
}
