//! What a person does with items that do not go by themselves: counts and lists them, sends them again, parks or discards them.
//! Plain values and decisions; the [`Operator`] of each database carries them out.
//!
//! Nothing here needs a running worker. Senders read the side table again at every look, so that they find what was
//! changed within a second.
//!
//! # Invariants
//! - A1 An item that is being sent, or whose sender died in the act, is left alone: what became of it is not known yet.
//!   (`an_item_that_is_being_sent_is_left_alone`)
//! - A2 An item that may have been received stays listed as in doubt when it is sent again, and the key by which its
//!   receiver knows it does not change.                               (`what_may_have_been_received_stays_in_doubt`)
//! - A3 Many items are changed in short transactions, with pauses between: senders wait for none longer than for each
//!   other.                                                           (`steps_grow_and_shrink_with_the_time_they_take`)
//! - A4 Looking changes nothing, and creates nothing.                 (`looking_creates_nothing`)
//! - A6 A message of several rows that may have been received is sent again whole where a state is: no sender comes between its rows.
//!   (`a_step_through_parked_rows_takes_messages_whole`)
//! - A7 What was discarded is not sent, and waits for nothing, until a person has it sent again.
//!   (`what_is_discarded_is_neither_sent_nor_waits_for_a_person`)

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use watchkeeper::node::Token;

use super::{
    cell::ItemId,
    delivery::{Exception, State},
    source::{Counts, Result},
};

/// Counts, lists and changes what stands beside one table. An error of a change has changed nothing, unless it says that this is
/// unknown.
#[async_trait]
pub trait Operator: Send {
    /// How the table stands. Counts its unsent rows.
    ///
    /// # Errors
    /// [`SourceError`](super::source::SourceError).
    async fn status(&mut self) -> Result<TableStatus>;

    /// At most `limit` items in these states, in the order of their ids, from the first behind `after` on.
    ///
    /// # Errors
    /// [`SourceError`](super::source::SourceError).
    async fn list(
        &mut self,
        states: &[State],
        after: Option<&ItemId>,
        limit: usize,
    ) -> Result<Vec<Entry>>;

    /// The id that a person means by this word: that of a row, else of an item whose row is gone.
    ///
    /// # Errors
    /// [`SourceError`](super::source::SourceError).
    async fn find(&mut self, word: &str) -> Result<Option<ItemId>>;

    /// The id in the type that those of this table have, whether it is there or not: where a list goes on.
    ///
    /// # Errors
    /// [`SourceError`](super::source::SourceError).
    async fn place(&mut self, word: &str) -> Result<ItemId>;

    /// Has these items sent again, in one transaction; says of each what became of it.
    ///
    /// # Errors
    /// [`SourceError`](super::source::SourceError).
    async fn retry(&mut self, ids: &[ItemId]) -> Result<Vec<Did>>;

    /// Has up to `items` items of a state sent again, those behind `after`, in one transaction; and those of the state with which they may
    /// have been received as one message.
    ///
    /// # Errors
    /// [`SourceError`](super::source::SourceError).
    async fn retry_step(
        &mut self,
        state: State,
        after: Option<&ItemId>,
        items: usize,
    ) -> Result<Step>;

    /// Discards up to `items` items of a state, those behind `after`, in one transaction.
    ///
    /// # Errors
    /// [`SourceError`](super::source::SourceError).
    async fn discard_step(
        &mut self,
        state: State,
        after: Option<&ItemId>,
        items: usize,
    ) -> Result<Step>;

    /// Puts rows into the table, in one transaction: objects with values for these columns. Says how many; the others had an id
    /// that is there. Rows that come later without an id get one behind these.
    ///
    /// # Errors
    /// [`SourceError`](super::source::SourceError); nothing was written then, unless it says that this is unknown.
    async fn import(&mut self, columns: &[String], rows: Vec<Value>) -> Result<u64>;

    /// What keeps senders from working, or makes them slow: missing side tables that no sender makes, a missing index. Changes
    /// nothing; the statement that would help is in the answer.
    ///
    /// # Errors
    /// [`SourceError`](super::source::SourceError).
    async fn look(&mut self) -> Result<Option<String>>;

