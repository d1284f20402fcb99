//! One expression: what it names, and its next tick.

use jiff::Timestamp;

use std::time::Duration;

use super::{bounds, civil::Civil, dialect::Dialect, error::ScheduleError, zone::Zone};
use crate::{hash::mixed, human::duration};

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
        offset: Offset,
    },
    /// One tick.
    At(Timestamp),
    Continuous,
    Manual,
}

/// How much later than the multiples of its period a tick is. Nanoseconds, below the period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offset {
    /// As written, or none.
    Fixed(i128),
    /// The job's own, of which it is not known yet whose schedule it is.
    Auto,
}

/// An automatic offset is a whole number of these: ticks have names that people read.
const STEP: i128 = 1_000_000;

// === impl Offset ===

impl Offset {
    pub(super) fn nanos(self) -> i128 {
        match self {
            Self::Fixed(nanos) => nanos,
            Self::Auto => 0,
        }
    }

    /// The place of `job` in a period. It must never change: by it jobs have their ticks.
    fn of_job(job: &str, period: i128) -> Self {
        let steps = period / STEP;
        let share = i128::from(mixed(job, period));
        Self::Fixed(((share * steps) >> 64) * STEP)
    }
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
            Self::Every { period, offset } => {
                let offset = offset.nanos();
                let passed = (t.as_nanosecond() - offset).div_euclid(*period);
                Timestamp::from_nanosecond((passed + 1) * period + offset).ok()
            }
            Self::At(instant) => Some(*instant).filter(|instant| t < *instant),
            Self::Continuous | Self::Manual => None,
        }
    }

    /// An automatic offset becomes that of `job`.
    pub(super) fn settle(&mut self, job: &str) {
        if let Self::Every { period, offset } = self
            && *offset == Offset::Auto
        {
            *offset = Offset::of_job(job, *period);
        }
    }

    /// Whether its ticks depend on the name of its job.
    pub(super) fn depends_on_name(&self) -> bool {
        let auto = Offset::Auto;
        matches!(self, Self::Every { offset, .. } if *offset == auto)
    }

    /// Whether it has ticks at all.
    pub(super) fn ticks(&self) -> bool {
        !matches!(self, Self::Continuous | Self::Manual)
    }
}

/// `90s`, `1m offset 20s` or `1m offset auto`
fn every(text: &str) -> Result<Kind, ScheduleError> {
    let error = |problem: String| ScheduleError::Every {
        value: text.to_owned(),
        problem,
    };
    let read = |text: &str| duration::parse(text).map_err(&error);
    let words: Vec<&str> = text.split_whitespace().collect();
    let (period, offset) = match words.iter().position(|word| *word == "offset") {
        Some(at) => (words[..at].join(" "), Some(words[at + 1..].join(" "))),
        None => (words.join(" "), None),
    };
    let period = read(&period)?;
    if !(SHORTEST_EVERY..=LONGEST_EVERY).contains(&period) {
        return Err(error(
            "allowed are durations from 100ms to 366 days".to_owned(),
        ));
    }
    let offset = match offset.as_deref() {
        None => Offset::Fixed(0),
        Some("auto") => Offset::Auto,
        Some("") => {
            return Err(error(
                "write \"offset auto\" for one of the job's own, or \"offset\" and a duration"
                    .to_owned(),
            ));
        }
        Some(offset) => {
            let offset = read(offset)?;
            if offset >= period {
                return Err(error(
                    "an offset is shorter than the time between two ticks".to_owned(),
                ));
            }
            Offset::Fixed(nanos(offset))
        }
    };
    let period = nanos(period);
    Ok(Kind::Every { period, offset })
}

/// Of a duration that is not longer than [`LONGEST_EVERY`].
fn nanos(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

/// Whether a lonely word looks like the beginning of a cron expression.
fn is_field(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit() || c == '*' || c == '?')
}
