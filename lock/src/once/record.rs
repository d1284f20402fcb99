//! What the record of a message says: a word or a few, which programs of other versions read as well.

use std::fmt;

/// How far a message is, as its last consumer has written it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Final: it was handled, by a consumer with this retention; `i64::MAX` where the record does not say.
    pub(super) done: Option<i64>,
    /// How often handling it has failed.
    pub(super) failed: u32,
    /// Not to be handled before this time, in Unix milliseconds.
    pub(super) not_before_ms: i64,
}

// === impl Progress ===

impl Progress {
    /// It was handled, by a consumer that keeps final records for `retention_ms`.
    pub(super) fn done(retention_ms: i64) -> Self {
        Self {
            done: Some(retention_ms),
            ..Self::default()
        }
    }

    /// Reads a record. One that makes no sense was written by a later version, and is final as far as is known.
    pub(super) fn read(text: &str) -> Self {
        let mut words = text.split(' ');
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<i64>().ok());
        match words.next() {
            None | Some("") => Self::default(),
            Some("failed") => {
                let failed = number(words.next()).unwrap_or(0);
                Self {
                    done: None,
                    failed: u32::try_from(failed).unwrap_or(u32::MAX),
                    not_before_ms: number(words.next()).unwrap_or(0),
                }
            }
            Some("done") => {
                let retention_ms = number(words.next()).filter(|ms| *ms > 0);
                Self::done(retention_ms.unwrap_or(i64::MAX))
            }
            // What a number means after another word is not known.
            Some(_) => Self::done(i64::MAX),
        }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.done {
            Some(retention_ms) => write!(f, "done {retention_ms}"),
            None => write!(f, "failed {} {}", self.failed, self.not_before_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let failed = Progress {
            done: None,
            failed: 3,
            not_before_ms: 1_800_000_000_000,
        };
        for progress in [Progress::done(3_600_000), failed] {
            assert_eq!(Progress::read(&progress.to_string()), progress);
        }
        assert_eq!(Progress::read(""), Progress::default());
    }

    #[test]
    fn what_makes_no_sense_is_final_and_says_no_retention() {
        for text in [
            "parked by a later version",
            "parked 3",
            "done",
            "done 0",
            "done -1",
            "done soon",
        ] {
            assert_eq!(Progress::read(text).done, Some(i64::MAX), "{text}");
        }
    }
}
