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

use jiff::{Timestamp, tz::TimeZone};

use super::{
    civil::{Civil, CivilSecond},
    error::ScheduleError,
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
            return Ok(Self {
                tz: TimeZone::UTC,
                name: "UTC".to_owned(),
            });
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

    pub(super) fn name(&self) -> &str {
        &self.name
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
