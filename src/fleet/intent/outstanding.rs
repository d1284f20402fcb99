//! How many triggers there are, by the names and revisions of their documents alone.
//!
//! A client that asks for a trigger counts first, and is refused from the limit on. Several that ask at one time may each find the last
//! place free, and programs of another version may not count at all: so a reader has limits of its own, twice as large,
//! and takes the first of each job. Those behind them are read when others have ended: nothing is lost.

use std::collections::{BTreeMap, BTreeSet};

use super::{MOST_ENDED, MOST_TRIGGERS, MOST_TRIGGERS_OF_JOB, TriggerState, trigger_of};

/// The triggers that a listing shows, in the order of their ids.
#[derive(Debug, Default)]
pub(crate) struct Outstanding<'a> {
    jobs: BTreeMap<&'a str, OfJob<'a>>,
}

/// Documents of one job's triggers.
#[derive(Debug, Default)]
struct OfJob<'a> {
    /// Asked for, withdrawn or started, and not ended; with their revisions.
    open: Vec<(&'a str, u64)>,
    /// Ended.
    ended: Vec<&'a str>,
}

/// Why no further trigger is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TooMany {
    /// The job has as many as it may have.
    OfJob(usize),
    /// So has the fleet.
    OfFleet(usize),
    /// It has room, but not for as many more.
    AtOnce(usize),
}

const WITHDRAWN: u64 = TriggerState::Withdrawing as u64;
const ENDED: u64 = TriggerState::Ended as u64;

// === impl Outstanding ===

impl<'a> Outstanding<'a> {
    /// Of names and revisions, in the order of the names; what is no trigger is passed over.
    pub(crate) fn of(names: impl Iterator<Item = (&'a str, u64)>) -> Self {
        let mut jobs = BTreeMap::<&str, OfJob<'_>>::new();
        for (name, rev) in names {
            let Some((job, _)) = trigger_of(name) else {
                continue;
            };
            let of = jobs.entry(job).or_default();
            match rev {
                ENDED.. => of.ended.push(name),
                _ => of.open.push((name, rev)),
            }
        }
        Self { jobs }
    }

    /// Whether one may be asked for of each of these jobs.
    pub(crate) fn room_for(&self, jobs: &[String]) -> Result<(), TooMany> {
        let all = jobs.iter().try_fold(0, |_, job| self.count(job))?;
        match all + jobs.len() > MOST_TRIGGERS {
            true => Err(TooMany::AtOnce(jobs.len())),
            false => Ok(()),
        }
    }

    /// Whether another one may be asked for. Those that are withdrawn count for nothing, lest a job without a leader could not
    /// be freed of them; but not without an end.
    pub(crate) fn room(&self, job: &str) -> Result<(), TooMany> {
        self.count(job).map(|_| ())
    }

    /// How many there are in the fleet, where there is room for one of this job.
    fn count(&self, job: &str) -> Result<usize, TooMany> {
        let counts = |of: &OfJob<'_>| {
            let (all, withdrawn) = (of.open.len(), of.withdrawn());
            (all - withdrawn) + withdrawn / 10
        };
        let here = self.jobs.get(job).map_or(0, counts);
        if here >= MOST_TRIGGERS_OF_JOB {
            return Err(TooMany::OfJob(here));
        }
        let all = self.jobs.values().map(counts).sum();
        match all >= MOST_TRIGGERS {
            true => Err(TooMany::OfFleet(all)),
            false => Ok(all),
        }
    }

