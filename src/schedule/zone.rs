//! Zones: the one place where civil time becomes instants.
//!
//! # Rules where the clocks change
//! - **Gap** (clocks go forward): a time that does not exist fires once, at the first instant after the gap. Several
//!   such times fire once together, and together with a time that falls on that instant.
//! - **Overlap** (clocks go back), *fixed* times: once, in the first pass.
//! - **Overlap**, *repeating* times (`*` or a step in the minute or hour field): in both passes, so that the interval
//!   in elapsed time stays the same.
//!
//! All of it is a function of the instant asked for, so a replica that takes over finds the same ticks.

use jiff::{
    Timestamp,
    civil::{Date, DateTime},
    tz::{AmbiguousOffset, TimeZone},
};

use super::{
    civil::{Civil, CivilSecond},
    error::ScheduleError,
    instant::before,
    oddity::Oddity,
};

/// A time zone with the name it was asked for.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    tz: TimeZone,
    name: String,
}

/// A change of the offset, at `at`.
struct Change {
    at: i64,
    /// Seconds east of UTC from then on.
    offset: i64,
}

// === impl Zone ===

impl Zone {
    /// The zone of that name in the time zone database; UTC when none is given.
    pub(super) fn parse(name: Option<&str>) -> Result<Self, ScheduleError> {
        let Some(name) = name.map(str::trim) else {
            return Ok(Self::utc());
        };
        match TimeZone::get(name) {
            Ok(tz) => {
                let name = tz.iana_name().unwrap_or(name).to_owned();
                Ok(Self { tz, name })
            }
            Err(_) => Err(ScheduleError::UnknownZone {
                zone: name.to_owned(),
                suggestion: suggest(name),
            }),
        }
    }

