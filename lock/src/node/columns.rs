//! A lock's row as the columns of a table, and a lock's queue as a text: for stores that keep tables. What something else has written
//! there is read as what it is, a row that makes no sense, and never as less.

use std::time::Duration;

use super::{
    NodeMs, Token, Version,
    rules::{Claim, Entry, LAST, LIMIT, LONGEST_TTL_MS, Malformed, Row, State, Waiter, ceil_ms},
};

/// The columns as they were read: `None` for what is no text, or no number from 0 on.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    pub(crate) state: Option<String>,
    pub(crate) owner: Option<String>,
    pub(crate) granted: Option<u64>,
    pub(crate) inc: Option<String>,
    pub(crate) until: Option<u64>,
    pub(crate) seq: Option<u64>,
    /// In milliseconds.
    pub(crate) ttl: Option<u64>,
    pub(crate) counter: Option<u64>,
    pub(crate) token: Option<u64>,
    pub(crate) rev: Option<u64>,
    pub(crate) waits: Option<u64>,
}

// === impl Columns ===

impl Columns {
    /// The row that they are.
    pub(crate) fn row(self) -> Row {
        let (counter, granted) = (upto(self.counter, LAST.0), upto(self.granted, LAST.0));
        let malformed = Malformed {
            // No grant passes it, where both make sense.
            counter: counter
                .filter(|counter| granted.is_some_and(|granted| granted <= *counter))
                .map(Token),
            ttl: upto(self.ttl, LONGEST_TTL_MS)
                .map(Duration::from_millis)
                .unwrap_or_default(),
        };
        self.whole().unwrap_or(Row::Malformed(malformed))
    }

    /// `None` where something else has changed it.
    fn whole(self) -> Option<Row> {
        let (owner, inc) = (self.owner?, self.inc?);
        let grant = Token(upto(self.granted, LAST.0)?);
        let until = NodeMs(self.until?);
        let state = match self.state?.as_str() {
            "C" => {
                return Some(Row::Claim(Claim {
                    owner,
                    grant,
                    inc,
                    until,
                }));
            }
            "H" => State::Held,
            "R" => State::Released,
            "B" => State::Broken,
            _ => return None,
        };
        let token = Token(upto(self.token, LIMIT - 1)?);
        let rev = upto(self.rev, LIMIT - 1)?;
        Some(Row::Record(Entry {
            state,
            owner,
            seq: upto(self.seq, LIMIT - 1)?,
            ttl: Duration::from_millis(upto(self.ttl, LONGEST_TTL_MS)?),
            grant,
            counter: Token(upto(self.counter, LAST.0)?),
            inc,
            version: Version { token, rev },
            until,
            waits: NodeMs(self.waits?),
        }))
    }
}

fn upto(number: Option<u64>, most: u64) -> Option<u64> {
    number.filter(|number| *number <= most)
}

/// A row's letter, and its columns as a record has them, of which a claim fills some. `None` of one that makes no sense: it stays as
/// it is.
pub(crate) fn columns_of(row: &Row) -> Option<(&'static str, Entry)> {
    match row {
        Row::Record(entry) => {
            let letter = match entry.state {
                State::Held => "H",
                State::Released => "R",
                State::Broken => "B",
            };
            Some((letter, entry.clone()))
        }
        Row::Claim(claim) => {
            let entry = Entry {
                owner: claim.owner.clone(),
                grant: claim.grant,
                inc: claim.inc.clone(),
                until: claim.until,
                ..Entry::default()
            };
            Some(("C", entry))
        }
        Row::Malformed(_) => None,
    }
}

/// A ttl as a column has it.
pub(crate) fn ttl_ms(ttl: Duration) -> u64 {
    ceil_ms(ttl).min(LONGEST_TTL_MS)
}

/// Numbers of ours stay below 2^63.
pub(crate) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A queue as a text.
pub(crate) fn queue_text(queue: &[Waiter]) -> String {
    let line = |waiter: &Waiter| format!("{} {}\n", waiter.until.0, waiter.ticket);
    queue.iter().map(line).collect()
}

/// The text of a queue is ours: whatever does not read so is left out.
pub(crate) fn queue_of(text: &str) -> Vec<Waiter> {
    let waiter = |line: &str| {
        let (until, ticket) = line.split_once(' ')?;
        Some(Waiter {
            ticket: ticket.to_owned(),
            until: NodeMs(until.parse().ok()?),
        })
    };
    text.lines().filter_map(waiter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(letter: &str, entry: &Entry) -> Columns {
        Columns {
            state: Some(letter.to_owned()),
            owner: Some(entry.owner.clone()),
            granted: Some(entry.grant.0),
            inc: Some(entry.inc.clone()),
            until: Some(entry.until.0),
            seq: Some(entry.seq),
            ttl: Some(ttl_ms(entry.ttl)),
            counter: Some(entry.counter.0),
            token: Some(entry.version.token.0),
            rev: Some(entry.version.rev),
            waits: Some(entry.waits.0),
        }
    }

    #[test]
    fn a_row_is_read_as_it_was_written_and_nonsense_as_nonsense() {
        let entry = Entry {
            state: State::Broken,
            owner: "a".to_owned(),
            seq: 3,
            ttl: Duration::from_millis(40),
            grant: Token(5),
            counter: Token(7),
            inc: "n".to_owned(),
            until: NodeMs(9),
            ..Entry::default()
        };
        let claim = Row::Claim(Claim {
            owner: "b".to_owned(),
            grant: Token(2),
            inc: String::new(),
            until: NodeMs(4),
        });
        for row in [Row::Record(entry.clone()), claim] {
            let (letter, entry) = columns_of(&row).unwrap();
            assert_eq!(read(letter, &entry).row(), row);
        }
        let whole = || read("H", &entry);
        let nonsense: [fn(&mut Columns); 6] = [
            |c| c.state = Some("X".to_owned()),
            |c| c.owner = None,
            |c| c.until = None,
            |c| c.granted = Some(LAST.0 + 1),
            |c| c.seq = Some(LIMIT),
            |c| c.ttl = Some(LONGEST_TTL_MS + 1),
        ];
        for change in nonsense {
            let mut columns = whole();
            change(&mut columns);
            let row = columns.row();
            assert!(matches!(row, Row::Malformed(_)), "{row:?}");
            assert_eq!(columns_of(&row), None);
        }
        // What can still be read of it is kept for the next counter.
        let mut columns = whole();
        columns.owner = None;
        let Row::Malformed(left) = columns.row() else {
            panic!("it has no owner")
        };
        assert_eq!((left.counter, left.ttl), (Some(Token(7)), entry.ttl));
        let mut columns = whole();
        (columns.state, columns.granted) = (None, Some(8));
        let Row::Malformed(left) = columns.row() else {
            panic!("it has no state")
        };
        assert_eq!(left.counter, None, "a grant above it");
    }

    #[test]
    fn a_queue_is_read_as_it_was_written_without_what_is_none_of_ours() {
        let queue = vec![
            Waiter {
                ticket: "t u".to_owned(),
                until: NodeMs(7),
            },
            Waiter {
                ticket: "v".to_owned(),
                until: NodeMs(9),
            },
        ];
        let text = queue_text(&queue);
        assert_eq!(queue_of(&text), queue);
        assert_eq!(queue_of(&format!("nonsense\n-1 x\n{text}")), queue);
    }
}
