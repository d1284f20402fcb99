//! What people have asked of a fleet over HTTP: who, when, what, why, and what came of it.
//!
//! Each order is a document `audit/ID`, written before the order is given and again with its result. Ids grow with time; the
//! last [`KEPT`] orders are kept and all that are [`YOUNG`], [`MOST`] at most and for [`LIFETIME`] at most. An order about a job that there is
//! not, or with parameters that it cannot take, is refused and stands nowhere.
//!
//! # Invariants
//! - U1 An order that cannot be written down is not given: what stands here is complete, apart from what was pruned.
//!   (an_order_is_written_down_before_it_is_given)
//! - U2 Of two writings about one order the one with its result counts.   (the_result_of_an_order_counts)
//! - U3 No order of the last day is forgotten for less than [`MOST`] others.   (no_young_order_is_forgotten_for_another_one)
//! # Not promised
//! Commands that ask the store themselves are not written down here: pauses, triggers, resignations and drains say in their own
//! documents by whom and when they were asked for. Nothing here is proof against a person who may write to the lock nodes, nor against
//! one with the token who gives [`MOST`] orders: those about replicas, triggers and locks are written down whether there are such or not.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::intent::MOST_REASON;
use crate::node::Doc;

/// The directory of orders.
pub(crate) const DIRECTORY: &str = "audit/";
/// Orders that are kept however old they are, and those that are kept at most.
pub(crate) const KEPT: usize = 200;
pub(crate) const MOST: usize = 2_000;
/// An order is young for so long.
pub(crate) const YOUNG: SignedDuration = SignedDuration::from_hours(24);
/// For how long an order is kept.
pub(crate) const LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// Bytes of a text in it, but for the reason and the items: every page that shows orders reads all of them.
const LONGEST: usize = 512;
/// Bytes of its items, which are told so that they need not be cut.
const MOST_ITEMS: usize = 4096 + 64;

/// One order.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AuditEntry {
    /// Unique; grows with time.
    pub id: String,
    /// When it was asked for, by the fleet's time.
    pub at: Timestamp,
    /// Who asked: by the word of a proxy, or as the person called themselves at the sign-in.
    pub who: String,
    /// Through which replica.
    pub by: String,
    /// `pause`, `resume`, `trigger`, `resign`, `drain`, `withdraw`, `break`, `retry`, `park`, `discard`, `pause_all` or
    /// `resume_all`.
    pub order: String,
    /// The job, replica, trigger or lock that it is about.
    pub of: String,
    /// The items of that job that it is about; empty for other orders.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub items: String,
    /// Whose lease ended by force, where that was said; empty for other orders.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// To which replica a job was handed over, where that was said; empty for other orders.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// Why, in the words of that person.
    pub reason: String,
    /// What came of it; empty while that is not known.
    pub result: String,
}

/// What was asked for and still stands.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct InForce {
    /// When it was asked for, by the asker's clock.
    pub(crate) at: Timestamp,
    /// Who asked, or through which program.
    pub(crate) by: String,
    /// `pause`, `trigger`, `resign` or `drain`.
    pub(crate) order: &'static str,
    /// The job or the replica.
    pub(crate) of: String,
    /// Why; empty where nothing was said.
    pub(crate) reason: String,
    /// The id of a trigger; empty for all else.
    pub(crate) id: String,
}

// === impl AuditEntry ===

impl AuditEntry {
    /// The document, whose revision says whether the result is in it.
    pub(crate) fn to_doc(&self) -> Doc {
        let short = Self {
            who: clipped(&self.who, LONGEST),
            by: clipped(&self.by, LONGEST),
            of: clipped(&self.of, LONGEST),
            items: clipped(&self.items, MOST_ITEMS),
            owner: clipped(&self.owner, LONGEST),
            to: clipped(&self.to, LONGEST),
            reason: clipped(&self.reason, MOST_REASON),
            result: clipped(&self.result, LONGEST),
            ..self.clone()
        };
        Doc {
            name: format!("{DIRECTORY}{}", self.id),
            rev: if self.result.is_empty() { 1 } else { 2 },
            // Strings and a time: always serializable.
            body: serde_json::to_string(&short).unwrap_or_default(),
        }
    }

    /// Reads a document; `None` when it is no order.
    pub(crate) fn from_doc(doc: &Doc) -> Option<Self> {
        let entry: Self = serde_json::from_str(&doc.body).ok()?;
        let ours = doc.name.strip_prefix(DIRECTORY) == Some(entry.id.as_str());
        ours.then_some(entry)
    }
}

/// As much of a text as may have so many bytes, with a mark where that is not all.
fn clipped(text: &str, most: usize) -> String {
    let mut ends = (0..=most).rev();
    match ends.find(|end| text.is_char_boundary(*end)) {
        Some(end) if text.len() > most => format!("{}…", &text[..end]),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::items::{MOST_NAMED, WhichItems};

    #[test]
    fn the_result_of_an_order_counts() {
        let mut entry = AuditEntry {
            id: "018f".to_owned(),
            who: "ann".to_owned(),
            reason: "ä".repeat(MOST_REASON),
            ..AuditEntry::default()
        };
        let asked = entry.to_doc();
        entry.result = "heard".to_owned();
        let done = entry.to_doc();
        assert!(asked.name == done.name && asked.rev < done.rev);
        let read = AuditEntry::from_doc(&done).unwrap();
        assert_eq!((read.who.as_str(), read.result.as_str()), ("ann", "heard"));
        let cut = format!("{}…", "ä".repeat(MOST_REASON / 2));
        assert_eq!(read.reason, cut, "with its mark");
        // As long as one may be it is written down as it was given, and so is a name that the API takes.
        entry.reason = "ä".repeat(MOST_REASON / 2);
        entry.of = "x".repeat(LONGEST);
        let ids = vec!["é".repeat(LONGEST / 2); MOST_NAMED];
        entry.items = WhichItems::Named(ids).in_words();
        let read = AuditEntry::from_doc(&entry.to_doc()).unwrap();
        assert_eq!((&read.reason, &read.of), (&entry.reason, &entry.of));
        assert_eq!(read.items, entry.items);
        let moved = Doc {
            name: "audit/other".to_owned(),
            ..done
        };
        assert_eq!(AuditEntry::from_doc(&moved), None);
    }
}
