//! A schedule in words, for people who look at a page: `at 08:00, Monday to Friday`.
//!
//! Said of what was read, and not of the text alone: `*/7` in the minute field is no "every 7 minutes", and both days of a
//! crontab expression are joined by "or".

use std::{collections::BTreeSet, time::Duration};

use super::{
    Schedule,
    dialect::Dialect,
    error::Field,
    field::{self, FieldSet, MONTHS, WEEKDAYS},
    kind::{Kind, Offset},
};
use crate::human::Span;

/// Times of a day that are listed one by one; more are told as minutes and hours.
const LISTED: usize = 6;

/// The fields of a cron expression.
struct Fields {
    second: Vec<u32>,
    minute: Vec<u32>,
    hour: Vec<u32>,
    day: FieldSet,
    month: FieldSet,
    weekday: FieldSet,
    year: Option<FieldSet>,
}

// === impl Schedule ===

impl Schedule {
    /// What it says, without its zone: a phrase that goes on after "runs".
    #[must_use]
    pub(crate) fn words(&self, dialect: Option<Dialect>) -> String {
        let dialect = dialect.unwrap_or_default();
        let parts = self.expression.split("; ").zip(&self.kinds);
        let said = parts.map(|(text, kind)| self.words_of(text, kind, dialect));
        let mut words = said.collect::<Vec<_>>().join("; and ");
        if let Some(starting) = self.bounds.starting {
            words += &format!(", from {} on", self.local(starting));
        }
        if let Some(until) = self.bounds.until {
            words += &format!(", until {}", self.local(until));
        }
        if !self.except.is_empty() {
            words += ", but for the days that are excluded";
        }
        words
    }

    fn words_of(&self, text: &str, kind: &Kind, dialect: Dialect) -> String {
        match kind {
            Kind::Cron(_) => {
                let text = named(text);
                // What cannot be told is shown as it is written.
                Fields::read(text, dialect).map_or_else(|| text.to_owned(), |fields| fields.words())
            }
            Kind::Every { period, offset } => {
                let later = match offset {
                    Offset::Fixed(0) => String::new(),
                    Offset::Fixed(nanos) => format!(", {} after each multiple", span(*nanos)),
                    Offset::Auto => ", each job at a place of its own".to_owned(),
                };
                format!("every {} by UTC{later}", span(*period))
            }
            Kind::At(instant) => format!("once, at {}", self.local(*instant)),
            Kind::Continuous => "all the time, as long as its replica leads".to_owned(),
            Kind::Manual => "only when it is asked to".to_owned(),
        }
    }
}

/// What stands behind the name of a schedule.
fn named(text: &str) -> &str {
    match text.trim() {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * Sun",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        other => other,
    }
}

fn span(nanos: i128) -> Span {
    Span(Duration::from_nanos(u64::try_from(nanos).unwrap_or(0)))
}

// === impl Fields ===

impl Fields {
    fn read(text: &str, dialect: Dialect) -> Option<Self> {
        let texts: Vec<&str> = text.split_whitespace().collect();
        let (second, rest, year) = match texts[..] {
            [m, h, d, o, w] => ("0", [m, h, d, o, w], None),
            [s, m, h, d, o, w] => (s, [m, h, d, o, w], None),
            [s, m, h, d, o, w, y] => (s, [m, h, d, o, w], Some(y)),
            _ => return None,
        };
        let set = |field, text| field::parse(field, text, dialect).ok();
        let list = |field, text| Some(set(field, text)?.values.into_iter().collect::<Vec<u32>>());
        let mut fields = Self {
            second: list(Field::Second, second)?,
            minute: list(Field::Minute, rest[0])?,
            hour: list(Field::Hour, rest[1])?,
            day: set(Field::DayOfMonth, rest[2])?,
            month: set(Field::Month, rest[3])?,
            weekday: set(Field::DayOfWeek, rest[4])?,
            year: match year {
                Some(year) => Some(set(Field::Year, year)?),
                None => None,
            },
        };
        let either = dialect == Dialect::Crontab && !fields.day.open && !fields.weekday.open;
        // A day that matches by one of them need not match by the other.
        if either && (fields.day.values.len() == 31 || fields.weekday.values.len() == 7) {
            fields.day.values = (1..=31).collect();
            fields.weekday.values = (0..7).collect();
        }
        if dialect == Dialect::Quartz {
            fields.day.open = true;
        }
        Some(fields)
    }