    /// Whether the database gives ids of deleted rows to new ones. Changes nothing.
    ///
    /// # Errors
    /// [`SourceError`](super::source::SourceError).
    async fn ids_come_back(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// Parks these items, in one transaction, so that they are not sent until they are asked for again. Also rows that were
    /// never begun; makes the side tables where there are none.
    ///
    /// # Errors
    /// [`SourceError`](super::source::SourceError).
    async fn park(&mut self, ids: &[ItemId]) -> Result<Vec<Did>>;

    /// Discards these items, in one transaction: they are sent only when that is asked for again. Also rows that were never begun;
    /// makes the side tables where there are none.
    ///
    /// # Errors
    /// [`SourceError`](super::source::SourceError).
    async fn discard(&mut self, ids: &[ItemId]) -> Result<Vec<Did>>;
}

/// How a table stands.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TableStatus {
    /// Whether senders have ever served it; all but `backlog` is empty otherwise.
    pub served: bool,
    /// Rows still to be sent.
    pub backlog: u64,
    /// Items in the side table.
    pub items: Counts,
    /// Batches that are being sent, or whose sender died in the act.
    pub sending: u64,
    /// Doubts recorded since the table was first served: an upper bound for the repeats that its receiver saw.
    pub doubted_ever: u64,
}

/// One item of the side table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: ItemId,
    /// Where it stands and why.
    pub exception: Exception,
    /// The token of the holder that wrote this; zero when no holder ever had the item.
    pub token: Token,
    /// The batch that it was sent with.
    pub batch: String,
    /// When this was written.
    pub updated: String,
    /// The key by which a receiver knows it.
    pub key: String,
    /// What its row says.
    pub row: RowState,
}

/// What the user's table says of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowState {
    /// Not sent.
    Unsent,
    /// Marked as sent, by another hand than ours.
    Sent,
    /// Not there any more.
    Gone,
}

/// What became of an order about one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Did {
    /// As asked.
    Changed,
    /// It stands as asked already: a row that waits to be sent, an item that is parked or discarded.
    AsItIs,
    /// It is being sent, or its sender died in the act: nothing was changed.
    Sending,
    /// Its row was marked as sent, or deleted, by another hand: it is listed no more.
    Forgotten,
    /// There is neither a row nor an item with this id, or the row was sent.
    Unknown,
}

/// What one step through the items of a state did.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Step {
    /// Items that are sent again, or discarded.
    pub changed: u64,
    /// Items that are listed no more, because their rows were sent or deleted by another hand.
    pub forgotten: u64,
    /// Items that were left alone, because they are being sent.
    pub sending: u64,
    /// The last item that was looked at; the next step goes on behind it. None at the end.
    pub last: Option<ItemId>,
    /// How long senders may have waited for it.
    pub took: Duration,
}

/// A row of the side table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    /// Where it stands and why.
    pub(crate) exception: Exception,
    /// The holder that wrote this.
    pub(crate) token: Token,
    /// The batch that it was sent with.
    pub(crate) batch: String,
}

/// What is known of one item when an order about it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// It stands in the intent of a sender.
    pub(crate) sending: bool,
    /// Its row is there and not marked.
    pub(crate) unsent: bool,
    /// Its row of the side table.
    pub(crate) noted: Option<Noted>,
}

/// What is done about one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing is written.
    Leave(Did),
    /// Its row of the side table goes: its row is gone, or marked.
    Forget,
    /// Its row of the side table says this from now on.
    Write(Exception),
}

/// Items of the first step.
pub const FIRST_STEP: usize = 100;
/// Items of a step at most.
const LONGEST_STEP: usize = 2_000;
/// No step shall take longer.
const STEP: Duration = Duration::from_millis(25);
/// Characters of an earlier reason that are kept.
const KEPT_REASON: usize = 500;

