//! Sends the rows of a user's table: every row at least once, every possible repeat known beforehand.
//!
//! The table stays as it is: no columns for claims, only the `sent_at` it has anyway. Rows are taken by *cells*: a
//! fixed range of integer ids, or a bucket of the ids' hash. A cell is one batch and is locked as one.
//!
//! # One batch
//! 1. Under the claim, in one transaction: read the cell's unsent rows **again** (the last holder may have sent some),
//!    and write one *intent*: this token is about to send these items.
//! 2. Send, a few at a time, each with an `Idempotency-Key` that depends on database, table and id alone.
//! 3. In one transaction that requires the intent to be still ours: mark `sent_at`, record what went wrong, remove the
//!    intent.
//!
//! # Invariants
//! - N1 `sent_at` is the truth; a cell is never final.             (`a_row_committed_late_into_a_finished_cell_is_sent`)
//! - N2 Whatever may have been sent without being marked is listed before it is sent again, with the same key.
//!   (`items_of_a_killed_sender_are_listed_then_repeated_with_the_same_key`,
//!   `a_row_that_is_hidden_keeps_its_doubt_and_can_be_parked`)
//! - N3 A holder whose intent was replaced writes nothing.         (`a_stale_holder_marks_and_removes_nothing`)
//! - N4 At any time all intents of a table are of one cell size.   (`another_cell_size_waits_for_open_intents`)
//! - N5 Where an order is wanted, a row is sent when all earlier ones of its recipient that are there have gone.
//!   (`rows_of_one_recipient_go_in_order_whatever_fails`, `a_later_row_that_is_seen_first_does_not_go_first`)
//! - N6 What a sender of one job has begun, no other job begins: their claims and tokens know nothing of each other.
//!   (`rows_of_another_job_are_left_to_it`)
//! - N7 A row counts as a repeat only of one that was accepted and that the sink keeps.
//!   (`a_row_is_no_repeat_of_one_that_may_not_be_kept`)
//!
//! # When things fail
//! Marks that cannot be written are tried again for some seconds, under the same token
//! (`marks_are_tried_again_under_the_same_token`). A sender that dies leaves its intent: the next holder finds it and lists
//! its unsent items as *in doubt*, then repeats them or parks them, as `in_doubt` says. A refusal worth retrying waits for its time in the side table, which
//! survives the replica. What is refused for good is *dead*, with the reason.
//!
//! # Not promised
//! A database that forgets what it has committed, as a failover to an asynchronous standby does, makes repeats that no list names.
//! A receiver that ignores `Idempotency-Key` sees the repeats of items that were in doubt. An answer of 5xx is believed
//! to mean "not accepted".
//!
//! Tokens must not begin anew: when the lock store is replaced by an empty one, an intent that a dead sender left under a
//! larger token keeps its cell (a warning says so each time it is claimed, every few seconds) until that row of `watchkeeper_delivery_intent` is deleted by hand.
//!
//! # The table
//! The id must be unique. A partial index keeps the search for work independent of how much was sent:
//! `CREATE INDEX … ON notifications (id) WHERE sent_at IS NULL`. Exceptions and intents live beside the table in
//! `watchkeeper_delivery`, `watchkeeper_delivery_intent` and `watchkeeper_delivery_source`.
//!
//! In reading order: `params`, `text` (columns in texts), `cell`, `delivery` (what an answer means), `source` and its
//! `sqlite` and `postgres`, `sink` and its `webhook`, `smtp` and `file`, with `pace` and `hosts` (how fast a receiver is sent
//! to), `limits` (rates of all replicas together), `pauses` (what replicas tell each other of receivers), `times` (not before,
//! and not after), `order` (one after the other), `digest` (as one message) with `digest_name`, `queue`, `sending`, `backlog` (counted beside the work), `job`, `operator` (what a person
//! does with what is left), `items` (the same for commands and for the page of a worker).
//!
//! # Example
//! ```
//! use serde_json::json;
//! use watchkeeper::{Spec, Worker};
//! use watchkeeper_jobs::{Notifications, NotificationsParams};
//!
//! # fn main() -> Result<(), serde_json::Error> {
//! let params: NotificationsParams = serde_json::from_value(json!({
//!     "source": "sqlite:///data/shop.db",
//!     "table": "notifications",
//!     "sink": "https://mail.example/send",
//! }))?;
//! let worker = Worker::builder().build();
//! let events = worker.events().clone();
//! let mail = Notifications::new(params, Some(events));
//! let worker = worker.batch_job("mail", mail, Spec::continuous());
//! # let _ = worker;
//! # Ok(())
//! # }
//! ```

mod backlog;
pub(crate) mod cell;
pub(crate) mod delivery;
mod digest;
mod digest_name;
pub(crate) mod items;
mod job;
pub(crate) mod limits;
pub(crate) mod open;
pub(crate) mod operator;
mod order;
pub(crate) mod params;
mod pauses;
mod queue;
pub(crate) mod sending;
pub(crate) mod sink;
pub(crate) mod source;
mod text;
pub(crate) mod times;

#[doc(hidden)] // named at the top of the crate
pub use job::Notifications;
#[doc(hidden)] // named at the top of the crate
pub use params::NotificationsParams;
#[doc(hidden)] // parts of the parameters
pub use params::{Address, Backoff, Columns, Dedupe, Digest, InDoubt, Order, SideTables};

pub use cell::ItemId;
pub use delivery::Answer;
#[doc(hidden)] // for the tests of what the page of a worker lists and changes
pub use items::NotificationItems;
#[doc(hidden)] // for the tests, which look at a table from outside
pub use open::operator_of as operator;
#[doc(hidden)] // for these tests: what they ask of a table, and what it answers
pub use operator::{Did, Entry, FIRST_STEP, Operator, RowState, Step, TableStatus};
pub use sink::Sink;
pub use source::Item;
#[doc(hidden)] // for these tests: what is listed and counted
pub use {
    delivery::{Exception, State},
    source::{Counts, Exceptions, Listed, SourceError},
};

use super::kind::{Kind, read};

/// What the worker is told of it.
pub(super) const KIND: Kind = Kind {
    name: "notifications",
    make: |worker| {
        let events = worker.events().clone();
        worker.batch_kind("notifications", move |params| {
            Notifications::new(params, Some(events.clone()))
        })
    },
    check: |params| read(params, job::check),
    look: Some(open::look),
    items: Some(items::kept),
    fixed: &[],
    tells_progress: true,
};