    fn words(&self) -> String {
        let (mut words, of_day) = self.time();
        let days = self.days();
        let mut rest: Vec<String> = Vec::new();
        rest.extend(days);
        rest.extend(months(&self.month.values));
        rest.extend(self.year.as_ref().and_then(|year| years(&year.values)));
        if rest.is_empty() && of_day {
            words += " every day";
        }
        for part in rest {
            words += ", ";
            words += &part;
        }
        words
    }

    /// When on a day; `true` where these are single times of it.
    fn time(&self) -> (String, bool) {
        let Self {
            second,
            minute,
            hour,
            ..
        } = self;
        let &[second] = &second[..] else {
            return (self.many_seconds(), false);
        };
        let at = match second {
            0 => String::new(),
            second => format!(", at second {second}"),
        };
        let (every_minute, every_hour) = (minute.len() == 60, hour.len() == 24);
        if every_minute && every_hour {
            return (format!("every minute{at}"), false);
        }
        if !every_hour && minute.len() * hour.len() <= LISTED {
            let times = hour.iter().flat_map(|h| minute.iter().map(move |m| (h, m)));
            let times = times.map(|(h, m)| match second {
                0 => format!("{h:02}:{m:02}"),
                second => format!("{h:02}:{m:02}:{second:02}"),
            });
            return (format!("at {}", and(times.collect())), true);
        }
        let words = match (&minute[..], step(minute, 60), step(hour, 24)) {
            ([0], _, _) if every_hour => "every hour".to_owned(),
            ([m], _, _) if every_hour => format!("every hour at minute {m}"),
            ([0], _, Some(n)) => format!("every {n} hours from midnight on"),
            ([m], _, Some(n)) => format!("every {n} hours from midnight on, at minute {m}"),
            (_, Some(n), _) => format!("every {n} minutes{}", hours(hour)),
            _ if every_minute => format!("every minute{}", hours(hour)),
            _ if every_hour => format!("every hour at minutes {}", numbers(minute)),
            ([m], _, _) => format!("at minute {m}{}", hours(hour)),
            _ => format!("at minutes {}{}", numbers(minute), hours(hour)),
        };
        (words + &at, false)
    }

    fn many_seconds(&self) -> String {
        let mut words = match step(&self.second, 60) {
            _ if self.second.len() == 60 => "every second".to_owned(),
            Some(n) => format!("every {n} seconds"),
            None => format!("at seconds {}", numbers(&self.second)),
        };
        if self.minute.len() < 60 {
            words += &match step(&self.minute, 60) {
                Some(n) => format!(" of every {n}th minute"),
                None => format!(" of the minutes {}", numbers(&self.minute)),
            };
        }
        words + &hours(&self.hour)
    }

    /// On which days; nothing for all of them.
    fn days(&self) -> Option<String> {
        let (day, weekday) = (&self.day, &self.weekday);
        let (all_days, all_weekdays) = (day.values.len() == 31, weekday.values.len() == 7);
        match (all_days, all_weekdays) {
            (true, true) => None,
            (true, false) => Some(weekdays(&weekday.values)),
            (false, true) => Some(days_of_month(&day.values)),
            (false, false) => {
                let (days, weekdays) = (days_of_month(&day.values), weekdays(&weekday.values));
                let word = match day.open || weekday.open {
                    true => "if it is also",
                    false => "or",
                };
                Some(format!("{days} {word} {weekdays}"))
            }
        }
    }
}