    /// Names of the documents that a replica reads: of each job the first, and of all of them so many.
    pub(crate) fn to_follow(&self) -> BTreeSet<&'a str> {
        let of_job = self
            .jobs
            .values()
            .flat_map(|of| of.open.iter().take(MOST_TRIGGERS_OF_JOB * 2));
        of_job
            .take(MOST_TRIGGERS * 2)
            .map(|(name, _)| *name)
            .collect()
    }

    /// Names of documents of ended triggers that are more than it is told of, the oldest.
    pub(crate) fn to_forget(&self) -> impl Iterator<Item = &'a str> {
        let with_ended = self.jobs.values().filter(|of| !of.ended.is_empty());
        let share = MOST_ENDED.1 / with_ended.count().max(1);
        let keep = share.clamp(1, MOST_ENDED.0);
        self.jobs.values().flat_map(move |of| {
            let more = of.ended.len().saturating_sub(keep);
            of.ended.iter().take(more).copied()
        })
    }
}

impl OfJob<'_> {
    fn withdrawn(&self) -> usize {
        let withdrawn = |(_, rev): &&(&str, u64)| *rev == WITHDRAWN;
        self.open.iter().filter(withdrawn).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::intent::{pause_document, trigger_document};

    fn names(job: &str, ids: std::ops::Range<usize>, state: TriggerState) -> Vec<(String, u64)> {
        let name = |id| (trigger_document(job, &format!("{id:06}")), state as u64);
        ids.map(name).collect()
    }

    fn of(names: &[(String, u64)]) -> Outstanding<'_> {
        Outstanding::of(names.iter().map(|(name, rev)| (name.as_str(), *rev)))
    }

    #[test]
    fn triggers_are_counted_per_job_and_per_fleet() {
        let mut shown = vec![(pause_document("a.b"), 1 << 16)];
        shown.extend(names("a.b", 0..99, TriggerState::Asked));
        shown.extend(names("a.b", 99..200, TriggerState::Ended));
        assert_eq!(of(&shown).room("a.b"), Ok(()));
        shown.extend(names("a.b", 200..201, TriggerState::Started));
        assert_eq!(of(&shown).room("a.b"), Err(TooMany::OfJob(100)));
        assert_eq!(of(&shown).room("b"), Ok(()));
        for job in 0..9 {
            shown.extend(names(&format!("j{job}"), 0..100, TriggerState::Accepted));
        }
        assert_eq!(of(&shown).room("b"), Err(TooMany::OfFleet(1000)));
    }

    #[test]
    fn withdrawn_triggers_make_room_but_not_without_an_end() {
        let shown = names("a", 0..500, TriggerState::Withdrawing);
        assert_eq!(of(&shown).room("a"), Ok(()));
        let shown = names("a", 0..1000, TriggerState::Withdrawing);
        assert_eq!(of(&shown).room("a"), Err(TooMany::OfJob(100)));
    }

    #[test]
    fn a_replica_reads_of_too_many_triggers_the_first_of_each_job() {
        let mut shown = names("a", 0..5000, TriggerState::Asked);
        shown.extend(names("b", 0..3, TriggerState::Asked));
        shown.extend(names("b", 3..300, TriggerState::Ended));
        let counted = of(&shown);
        let follow = counted.to_follow();
        assert_eq!(follow.len(), 203);
        assert!(follow.contains("intent/trigger.a.000199"));
        assert!(!follow.contains("intent/trigger.a.000200"));
        let many: Vec<_> = (0..100)
            .flat_map(|job| names(&format!("j{job:03}"), 0..100, TriggerState::Asked))
            .collect();
        assert_eq!(of(&many).to_follow().len(), 2000);
    }

    #[test]
    fn of_many_ended_triggers_the_oldest_are_forgotten() {
        let shown = names("a", 0..103, TriggerState::Ended);
        let forgotten: Vec<_> = of(&shown).to_forget().map(str::to_owned).collect();
        assert_eq!(
            forgotten,
            ["000000", "000001", "000002"].map(|id| trigger_document("a", id))
        );
        let many: Vec<_> = (0..100)
            .flat_map(|job| names(&format!("j{job:03}"), 0..10, TriggerState::Ended))
            .collect();
        assert_eq!(of(&many).to_forget().count(), 500, "five each are told of");
    }
}
