//! A schedule as it is written, and how it is read.

use jiff::Timestamp;

use super::{
    Schedule, bounds::Bounds, days::Days, dialect::Dialect, error::ScheduleError, kind::Kind,
    zone::Zone,
};

/// A schedule as it is written, key by key.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Definition<'a> {
    /// One or more expressions.
    pub(crate) expressions: &'a [String],
    /// How a numeric weekday is read.
    pub(crate) dialect: Option<Dialect>,
    /// The time zone of everything that is civil time here; UTC when absent. It must exist wherever it is given.
    pub(crate) zone: Option<&'a str>,
    /// No tick before this. In RFC 3339, or civil time; a date alone is the beginning of that day.
    pub(crate) starting: Option<&'a str>,
    /// No tick after this. A date alone is the end of that day.
    pub(crate) until: Option<&'a str>,
    /// Days without ticks: `2026-12-25`, `12-24` (every year), `Sun`, `Sat-Sun`.
    pub(crate) except: &'a [String],
}

// === impl Definition ===

impl Definition<'_> {
    /// Reads it.
    ///
    /// # Errors
    /// [`ScheduleError`], which names the value and what is allowed; [`ScheduleError::key`] says which key it is about.
    pub(crate) fn parse(&self) -> Result<Schedule, ScheduleError> {
        // At least one error stands in the list: it is what there is instead of a schedule.
        self.read()
            .map_err(|errors| errors.into_iter().next().unwrap_or(ScheduleError::Empty))
    }

    /// Reads it, and says everything that is wrong with it.
    ///
    /// # Errors
    /// At least one [`ScheduleError`], in the order of the keys of [`Definition`], the zone first.
    pub(crate) fn read(&self) -> Result<Schedule, Vec<ScheduleError>> {
        let mut wrong = Vec::new();
        // A zone that does not exist must not hide what else is wrong: the rest is read as if it were UTC.
        let zone = Zone::parse(self.zone).unwrap_or_else(|error| {
            wrong.push(error);
            Zone::utc()
        });
        let mut kinds = Vec::with_capacity(self.expressions.len());
        for expression in self.expressions {
            match Kind::parse(expression.trim(), self.dialect, &zone) {
                Ok(kind) => kinds.push(kind),
                Err(errors) => wrong.extend(errors),
            }
        }
        if self.expressions.is_empty() {
            wrong.push(ScheduleError::Empty);
        }
        if self.expressions.len() > 1 {
            let alone = |text: &&String| matches!(text.trim(), "continuous" | "manual");
            let alone = self.expressions.iter().filter(alone);
            wrong.extend(alone.map(|word| ScheduleError::Mixed {
                word: word.trim().to_owned(),
            }));
        }
        let sure = wrong.is_empty();
        let bounds = Bounds::parse(self.starting, self.until, &zone);
        let bounds = bounds.unwrap_or_else(|errors| {
            // Which comes first can be told in the right zone alone.
            let order =
                |error: &ScheduleError| matches!(error, ScheduleError::UntilBeforeStarting { .. });
            wrong.extend(errors.into_iter().filter(|error| sure || !order(error)));
            Bounds::default()
        });
        let except = Days::parse(self.except).unwrap_or_else(|errors| {
            wrong.extend(errors);
            Days::default()
        });
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let expressions: Vec<&str> = self.expressions.iter().map(|e| e.trim()).collect();
        let schedule = Schedule {
            expression: expressions.join("; "),
            bounds,
            except,
            kinds,
            zone,
            jitter: None,
            left_out: Vec::new(),
        };
        let cut = schedule.bounds != Bounds::default() || !schedule.except.is_empty();
        if cut && schedule.has_ticks() && schedule.next_after(Timestamp::UNIX_EPOCH).is_none() {
            return Err(vec![ScheduleError::NothingLeft {
                expression: schedule.expression,
            }]);
        }
        Ok(schedule)
    }
}

// === impl Schedule ===

impl Schedule {
    /// Reads one expression. `dialect` and `zone` matter to civil time only, but a zone must exist wherever it is given.
    ///
    /// # Errors
    /// [`ScheduleError`], which names the field, the value and what is allowed. An `offset auto` is refused: where its ticks
    /// are depends on the name of a job, and here is none.
    pub fn parse(
        expr: &str,
        dialect: Option<Dialect>,
        zone: Option<&str>,
    ) -> Result<Self, ScheduleError> {
        let definition = Definition {
            expressions: &[expr.to_owned()],
            dialect,
            zone,
            ..Definition::default()
        };
        let schedule = definition.parse()?;
        match schedule.depends_on_name() {
            true => Err(ScheduleError::Every {
                value: expr.trim().trim_start_matches("@every").trim().to_owned(),
                problem: "an automatic offset is that of a job, by its name, and here is none"
                    .to_owned(),
            }),
            false => Ok(schedule),
        }
    }
}
