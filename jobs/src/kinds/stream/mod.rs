//! Handles each message of a Redis stream once, in whichever replica.
//!
//! A message is sent as a row of `notifications` is, or a command is run for it. Every replica claims a message by
//! [`Once`](watchkeeper::once::Once) before it handles it; when it was handled, a final record says so to all others for as long
//! as the message is accepted.
//!
//! # The two modes
//! - `every-reader`: every replica reads the whole stream from the oldest message that is young enough on. Nothing is kept beside
//!   the stream. A replica that is restarted reads it again, and finds the records.
//! - `group`: the server deals messages out to the members of a consumer group, and is told (`XACK`) of each that is settled.
//!   Messages that a member was given and that stay unsettled for `take_over_after` are taken over by another one (`XAUTOCLAIM`).
//!   That alone would let a slow member and its successor handle one message both: the claim keeps the successor waiting until the
//!   member has ended or its lease is over.
//!
//! # Invariants
//! - T1 A message is handled under its claim, and a message that was done is not handled again.
//!   (`readers_that_are_killed_lose_and_double_nothing`)
//! - T2 What a dead member was given is handled by another.  (`messages_of_dead_members_are_taken_over`)
//! - T3 A message that fails for good, or too often, goes to the list of dead messages and holds up no other.
//!   (`a_poison_message_goes_to_the_dead_list_and_holds_up_no_other`)
//! - T4 What goes wrong with the stream ends nothing: it is told, and asked again.
//!   (`a_stream_that_is_lost_and_comes_back_is_read_on`, `the_search_for_messages_of_others_goes_on_after_a_failure`)
//! - T5 A message that is too old to know whether it was handled goes to that list, too, before the group is told that it is done.
//!   (`a_message_that_is_too_old_goes_to_the_dead_list`, `what_a_receiver_asks_for_does_not_make_a_message_too_old`)
//! - T6 Reading begins with what is young enough by the server's clock, whatever that of the replica shows.
//!   (`reading_begins_by_the_clock_of_the_server`)
//! - T7 Messages so large that many of them do not come in time are read, a few at a time.
//!   (`fewer_messages_are_asked_for_where_so_many_take_too_long`)
//! - T8 What is settled is acknowledged before its member ends, where its server answers.
//!   (`what_is_settled_is_acknowledged_in_the_end_also_when_a_look_was_given_up`)
//! - T9 How much is still to be done is told without reading it, by what the server counts.
//!   (`what_is_left_is_told_and_not_read_for_it`, `what_lies_behind_a_reader_is_counted_from_where_it_is_known`,
//!   `what_is_left_of_a_stream_is_shown_as_its_backlog`)
//!
//! # When things fail
//! A consumer that dies between the effect and the final record leaves a message that is handled again: under the same
//! `Idempotency-Key`, by which a receiver knows it, and under a larger token.
//!
//! # Not promised
//! Order: messages are handled beside each other. One handling by receivers that ignore the key. Two entries of one message on
//! the list of dead ones are possible when a replica dies just then.
//!
//! In reading order: `params`, `id`, `message`, `backlog`, `server`, `handler`, `job`.

mod backlog;
mod handler;
mod id;
mod job;
mod message;
mod params;
mod server;

use self::job::Stream;
use super::kind::{Kind, read};

/// What the worker is told of it.
pub(super) const KIND: Kind = Kind {
    name: "stream",
    make: |worker| {
        let events = worker.events().clone();
        worker.batch_kind("stream", move |params| Stream::new(params, events.clone()))
    },
    check: |params| read(params, handler::check),
    look: None,
    items: None,
    fixed: &[],
    tells_progress: false,
};
