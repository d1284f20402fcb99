//! Many jobs at the same minute or second: a burst that a delay would spread.
//!
//! Jobs that are written alike have their ticks together, so that a hundred thousand of one schedule cost no more than one.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

use super::{Schedule, jitter::Jitter};

/// So many jobs at the same minute are worth a hint.
const BUSY: usize = 10;

/// Jobs that start more often than this in a day are at every crowded minute anyway, and say nothing about it.
const OFTEN: usize = 24;

/// Starts that are looked at in all, and of one job at most: a day of one that starts every minute.
const MOST_STARTS: usize = 1_000_000;
const MOST_OF_ONE: usize = 24 * 60;

/// Jobs whose schedules are written alike.
#[derive(Clone, Debug)]
pub(crate) struct Herd {
    /// Of no job yet.
    pub(crate) schedule: Schedule,
    /// In the order of their names.
    pub(crate) jobs: Vec<Member>,
}

/// A job of a herd.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) jitter: Duration,
    /// Whether each of its starts is written to the lock nodes.
    pub(crate) writes: bool,
}

/// When the jobs of some herds start in the day after an instant.
#[derive(Clone, Debug)]
pub(crate) struct Timetable<'a>(pub(super) Vec<Group<'a>>);

/// Jobs that start at the same instants.
#[derive(Clone, Debug)]
pub(super) struct Group<'a> {
    jobs: Vec<&'a str>,
    /// How many of them write.
    writers: usize,
    /// In order, delays counted; the first ones, where there are many.
    pub(super) starts: Vec<Timestamp>,
}

/// Jobs that start in the same minute, or in the same second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BusyMinute<'a> {
    /// The beginning of the minute, or of the second.
    pub(crate) at: Timestamp,
    /// How many they are.
    pub(crate) count: usize,
    /// Some of them, in the order of their names.
    pub(crate) named: Vec<&'a str>,
}

/// Jobs that are named before the others are only counted.
const NAMED: usize = 3;

// === impl Herd ===

impl Herd {
    /// How many of its jobs are due at the same instants, and are not spread by anything.
    pub(crate) fn together(&self) -> usize {
        let spread = self.schedule.depends_on_name() || !self.schedule.has_ticks();
        let plain = |job: &&Member| job.writes && job.jitter.is_zero();
        match spread {
            true => 0,
            false => self.jobs.iter().filter(plain).count(),
        }
    }
}

// === impl Timetable ===

impl<'a> Timetable<'a> {
    /// Of the day after `from`.
    #[must_use]
    pub(crate) fn of(herds: &'a [Herd], from: Timestamp) -> Self {
        let day = SignedDuration::from_hours(24);
        let upto = from.checked_add(day).unwrap_or(Timestamp::MAX);
        let apart = |herd: &Herd| match herd.schedule.depends_on_name() {
            true => herd.jobs.len(),
            false => 1 + herd.jobs.iter().filter(|j| !j.jitter.is_zero()).count(),
        };
        let groups = herds.iter().map(apart).sum::<usize>().max(1);
        let most = (MOST_STARTS / groups).clamp(OFTEN + 1, MOST_OF_ONE);
        let mut found = Vec::new();
        for Herd { schedule, jobs } in herds {
            if schedule.depends_on_name() {
                for job in jobs {
                    let own = schedule.clone().of_job(&job.name, job.jitter);
                    let ticks = own.between(from, upto, most).into_iter();
                    let starts = ticks.map(|tick| own.starts(tick)).collect();
                    found.push(Group::new(&[job], starts));
                }
                continue;
            }
            let ticks = schedule.between(from, upto, most + 1);
            let (plain, delayed): (Vec<&Member>, Vec<&Member>) =
                jobs.iter().partition(|job| job.jitter.is_zero());
            for job in delayed {
                let delays = Jitter::new(&job.name, job.jitter);
                let next = ticks.iter().skip(1).map(Some).chain([None]);
                let starts = ticks.iter().zip(next).take(most).map(|(tick, next)| {
                    let room = next.map(|next| next.duration_since(*tick));
                    let room = room.and_then(|room| Duration::try_from(room).ok());
                    let delay = delays.delay(*tick, room.unwrap_or(Duration::MAX));
                    tick.checked_add(delay).unwrap_or(*tick)
                });
                found.push(Group::new(&[job], starts.collect()));
            }
            if !plain.is_empty() {
                let starts = ticks.into_iter().take(most).collect();
                found.push(Group::new(&plain, starts));
            }
        }
        Self(found)
    }

    /// The minutes at which [`BUSY`] or more jobs start, the most crowded first; of the same jobs the first minute only.
    #[must_use]
    pub(crate) fn minutes(&self) -> Vec<BusyMinute<'a>> {
        let seldom = |(_, group): &(usize, &Group<'_>)| group.starts.len() <= OFTEN;
        let mut minutes: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
        for (at, group) in self.0.iter().enumerate().filter(seldom) {
            for start in &group.starts {
                let minute = start.as_second().div_euclid(60);
                let groups = minutes.entry(minute).or_default();
                if groups.last() != Some(&at) {
                    groups.push(at);
                }
            }
        }
        let mut seen = HashSet::new();
        let mut found: Vec<BusyMinute<'a>> = Vec::new();
        for (minute, groups) in minutes {
            let count = groups.iter().map(|at| self.0[*at].jobs.len()).sum();
            if count < BUSY || seen.contains(&groups) {
                continue;
            }
            if let Ok(at) = Timestamp::from_second(minute * 60) {
                let named = self.named(&groups);
                found.push(BusyMinute { at, count, named });
            }
            seen.insert(groups);
        }
        found.sort_by_key(|busy| std::cmp::Reverse(busy.count));
        found
    }

    /// The second in which the most jobs start whose starts are written, the first of several; how many those are.
    #[must_use]
    pub(crate) fn worst_second(&self) -> Option<BusyMinute<'a>> {
        let mut seconds: HashMap<i64, usize> = HashMap::new();
        let writing = || self.0.iter().filter(|group| group.writers > 0);
        for group in writing() {
            for start in &group.starts {
                *seconds.entry(start.as_second()).or_default() += group.writers;
            }
        }
        let worst = |(second, count): &(i64, usize)| (*count, std::cmp::Reverse(*second));
        let (second, count) = seconds.into_iter().max_by_key(worst)?;
        let there = |group: &Group<'_>| group.starts.iter().any(|s| s.as_second() == second);
        let groups = self.0.iter().enumerate();
        let groups: Vec<usize> = groups
            .filter(|(_, group)| group.writers > 0 && there(group))
            .map(|(at, _)| at)
            .collect();
        Some(BusyMinute {
            at: Timestamp::from_second(second).ok()?,
            count,
            named: self.named(&groups),
        })
    }

    /// The first jobs of these groups by their names.
    fn named(&self, groups: &[usize]) -> Vec<&'a str> {
        // A group has its jobs in order.
        let first = groups
            .iter()
            .flat_map(|at| self.0[*at].jobs.iter().take(NAMED));
        let mut first: Vec<&str> = first.copied().collect();
        first.sort_unstable();
        first.truncate(NAMED);
        first
    }
}

// === impl Group ===

impl<'a> Group<'a> {
    fn new(jobs: &[&'a Member], starts: Vec<Timestamp>) -> Self {
        Self {
            jobs: jobs.iter().map(|job| job.name.as_str()).collect(),
            writers: jobs.iter().filter(|job| job.writes).count(),
            starts,
        }
    }
}