// === words ===

/// ` from 09:00 to 17:59`; nothing for all hours.
fn hours(hours: &[u32]) -> String {
    match hours {
        all if all.len() == 24 => String::new(),
        [only] => format!(" from {only:02}:00 to {only:02}:59"),
        [first, .., last] if is_run(hours) => format!(" from {first:02}:00 to {last:02}:59"),
        some => format!(" in the hours {}", numbers(some)),
    }
}

fn days_of_month(days: &BTreeSet<u32>) -> String {
    let days: Vec<u32> = days.iter().copied().collect();
    match &days[..] {
        [only] => format!("on day {only} of the month"),
        [first, .., last] if days.len() > 2 && is_run(&days) => {
            format!("on days {first} to {last} of the month")
        }
        some => format!("on days {} of the month", numbers(some)),
    }
}

/// With Monday first, as people count them.
fn weekdays(days: &BTreeSet<u32>) -> String {
    let mut from_monday: Vec<u32> = days.iter().map(|day| (day + 6) % 7).collect();
    from_monday.sort_unstable();
    let name = |day: &u32| {
        let sunday_first = usize::try_from((day + 1) % 7).unwrap_or(0);
        WEEKDAYS.get(sunday_first).copied().unwrap_or_default()
    };
    match &from_monday[..] {
        [first, .., last] if from_monday.len() > 2 && is_run(&from_monday) => {
            format!("{} to {}", name(first), name(last))
        }
        some => format!(
            "on {}",
            and(some.iter().map(|d| name(d).to_owned()).collect())
        ),
    }
}

fn months(months: &BTreeSet<u32>) -> Option<String> {
    let months: Vec<u32> = months.iter().copied().collect();
    let name = |month: &u32| {
        let place = usize::try_from(month.saturating_sub(1)).unwrap_or(0);
        MONTHS.get(place).copied().unwrap_or_default()
    };
    match &months[..] {
        all if all.len() == 12 => None,
        [first, .., last] if months.len() > 2 && is_run(&months) => {
            Some(format!("{} to {}", name(first), name(last)))
        }
        some => {
            let names = some.iter().map(|month| name(month).to_owned());
            Some(format!("in {}", and(names.collect())))
        }
    }
}

/// Nothing for all years that there are.
fn years(years: &BTreeSet<u32>) -> Option<String> {
    let years: Vec<u32> = years.iter().copied().collect();
    match &years[..] {
        [1970, .., 2100] if is_run(&years) => None,
        [first, .., last] if years.len() > 2 && is_run(&years) => {
            Some(format!("in {first} to {last}"))
        }
        some => Some(format!("in {}", numbers(some))),
    }
}

/// The step by which these run through all of the field, evenly over its end.
fn step(values: &[u32], whole: u32) -> Option<u32> {
    let [0, second, ..] = values else {
        return None;
    };
    let evenly = values.windows(2).all(|pair| pair[1] - pair[0] == *second);
    let all = whole.is_multiple_of(*second) && values.last().is_some_and(|l| l + second == whole);
    (*second > 1 && evenly && all).then_some(*second)
}

/// Whether none is missing between the first and the last.
fn is_run(values: &[u32]) -> bool {
    values.windows(2).all(|pair| pair[1] == pair[0] + 1)
}

fn numbers(values: &[u32]) -> String {
    and(values.iter().map(ToString::to_string).collect())
}

