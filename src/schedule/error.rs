//! What is wrong with a schedule, in words that name the field.

use std::fmt;

/// A field of a cron expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// First of six or seven fields.
    Second,
    /// First of five fields.
    Minute,
    /// The hour of the day.
    Hour,
    /// The day of the month.
    DayOfMonth,
    /// The month, by number or English name.
    Month,
    /// The day of the week, by number (see [`super::Dialect`]) or English name.
    DayOfWeek,
    /// Seventh field.
    Year,
}

/// Why an expression is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// Nothing was given.
    #[error("the schedule is empty")]
    Empty,
    /// A cron expression has five, six or seven fields.
    #[error(
        "{found} field{} in {expression:?}: a cron expression has 5 (minute, hour, day of month, month, \
         day of week), 6 (second first) or 7 (year last)",
        if *.found == 1 { "" } else { "s" }
    )]
    FieldCount {
        /// The expression.
        expression: String,
        /// How many fields it has.
        found: usize,
    },
    /// A field holds something it may not.
    #[error("{field} {value:?}: {problem}")]
    Field {
        /// The field.
        field: Field,
        /// The part of the field that is wrong.
        value: String,
        /// What is wrong and what is allowed.
        problem: String,
    },
    /// A weekday given by number beside a seconds field, where crontab and Quartz count differently.
    #[error(
        "day of week {value:?}: {number} means {crontab} in crontab, {quartz} in quartz; \
         set dialect = \"crontab\" or \"quartz\", or write the day's name"
    )]
    AmbiguousWeekday {
        /// The field as written.
        value: String,
        /// The first number in it.
        number: u32,
        /// What the number means when 0 and 7 are Sunday.
        crontab: &'static str,
        /// What the number means when 1 is Sunday.
        quartz: &'static str,
    },
    /// No day ever matches, like 30 February.
    #[error("{expression:?} never matches: no such date exists between 1970 and 2100")]
    NeverMatches {
        /// The expression.
        expression: String,
    },
    /// A word starting with `@` that is none of ours.
    #[error(
        "unknown schedule {name:?}: known are @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, \
         @every DURATION, at TIME, continuous and manual"
    )]
    UnknownName {
        /// The word.
        name: String,
    },
    /// `@every` without a usable duration.
    #[error("@every {value:?}: {problem}")]
    Every {
        /// The duration as written.
        value: String,
        /// What is wrong and what is allowed.
        problem: String,
    },
    /// `at` without a usable instant.
    #[error("at {value:?}: {INSTANT}")]
    At {
        /// The instant as written.
        value: String,
    },
    /// `continuous` and `manual` stand alone.
    #[error("{word:?} has no ticks: it stands alone, not in a list")]
    Mixed {
        /// The word.
        word: String,
    },
    /// `starting` or `until` is no instant.
    #[error("{value:?} is no time: {INSTANT}")]
    Bound {
        /// `starting` or `until`.
        key: &'static str,
        /// As written.
        value: String,
    },
    /// The schedule would end before it begins.
    #[error("{until:?} comes before starting ({starting:?}): swap them, or leave one out")]
    UntilBeforeStarting {
        /// As written.
        starting: String,
        /// As written.
        until: String,
    },
    /// An excluded day is no day.
    #[error(
        "{value:?} is no day: write a date (\"2026-12-25\"), a day of every year (\"12-24\") or weekdays by name \
         (\"Sun\", \"Sat-Sun\")"
    )]
    Except {
        /// As written.
        value: String,
    },
    /// Each of them has ticks, but all of them are cut away.
    #[error("{expression:?} never fires: starting, until and except leave no tick of it")]
    NothingLeft {
        /// The expressions.
        expression: String,
    },
    /// The zone is not in the time zone database.
    #[error("unknown time zone {zone:?}{}", nearest(.suggestion.as_deref()))]
    UnknownZone {
        /// The zone as written.
        zone: String,
        /// The nearest known name.
        suggestion: Option<String>,
    },
}

const INSTANT: &str =
    "write \"2026-12-24T18:00:00Z\", or \"2026-12-24T18:00\" or \"2026-12-24\" in the job's zone";

// === impl ScheduleError ===

impl ScheduleError {
    /// The key of a job's configuration that is wrong.
    #[must_use]
    pub(crate) fn key(&self) -> &'static str {
        match self {
            Self::UnknownZone { .. } => "zone",
            Self::Bound { key, .. } => key,
            Self::UntilBeforeStarting { .. } => "until",
            Self::Except { .. } => "except",
            _ => "schedule",
        }
    }
}

// === impl Field ===

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of month",
            Self::Month => "month",
            Self::DayOfWeek => "day of week",
            Self::Year => "year",
        })
    }
}

fn nearest(suggestion: Option<&str>) -> String {
    match suggestion {
        Some(name) => format!(": did you mean {name:?}?"),
        None => ": zones are named like \"Europe/Berlin\" or \"UTC\"".to_owned(),
    }
}