    pub(super) fn utc() -> Self {
        Self {
            tz: TimeZone::UTC,
            name: "UTC".to_owned(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The civil date here.
    pub(super) fn date(&self, t: Timestamp) -> Date {
        self.tz.to_datetime(t).date()
    }

    /// The instant of a civil time by the rules above: right after the gap, in the first pass of an overlap.
    pub(super) fn instant(&self, civil: DateTime) -> Option<Timestamp> {
        match self.tz.to_ambiguous_timestamp(civil).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(civil).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(civil).ok(),
            AmbiguousOffset::Gap { after, .. } => {
                // By the later offset it lies before the change.
                let from = after.to_timestamp(civil).ok()?;
                Some(self.tz.following(from).next()?.timestamp())
            }
        }
    }

    /// The end of `day` here: the instant before the next one begins.
    pub(super) fn end_of(&self, day: Date) -> Option<Timestamp> {
        before(self.instant(day.tomorrow().ok()?.at(0, 0, 0, 0))?)
    }

    /// What is odd about a tick of `civil`: a skipped time, or one that comes twice.
    pub(super) fn oddity(&self, tick: Timestamp, civil: &Civil) -> Option<Oddity> {
        let at = tick.as_second();
        let (old, new) = (at + self.offset(at - 1)?, at + self.offset(at)?);
        if old < new {
            // The clocks go forward at this very instant.
            let first = civil.next_after(old - 1).filter(|first| *first < new)?;
            let fires = civil_time(new)?;
            let meant = civil.next_after(new - 1) == Some(new);
            return (!(meant && civil.repeats())).then_some(Oddity::Skipped {
                time: civil_time(first)?,
                fires,
            });
        }
        let time = self.tz.to_datetime(tick);
        match self.tz.to_ambiguous_timestamp(time).offset() {
            AmbiguousOffset::Fold { .. } if civil.repeats() => Some(Oddity::BothPasses { time }),
            AmbiguousOffset::Fold { .. } => Some(Oddity::FirstPass { time }),
            _ => None,
        }
    }

    /// A tick as it is written here: civil time with its offset.
    pub(super) fn write(&self, tick: Timestamp) -> String {
        let zoned = tick.to_zoned(self.tz.clone());
        let format = match tick.subsec_nanosecond() {
            0 => "%a %Y-%m-%d %H:%M:%S %:z",
            _ => "%a %Y-%m-%d %H:%M:%S%.3f %:z",
        };
        zoned.strftime(format).to_string()
    }

    /// The first instant after `t` at which `civil` fires here.
    pub(super) fn next_after(&self, t: Timestamp, civil: &Civil) -> Option<Timestamp> {
        let mut at = floor_second(t);
        let mut offset = self.offset(at)?;
        let mut local = at + offset;
        if !civil.repeats() {
            // The second pass of an overlap: these times have fired in the first one.
            local = local.max(self.end_of_repeated_times(at)? - 1);
        }
        loop {
            let next = civil.next_after(local)?;
            let candidate = next - offset;
            let change = match self.change_after(at)? {
                Some(change) if change.at <= candidate => change,
                _ => return Timestamp::from_second(candidate).ok(),
            };
            // `next` lies at or beyond the change. Civil time jumps from `old` to `new` there.
            let (old, new) = (change.at + offset, change.at + change.offset);
            if old <= next && next <= new {
                return Timestamp::from_second(change.at).ok();
            }
            local = if new < old && civil.repeats() {
                new - 1
            } else {
                next - 1
            };
            (at, offset) = (change.at, change.offset);
        }
    }

    /// The civil time at which times stop being repetitions, when the last change before `at` was an overlap.
    fn end_of_repeated_times(&self, at: i64) -> Option<CivilSecond> {
        // "Preceding" is strict, and a change at `at` itself counts.
        let until = Timestamp::from_second(at.saturating_add(1)).ok()?;
        let Some(change) = self.tz.preceding(until).next() else {
            return Some(CivilSecond::MIN + 1);
        };
        let changed_at = change.timestamp().as_second();
        let before = self.offset(changed_at - 1)?;
        let after = i64::from(change.offset().seconds());
        Some(if after < before {
            changed_at + before
        } else {
            CivilSecond::MIN + 1
        })
    }

    fn change_after(&self, at: i64) -> Option<Option<Change>> {
        let at = Timestamp::from_second(at).ok()?;
        Some(self.tz.following(at).next().map(|change| Change {
            at: change.timestamp().as_second(),
            offset: i64::from(change.offset().seconds()),
        }))
    }

    fn offset(&self, at: i64) -> Option<i64> {
        let at = Timestamp::from_second(at).ok()?;
        Some(i64::from(self.tz.to_offset(at).seconds()))
    }
}

fn civil_time(second: CivilSecond) -> Option<DateTime> {
    let utc = Timestamp::from_second(second).ok()?;
    Some(TimeZone::UTC.to_datetime(utc))
}

/// Whole seconds, rounded down also before 1970.
fn floor_second(t: Timestamp) -> i64 {
    t.as_second() - i64::from(t.subsec_nanosecond() < 0)
}

// === suggestions ===

/// The nearest zone name, when one is near: `Rome` or `europe/rom` for `Europe/Rome`.
fn suggest(asked: &str) -> Option<String> {
    let asked = asked.to_lowercase().replace(' ', "_");
    let known = jiff::tz::db()
        .available()
        .map(|name| name.as_str().to_owned());
    let distance = |name: &str| {
        let name = name.to_lowercase();
        let city = name.rsplit('/').next().unwrap_or(&name);
        edits(&asked, &name).min(edits(&asked, city))
    };
    known
        .map(|name| (distance(&name), name))
        .filter(|(distance, _)| *distance <= 1 + asked.len() / 5)
        // Of equally near names the one with a region: `Europe/Rome` rather than an alias.
        .min_by_key(|(distance, name)| (*distance, !name.contains('/'), name.clone()))
        .map(|(_, name)| name)
}

/// How many letters must be put in, taken out or changed to get from one word to the other.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let changed = corner + usize::from(a != *b);
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}
