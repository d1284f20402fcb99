//! Notifications from a real PostgreSQL server: what every database must do, written in `../notifications` and run here once
//! more, and what only a server can show. Costs about half a minute.
//!
//! `cargo test -p watchkeeper-jobs --test source [FILTER]`. Without the server's programs every case is ignored and says why;
//! `WATCHKEEPER_REQUIRE=postgres` makes that a failure. One case needs `pgbouncer` as well. Each case has a database of its own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod announced;
mod bodies;
mod check;
#[path = "../shared/command.rs"]
mod command;
#[path = "../notifications/commands.rs"]
mod commands;
#[path = "../notifications/digest.rs"]
mod digest;
#[path = "../notifications/doubt.rs"]
mod doubt;
mod exactly_once;
mod held;
#[path = "../notifications/import.rs"]
mod import;
#[path = "../notifications/mail_server.rs"]
mod mail_server;
#[path = "../notifications/order.rs"]
mod order;
mod pgbouncer;
#[path = "../../../lock/tests/postgres/pooler.rs"]
mod pooler;
mod poolers;
#[path = "../notifications/rough.rs"]
mod rough;
mod scene;
mod search;
#[path = "../shared/sender.rs"]
mod sender;
#[path = "../notifications/sending.rs"]
mod sending;
#[path = "../../../lock/tests/postgres/server.rs"]
mod server;
mod servers;
mod sinks;
mod table;
#[path = "../shared/wait.rs"]
mod wait;

/// As it is called where it is shared.
use server as postgres;

/// Names each case by its path, so that a filter finds it.
macro_rules! cases {
    ($server:ident: $($module:ident :: { $($case:ident),+ $(,)? },)+) => {
        vec![$($(server::trial(
            concat!(stringify!($module), "::", stringify!($case)),
            &$server,
            |server| scene::play(server, $module::$case()),
        )),+),+]
    };
}

