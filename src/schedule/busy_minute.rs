//! Many jobs at the same minute: a burst that a delay would spread.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::Schedule;

/// So many jobs at the same minute are worth a hint.
const BUSY: usize = 10;

/// Jobs that start more often than this in a day are at every crowded minute anyway, and say nothing about it.
const OFTEN: usize = 24;

/// Jobs that start in the same minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BusyMinute {
    /// The beginning of the minute.
    pub(crate) minute: Timestamp,
    /// The jobs, in the order of their names.
    pub(crate) jobs: Vec<String>,
}

/// The minutes of the day after `from` at which [`BUSY`] or more jobs start, delays counted, the most crowded first; of
/// the same jobs the first minute only.
#[must_use]
pub(crate) fn busy_minutes<'a>(
    jobs: impl IntoIterator<Item = (&'a str, &'a Schedule)>,
    from: Timestamp,
) -> Vec<BusyMinute> {
    let upto = from
        .checked_add(SignedDuration::from_hours(24))
        .unwrap_or(Timestamp::MAX);
    let mut minutes: BTreeMap<i64, BTreeSet<&str>> = BTreeMap::new();
    for (name, schedule) in jobs {
        let ticks = schedule.between(from, upto, OFTEN + 1);
        if ticks.len() > OFTEN {
            continue;
        }
        for tick in ticks {
            let minute = schedule.starts(tick).as_second().div_euclid(60);
            minutes.entry(minute).or_default().insert(name);
        }
    }
    let mut seen = BTreeSet::new();
    let mut found: Vec<BusyMinute> = Vec::new();
    for (minute, names) in minutes {
        if names.len() < BUSY || !seen.insert(names.clone()) {
            continue;
        }
        let Ok(minute) = Timestamp::from_second(minute * 60) else {
            continue;
        };
        let jobs = names.into_iter().map(str::to_owned).collect();
        found.push(BusyMinute { minute, jobs });
    }
    found.sort_by_key(|busy| std::cmp::Reverse(busy.jobs.len()));
    found
}
