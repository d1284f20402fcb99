//! How often and how soon a failed run is attempted again.

use std::{fmt, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::due::Policy;

/// How often and how soon a failed run is attempted again. `retry = 3` is short for `retry = { attempts = 3 }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Retry {
    /// Attempts in all, the first included.
    pub attempts: u32,
    /// The pause after the first failure; it doubles with each further one.
    #[serde(with = "crate::human::duration")]
    pub backoff: Duration,
    /// The longest pause.
    #[serde(with = "crate::human::duration")]
    pub max_backoff: Duration,
}

/// The same as a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Table {
    attempts: u32,
    #[serde(with = "crate::human::duration")]
    backoff: Duration,
    #[serde(with = "crate::human::duration")]
    max_backoff: Duration,
}

// === impl Retry ===

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: Policy::default().attempts,
            backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(60),
        }
    }
}

impl Retry {
    /// The pause after attempt `attempt` (1 is the first) has failed; `None` when it was the last.
    #[must_use]
    pub(crate) fn pause_after(&self, attempt: u32) -> Option<Duration> {
        if attempt >= self.attempts {
            return None;
        }
        let doublings = attempt.saturating_sub(1).min(31);
        Some(
            self.backoff
                .saturating_mul(1 << doublings)
                .min(self.max_backoff),
        )
    }
}

impl From<u32> for Retry {
    fn from(attempts: u32) -> Self {
        Self {
            attempts,
            ..Self::default()
        }
    }
}

impl Default for Table {
    fn default() -> Self {
        let Retry {
            attempts,
            backoff,
            max_backoff,
        } = Retry::default();
        Self {
            attempts,
            backoff,
            max_backoff,
        }
    }
}

impl Table {
    fn retry(self) -> Retry {
        Retry {
            attempts: self.attempts,
            backoff: self.backoff,
            max_backoff: self.max_backoff,
        }
    }
}

impl<'de> Deserialize<'de> for Retry {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct NumberOrTable;

        impl<'de> de::Visitor<'de> for NumberOrTable {
            type Value = Retry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of attempts or { attempts, backoff, max_backoff }")
            }

            fn visit_u64<E: de::Error>(self, attempts: u64) -> Result<Retry, E> {
                u32::try_from(attempts).map(Retry::from).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, attempts: i64) -> Result<Retry, E> {
                u32::try_from(attempts).map(Retry::from).map_err(E::custom)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Retry, A::Error> {
                let table = Table::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(table.retry())
            }
        }

        from.deserialize_any(NumberOrTable)
    }
}
