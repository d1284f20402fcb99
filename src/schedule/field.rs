//! One field of a cron expression: text in, numbers out, errors in words.

use std::collections::BTreeSet;

use super::{
    dialect::Dialect,
    error::{Field, ScheduleError},
};

/// What one field says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldSet {
    /// The values it matches; weekdays are 0 (Sunday) to 6.
    pub(super) values: BTreeSet<u32>,
    /// It starts with `*` or `?`: crontab calls such a field unrestricted.
    pub(super) open: bool,
    /// It holds a `*` or a step: times that repeat, rather than fixed ones.
    pub(super) repeats: bool,
    /// The first weekday given by number.
    pub(super) number: Option<u32>,
}

/// The days as they are called in messages, Sunday first.
pub(super) const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// The months as they are called in messages.
pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Reads one field.
pub(super) fn parse(field: Field, text: &str, dialect: Dialect) -> Result<FieldSet, ScheduleError> {
    let reader = Reader { field, dialect };
    let mut set = FieldSet {
        values: BTreeSet::new(),
        open: text.starts_with(['*', '?']),
        repeats: false,
        number: None,
    };
    for item in text.split(',') {
        reader.item(item, &mut set)?;
    }
    Ok(set)
}

// === reading ===

struct Reader {
    field: Field,
    dialect: Dialect,
}

/// A value, and whether it was written as a name.
#[derive(Clone, Copy)]
struct Value {
    number: u32,
    named: bool,
}

impl Reader {
    /// `*`, `?`, `5`, `Mon`, `1-5`, each with or without `/step`.
    fn item(&self, item: &str, set: &mut FieldSet) -> Result<(), ScheduleError> {
        if item.is_empty() {
            return Err(self.error(item, "is empty"));
        }
        let (base, step) = match item.split_once('/') {
            Some((base, step)) => (base, Some(self.step(item, step)?)),
            None => (item, None),
        };
        let (min, max) = self.bounds();
        let whole = base == "*" || (base == "?" && self.takes_any());
        let (from, to) = if whole {
            // Zero to six: the second Sunday of crontab would make `*/7` match twice.
            (min, if self.is_crontab_weekday() { 6 } else { max })
        } else if let Some((from, to)) = base.split_once('-') {
            self.range(item, from, to, set)?
        } else {
            let value = self.value(item, base, set)?;
            (
                value.number,
                if step.is_some() { max } else { value.number },
            )
        };
        set.repeats |= whole || step.is_some();
        let step = usize::try_from(step.unwrap_or(1)).unwrap_or(usize::MAX);
        set.values
            .extend((from..=to).step_by(step).map(|n| self.normal(n)));
        Ok(())
    }

    fn range(
        &self,
        item: &str,
        from: &str,
        to: &str,
        set: &mut FieldSet,
    ) -> Result<(u32, u32), ScheduleError> {
        let (from, to) = (self.value(item, from, set)?, self.value(item, to, set)?);
        if from.number <= to.number {
            return Ok((from.number, to.number));
        }
        // Names have no order that a reader could see: `Fri-Mon` and `Sat-Sun` go round the week.
        if self.field == Field::DayOfWeek && from.named && to.named {
            return Ok((from.number, to.number + 7));
        }
        Err(self.error(item, "a range runs from the smaller to the larger value"))
    }

    fn value(&self, item: &str, text: &str, set: &mut FieldSet) -> Result<Value, ScheduleError> {
        if text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() {
            let (min, max) = self.bounds();
            let number = text.parse().ok().filter(|n| (min..=max).contains(n));
            let number = number.ok_or_else(|| self.not_allowed(item))?;
            if self.field == Field::DayOfWeek {
                set.number.get_or_insert(number);
            }
            return Ok(Value {
                number,
                named: false,
            });
        }
        let names: &[&str] = match self.field {
            Field::Month => &MONTHS,
            Field::DayOfWeek => &WEEKDAYS,
            _ => &[],
        };
        let first = self.bounds().0;
        match (first..).zip(names).find(|(_, name)| is_name(text, name)) {
            Some((number, _)) => Ok(Value {
                number,
                named: true,
            }),
            None if self.is_extension(text) => {
                Err(self.error(item, "the extensions L, W, LW and # are not supported"))
            }
            None => Err(self.not_allowed(item)),
        }
    }

    fn step(&self, item: &str, step: &str) -> Result<u32, ScheduleError> {
        let (_, max) = self.bounds();
        match step.parse::<u32>() {
            Ok(step) if (1..=max).contains(&step) => Ok(step),
            _ => Err(self.error(
                item,
                &format!("a step is a number from 1 to {max} and counts within the field"),
            )),
        }
    }

    /// Weekdays from Sunday = 0, everything else as written.
    fn normal(&self, number: u32) -> u32 {
        match (self.field, self.dialect) {
            (Field::DayOfWeek, Dialect::Crontab) => number % 7,
            (Field::DayOfWeek, Dialect::Quartz) => (number + 6) % 7,
            _ => number,
        }
    }

    fn bounds(&self) -> (u32, u32) {
        match self.field {
            Field::Second | Field::Minute => (0, 59),
            Field::Hour => (0, 23),
            Field::DayOfMonth => (1, 31),
            Field::Month => (1, 12),
            Field::DayOfWeek if self.dialect == Dialect::Quartz => (1, 7),
            Field::DayOfWeek => (0, 7),
            Field::Year => (1970, 2100),
        }
    }

    fn is_crontab_weekday(&self) -> bool {
        self.field == Field::DayOfWeek && self.dialect == Dialect::Crontab
    }

    fn takes_any(&self) -> bool {
        matches!(self.field, Field::DayOfMonth | Field::DayOfWeek)
    }

    fn is_extension(&self, text: &str) -> bool {
        self.takes_any()
            && !text.is_empty()
            && text
                .bytes()
                .all(|b| b.is_ascii_digit() || b"LWlw#".contains(&b))
    }

    fn not_allowed(&self, value: &str) -> ScheduleError {
        let (min, max) = self.bounds();
        let more = match (self.field, self.dialect) {
            (Field::Month, _) => " or Jan-Dec",
            (Field::DayOfWeek, Dialect::Crontab) => " (0 and 7 are Sunday) or Mon-Sun",
            (Field::DayOfWeek, Dialect::Quartz) => " (1 is Sunday) or Mon-Sun",
            _ => "",
        };
        let problem =
            format!("allowed are {min}-{max}{more}, *, lists (a,b), ranges (a-b) and steps (*/n)");
        self.error(value, &problem)
    }

    fn error(&self, value: &str, problem: &str) -> ScheduleError {
        ScheduleError::Field {
            field: self.field,
            value: value.to_owned(),
            problem: problem.to_owned(),
        }
    }
}

/// The whole name, or its first three letters.
pub(super) fn is_name(text: &str, name: &str) -> bool {
    text.eq_ignore_ascii_case(name) || name.get(..3).is_some_and(|n| text.eq_ignore_ascii_case(n))
}