/// How many items the next step is to take, after one of `items` took so long.
#[must_use]
pub(crate) fn next_step(items: usize, took: Duration) -> usize {
    if took > STEP {
        (items / 2).max(1)
    } else if took < STEP / 3 {
        (items * 2).min(LONGEST_STEP)
    } else {
        items
    }
}

/// What an order to send an item again comes to.
#[must_use]
pub(crate) fn to_retry(facts: &Facts) -> Change {
    match (&facts.noted, facts.unsent) {
        _ if facts.sending => Change::Leave(Did::Sending),
        (None, true) => Change::Leave(Did::AsItIs),
        (None, false) => Change::Leave(Did::Unknown),
        (Some(_), false) => Change::Forget,
        (Some(noted), true) => Change::Write(again(&noted.exception, noted.token)),
    }
}

/// What an order to park an item comes to.
#[must_use]
pub(crate) fn to_park(facts: &Facts) -> Change {
    to_rest(facts, State::Parked)
}

/// What an order to discard an item comes to.
#[must_use]
pub(crate) fn to_discard(facts: &Facts) -> Change {
    to_rest(facts, State::Discarded)
}

fn to_rest(facts: &Facts, state: State) -> Change {
    let prior = facts.noted.as_ref().map(|noted| &noted.exception);
    match prior {
        _ if facts.sending => Change::Leave(Did::Sending),
        None if !facts.unsent => Change::Leave(Did::Unknown),
        Some(_) if !facts.unsent => Change::Forget,
        Some(prior) if prior.state == state => Change::Leave(Did::AsItIs),
        prior => Change::Write(at_rest(prior, state)),
    }
}

/// The item as it waits to be sent again, with its attempts counted anew.
#[must_use]
pub(crate) fn again(prior: &Exception, token: Token) -> Exception {
    let state = match prior.state {
        // It was never begun. Its place in an order is kept by what stands here, and would be lost with it.
        State::Parked | State::Discarded if token == Token(0) => State::Retry,
        // What is parked may have been received, if a holder ever had it; what was discarded may have been parked.
        State::InDoubt | State::Parked | State::Discarded => State::InDoubt,
        // Neither was ever received: what is given up in doubt is parked.
        State::Dead | State::Retry => State::Retry,
    };
    Exception {
        state,
        attempts: 0,
        not_before_ms: 0,
        reason: prior.reason.clone(),
        doubted: false,
    }
}

/// The item as it waits for a person, or for nothing.
fn at_rest(prior: Option<&Exception>, state: State) -> Exception {
    let word = state.word();
    let reason = match prior.map(|p| p.reason.as_str()) {
        None | Some("") => format!("{word} on request"),
        Some(why) => {
            let why: String = why.chars().take(KEPT_REASON).collect();
            format!("{word} on request; before: {why}")
        }
    };
    Exception {
        state,
        attempts: prior.map_or(0, |p| p.attempts),
        not_before_ms: 0,
        reason,
        doubted: false,
    }
}

// === impl Change ===

impl Change {
    /// What became of the item.
    #[must_use]
    pub(crate) const fn did(&self) -> Did {
        match self {
            Self::Leave(did) => *did,
            Self::Forget => Did::Forgotten,
            Self::Write(_) => Did::Changed,
        }
    }
}

// === impl Step ===

impl Step {
    /// Counts what became of one that was taken along with an item of its message. One that stays in the state counts when the steps come
    /// to it.
    pub(crate) fn count_along(&mut self, stays: bool, did: Did) {
        if !stays {
            self.count(did);
        }
    }

    /// Counts what became of one item.
    pub(crate) fn count(&mut self, did: Did) {
        match did {
            Did::Changed => self.changed += 1,
            Did::Forgotten => self.forgotten += 1,
            Did::Sending => self.sending += 1,
            Did::AsItIs | Did::Unknown => {}
        }
    }
}

// === impl RowState ===

impl RowState {
    /// The word for it in listings.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unsent => "unsent",
            Self::Sent => "sent",
            Self::Gone => "gone",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exception(state: State) -> Exception {
        Exception {
            state,
            attempts: 20,
            not_before_ms: 17,
            reason: "no".to_owned(),
            doubted: true,
        }
    }

