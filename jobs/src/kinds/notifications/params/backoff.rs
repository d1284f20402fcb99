//! How long an item waits for another attempt.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;
use watchkeeper::human::Span;

/// The pauses between attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backoff {
    /// So long after the first, then twice as long each time.
    Doubling(Duration),
    /// As Standard Webhooks proposes: ten attempts in a little more than three days.
    Standard,
}

/// The pauses that [Standard Webhooks](https://www.standardwebhooks.com) proposes, in seconds.
const STANDARD: [u64; 9] = [
    5,
    5 * 60,
    30 * 60,
    2 * 3600,
    5 * 3600,
    10 * 3600,
    14 * 3600,
    20 * 3600,
    24 * 3600,
];

// === impl Backoff ===

impl Backoff {
    /// Attempts where none are named.
    #[must_use]
    pub(crate) const fn attempts(self) -> u32 {
        match self {
            // About ten hours from two seconds on: an outage of a night kills nothing.
            Self::Doubling(_) => 20,
            Self::Standard => 10,
        }
    }

    /// The pause after this many attempts; one that grows by itself is no longer than `most`.
    #[must_use]
    pub(crate) fn pause(self, attempts: u32, most: Duration) -> Duration {
        let before = attempts.saturating_sub(1);
        match self {
            Self::Doubling(first) => first.saturating_mul(1 << before.min(20)).min(most),
            Self::Standard => {
                let at = usize::try_from(before).unwrap_or(usize::MAX);
                let [.., last] = STANDARD;
                Duration::from_secs(STANDARD.get(at).copied().unwrap_or(last))
            }
        }
    }
}

/// A duration, or the word for the schedule of Standard Webhooks.
impl<'de> Deserialize<'de> for Backoff {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        if value == "standard" {
            return Ok(Self::Standard);
        }
        let span = Span::deserialize(value).map_err(D::Error::custom)?;
        Ok(Self::Doubling(span.0))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_standard_schedule_spans_three_days_in_ten_attempts() {
        let of = |attempts| Backoff::Standard.pause(attempts, Duration::ZERO);
        let all: Duration = (1..Backoff::Standard.attempts()).map(of).sum();
        assert_eq!((of(1).as_secs(), all.as_secs() / 3600), (5, 75));
        assert_eq!(of(u32::MAX), of(9));
    }

    #[test]
    fn a_word_or_a_duration_is_read() {
        let read = |value| serde_json::from_value::<Backoff>(value).map_err(|e| e.to_string());
        assert_eq!(read(json!("standard")), Ok(Backoff::Standard));
        assert_eq!(
            read(json!("3s")),
            Ok(Backoff::Doubling(Duration::from_secs(3)))
        );
        assert!(read(json!("soon")).is_err());
    }
}
