//! Days on which a schedule does not fire.

use std::collections::BTreeSet;

use jiff::civil::Date;

use super::{
    error::ScheduleError,
    field::{self, WEEKDAYS},
};

/// Excluded days, by the civil date of the job's zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Days {
    /// Sunday is 0.
    weekdays: [bool; 7],
    /// Every year: month and day.
    yearly: BTreeSet<(i8, i8)>,
    dates: BTreeSet<Date>,
}

impl Days {
    /// Reads `"2026-12-25"`, `"12-24"` (every year) and weekdays by name, also as a range (`"Sat-Sun"`).
    pub(super) fn parse(texts: &[String]) -> Result<Self, Vec<ScheduleError>> {
        let mut days = Self::default();
        let added = texts.iter().map(|text| days.add(text.trim()));
        let wrong: Vec<ScheduleError> = added.filter_map(Result::err).collect();
        match wrong.is_empty() {
            true => Ok(days),
            false => Err(wrong),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn contain(&self, day: Date) -> bool {
        let weekday = usize::from(day.weekday().to_sunday_zero_offset().unsigned_abs());
        self.weekdays.get(weekday).is_some_and(|excluded| *excluded)
            || self.yearly.contains(&(day.month(), day.day()))
            || self.dates.contains(&day)
    }

    fn add(&mut self, text: &str) -> Result<(), ScheduleError> {
        if let Some((from, to)) = weekdays(text) {
            let mut day = from;
            loop {
                if let Some(excluded) = self.weekdays.get_mut(day) {
                    *excluded = true;
                }
                if day == to {
                    return Ok(());
                }
                day = (day + 1) % 7;
            }
        }
        if text.len() == 10
            && let Ok(date) = text.parse::<Date>()
        {
            self.dates.insert(date);
            return Ok(());
        }
        // 29 February is a day, in some years.
        if text.len() == 5
            && let Ok(date) = format!("2000-{text}").parse::<Date>()
        {
            self.yearly.insert((date.month(), date.day()));
            return Ok(());
        }
        Err(ScheduleError::Except {
            value: text.to_owned(),
        })
    }
}

/// `Sun`, `Sunday` or `Sat-Sun` as first and last day.
fn weekdays(text: &str) -> Option<(usize, usize)> {
    let day = |text: &str| WEEKDAYS.iter().position(|name| field::is_name(text, name));
    match text.split_once('-') {
        Some((from, to)) => Some((day(from)?, day(to)?)),
        None => day(text).map(|day| (day, day)),
    }
}