    #[test]
    fn what_may_have_been_received_stays_in_doubt() {
        let after = |state, token| again(&exception(state), Token(token)).state;
        assert_eq!(after(State::Parked, 7), State::InDoubt);
        assert_eq!(after(State::InDoubt, 7), State::InDoubt);
        assert_eq!(after(State::Dead, 7), State::Retry);
        assert_eq!(after(State::Retry, 7), State::Retry);
        assert_eq!(after(State::Parked, 0), State::Retry, "never begun");
        assert_eq!(after(State::Discarded, 7), State::InDoubt);
        assert_eq!(after(State::Discarded, 0), State::Retry, "never begun");
        let item = again(&exception(State::Dead), Token(7));
        assert_eq!((item.attempts, item.not_before_ms), (0, 0));
        assert!(!item.doubted, "no new doubt: it was counted when it arose");
    }

    fn facts(sending: bool, unsent: bool, state: Option<State>) -> Facts {
        let noted = state.map(|state| Noted {
            exception: exception(state),
            token: Token(7),
            batch: "t/50/0".to_owned(),
        });
        Facts {
            sending,
            unsent,
            noted,
        }
    }

    #[test]
    fn what_is_being_sent_is_left_alone_whatever_stands_there() {
        for state in [None, Some(State::Dead), Some(State::Parked)] {
            for unsent in [true, false] {
                let facts = facts(true, unsent, state);
                assert_eq!(to_retry(&facts), Change::Leave(Did::Sending));
                assert_eq!(to_park(&facts), Change::Leave(Did::Sending));
                assert_eq!(to_discard(&facts), Change::Leave(Did::Sending));
            }
        }
    }

    #[test]
    fn what_others_sent_or_deleted_is_forgotten() {
        let gone = facts(false, false, Some(State::Dead));
        assert_eq!(to_retry(&gone), Change::Forget);
        assert_eq!(to_park(&gone), Change::Forget);
        assert_eq!(to_discard(&gone), Change::Forget);
        let unknown = facts(false, false, None);
        assert_eq!(to_retry(&unknown), Change::Leave(Did::Unknown));
        assert_eq!(to_park(&unknown), Change::Leave(Did::Unknown));
        assert_eq!(to_discard(&unknown), Change::Leave(Did::Unknown));
    }

    #[test]
    fn an_order_that_is_carried_out_already_changes_nothing() {
        assert_eq!(to_retry(&facts(false, true, None)).did(), Did::AsItIs);
        let parked = facts(false, true, Some(State::Parked));
        assert_eq!(to_park(&parked), Change::Leave(Did::AsItIs));
        assert_eq!(to_retry(&parked).did(), Did::Changed);
        assert_eq!(to_park(&facts(false, true, None)).did(), Did::Changed);
        let discarded = facts(false, true, Some(State::Discarded));
        assert_eq!(to_discard(&discarded), Change::Leave(Did::AsItIs));
        assert_eq!(to_park(&discarded).did(), Did::Changed);
        assert_eq!(to_discard(&parked).did(), Did::Changed);
        assert_eq!(to_discard(&facts(false, true, None)).did(), Did::Changed);
    }

    #[test]
    fn steps_grow_and_shrink_with_the_time_they_take() {
        let ms = Duration::from_millis;
        assert_eq!(next_step(100, ms(1)), 200);
        assert_eq!(next_step(1_500, ms(1)), LONGEST_STEP);
        assert_eq!(next_step(100, ms(20)), 100);
        assert_eq!(next_step(100, ms(90)), 50);
        assert_eq!(next_step(1, ms(90)), 1);
    }

    #[test]
    fn a_reason_does_not_grow_without_end() {
        let mut item = exception(State::Retry);
        for _ in 0..100 {
            item = at_rest(Some(&item), State::Parked);
        }
        assert!(item.reason.len() < 600, "{}", item.reason.len());
        assert_eq!((item.attempts, item.state), (20, State::Parked));
    }
}