/// `a, b and c`
fn and(words: Vec<String>) -> String {
    match &words[..] {
        [] => String::new(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(expression: &str, dialect: Option<Dialect>) -> String {
        let schedule = Schedule::parse(expression, dialect, Some("Europe/Rome")).unwrap();
        schedule.words(dialect)
    }

    #[test]
    fn an_expression_is_told_in_words() {
        for (expression, words) in [
            ("* * * * *", "every minute"),
            ("*/15 * * * *", "every 15 minutes"),
            (
                "*/7 * * * *",
                "every hour at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56",
            ),
            ("0 * * * *", "every hour"),
            ("5 * * * *", "every hour at minute 5"),
            ("0 */6 * * *", "at 00:00, 06:00, 12:00 and 18:00 every day"),
            ("0 */2 * * *", "every 2 hours from midnight on"),
            ("30 2 * * *", "at 02:30 every day"),
            ("0 8 * * Mon-Fri", "at 08:00, Monday to Friday"),
            ("0 8 * * 1-5", "at 08:00, Monday to Friday"),
            ("0 8 * * 6,0", "at 08:00, on Saturday and Sunday"),
            (
                "0 8 * * Sat-Mon",
                "at 08:00, on Monday, Saturday and Sunday",
            ),
            ("0 8,17 * * *", "at 08:00 and 17:00 every day"),
            (
                "*/10 9-17 * * Mon-Fri",
                "every 10 minutes from 09:00 to 17:59, Monday to Friday",
            ),
            ("* 3 * * *", "every minute from 03:00 to 03:59"),
            ("0 0 1 * *", "at 00:00, on day 1 of the month"),
            ("0 0 1,15 * *", "at 00:00, on days 1 and 15 of the month"),
            (
                "0 0 13 * Fri",
                "at 00:00, on day 13 of the month or on Friday",
            ),
            (
                "0 0 */2 * Fri",
                "at 00:00, on days 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29 and 31 of the month if it is \
                 also on Friday",
            ),
            ("0 0 * 1-3 *", "at 00:00, January to March"),
            (
                "0 0 1 1,7 *",
                "at 00:00, on day 1 of the month, in January and July",
            ),
            ("0 0 1-31 * Fri", "at 00:00 every day"),
            ("30 0 8 * * Mon-Fri", "at 08:00:30, Monday to Friday"),
            ("*/10 * * * * *", "every 10 seconds"),
            ("* * * * * *", "every second"),
            ("15 * * * * *", "every minute, at second 15"),
            ("0 0 8 * * * 2027", "at 08:00, in 2027"),
            ("@daily", "at 00:00 every day"),
            ("@weekly", "at 00:00, on Sunday"),
            ("@every 90s", "every 1m 30s by UTC"),
            (
                "@every 1m offset 20s",
                "every 1m by UTC, 20s after each multiple",
            ),
            ("manual", "only when it is asked to"),
            ("continuous", "all the time, as long as its replica leads"),
            (
                "at 2026-12-24T18:00",
                "once, at Thu 2026-12-24 18:00:00 +01:00",
            ),
        ] {
            assert_eq!(said(expression, None), words, "{expression}");
        }
    }

    #[test]
    fn the_dialect_decides_what_a_number_of_a_weekday_means() {
        let of = |dialect| said("0 0 8 ? * 2", Some(dialect));
        assert_eq!(of(Dialect::Crontab), "at 08:00, on Tuesday");
        assert_eq!(of(Dialect::Quartz), "at 08:00, on Monday");
        assert_eq!(
            said("0 0 0 13 * Fri", Some(Dialect::Quartz)),
            "at 00:00, on day 13 of the month if it is also on Friday"
        );
    }

    #[test]
    fn several_expressions_and_their_bounds_are_told_together() {
        let definition = super::super::Definition {
            expressions: &["0 8 * * *".to_owned(), "0 20 * * Sat".to_owned()],
            until: Some("2027-01-01"),
            except: &["12-25".to_owned()],
            ..Default::default()
        };
        let schedule = definition.parse().unwrap();
        assert_eq!(
            schedule.words(None),
            "at 08:00 every day; and at 20:00, on Saturday, until Fri 2027-01-01 23:59:59.999 +00:00, but for the days \
             that are excluded"
        );
    }
}
