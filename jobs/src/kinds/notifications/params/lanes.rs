//! Which rows go one after the other, and which of them are one message.

use std::time::Duration;

use serde::Deserialize;
use watchkeeper::human::Span;

/// What rows of one recipient wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// For each earlier one, also one that waits for a person.
    Strict,
    /// For each earlier one that still goes by itself.
    #[default]
    SkipDead,
    /// For none.
    None,
}

/// Rows that are one message: those that have one value in this column, of one recipient where rows keep an order.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dedupe {
    /// The column; a row without a value is a message of its own.
    pub column: String,
    /// A row that comes so long after one that was sent is not sent.
    pub within: Span,
}

/// Rows of one recipient that go as one message.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Digest {
    /// A recipient's rows wait until the oldest of them is so old,
    pub every: Span,
    /// or until there are so many; no message has more.
    #[serde(default = "at_most")]
    pub at_most: u32,
    /// The column that holds how old a row is.
    #[serde(default = "since")]
    pub since: String,
}

const fn at_most() -> u32 {
    100
}

fn since() -> String {
    "created_at".to_owned()
}

/// Rows that go one after the other: those that have one value in a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lanes {
    /// The key of the parameters that names the column.
    pub(crate) key: &'static str,
    /// The column.
    pub(crate) column: String,
    /// What those behind a row wait for.
    pub(crate) behind: Behind,
}

/// Which earlier rows keep back those behind them, beside those that still go by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// None.
    Waiting,
    /// What is parked may have been received: it may be the message that those behind it are.
    Parked,
    /// Whatever waits for a person.
    Held,
}

/// Longer ago nothing is looked for.
const LONGEST_WINDOW: Duration = Duration::from_secs(366 * 24 * 3600);

// === impl Dedupe ===

impl Dedupe {
    /// What is wrong with its time.
    pub(crate) fn check_window(&self) -> Result<(), String> {
        match !self.within.0.is_zero() && self.within.0 <= LONGEST_WINDOW {
            true => Ok(()),
            false => Err("must be longer than nothing and at most a year".to_owned()),
        }
    }

    /// Rows that were sent before this time, in Unix milliseconds, are not asked.
    #[must_use]
    pub(crate) fn since_ms(&self, now_ms: i64) -> i64 {
        let within = i64::try_from(self.within.0.as_millis()).unwrap_or(i64::MAX);
        now_ms.saturating_sub(within)
    }
}

// === impl Digest ===

impl Digest {
    /// Recipients of one batch, where one may have so many rows: a batch stays small enough for one transaction.
    #[must_use]
    pub(crate) const fn recipients(&self, batch_size: u32) -> u32 {
        let room = MOST_ROWS / if self.at_most == 0 { 1 } else { self.at_most };
        let room = if room == 0 { 1 } else { room };
        if batch_size < room { batch_size } else { room }
    }
}

/// Rows of a batch of digests, at most.
pub(crate) const MOST_ROWS: u32 = 10_000;

// === impl Lanes ===

impl Lanes {
    /// What these parameters ask for.
    #[must_use]
    pub(crate) fn of(
        order: Order,
        recipient: Option<&str>,
        dedupe: Option<&Dedupe>,
    ) -> Option<Self> {
        let recipient = recipient.filter(|_| order != Order::None);
        let (key, column) = match (recipient, dedupe) {
            (Some(column), _) => ("columns.recipient", column),
            (None, Some(dedupe)) => ("dedupe.column", dedupe.column.as_str()),
            (None, None) => return None,
        };
        let is_strict = recipient.is_some() && order == Order::Strict;
        let behind = match (is_strict, dedupe) {
            (true, _) => Behind::Held,
            (false, Some(_)) => Behind::Parked,
            (false, None) => Behind::Waiting,
        };
        Some(Self {
            key,
            column: column.to_owned(),
            behind,
        })
    }
}

// === impl Behind ===

impl Behind {
    /// The states of items that keep back those behind them whatever the time is, for a list in SQL; none is the empty text.
    #[must_use]
    pub(crate) const fn sql_states(self) -> &'static str {
        match self {
            Self::Waiting => "''",
            Self::Parked => "'parked'",
            Self::Held => "'dead', 'parked'",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_digests_stays_small() {
        let digest = |at_most| Digest {
            every: Span(Duration::from_secs(60)),
            at_most,
            since: since(),
        };
        assert_eq!(digest(100).recipients(50), 50);
        assert_eq!(digest(1_000).recipients(50), 10);
        assert_eq!(digest(u32::MAX).recipients(50), 1);
    }

    #[test]
    fn rows_of_one_recipient_or_of_one_message_go_one_after_the_other() {
        let dedupe = Dedupe {
            column: "key".to_owned(),
            within: Span(Duration::from_secs(60)),
        };
        let of = |order, recipient, dedupe: Option<&Dedupe>| {
            let lanes = Lanes::of(order, recipient, dedupe);
            lanes.map(|lanes| (lanes.column, lanes.behind))
        };
        let lanes = |column: &str, behind| Some((column.to_owned(), behind));
        let (to, same) = (Some("to"), Some(&dedupe));
        assert_eq!(of(Order::SkipDead, None, None), None);
        assert_eq!(of(Order::None, to, None), None);
        assert_eq!(of(Order::SkipDead, to, None), lanes("to", Behind::Waiting));
        assert_eq!(of(Order::Strict, to, None), lanes("to", Behind::Held));
        assert_eq!(of(Order::SkipDead, to, same), lanes("to", Behind::Parked));
        assert_eq!(of(Order::Strict, to, same), lanes("to", Behind::Held));
        assert_eq!(of(Order::None, to, same), lanes("key", Behind::Parked));
        assert_eq!(
            of(Order::SkipDead, None, same),
            lanes("key", Behind::Parked)
        );
    }
}
