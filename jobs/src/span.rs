//! Durations as people write them: `200ms`, `2s`, `1h 30m`.

use std::{fmt, time::Duration};

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer, de};

/// A duration that is read from text like `200ms`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Span(pub Duration);

impl Span {
    /// Whole milliseconds.
    #[must_use]
    pub const fn millis(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let signed: SignedDuration = text
            .parse()
            .map_err(|_| de::Error::custom("not a duration; write it like `200ms` or `1m 30s`"))?;
        Duration::try_from(signed)
            .map(Self)
            .map_err(|_| de::Error::custom("a duration cannot be negative"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Duration, String> {
        serde_json::from_value::<Span>(text.into())
            .map(|span| span.0)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn durations_read_as_written() {
        assert_eq!(read("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(read("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(read("1m 30s"), Ok(Duration::from_secs(90)));
    }

    #[test]
    fn other_text_is_refused_with_an_example() {
        assert!(read("soon").unwrap_err().contains("200ms"));
        assert!(read("-2s").unwrap_err().contains("negative"));
    }
}
