//! Which rows belong together: fixed cells, the same on every replica, whatever was sent meanwhile.
//!
//! A batch is named `TABLE/LAYOUT/CELL`: `notifications/50/12` holds the ids 600 to 649, `letters/h64/7` the text ids
//! whose hash falls into bucket 7 of 64, `letters/p64/7` the same by a hash that PostgreSQL alone can tell, and
//! `letters/k64-1f2e3d4c/7` the rows whose recipients do, where rows of one recipient keep their order. The layout is part of
//! the name, so that replicas configured with different sizes never take different rows for the same batch; that they do not
//! work on overlapping cells at the same time is the source's duty, which keeps one layout in force per table.

use std::fmt;

use percent_encoding::utf8_percent_encode;
use serde::{Deserialize, Serialize};
use watchkeeper::hash::fnv1a;

use crate::web::RESERVED;

/// The id of one row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ItemId {
    /// An integer.
    Int(i64),
    /// Text.
    Text(String),
}

/// How ids are divided into cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Ranges of this many integer ids.
    Range(u32),
    /// This many buckets of the ids' hash.
    Hash(u32),
    /// The same by a hash that the database computes, so that it can look for them.
    Opaque(u32),
    /// Buckets of the hash of another column, which has this number: all rows that have one value there are in one cell.
    Key(u32, u32),
}

/// One cell of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// The table, with the column when that is not the usual one.
    pub source: String,
    /// How the table is divided.
    pub layout: Layout,
    /// Which part.
    pub number: i64,
}

// === impl Layout ===

impl Layout {
    /// The cell of an id; `None` when this layout cannot hold it, or the database has to be asked.
    #[must_use]
    pub(crate) fn cell_of(self, id: &ItemId) -> Option<i64> {
        match (self, id) {
            (Self::Range(size), ItemId::Int(id)) => Some(id.div_euclid(i64::from(size.max(1)))),
            (Self::Range(_), ItemId::Text(_)) | (Self::Opaque(_) | Self::Key(..), _) => None,
            (Self::Hash(buckets), id) => Some(bucket_of(&id.to_string(), buckets)),
        }
    }

    /// The layout in which rows are divided by this column.
    #[must_use]
    pub(crate) fn by_column(column: &str, buckets: u32) -> Self {
        let number = fnv1a(column.bytes());
        Self::Key(buckets, u32::try_from(number >> 32).unwrap_or_default())
    }

    /// In how many buckets, if that is how rows are divided by this column.
    #[must_use]
    pub(crate) fn buckets_by(self, column: &str) -> Option<u32> {
        match self {
            Self::Key(buckets, _) if self == Self::by_column(column, buckets) => Some(buckets),
            _ => None,
        }
    }

    /// First and last id of a cell of ranges.
    #[must_use]
    pub(crate) fn ids_of(size: u32, cell: i64) -> (i64, i64) {
        // The cells at both ends of all numbers are smaller than the others, and overlap none.
        let first = i128::from(cell) * i128::from(size);
        let whole = i128::from(i64::MIN)..=i128::from(i64::MAX);
        let within =
            |id: i128| i64::try_from(id.clamp(*whole.start(), *whole.end())).unwrap_or(i64::MAX);
        (within(first), within(first + i128::from(size) - 1))
    }

    /// The layout of a word: `50`, `h64`, `p64`, `k64-1f2e3d4c`.
    #[must_use]
    pub(crate) fn parse(word: &str) -> Option<Self> {
        if let Some((buckets, column)) = word.strip_prefix('k').and_then(|w| w.split_once('-')) {
            let column = u32::from_str_radix(column, 16).ok()?;
            return buckets
                .parse()
                .ok()
                .filter(|n| *n > 0)
                .map(|buckets| Self::Key(buckets, column));
        }
        let (make, digits): (fn(u32) -> Self, _) = match word.split_at_checked(1) {
            Some(("h", digits)) => (Self::Hash, digits),
            Some(("p", digits)) => (Self::Opaque, digits),
            _ => (Self::Range, word),
        };
        digits.parse().ok().filter(|n| *n > 0).map(make)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(size) => write!(f, "{size}"),
            Self::Hash(buckets) => write!(f, "h{buckets}"),
            Self::Opaque(buckets) => write!(f, "p{buckets}"),
            Self::Key(buckets, column) => write!(f, "k{buckets}-{column:08x}"),
        }
    }
}