fn main() {
    if exactly_once::is_replica() {
        return;
    }
    let mut arguments = libtest_mimic::Arguments::from_args();
    // Many cases wait.
    arguments.test_threads.get_or_insert(4);
    let server = server::Shared::default();
    let mut cases = cases![server:
        sending::{
            a_table_is_sent_cell_by_cell_and_marked,
            a_row_committed_late_into_a_finished_cell_is_sent,
            an_item_refused_for_good_is_dead_with_its_reason,
            a_refused_item_comes_back_after_its_pause,
            rows_are_sent_not_before_one_time_and_not_after_another,
            the_oldest_row_that_waits_is_told_by_its_time,
            rows_may_be_sent_to_a_file,
            items_given_up_after_their_attempts_are_dead,
            a_tenant_at_its_limit_holds_up_no_other_however_many_rows_it_has,
            rows_that_are_not_sent_use_no_turn,
            a_table_that_appears_later_is_served,
            a_run_without_a_claim_is_refused,
            no_secret_reaches_the_side_table_or_an_error,
            several_replicas_and_a_writer_share_one_database,
        },
        doubt::{
            items_of_a_killed_sender_are_listed_then_repeated_with_the_same_key,
            items_in_doubt_are_parked_when_told_so,
            a_row_that_is_hidden_keeps_its_doubt_and_can_be_parked,
            rows_of_another_job_are_left_to_it,
            a_stale_holder_marks_and_removes_nothing,
            an_item_without_an_answer_is_in_doubt_and_repeated_with_the_same_key,
            an_item_that_was_never_answered_is_parked_and_repeated_as_a_doubt,
            a_stopped_batch_marks_what_was_sent_and_lists_what_was_under_way,
            another_cell_size_waits_for_open_intents,
        },
        digest::{
            a_digest_goes_when_its_oldest_row_is_old_enough,
            a_digest_in_doubt_goes_again_with_the_same_rows_under_the_same_key,
            a_digest_in_doubt_is_read_whole_beside_a_row_that_is_before_it,
            a_row_that_joins_a_message_has_its_own_attempts,
            a_row_whose_time_is_none_is_dead_alone,
            a_step_through_parked_rows_takes_messages_whole,
            a_message_in_doubt_waits_for_replicas_that_make_such,
            a_text_holds_all_rows_of_a_digest,
            what_a_digest_cannot_go_with_is_said,
        },
        order::{
            rows_of_one_recipient_go_in_order_whatever_fails,
            in_strict_order_a_dead_row_keeps_back_its_recipient_alone,
            what_is_discarded_keeps_nothing_back,
            in_strict_order_each_recipient_has_its_messages_in_the_order_of_its_rows,
            a_parked_row_that_was_never_begun_keeps_its_place,
            a_row_in_an_order_that_is_being_sent_is_left_alone,
            a_recipient_with_many_rows_leaves_room_for_the_others,
            an_order_counts_for_what_waits_already,
            rows_of_one_message_are_sent_once_within_the_window,
            a_row_is_no_repeat_of_one_that_may_not_be_kept,
            rows_without_a_recipient_go_as_they_come,
        },
        commands::{
            dead_items_are_counted_and_listed_with_their_reason,
            what_is_named_is_sent_again_with_the_same_key_and_attempts_counted_anew,
            the_page_lists_and_changes_what_the_command_does,
            a_running_worker_takes_orders_about_its_items,
            a_running_worker_shows_dead_items_and_sends_them_once_when_asked_to,
            a_parked_row_is_not_sent_until_it_is_asked_for,
            what_is_discarded_is_neither_sent_nor_waits_for_a_person,
            an_item_that_is_being_sent_is_left_alone,
            looking_creates_nothing,
            ids_and_reasons_of_anybody_reach_no_terminal_as_they_are_and_can_be_named,
            rows_that_are_gone_are_listed_no_more_once_they_are_asked_for,
            many_items_go_page_by_page_and_step_by_step,
            orders_beside_senders_that_are_killed_lose_and_double_nothing,
        },
        import::{
            rows_of_a_file_are_imported_and_known_ids_left_out,
            a_file_with_a_fault_changes_nothing,
            a_row_that_is_refused_is_named_and_the_rest_goes_on_behind_it,
        },
        table::{
            every_type_of_id_is_sent_and_marked,
            a_time_of_every_type_tells_how_old_a_row_is,
            a_digest_of_texts_goes_again_in_the_order_of_the_database,
            every_type_of_time_is_written,
            a_filter_makes_deliveries_of_one_table,
            columns_of_the_table_stay_as_they_are,
            side_tables_lie_where_they_are_wanted_or_are_not_made,
            side_tables_that_take_no_discarded_items_are_named_with_the_remedy,
            rows_with_ids_are_imported_and_later_ones_come_behind_them,
            rows_that_may_be_in_the_table_are_not_imported_again,
            what_does_not_fit_is_said_with_key_and_remedy,
            a_right_that_is_missing_on_the_side_tables_is_said_with_its_grant,
            a_change_of_the_division_rewrites_what_differs_in_portions,
        },
        bodies::{
            values_of_every_type_are_sent_without_loss,
            a_body_that_is_one_column_is_sent_as_it_stands_there,
            large_bodies_take_turns_and_too_large_ones_are_dead,
            rows_without_an_id_are_left_alone,
        },
        held::{
            a_row_that_another_program_holds_is_marked_later,
            a_row_that_stays_held_is_repeated_with_pauses_or_parked,
            a_row_that_refuses_its_mark_is_parked_and_the_others_are_marked,
            a_digest_whose_rows_stay_held_comes_again_as_it_was,
            a_mark_is_refused_whatever_the_code_with_which,
            a_mark_that_is_taken_back_is_no_mark,
            a_row_that_refuses_its_mark_is_found_in_a_few_steps,
            a_batch_that_never_ends_is_sent_no_oftener_than_its_attempts,
            writers_wait_for_no_sender,
            holders_of_one_batch_at_one_time_repeat_only_what_is_listed,
            a_successor_waits_for_the_open_transaction_of_the_last_holder,
            a_person_waits_for_a_batch_that_begins,
            ids_committed_late_are_all_sent,
        },
        search::{
            a_look_takes_few_steps_past_many_rows_that_are_held_back,
            items_without_rows_hide_none_whose_time_has_come,
            buckets_of_texts_are_found_past_rows_that_are_held_back,
            many_rows_of_one_recipient_hide_none_of_the_others,
            an_ordered_bucket_of_texts_is_sent_behind_however_many_rows_at_rest,
            a_later_row_that_is_seen_first_does_not_go_first,
            the_search_for_work_uses_the_partial_index,
        },
        servers::{
            a_server_that_restarts_is_found_again,
            a_server_that_restarts_before_rows_are_marked_leaves_none_in_doubt,
            a_standby_is_refused_by_name_and_the_next_host_is_tried,
            a_table_is_not_that_of_an_old_primary_that_starts_again,
            a_table_is_left_whose_primary_lives_on_beside_its_successor,
            a_password_and_a_certificate_are_asked_for_and_never_shown,
        },
        poolers::{
            the_server_is_told_each_statement_a_few_times,
            behind_a_pooler_no_statement_is_prepared,
            a_pooler_that_passes_the_greeting_on_is_found_out_before_a_name_is_used,
            a_pooler_that_takes_away_what_was_prepared_is_found_out,
            to_prepare_waits_for_no_other_session_without_an_end,
        },
        exactly_once::{
            a_payment_is_booked_once_whatever_dies,
        },
        announced::{
            an_announcement_begins_a_look,
        },
        sinks::{
            each_row_goes_to_its_address_signed_with_its_secret,
            a_text_takes_columns_of_every_type,
            rows_go_as_mails,
        },
        check::{
            check_says_what_differs_in_the_database,
            a_schema_that_is_printed_can_be_run,
            the_tables_of_the_guide_are_served,
        },
    ];
    cases.push(pgbouncer::trial(&server));
    let conclusion = libtest_mimic::run(&arguments, cases);
    // The last handle: leaving the process by `exit` would leave the server behind.
    drop(server);
    conclusion.exit();
}
