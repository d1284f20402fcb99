//! Schedules: which instants are ticks.
//!
//! A schedule is a fixed set of UTC instants. Every question is answered from the expression and the instants given
//! alone, so that two replicas that take over from one another see the same ticks.
//!
//! | expression | ticks |
//! | --- | --- |
//! | `0 8 * * Mon-Fri` | five fields: minute, hour, day of month, month, day of week |
//! | `30 0 8 * * Mon-Fri`, `… 2027` | six fields: second first; seven: year last |
//! | `@yearly @annually @monthly @weekly @daily @midnight @hourly` | as in crontab; weeks begin on Sunday |
//! | `@every 90s` | whole multiples of the duration since 1970 in UTC; 100 ms to 366 days |
//! | `continuous` | none: the job runs as long as its replica leads |
//!
//! # Dialects
//! *crontab* (the default for any number of fields): 0 and 7 are Sunday; when neither the day of month nor the day of
//! week starts with `*`, a day matches when *either* does. *quartz*: 1 is Sunday; a day matches when *both* do.
//! A weekday given by number in six or seven fields needs the dialect spelled out, because people mean either.
//! Weekday names mean the same in both.
//!
//! # Zones
//! Expressions are civil time of the job's zone (UTC unless set). Where the clocks change:
//!
//! | | a fixed time (`30 2 * * *`) | repeating times: `*` or a step in the minute or hour field (`*/20 * * * *`) |
//! | --- | --- | --- |
//! | clocks go forward | a skipped time fires once, right after the gap | the same |
//! | clocks go back | once, in the first pass | in both passes: the interval in elapsed time stays |
//!
//! So `30 * * * *` runs at 01:30, 03:00 and 03:30 in a night without 02:30: no time is lost, at the price of one run
//! that comes close to its neighbour.
//!
//! # Invariants
//! - S1 `next_after` is strictly later than what it was asked for and never goes back.
//!   (`ticks_are_the_same_from_wherever_one_asks`)
//! - S2 `latest_upto` and `count` agree with stepping through. (`the_latest_tick_is_found_without_stepping`)
//! - S3 The ticks are those of the two tables. (`ticks_are_those_of_the_stated_rules`)

use std::{fmt, str::FromStr, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

mod civil;
mod error;
mod field;
#[cfg(test)]
mod tests;
mod zone;

pub use error::{Field, ScheduleError};

use civil::Civil;
use zone::Zone;

/// The instants at which a job is due.
#[derive(Clone, Debug)]
pub struct Schedule {
    expression: String,
    kind: Kind,
}

/// How weekday numbers and the two day fields of a cron expression are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// 0 and 7 are Sunday; day of month OR day of week when both are restricted.
    #[default]
    Crontab,
    /// 1 is Sunday; day of month AND day of week.
    Quartz,
}

/// The shortest duration `@every` takes: each tick costs a write to a majority of nodes.
pub const SHORTEST_EVERY: Duration = Duration::from_millis(100);

/// The longest duration `@every` takes.
pub const LONGEST_EVERY: Duration = Duration::from_secs(366 * 24 * 3600);

#[derive(Clone, Debug)]
enum Kind {
    Cron {
        civil: Civil,
        zone: Zone,
    },
    /// Nanoseconds.
    Every {
        period: i128,
    },
    Continuous,
}

// === impl Schedule ===

impl Schedule {
    /// Reads an expression. `dialect` and `zone` matter to cron expressions and `@daily` and the like only, but a
    /// zone must exist wherever it is given.
    ///
    /// # Errors
    /// [`ScheduleError`], which names the field, the value and what is allowed.
    pub fn parse(
        expr: &str,
        dialect: Option<Dialect>,
        zone: Option<&str>,
    ) -> Result<Self, ScheduleError> {
        let expression = expr.trim();
        let zone = Zone::parse(zone)?;
        let cron = |expression: &str, dialect| {
            Ok(Kind::Cron {
                civil: Civil::parse(expression, dialect)?,
                zone: zone.clone(),
            })
        };
        let (word, rest) = expression
            .split_once(char::is_whitespace)
            .unwrap_or((expression, ""));
        let kind = match (word, rest.trim()) {
            ("", _) => Err(ScheduleError::Empty),
            ("continuous", "") => Ok(Kind::Continuous),
            ("@every", period) => every(period),
            ("@yearly" | "@annually", "") => cron("0 0 1 1 *", None),
            ("@monthly", "") => cron("0 0 1 * *", None),
            ("@weekly", "") => cron("0 0 * * Sun", None),
            ("@daily" | "@midnight", "") => cron("0 0 * * *", None),
            ("@hourly", "") => cron("0 * * * *", None),
            (word, rest) if word.starts_with('@') || rest.is_empty() && !is_field(word) => {
                Err(ScheduleError::UnknownName {
                    name: expression.to_owned(),
                })
            }
            _ => cron(expression, dialect),
        }?;
        Ok(Self {
            expression: expression.to_owned(),
            kind,
        })
    }

