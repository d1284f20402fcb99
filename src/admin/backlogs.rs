//! How fast backlogs grow or shrink, by what was read of the fleet while a page was looked at.
//!
//! Nothing is asked for it: each reading of the fleet is noted, and what was noted lately makes a line. Pure.
//!
//! # Invariants
//! - W8 Nothing is kept of a job without a backlog, nor for longer than a rate is made of.
//!   (nothing_is_kept_of_jobs_that_have_no_backlog, a_rate_is_made_of_the_last_two_minutes)

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::{clock::Moment, fleet::status::FleetStatus};

/// What a rate is made of.
const WINDOW: Duration = Duration::from_secs(120);
/// Between two figures that are noted: replicas count no faster than they tell of it.
const SPACING: Duration = Duration::from_secs(5);
/// No rate is made of less.
const LEAST: Duration = Duration::from_secs(15);

/// What was read of each job that has a backlog, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Backlogs(BTreeMap<String, VecDeque<(Moment, u64)>>);

/// Items a minute by which backlogs grow; negative where they shrink.
pub(super) type Growth = BTreeMap<String, i64>;

// === impl Backlogs ===

impl Backlogs {
    /// The fleet was read at this moment. How fast its backlogs grow, as far as that is known.
    pub(super) fn note(&mut self, fleet: &FleetStatus, now: Moment) -> Growth {
        let jobs = fleet.jobs.iter();
        let mut before = std::mem::take(&mut self.0);
        let mut growth = Growth::new();
        for (job, backlog) in jobs.filter_map(|job| Some((job, job.backlog?))) {
            let mut noted = before.remove(&job.name).unwrap_or_default();
            while noted.front().is_some_and(|(at, _)| now.since(*at) > WINDOW) {
                noted.pop_front();
            }
            let is_due = |(at, _): &(Moment, u64)| now.since(*at) >= SPACING;
            if noted.back().is_none_or(is_due) {
                noted.push_back((now, backlog));
            }
            let per_minute = noted
                .front()
                .and_then(|first| grown(*first, (now, backlog)));
            if let Some(per_minute) = per_minute {
                growth.insert(job.name.clone(), per_minute);
            }
            self.0.insert(job.name.clone(), noted);
        }
        growth
    }
}

/// Items a minute between the two.
fn grown((from, then): (Moment, u64), (to, now): (Moment, u64)) -> Option<i64> {
    let between = to.since(from);
    if between < LEAST {
        return None;
    }
    let minutes = between.as_secs_f64() / 60.0;
    let grown = i128::from(now) - i128::from(then);
    // The conversion stops at the ends of the range.
    Some((grown as f64 / minutes).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::status::JobStatus;

    fn fleet(backlogs: &[(&str, Option<u64>)]) -> FleetStatus {
        let job = |(name, backlog): &(&str, Option<u64>)| JobStatus {
            name: (*name).to_owned(),
            backlog: *backlog,
            ..JobStatus::default()
        };
        FleetStatus {
            jobs: backlogs.iter().map(job).collect(),
            ..FleetStatus::default()
        }
    }

    fn at(second: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(1_000 + second))
    }

    #[test]
    fn a_rate_is_made_of_the_last_two_minutes() {
        let mut backlogs = Backlogs::default();
        let mut growth = Growth::new();
        for second in 0..=600 {
            // It grows by ten a second for five minutes, then it shrinks by twenty.
            let items = match second {
                0..=300 => 10 * second,
                _ => 3_000 - 20 * (second - 300).min(150),
            };
            growth = backlogs.note(&fleet(&[("mail", Some(items))]), at(second));
            match second {
                0..15 => assert!(growth.is_empty(), "{second}: {growth:?}"),
                15..=300 => assert_eq!(growth["mail"], 600, "{second}"),
                425..=450 => assert_eq!(growth["mail"], -1_200, "{second}"),
                _ => {}
            }
            assert!(backlogs.0["mail"].len() <= 26);
        }
        assert_eq!(growth["mail"], 0, "it is empty, and stays so");
        // After a time in which nobody has looked it begins anew.
        let growth = backlogs.note(&fleet(&[("mail", Some(77))]), at(9_000));
        assert!(growth.is_empty(), "{growth:?}");
    }

    #[test]
    fn nothing_is_kept_of_jobs_that_have_no_backlog() {
        let mut backlogs = Backlogs::default();
        let jobs = [("mail", Some(7)), ("report", None), ("gone", Some(1))];
        backlogs.note(&fleet(&jobs), at(0));
        assert_eq!(backlogs.0.len(), 2);
        backlogs.note(&fleet(&[("mail", None)]), at(60));
        assert!(backlogs.0.is_empty());
    }
}
