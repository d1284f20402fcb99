//! Items of a job that do not go by themselves: what a person sees of them, and does with them, on the page of a worker.
//!
//! They stand in a database of the job, which the worker does not know. A kind of job that has such items says how they are listed and
//! changed (`Worker::items_of`), and its commands do it the same way. Each call may wait for a server, and is made on a thread for such
//! work.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Bytes of the ids that are told of an order, at most.
const TOLD: usize = 4096;

/// Items that are named in one order, at most.
pub const MOST_NAMED: usize = 100;

/// Lists and changes the items of the jobs of one kind.
pub trait KeptItems: Send + Sync + 'static {
    /// Items of the job with these parameters, in the order of their ids. Changes nothing.
    ///
    /// # Errors
    /// Why they cannot be read, in a sentence and without secrets.
    fn list(&self, params: &Value, asked: &ItemsAsked) -> Result<ItemPage, String>;

    /// Carries out an order about items of the job with these parameters. One about all of a state ends after some seconds, and says
    /// whether there are more.
    ///
    /// # Errors
    /// Why nothing was changed, in a sentence and without secrets. Where something was, or where that is unknown, the answer says so.
    fn change(
        &self,
        params: &Value,
        order: ItemOrder,
        which: &WhichItems,
    ) -> Result<ItemsChanged, String>;
}

/// Where an item stands that was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemState {
    /// To be sent again when its time has come.
    Retry,
    /// Given up.
    Dead,
    /// May have been received, and is repeated.
    InDoubt,
    /// Left to a person.
    Parked,
    /// Not sent, because a person has said so.
    Discarded,
}

/// Which items are to be listed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ItemsAsked {
    /// Those in one of these states.
    pub states: Vec<ItemState>,
    /// From the first behind this one on.
    pub after: Option<String>,
    /// So many at most.
    pub limit: usize,
}

/// Items, and whether there are more.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ItemPage {
    /// In the order of their ids.
    pub items: Vec<HeldItem>,
    /// There are more behind the last one.
    pub more: bool,
}

/// One item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldItem {
    /// Its id.
    pub id: String,
    /// Where it stands.
    pub state: ItemState,
    /// How often it was tried to send it.
    pub attempts: u32,
    /// Since when it stands there; `null` when that is not known.
    pub since: Option<Timestamp>,
    /// Why.
    pub reason: String,
    /// The key by which its receiver knows it.
    pub key: String,
    /// What its row says: `unsent`, `sent` by another hand, or `gone`.
    pub row: String,
}

/// What is to become of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemOrder {
    /// They are sent again.
    Retry,
    /// They are put aside, and not sent until that is asked for.
    Park,
    /// They are not sent, and wait for nothing any more.
    Discard,
}

/// Which items an order is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhichItems {
    /// Those with these ids, [`MOST_NAMED`] at most.
    Named(Vec<String>),
    /// All in a state.
    All {
        /// The state.
        state: ItemState,
        /// From the first behind this one on: where an order before this one has ended.
        after: Option<String>,
    },
}

/// What became of an order about items, each of which is counted once.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ItemsChanged {
    /// As asked.
    pub changed: u64,
    /// They stood as asked already.
    pub unchanged: u64,
    /// Their rows were sent or deleted by another hand: they are listed no more.
    pub forgotten: u64,
    /// They are being sent, or their sender has died in the act, and were left alone.
    pub sending: u64,
    /// There are none with these ids, or they were sent.
    pub unknown: u64,
    /// Those that were named and left alone.
    pub left_alone: Vec<LeftAlone>,
    /// There are more in this state: the time for one order is over, or it has `stopped`.
    pub more: bool,
    /// The last item that was looked at, where there are more of a state: the next order begins behind it. Those that were changed may
    /// be in that state still.
    pub next: Option<String>,
    /// Why the order has ended before its time. What was changed until then is counted; where nothing was, it is not known whether
    /// something was.
    pub stopped: Option<String>,
}

/// An item that was named in an order and left alone.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LeftAlone {
    /// Its id.
    pub id: String,
    /// Why.
    pub why: String,
}

// === impl ItemState ===

impl ItemState {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Retry,
        Self::Dead,
        Self::InDoubt,
        Self::Parked,
        Self::Discarded,
    ];

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Dead => "dead",
            Self::InDoubt => "in_doubt",
            Self::Parked => "parked",
            Self::Discarded => "discarded",
        }
    }

    /// The state of a word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    /// The same for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Retry => "to be sent again",
            Self::Dead => "dead",
            Self::InDoubt => "in doubt",
            Self::Parked => "parked",
            Self::Discarded => "discarded",
        }
    }
}

// === impl ItemOrder ===

