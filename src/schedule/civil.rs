//! Cron expressions in civil time: no zone, no instants.
//!
//! The `cron` crate finds the next matching date and time on a calendar without zones (naive time dressed as UTC;
//! there it is exact and keeps no state). Its own parser is not used for user input: it takes no five fields, counts
//! weekdays from Sunday = 1, and its errors name no field. So the fields are read here and handed on as plain lists.
//!
//! What was read is shared while anything has it: ten thousand jobs that are due at the same times have one calendar.

use std::{
    collections::HashMap,
    fmt::Write,
    str::FromStr,
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
};

use chrono::{DateTime, Utc};

use super::{
    dialect::Dialect,
    error::{Field, ScheduleError},
    field::{self, FieldSet, WEEKDAYS},
};

/// A cron expression, read.
#[derive(Clone, Debug)]
pub(super) struct Civil {
    /// A time matches when it matches any of these: crontab's day of month OR day of week takes two.
    any_of: Arc<[cron::Schedule]>,
    /// The minute or the hour field holds a `*` or a step.
    repeats: bool,
}

/// Calendars that are in use, by the fields as plain lists.
static IN_USE: LazyLock<Mutex<Calendars>> = LazyLock::new(Mutex::default);

type Calendars = HashMap<Vec<String>, Weak<[cron::Schedule]>>;

/// Seconds of civil time since 1970-01-01T00:00:00 of the same zone.
pub(super) type CivilSecond = i64;

const FIVE: [Field; 5] = [
    Field::Minute,
    Field::Hour,
    Field::DayOfMonth,
    Field::Month,
    Field::DayOfWeek,
];

// === impl Civil ===

impl Civil {
    pub(super) fn parse(
        expression: &str,
        dialect: Option<Dialect>,
    ) -> Result<Self, Vec<ScheduleError>> {
        let texts: Vec<&str> = expression.split_whitespace().collect();
        let fields: Vec<Field> = match texts.len() {
            5 => FIVE.to_vec(),
            6 => [&[Field::Second][..], &FIVE].concat(),
            7 => [&[Field::Second][..], &FIVE, &[Field::Year]].concat(),
            found => {
                let expression = expression.to_owned();
                return Err(vec![ScheduleError::FieldCount { expression, found }]);
            }
        };
        let mut read = Vec::with_capacity(7);
        let mut wrong = Vec::new();
        for (&field, &text) in fields.iter().zip(&texts) {
            match field::parse(field, text, dialect.unwrap_or_default()) {
                Ok(set) => {
                    if let (Some(number), None, 6..) = (set.number, dialect, texts.len()) {
                        wrong.push(ambiguous(text, number));
                    }
                    read.push((field, set));
                }
                Err(error) => wrong.push(error),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let civil = Self::of(&read, dialect.unwrap_or_default(), expression);
        let civil = civil.map_err(|error| vec![error])?;
        match civil.next_after(-1) {
            Some(_) => Ok(civil),
            None => Err(vec![never(expression)]),
        }
    }

    fn of(
        read: &[(Field, FieldSet)],
        dialect: Dialect,
        expression: &str,
    ) -> Result<Self, ScheduleError> {
        let restricted = |field| read.iter().any(|(f, set)| *f == field && !set.open);
        let either = dialect == Dialect::Crontab
            && restricted(Field::DayOfMonth)
            && restricted(Field::DayOfWeek);
        let opened: &[Option<Field>] = if either {
            &[Some(Field::DayOfMonth), Some(Field::DayOfWeek)]
        } else {
            &[None]
        };
        let any_of = opened.iter().map(|open| plain(read, *open)).collect();
        let repeats = read
            .iter()
            .any(|(field, set)| matches!(field, Field::Minute | Field::Hour) && set.repeats);
        Ok(Self {
            // Lists of checked numbers always parse; should they not, the expression is no schedule.
            any_of: shared(any_of).map_err(|_| never(expression))?,
            repeats,
        })
    }

    /// The first matching time after `local`.
    pub(super) fn next_after(&self, local: CivilSecond) -> Option<CivilSecond> {
        // The calendar of the evaluation starts in 1970.
        let local = DateTime::<Utc>::from_timestamp(local.max(-1), 0)?;
        let next = |schedule: &cron::Schedule| Some(schedule.after(&local).next()?.timestamp());
        self.any_of.iter().filter_map(next).min()
    }

    /// Whether it names times that repeat (`*` or a step in the minute or hour field) rather than fixed times.
    pub(super) fn repeats(&self) -> bool {
        self.repeats
    }
}

/// The calendars of these fields: the same ones as long as anything has them.
fn shared(plain: Vec<String>) -> Result<Arc<[cron::Schedule]>, cron::error::Error> {
    // Every change is complete before the lock is given back.
    let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = in_use.get(&plain).and_then(Weak::upgrade) {
        return Ok(known);
    }
    let read = plain.iter().map(|plain| cron::Schedule::from_str(plain));
    let read: Arc<[cron::Schedule]> = read.collect::<Result<Vec<_>, _>>()?.into();
    // What nothing has any more is forgotten when there is no room.
    if in_use.len() == in_use.capacity() {
        in_use.retain(|_, calendar| calendar.strong_count() > 0);
    }
    in_use.insert(plain, Arc::downgrade(&read));
    Ok(read)
}

/// The fields as plain lists in the order and numbering of the `cron` crate; `open` is written as `*`.
fn plain(read: &[(Field, FieldSet)], open: Option<Field>) -> String {
    let mut out = String::new();
    if read.len() == FIVE.len() {
        out.push_str("0 ");
    }
    for (field, set) in read {
        let whole = match field {
            Field::DayOfMonth => 31,
            Field::DayOfWeek => 7,
            _ => usize::MAX,
        };
        // `*` rather than the whole list: the crate then skips the weekday test.
        if open == Some(*field) || set.values.len() == whole {
            out.push('*');
        } else {
            let shift = u32::from(*field == Field::DayOfWeek);
            for (i, value) in set.values.iter().enumerate() {
                let comma = if i == 0 { "" } else { "," };
                // Writing to a string cannot fail.
                let _ = write!(out, "{comma}{}", value + shift);
            }
        }
        out.push(' ');
    }
    out.trim_end().to_owned()
}

fn ambiguous(value: &str, number: u32) -> ScheduleError {
    let day = |n: u32| WEEKDAYS[n as usize % 7];
    ScheduleError::AmbiguousWeekday {
        value: value.to_owned(),
        number,
        crontab: day(number),
        quartz: if number == 0 {
            "nothing"
        } else {
            day(number + 6)
        },
    }
}

fn never(expression: &str) -> ScheduleError {
    ScheduleError::NeverMatches {
        expression: expression.to_owned(),
    }
}
