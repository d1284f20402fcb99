//! Ids of messages: milliseconds of the server's clock, and a number.

use std::{fmt, str::FromStr};

use jiff::Timestamp;

/// The id of a message: the date that it carries, and which of that millisecond it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    ms: u64,
    number: u64,
}

// === impl Id ===

impl Id {
    /// The first id of this date.
    pub(super) fn at(date: Timestamp) -> Self {
        Self {
            ms: u64::try_from(date.as_millisecond()).unwrap_or(0),
            number: 0,
        }
    }

    /// The date. One that no clock shows is that of the end of time.
    pub(super) fn date(self) -> Timestamp {
        let ms = i64::try_from(self.ms).unwrap_or(i64::MAX);
        Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX)
    }
}

impl FromStr for Id {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (ms, number) = text.split_once('-').ok_or(())?;
        Ok(Self {
            ms: ms.parse().map_err(drop)?,
            number: number.parse().map_err(drop)?,
        })
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_written_and_ordered_as_the_server_does() {
        let ids = ["9-0", "10-0", "10-2", "10-11"].map(|text| {
            let id: Id = text.parse().unwrap();
            assert_eq!(id.to_string(), text);
            id
        });
        assert!(ids.is_sorted());
        for wrong in ["", "5", "5-", "-5", "a-b", "5-1-2"] {
            assert!(wrong.parse::<Id>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_id_carries_its_date() {
        let date: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        assert_eq!(Id::at(date).date(), date);
        let id: Id = format!("{}-0", u64::MAX).parse().unwrap();
        assert_eq!(id.date(), Timestamp::MAX);
    }
}
