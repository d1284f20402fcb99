//! Rows of one recipient go one after the other, in the order of their ids, and hold up rows of no other.
//!
//! Cells are buckets of recipients, so that one holder has all rows of a recipient. A row that has to wait, for its time or
//! for its receiver, keeps back all later ones of its recipient. One that waits for a person does so where the order is strict.
//!
//! # Invariants
//! - B1 Of one recipient no row is begun before the answer to the one before it.
//!   (`a_recipient_has_one_row_under_way_and_none_behind_a_failed_one`)
//! - B2 A recipient with many rows leaves a place for the others of its bucket.     (`every_recipient_has_its_turn`)
//! - B3 What waits keeps back rows of its recipient alone.        (`rows_of_one_recipient_go_in_order_whatever_fails`)
//!
//! # Not promised
//! The order is that of the rows which are there: one that is committed later under a smaller id goes later. Where
//! `send_after` says when, a row has its place from that time on. While replicas disagree about the column, in a rolling
//! change, rows go in no order.

use std::collections::BTreeMap;

use super::cell::ItemId;

/// Takes rows of one bucket in the order of their ids, and picks the next batch: the first of each recipient, then the second.
#[derive(Debug)]
pub(crate) struct Fair {
    /// By the recipient; a row without one stands for itself.
    waiting: BTreeMap<String, Vec<ItemId>>,
    /// Recipients, rows of one of them, and rows in all.
    recipients: usize,
    of_one: usize,
    most: usize,
}

// === impl Fair ===

impl Fair {
    /// For batches of so many rows.
    #[must_use]
    pub(crate) const fn new(most: usize) -> Self {
        Self {
            waiting: BTreeMap::new(),
            recipients: most,
            of_one: most,
            most,
        }
    }

    /// For so many recipients, the first ones, with up to so many rows each.
    #[must_use]
    pub(crate) const fn whole(recipients: usize, of_one: usize) -> Self {
        Self {
            waiting: BTreeMap::new(),
            recipients,
            of_one,
            most: usize::MAX,
        }
    }

    pub(crate) fn add(&mut self, recipient: Option<&str>, id: ItemId) {
        // The first letter keeps the two kinds of names apart.
        let name = match recipient {
            Some(recipient) => format!("r{recipient}"),
            None => format!("i{id}"),
        };
        if self.waiting.len() >= self.recipients && !self.waiting.contains_key(&name) {
            return;
        }
        let rows = self.waiting.entry(name).or_default();
        if rows.len() < self.of_one {
            rows.push(id);
        }
    }

    /// Whether there are as many recipients as a batch has rows: later rows would not be picked.
    #[must_use]
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= self.most
    }

    /// The batch, in the order of ids.
    #[must_use]
    pub(crate) fn pick(self) -> Vec<ItemId> {
        let mut turns: Vec<(usize, ItemId)> = self
            .waiting
            .into_values()
            .flat_map(|rows| rows.into_iter().enumerate())
            .collect();
        turns.sort();
        turns.truncate(self.most);
        let mut ids: Vec<ItemId> = turns.into_iter().map(|(_, id)| id).collect();
        ids.sort();
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(most: usize, rows: &[(Option<&str>, i64)]) -> Vec<i64> {
        let mut fair = Fair::new(most);
        for (recipient, id) in rows {
            fair.add(*recipient, ItemId::Int(*id));
        }
        let number = |id| match id {
            ItemId::Int(id) => id,
            ItemId::Text(_) => panic!("a text"),
        };
        fair.pick().into_iter().map(number).collect()
    }

    #[test]
    fn every_recipient_has_its_turn() {
        let a = Some("a");
        let rows = [(a, 1), (a, 2), (a, 3), (a, 4), (Some("b"), 5), (None, 6)];
        assert_eq!(picked(3, &rows), [1, 5, 6]);
        assert_eq!(picked(4, &rows), [1, 2, 5, 6]);
        assert_eq!(picked(9, &rows), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn whole_messages_are_those_of_the_first_recipients() {
        let mut fair = Fair::whole(2, 3);
        for (id, recipient) in (1..).zip(["a", "b", "a", "c", "a", "b", "a"]) {
            assert!(!fair.is_full());
            fair.add(Some(recipient), ItemId::Int(id));
        }
        let ids = [1, 2, 3, 5, 6].map(ItemId::Int);
        assert_eq!(fair.pick(), ids);
    }

    #[test]
    fn rows_without_a_recipient_are_nobodys_and_meet_no_name() {
        let rows = [(None, 1), (Some("1"), 2), (None, 3), (Some("i1"), 4)];
        assert_eq!(picked(3, &rows), [1, 2, 3]);
        let mut fair = Fair::new(4);
        for (recipient, id) in rows {
            assert!(!fair.is_full());
            fair.add(recipient, ItemId::Int(id));
        }
        assert!(fair.is_full());
    }
}