    /// The first tick after `t`, never `t` itself.
    ///
    /// Cron expressions end with the year 2100.
    #[must_use]
    pub fn next_after(&self, t: Timestamp) -> Option<Timestamp> {
        match &self.kind {
            Kind::Cron { civil, zone } => zone.next_after(t, civil),
            Kind::Every { period } => {
                let passed = t.as_nanosecond().div_euclid(*period);
                Timestamp::from_nanosecond((passed + 1) * period).ok()
            }
            Kind::Continuous => None,
        }
    }

    /// The ticks in (`after`, `upto`], in order, the first `limit` of them.
    #[must_use]
    pub fn between(&self, after: Timestamp, upto: Timestamp, limit: usize) -> Vec<Timestamp> {
        self.walk(after, upto).take(limit).collect()
    }

    /// The last tick in (`after`, `upto`], found by halving: some fifty steps, however many ticks there are.
    #[must_use]
    pub fn latest_upto(&self, after: Timestamp, upto: Timestamp) -> Option<Timestamp> {
        if let Kind::Every { period } = &self.kind {
            let tick = upto.as_nanosecond().div_euclid(*period) * period;
            return Timestamp::from_nanosecond(tick)
                .ok()
                .filter(|tick| *tick > after);
        }
        let mut tick = self.next_after(after).filter(|tick| *tick <= upto)?;
        // No tick lies in (free_from, upto].
        let mut free_from = upto;
        while tick < free_from {
            let middle = midpoint(tick, free_from);
            match self.next_after(middle) {
                Some(next) if next <= upto => tick = next,
                _ => free_from = middle,
            }
        }
        Some(tick)
    }

    /// The last `limit` ticks in (`after`, `upto`], in order.
    #[must_use]
    pub fn latest(&self, after: Timestamp, upto: Timestamp, limit: usize) -> Vec<Timestamp> {
        let mut ticks = Vec::new();
        let mut upto = Some(upto);
        while ticks.len() < limit
            && let Some(tick) = upto.and_then(|upto| self.latest_upto(after, upto))
        {
            ticks.push(tick);
            upto = before(tick);
        }
        ticks.reverse();
        ticks
    }

    /// How many ticks lie in (`after`, `upto`]; counting stops at `most`.
    #[must_use]
    pub fn count(&self, after: Timestamp, upto: Timestamp, most: u64) -> u64 {
        if let Kind::Every { period } = &self.kind {
            let passed = |t: Timestamp| t.as_nanosecond().div_euclid(*period);
            let count = passed(upto).saturating_sub(passed(after)).max(0);
            return u64::try_from(count).unwrap_or(u64::MAX).min(most);
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        self.walk(after, upto).take(most).count() as u64
    }

    /// Whether the job runs as long as its replica leads, without ticks.
    #[must_use]
    pub fn is_continuous(&self) -> bool {
        matches!(self.kind, Kind::Continuous)
    }

    /// The zone in which a cron expression is read, by its name in the time zone database.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        match &self.kind {
            Kind::Cron { zone, .. } => Some(zone.name()),
            Kind::Every { .. } | Kind::Continuous => None,
        }
    }

    fn walk(&self, after: Timestamp, upto: Timestamp) -> impl Iterator<Item = Timestamp> {
        let next = move |t: &Timestamp| self.next_after(*t);
        std::iter::successors(next(&after), next).take_while(move |tick| *tick <= upto)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.expression)
    }
}

// === impl Dialect ===

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Crontab => "crontab",
            Self::Quartz => "quartz",
        })
    }
}

impl FromStr for Dialect {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "crontab" => Ok(Self::Crontab),
            "quartz" => Ok(Self::Quartz),
            _ => Err(format!(
                "unknown dialect {word:?}: known are \"crontab\" and \"quartz\""
            )),
        }
    }
}

// === helpers ===

/// The instant just before `t`.
pub(crate) fn before(t: Timestamp) -> Option<Timestamp> {
    Timestamp::from_nanosecond(t.as_nanosecond() - 1).ok()
}

/// Half way, nearer to `from`, so that halving ends.
fn midpoint(from: Timestamp, to: Timestamp) -> Timestamp {
    let (from_ns, to_ns) = (from.as_nanosecond(), to.as_nanosecond());
    Timestamp::from_nanosecond(from_ns + (to_ns - from_ns) / 2).unwrap_or(from)
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
