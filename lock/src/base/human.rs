//! Durations as people write them: `"10s"`, `"200ms"`, `"24h"` in configuration, `10.secs()` in code.
//!
//! A bare number is refused, because it does not show whether it means seconds or milliseconds.

use std::{fmt, time::Duration};

use jiff::{SignedDuration, Timestamp, Unit};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Durations from whole numbers: `10.secs()`, `200.millis()`.
pub trait DurationExt {
    /// That many milliseconds.
    fn millis(self) -> Duration;
    /// That many seconds.
    fn secs(self) -> Duration;
    /// That many minutes.
    fn mins(self) -> Duration;
    /// That many hours.
    fn hours(self) -> Duration;
    /// That many days of 24 hours.
    fn days(self) -> Duration;
}

/// A duration that reads and writes itself as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

/// A measured duration for people: milliseconds up to a minute, whole seconds beyond. Rounded up, so that something never
/// took no time.
#[derive(Clone, Copy, Debug)]
pub struct Brief(pub Duration);

/// An instant for people: RFC 3339 in UTC, to the millisecond where it has any.
#[derive(Clone, Copy, Debug)]
pub struct At(pub Timestamp);

/// For `#[serde(with = "crate::human::duration")]`, and for a text from elsewhere: a command line, a schedule.
pub mod duration {
    use super::{
        Deserialize, Deserializer, Duration, Serialize, Serializer, SignedDuration, Span, no_unit,
    };

    /// Reads `"10s"`, also with a fraction (`1.5s`) and in ISO 8601 (`PT1M`).
    ///
    /// # Errors
    /// What to write instead, when it is not a duration with a unit.
    pub fn parse(text: &str) -> Result<Duration, String> {
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(no_unit(text));
        }
        let said = text.trim();
        let exotic = || said.parse::<SignedDuration>().ok();
        humantime::parse_duration(said)
            .ok()
            .or_else(|| exotic()?.try_into().ok())
            .ok_or_else(|| format!("\"{text}\" is not a duration such as \"10s\" or \"1h 30m\""))
    }

    /// Writes `"10s"`.
    ///
    /// # Errors
    /// Only the serializer's own.
    pub fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        Span(*value).serialize(to)
    }

    /// Reads `"10s"`.
    ///
    /// # Errors
    /// When it is not a duration with a unit.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Span::deserialize(from).map(|span| span.0)
    }
}

/// For `#[serde(with = "crate::human::optional")]`.
pub mod optional {
    use super::{Deserialize, Deserializer, Duration, Serialize, Serializer, Span};

    /// Writes `"10s"` or nothing.
    ///
    /// # Errors
    /// Only the serializer's own.
    #[allow(clippy::ref_option, reason = "the signature is serde's")]
    pub fn serialize<S: Serializer>(value: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        value.map(Span).serialize(to)
    }

    /// Reads `"10s"` or nothing.
    ///
    /// # Errors
    /// When it is not a duration with a unit.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Span>::deserialize(from)?.map(|span| span.0))
    }
}

// === impl DurationExt ===

impl DurationExt for u64 {
    fn millis(self) -> Duration {
        Duration::from_millis(self)
    }

    fn secs(self) -> Duration {
        Duration::from_secs(self)
    }

    fn mins(self) -> Duration {
        Duration::from_secs(self.saturating_mul(60))
    }

    fn hours(self) -> Duration {
        Duration::from_secs(self.saturating_mul(3600))
    }

    fn days(self) -> Duration {
        Duration::from_secs(self.saturating_mul(86_400))
    }
}

// === impl Span ===

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // "1day" is humantime's word; "24h" is what people write.
        let secs = self.0.as_secs();
        if self.0.subsec_nanos() == 0 && secs > 0 && secs.is_multiple_of(3600) {
            return write!(f, "{}h", secs / 3600);
        }
        write!(f, "{}", humantime::format_duration(self.0))
    }
}

// === impl Brief ===

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_nanos().div_ceil(1_000_000);
        let ms = u64::try_from(ms).unwrap_or(u64::MAX);
        // Milliseconds say nothing in what took minutes.
        let exact = if ms < 60_000 {
            Duration::from_millis(ms)
        } else {
            Duration::from_secs(ms / 1000)
        };
        write!(f, "{}", humantime::format_duration(exact))
    }
}

// === impl At ===

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.round(Unit::Millisecond).unwrap_or(self.0);
        match shown.subsec_nanosecond() {
            0 => write!(f, "{shown}"),
            _ => write!(f, "{shown:.3}"),
        }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;

        impl de::Visitor<'_> for Text {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"10s\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                duration::parse(text).map(Span).map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Span, E> {
                Err(E::custom(no_unit(&number.to_string())))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Span, E> {
                Err(E::custom(no_unit(&number.unsigned_abs().to_string())))
            }
        }

        from.deserialize_any(Text)
    }
}

fn no_unit(number: &str) -> String {
    format!("a duration needs a unit; write {number}s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_reads_back_as_it_was_written() {
        for text in [
            "10s", "200ms", "24h", "1m 30s", "1s 500ms", "48h", "50us", "0s",
        ] {
            let span: Span = serde_json::from_value(text.into()).unwrap();
            assert_eq!(span.to_string(), text);
        }
    }

    #[test]
    fn a_bare_number_is_told_to_take_a_unit() {
        for number in [serde_json::json!(10), serde_json::json!("10")] {
            let error = serde_json::from_value::<Span>(number)
                .unwrap_err()
                .to_string();
            assert_eq!(error, "a duration needs a unit; write 10s");
        }
    }

    #[test]
    fn whatever_has_a_unit_is_a_duration() {
        let read = |text: &str| serde_json::from_value::<Span>(text.into()).map(|span| span.0);
        for (text, ms) in [
            ("1d", 86_400_000),
            ("1d 12h", 129_600_000),
            ("1.5s", 1_500),
            ("PT1M30S", 90_000),
            (" 2s ", 2_000),
        ] {
            assert_eq!(read(text).ok(), Some(ms.millis()), "{text}");
        }
        for text in ["soon", "-2s", "1.5", "", "s"] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("is not a duration such as"), "{error}");
        }
    }

    #[test]
    fn people_are_shown_milliseconds_at_most() {
        for (nanos, shown) in [
            (0, "0s"),
            (1, "1ms"),
            (1_500_000_001, "1s 501ms"),
            (59_999_000_000, "59s 999ms"),
            (3_661_123_456_789, "1h 1m 1s"),
        ] {
            assert_eq!(Brief(Duration::from_nanos(nanos)).to_string(), shown);
        }
        let at = |text: &str| At(text.parse().unwrap()).to_string();
        assert_eq!(at("2026-05-04T08:00:00Z"), "2026-05-04T08:00:00Z");
        assert_eq!(at("2026-05-04T08:00:00.5Z"), "2026-05-04T08:00:00.500Z");
        assert_eq!(
            at("2026-05-04T08:00:00.123456789Z"),
            "2026-05-04T08:00:00.123Z"
        );
        assert_eq!(at("2026-05-04T08:00:00.000000009Z"), "2026-05-04T08:00:00Z");
    }

    #[test]
    fn literals_read_like_a_sentence() {
        assert_eq!(2.mins() + 10.secs(), Duration::from_secs(130));
        assert_eq!(1.days(), 24.hours());
        assert_eq!(200.millis() * 5, 1.secs());
    }
}
