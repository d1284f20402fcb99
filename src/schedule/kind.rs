//! One expression: what it names, and its next tick.

use jiff::Timestamp;

use std::time::Duration;

use super::{bounds, civil::Civil, dialect::Dialect, error::ScheduleError, zone::Zone};

/// The shortest duration `@every` takes: each tick costs a write to a majority of nodes.
pub(super) const SHORTEST_EVERY: Duration = Duration::from_millis(100);

/// The longest duration `@every` takes.
pub(super) const LONGEST_EVERY: Duration = Duration::from_secs(366 * 24 * 3600);

/// What an expression names.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Cron(Civil),
    /// Nanoseconds.
    Every {
        period: i128,
    },
    /// One tick.
    At(Timestamp),
    Continuous,
    Manual,
}

// === impl Kind ===

impl Kind {
    pub(super) fn parse(
        expression: &str,
        dialect: Option<Dialect>,
        zone: &Zone,
    ) -> Result<Self, Vec<ScheduleError>> {
        let one = |error| Err(vec![error]);
        let cron = |expression: &str, dialect| Ok(Self::Cron(Civil::parse(expression, dialect)?));
        let (word, rest) = expression
            .split_once(char::is_whitespace)
            .unwrap_or((expression, ""));
        match (word, rest.trim()) {
            ("", _) => one(ScheduleError::Empty),
            ("continuous", "") => Ok(Self::Continuous),
            ("manual", "") => Ok(Self::Manual),
            ("at", time) => match bounds::instant(time, zone, false) {
                Some(instant) => Ok(Self::At(instant)),
                None => one(ScheduleError::At {
                    value: time.to_owned(),
                }),
            },
            ("@every", period) => every(period).or_else(one),
            ("@yearly" | "@annually", "") => cron("0 0 1 1 *", None),
            ("@monthly", "") => cron("0 0 1 * *", None),
            ("@weekly", "") => cron("0 0 * * Sun", None),
            ("@daily" | "@midnight", "") => cron("0 0 * * *", None),
            ("@hourly", "") => cron("0 * * * *", None),
            (word, rest) if word.starts_with('@') || rest.is_empty() && !is_field(word) => {
                one(ScheduleError::UnknownName {
                    name: expression.to_owned(),
                })
            }
            _ => cron(expression, dialect),
        }
    }

    /// The first tick after `t`, never `t` itself.
    pub(super) fn next_after(&self, t: Timestamp, zone: &Zone) -> Option<Timestamp> {
        match self {
            Self::Cron(civil) => zone.next_after(t, civil),
            Self::Every { period } => {
                let passed = t.as_nanosecond().div_euclid(*period);
                Timestamp::from_nanosecond((passed + 1) * period).ok()
            }
            Self::At(instant) => Some(*instant).filter(|instant| t < *instant),
            Self::Continuous | Self::Manual => None,
        }
    }

    /// Whether it has ticks at all.
    pub(super) fn ticks(&self) -> bool {
        !matches!(self, Self::Continuous | Self::Manual)
    }
}

fn every(text: &str) -> Result<Kind, ScheduleError> {
    let error = |problem: String| ScheduleError::Every {
        value: text.to_owned(),
        problem,
    };
    let period = humantime::parse_duration(text)
        .map_err(|e| error(format!("{e}; durations are written like 30s, 5m or 1h 30m")))?;
    if !(SHORTEST_EVERY..=LONGEST_EVERY).contains(&period) {
        return Err(error(
            "allowed are durations from 100ms to 366 days".to_owned(),
        ));
    }
    i128::try_from(period.as_nanos())
        .map(|period| Kind::Every { period })
        .map_err(|_| error("too long".to_owned()))
}

/// Whether a lonely word looks like the beginning of a cron expression.
fn is_field(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit() || c == '*' || c == '?')
}