/// The bucket of a text: the same for ever, as the names of batches must be.
#[must_use]
pub(crate) fn bucket_of(text: &str, buckets: u32) -> i64 {
    let bucket = fnv1a(text.bytes()) % u64::from(buckets.max(1));
    i64::try_from(bucket).unwrap_or_default()
}

// === impl Cell ===

impl Cell {
    /// Reads a batch's name.
    #[must_use]
    pub(crate) fn parse(batch: &str) -> Option<Self> {
        let (rest, number) = batch.rsplit_once('/')?;
        let (source, layout) = rest.rsplit_once('/')?;
        Some(Self {
            source: source.to_owned(),
            layout: Layout::parse(layout)?,
            number: number.parse().ok()?,
        })
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.source, self.layout, self.number)
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(id) => write!(f, "{id}"),
            Self::Text(id) => f.write_str(id),
        }
    }
}

/// The key by which a receiver knows a repeat. `database` is a name that the database carries in itself, so that equal
/// tables of two databases do not hide each other's rows and a database that is moved or restored keeps its keys.
/// Visible ASCII, fit for a header.
#[must_use]
pub(crate) fn idempotency_key(database: &str, source: &str, id: &ItemId) -> String {
    let escaped = |text: &str| utf8_percent_encode(text, RESERVED).to_string();
    let (source, id) = (escaped(source), escaped(&id.to_string()));
    format!("{database}/{source}/{id}")
}

/// The same for a message of several rows, which has a name.
#[must_use]
pub(crate) fn digest_key(database: &str, source: &str, name: &str) -> String {
    let source = utf8_percent_encode(source, RESERVED);
    format!("{database}/{source}/digest/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_ids_have_cells_of_full_size() {
        let layout = Layout::Range(50);
        for (id, cell) in [(0, 0), (49, 0), (50, 1), (-1, -1), (-50, -1), (-51, -2)] {
            assert_eq!(layout.cell_of(&ItemId::Int(id)), Some(cell), "{id}");
            let (first, last) = Layout::ids_of(50, cell);
            assert!(first <= id && id <= last);
        }
    }

    #[test]
    fn the_cells_at_the_ends_of_all_numbers_overlap_none() {
        for size in [1, 7, 50, u32::MAX] {
            let layout = Layout::Range(size);
            for id in [i64::MIN, i64::MIN + 60, i64::MAX - 60, i64::MAX] {
                let cell = layout.cell_of(&ItemId::Int(id)).unwrap();
                let (first, last) = Layout::ids_of(size, cell);
                assert!(first <= id && id <= last, "{id} in cells of {size}");
                for end in [first, last] {
                    assert_eq!(layout.cell_of(&ItemId::Int(end)), Some(cell), "{end}");
                }
            }
        }
    }

    #[test]
    fn the_hash_never_changes() {
        assert_eq!(fnv1a([]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(*b"a"), 0xaf63_dc4c_8601_ec8c);
        let layout = Layout::Hash(64);
        assert_eq!(layout.cell_of(&ItemId::Text("a".to_owned())), Some(12));
    }

    #[test]
    fn a_batch_is_read_from_its_name() {
        for name in [
            "notifications/50/12",
            "letters.mailed_at/h64/7",
            "app.letters?ff/p64/7",
            "t/1/-3",
            "t/k64-00ab12cd/7",
        ] {
            assert_eq!(Cell::parse(name).unwrap().to_string(), name);
        }
        for name in [
            "", "t", "t/5", "t/0/1", "t/h/1", "t/5/x", "t/k5/1", "t/k0-a/1", "t/k5-x/1",
        ] {
            assert_eq!(Cell::parse(name), None, "{name}");
        }
    }

    #[test]
    fn a_division_by_a_column_is_known_by_it() {
        let layout = Layout::by_column("recipient", 64);
        assert_eq!(layout.buckets_by("recipient"), Some(64));
        assert_eq!(layout.buckets_by("tenant"), None);
        assert_eq!(Layout::Hash(64).buckets_by("recipient"), None);
        assert_eq!(Layout::parse(&layout.to_string()), Some(layout));
    }

    #[test]
    fn keys_fit_a_header_and_do_not_collide() {
        let key = |id: &str| idempotency_key("d", "t", &ItemId::Text(id.to_owned()));
        assert_eq!(key("a/b c\n€"), "d/t/a%2Fb%20c%0A%E2%82%AC");
        assert_ne!(key("a%2Fb"), key("a/b"));
        assert_eq!(idempotency_key("d", "t", &ItemId::Int(7)), "d/t/7");
    }
}
