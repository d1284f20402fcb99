//! What became of one item of a batch.

use std::{collections::BTreeMap, time::Duration};

use crate::clock::Moment;

/// What became of one item of a batch; told by [`Run::item`](crate::Run::item).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemOutcome {
    /// The work on it is done.
    Done,
    /// Not yet: the batch comes back after this pause, or earlier for another of its items.
    RetryAfter(Duration, String),
    /// It will never succeed, and why. Note it in your data, so that the batch does not name it again.
    Dead(String),
    /// A person has to decide on it, and why. Note it in your data, as for [`ItemOutcome::Dead`].
    Parked(String),
}

/// What a run has said of its items.
#[derive(Debug, Default)]
pub(super) struct Items {
    /// By what became of them.
    pub(super) counts: BTreeMap<&'static str, u64>,
    /// When the first of those that are to be tried again is due.
    pub(super) again: Option<Moment>,
    /// The first few that did not go well, and why.
    reasons: Vec<String>,
}

/// Words for what became of items that are kept.
const MOST_OUTCOMES: usize = 16;
/// Reasons that are kept, and characters of each.
const MOST_REASONS: (usize, usize) = (3, 100);

// === impl Items ===

impl Items {
    pub(super) fn count(&mut self, outcome: &'static str, items: u64) {
        let counts = &mut self.counts;
        if items > 0 && (counts.len() < MOST_OUTCOMES || counts.contains_key(outcome)) {
            let count = counts.entry(outcome).or_insert(0);
            *count = count.saturating_add(items);
        }
    }

    pub(super) fn say(&mut self, item: &str, outcome: &ItemOutcome, now: Moment) {
        let (word, why) = match outcome {
            ItemOutcome::Done => ("done", None),
            ItemOutcome::RetryAfter(pause, why) => {
                self.comes_back(now + *pause);
                ("retry", Some(why))
            }
            ItemOutcome::Dead(why) => ("dead", Some(why)),
            ItemOutcome::Parked(why) => ("parked", Some(why)),
        };
        self.count(word, 1);
        if let Some(why) = why
            && self.reasons.len() < MOST_REASONS.0
        {
            let reason = format!("{item} {word}: {why}");
            self.reasons
                .push(reason.chars().take(MOST_REASONS.1).collect());
        }
    }

    pub(super) fn comes_back(&mut self, at: Moment) {
        self.again = Some(self.again.map_or(at, |again| again.min(at)));
    }

    /// What did not go well, in a line.
    pub(super) fn reasons(&self) -> String {
        self.reasons.join("; ")
    }
}
