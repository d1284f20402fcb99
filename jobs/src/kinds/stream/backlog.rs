//! How much of a stream is still to be done, by what its server counts: plain functions. No message is read for it.
//!
//! A server counts the entries that are in a stream, and from version 7.0 on those that were ever added. How many of these lie before a
//! reader is known when it has come to the end, and when it stands before the first of them; from there on what it reads is counted.
//! Until then all that it has not read may be to be done, also what lies before the place at which it has begun.

use super::id::Id;

/// What a server says of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// Entries that are in it.
    pub(super) length: u64,
    /// Entries that were ever added; a server before 7.0 does not say.
    pub(super) added: Option<u64>,
    /// The first entry that is in it.
    pub(super) first: Option<Id>,
    /// The largest id that it has ever had.
    pub(super) last: Id,
}

/// What a server says of a consumer group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dealt {
    /// Messages that were dealt out and are not acknowledged.
    pub(super) pending: u64,
    /// Entries that were not dealt out; nothing where the server does not know.
    pub(super) lag: Option<u64>,
    /// The last message that was dealt out.
    pub(super) last: Id,
}

/// How far a reader is, in entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReadCount {
    /// So many of the entries that were ever added lie before it, where that is known.
    before: Option<u64>,
    /// Entries that were read since it began.
    read: u64,
}

// === impl ReadCount ===

impl ReadCount {
    /// So many more entries were read.
    pub(super) fn read(&mut self, entries: usize) {
        let entries = u64::try_from(entries).unwrap_or(u64::MAX);
        self.read = self.read.saturating_add(entries);
        self.before = self.before.map(|before| before.saturating_add(entries));
    }

    /// How many entries lie behind `position`, the last one that was read. Too many rather than too few, where the server counts.
    pub(super) fn behind(&mut self, position: Id, size: &Size) -> u64 {
        if size.last <= position {
            self.before = size.added;
            return 0;
        }
        let Some(first) = size.first else {
            // All of them were removed.
            return 0;
        };
        if first > position {
            self.before = size.added.map(|added| added.saturating_sub(size.length));
            return size.length;
        }
        let behind = match (self.before, size.added) {
            (Some(before), Some(added)) => added.saturating_sub(before),
            (None, Some(_)) => size.length.saturating_sub(self.read),
            // That there is more is all that is known.
            (_, None) => 1,
        };
        // Entries that were removed before they were read are counted until the end is reached.
        behind.clamp(1, size.length.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Id {
        text.parse().unwrap()
    }

    /// A stream with entries from `first` to `last`, of which so many are there and so many were added.
    fn size(first: &str, last: &str, length: u64, added: Option<u64>) -> Size {
        Size {
            length,
            added,
            first: Some(id(first)),
            last: id(last),
        }
    }

    #[test]
    fn what_lies_behind_a_reader_is_counted_from_where_it_is_known() {
        let mut count = ReadCount::default();
        // It stands before all that is there, whatever was removed.
        let stream = size("5-0", "9-0", 40, Some(1_000));
        assert_eq!(count.behind(id("4-0"), &stream), 40);
        count.read(10);
        assert_eq!(count.behind(id("6-0"), &stream), 30);
        count.read(30);
        assert_eq!(count.behind(id("9-0"), &stream), 0);
        // More has come since, and old entries were trimmed meanwhile.
        let stream = size("8-0", "12-0", 40, Some(1_025));
        assert_eq!(count.behind(id("9-0"), &stream), 25);
        count.read(5);
        assert_eq!(count.behind(id("10-0"), &stream), 20);
    }

    #[test]
    fn a_reader_that_began_in_the_middle_counts_all_that_it_has_not_read() {
        let mut count = ReadCount::default();
        count.read(10);
        let stream = size("5-0", "9-0", 40, Some(1_000));
        assert_eq!(count.behind(id("7-0"), &stream), 30);
        // When it has come to the end once it knows.
        count.read(3);
        assert_eq!(count.behind(id("9-0"), &stream), 0);
        let stream = size("5-0", "11-0", 42, Some(1_002));
        assert_eq!(count.behind(id("9-0"), &stream), 2);
    }

    #[test]
    fn no_more_is_counted_than_is_there_and_some_while_there_is_more() {
        let mut count = ReadCount::default();
        assert_eq!(
            count.behind(id("9-0"), &size("5-0", "9-0", 40, Some(1_000))),
            0
        );
        // Most of what has come was removed before it was read.
        let stream = size("9-0", "99-0", 7, Some(5_000));
        assert_eq!(count.behind(id("9-0"), &stream), 7);
        // The counter was set back.
        let stream = size("5-0", "99-0", 7, Some(3));
        assert_eq!(count.behind(id("9-0"), &stream), 1);
        let empty = Size {
            last: id("99-0"),
            ..Size::default()
        };
        assert_eq!(count.behind(id("9-0"), &empty), 0);
    }

    #[test]
    fn a_server_that_counts_nothing_says_whether_there_is_more() {
        let mut count = ReadCount::default();
        let stream = size("5-0", "9-0", 40, None);
        assert_eq!(count.behind(id("4-0"), &stream), 40);
        count.read(10);
        assert_eq!(count.behind(id("6-0"), &stream), 1);
        assert_eq!(count.behind(id("9-0"), &stream), 0);
    }
}
