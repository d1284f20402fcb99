//! Hints about jobs that are no faults: many of them at the same minute.

use jiff::Timestamp;

use crate::{
    config::Config,
    schedule::{Schedule, busy_minutes},
};

/// Jobs that are named before the others are only counted.
const NAMED: usize = 3;

/// The jobs that will run, with their schedules. What has no schedule is a problem of the configuration, not of ours.
pub(super) fn schedules(config: &Config) -> Vec<(&str, Schedule)> {
    let enabled = config.jobs.iter().filter(|(_, spec)| spec.enabled);
    enabled
        .filter_map(|(name, spec)| Some((name.as_str(), spec.schedule_of(name).ok()?)))
        .collect()
}

/// A sentence each.
pub(super) fn hints(config: &Config, now: Timestamp) -> Vec<String> {
    let jobs = schedules(config);
    let found = busy_minutes(jobs.iter().map(|(name, s)| (*name, s)), now);
    found
        .into_iter()
        .map(|busy| {
            let count = busy.jobs.len();
            let minute = busy.minute.strftime("%H:%M UTC on %Y-%m-%d");
            let (named, more) = busy.jobs.split_at(NAMED.min(count));
            format!(
                "{count} jobs at {minute} ({} and {} more): write jitter = \"5m\" for some of them, or other minutes",
                named.join(", "),
                more.len()
            )
        })
        .collect()
}