impl ItemOrder {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Park => "park",
            Self::Discard => "discard",
        }
    }
}

// === impl WhichItems ===

impl WhichItems {
    /// In a line, for the list of orders. Whole ids, as a list of JSON: as many as have room.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self {
            Self::Named(ids) => named(ids),
            Self::All { state, after: None } => format!("all that are {}", state.words()),
            Self::All {
                state,
                after: Some(after),
            } => format!("all that are {}, behind {after}", state.words()),
        }
    }
}

/// `3 items: ["17","18"] and 1 more`.
fn named(ids: &[String]) -> String {
    let mut told = String::new();
    let mut shown = 0;
    for id in ids {
        // A string: always serializable.
        let id = serde_json::to_string(id).unwrap_or_default();
        // With the brackets.
        if told.len() + id.len() + 3 > TOLD {
            break;
        }
        if shown > 0 {
            told.push(',');
        }
        told += &id;
        shown += 1;
    }
    let all = ids.len();
    let items = if all == 1 { "item" } else { "items" };
    match all - shown {
        0 => format!("{all} {items}: [{told}]"),
        more => format!("{all} {items}: [{told}] and {more} more"),
    }
}

// === impl ItemsChanged ===

impl ItemsChanged {
    /// In a sentence: `6 to be sent again, 1 left alone, being sent`.
    #[must_use]
    pub fn in_words(&self, order: ItemOrder) -> String {
        let (done, as_it_is) = match order {
            ItemOrder::Retry => ("to be sent again", "waiting to be sent anyway"),
            ItemOrder::Park => ("parked", "parked already"),
            ItemOrder::Discard => ("discarded", "discarded already"),
        };
        let all = [
            (self.changed, done),
            (self.unchanged, as_it_is),
            (
                self.forgotten,
                "listed no more, because the row was sent or deleted by another hand",
            ),
            (self.sending, "left alone, being sent"),
            (self.unknown, "not there, or sent"),
        ];
        let some = all.iter().filter(|(count, _)| *count > 0);
        let some: Vec<String> = some
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        let some = match (some.is_empty(), &self.stopped) {
            (false, _) => some.join(", "),
            (true, None) => "there was none".to_owned(),
            (true, Some(_)) => "whether any was changed is not known".to_owned(),
        };
        let stopped = self.stopped.as_ref();
        let stopped = stopped.map(|why| format!("; it has stopped there: {why}"));
        let more = match (self.more, &self.next) {
            (false, _) => String::new(),
            (true, None) => "; there are more: give the order again".to_owned(),
            (true, Some(next)) => {
                format!("; there are more behind {next}: give the order again for those")
            }
        };
        format!("{some}{}{more}", stopped.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_items_is_told_in_a_sentence() {
        let mut changed = ItemsChanged {
            changed: 6,
            sending: 1,
            ..ItemsChanged::default()
        };
        let words = changed.in_words(ItemOrder::Retry);
        assert_eq!(words, "6 to be sent again, 1 left alone, being sent");
        changed.more = true;
        assert!(
            changed
                .in_words(ItemOrder::Park)
                .ends_with("give the order again")
        );
        changed.next = Some("149".to_owned());
        changed.stopped = Some("db: it went away".to_owned());
        assert_eq!(
            changed.in_words(ItemOrder::Retry),
            "6 to be sent again, 1 left alone, being sent; it has stopped there: db: it went away; \
             there are more behind 149: give the order again for those"
        );
        let none = ItemsChanged::default().in_words(ItemOrder::Retry);
        assert_eq!(none, "there was none");
    }

    #[test]
    fn the_ids_of_an_order_are_told_whole() {
        let told = |ids: &[&str]| {
            let ids = ids.iter().map(|id| (*id).to_owned());
            WhichItems::Named(ids.collect()).in_words()
        };
        assert_eq!(told(&["17"]), "1 item: [\"17\"]");
        assert_eq!(told(&["a, b", "\""]), "2 items: [\"a, b\",\"\\\"\"]");
        let long = "x".repeat(512);
        let words = told(&[long.as_str(); 100]);
        let (list, more) = words["100 items: ".len()..].split_once(" and ").unwrap();
        let list: Vec<String> = serde_json::from_str(list).unwrap();
        assert!(list.iter().all(|id| *id == long));
        assert_eq!((list.len(), more), (7, "93 more"));
    }

    #[test]
    fn a_state_is_known_by_its_word_everywhere() {
        for state in ItemState::ALL {
            assert_eq!(ItemState::of(state.word()), Some(state));
            let written = serde_json::to_value(state).unwrap();
            assert_eq!(written, state.word());
        }
        assert_eq!(ItemState::of("sent"), None);
    }
}
