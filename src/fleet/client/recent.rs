//! The last runs of all jobs together, however many jobs there are.
//!
//! No document lists the runs of all jobs. What replicas tell of each job says when a run of it began at the latest, so the
//! histories are read in that order, and no further than the runs that are wanted go back.
//!
//! # Invariants
//! - However many jobs there are, the histories of as many of them are read as is said, and how many more could have had runs
//!   is told.   (however_many_jobs_there_are_few_histories_are_read)
//! - A run of a job that was not read is older than all that are shown, as far as replicas tell.
//!   (the_newest_runs_of_all_jobs_are_found)

use std::cmp::Reverse;

use jiff::Timestamp;

use super::{
    super::{
        history::RunRecord,
        status::{FleetStatus, JobStatus},
    },
    Fleet,
    error::FleetError,
    runs::{Kept, RunFilter},
};
use crate::job::shard::names_of;
#[cfg(any(test, feature = "cli"))]
use crate::job::shard::whole;

/// Histories that are read for one answer: each is up to a hundred documents on every node. Fewer for a page, which is asked for again
/// and again.
#[cfg(any(test, feature = "cli"))]
pub(crate) const MOST_READ: usize = 200;
#[cfg(feature = "admin")]
pub(crate) const MOST_READ_FOR_A_PAGE: usize = 50;
/// Runs that so many histories have at most.
#[cfg(feature = "admin")]
pub(crate) const MOST_FOR_A_PAGE: usize =
    MOST_READ_FOR_A_PAGE * crate::fleet::history::KEPT_RUNS as usize;
const AT_ONCE: usize = 8;

/// Of which jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum JobPattern {
    #[default]
    All,
    /// Whose names fit, with `*` for any characters and `?` for one.
    #[cfg(any(test, feature = "cli"))]
    Glob(String),
    /// Whose names have this, whatever the case of its letters. In small ones here.
    #[cfg(feature = "admin")]
    Has(String),
}

/// The last runs of many jobs, newest first.
#[derive(Debug, Default)]
pub(crate) struct RecentRuns {
    pub(crate) runs: Vec<RunRecord>,
    /// Jobs that may have had such runs, and were not looked at.
    pub(crate) unread: usize,
}

/// A job whose history may be read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    job: String,
    /// When a run of it began at the latest; `None` where no replica tells.
    latest: Option<Timestamp>,
}

impl Fleet {
    /// The last `limit` runs of all jobs whose names fit, newest first; with what they left to read where `outputs` are wanted. So
    /// many histories are read at most.
    ///
    /// # Errors
    /// [`FleetError::NotPossible`] where no job has such a name; else while too few nodes answer.
    pub(crate) async fn recent(
        &self,
        jobs: &JobPattern,
        filter: &RunFilter,
        limit: usize,
        most_read: usize,
        outputs: bool,
    ) -> Result<RecentRuns, FleetError> {
        let fleet = self.documents().await?;
        let configured = self.jobs.iter();
        let configured = configured.flat_map(|(name, spec)| names_of(name, spec));
        let candidates = candidates(&fleet, configured, jobs);
        #[cfg(any(test, feature = "cli"))]
        if let (JobPattern::Glob(pattern), []) = (jobs, &candidates[..]) {
            return Err(FleetError::NotPossible(format!(
                "no job has a name like {pattern:?}"
            )));
        }
        // What began before then is not wanted.
        let wanted = |candidate: &&Candidate| match (filter.since, candidate.latest) {
            (Some(since), Some(latest)) => latest >= since,
            _ => true,
        };
        let candidates: Vec<&Candidate> = candidates.iter().filter(wanted).collect();
        let mut found: Vec<Kept> = Vec::new();
        let (mut left, mut read) = (&candidates[..], 0);
        while let Some(next) = left.first()
            && read < most_read
            && !is_enough(&found, limit, next)
        {
            let (some, rest) = left.split_at(AT_ONCE.min(most_read - read).min(left.len()));
            let asked = some.iter().map(|one| self.kept(&one.job, filter, limit));
            for kept in futures_util::future::join_all(asked).await {
                found.extend(kept?);
            }
            found.sort_by_cached_key(|kept| Reverse(kept.run.place()));
            found.truncate(limit);
            read += some.len();
            left = rest;
        }
        let unread = match left.first() {
            Some(next) if !is_enough(&found, limit, next) => left.len(),
            _ => 0,
        };
        RunRecord::add_progress(found.iter_mut().map(|kept| &mut kept.run), &fleet);
        let runs = match outputs {
            true => self.with_outputs(found).await?,
            false => found.into_iter().map(|kept| kept.run).collect(),
        };
        Ok(RecentRuns { runs, unread })
    }
}

/// Whether no run of this job, or of any behind it, can be one of the last. Of one of which nothing is told none has begun since
/// the replicas have.
fn is_enough(found: &[Kept], limit: usize, next: &Candidate) -> bool {
    let Some(oldest) = found.get(limit.saturating_sub(1)) else {
        return false;
    };
    let (began, _) = oldest.run.order();
    next.latest.is_none_or(|latest| began >= latest)
}

/// The jobs whose names fit, in the order in which they are read: the one that ran last first, and those of which nothing is told
/// last.
fn candidates(
    fleet: &FleetStatus,
    configured: impl IntoIterator<Item = String>,
    jobs: &JobPattern,
) -> Vec<Candidate> {
    let told = fleet.jobs.iter().map(|job| Candidate {
        job: job.name.clone(),
        latest: latest(job),
    });
    // They may have run before.
    let untold = |job| Candidate { job, latest: None };
    let untold = configured.into_iter().map(untold);
    let all = told.chain(untold).filter(|one| jobs.fits(&one.job));
    let mut all: Vec<Candidate> = all.collect();
    all.sort_by_cached_key(|one| (one.job.clone(), Reverse(one.latest)));
    all.dedup_by(|later, first| later.job == first.job);
    // Stable: those of one time stay in the order of their names.
    all.sort_by_key(|one| Reverse(one.latest));
    all
}

/// When a run of the job began at the latest: it runs since then, or had ended by then.
fn latest(job: &JobStatus) -> Option<Timestamp> {
    let began = job.running.iter().map(|run| run.started);
    began.chain(job.last_ended).chain(job.last_tick).max()
}

// === impl JobPattern ===

impl JobPattern {
    /// Jobs with such a name: `*` stands for any characters, `?` for one. All of them without a name.
    #[cfg(any(test, feature = "cli"))]
    pub(crate) fn new(glob: Option<&str>) -> Self {
        glob.map_or(Self::All, |glob| Self::Glob(glob.to_owned()))
    }

    /// Jobs whose names have this; all of them where it is empty.
    #[cfg(feature = "admin")]
    pub(crate) fn has(part: &str) -> Self {
        match part {
            "" => Self::All,
            part => Self::Has(part.to_lowercase()),
        }
    }

    /// Whether it is the name of a job, of a shard, or of all shards of one.
    fn fits(&self, job: &str) -> bool {
        match self {
            Self::All => true,
            #[cfg(any(test, feature = "cli"))]
            Self::Glob(glob) => fits(glob, job) || fits(glob, whole(job)),
            #[cfg(feature = "admin")]
            Self::Has(part) => job.to_lowercase().contains(part),
        }
    }
}

#[cfg(any(test, feature = "cli"))]
fn fits(glob: &str, name: &str) -> bool {
    let (glob, name): (Vec<char>, Vec<char>) = (glob.chars().collect(), name.chars().collect());
    let (mut g, mut n) = (0, 0);
    // The last star, and where its part of the name ends as things stand.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match glob.get(g) {
            Some('*') => {
                star = Some((g, n));
                g += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                g += 1;
                n += 1;
            }
            _ => match &mut star {
                Some((at, end)) => {
                    *end += 1;
                    g = *at + 1;
                    n = *end;
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{
        clock::Clock,
        fleet::{
            history::Stage,
            presence::teller::write_all,
            status::{JobPresence, Presence},
        },
        job::Spec,
        lock::Locks,
        node::{Node, memory::MemoryNode},
    };

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    /// A store with a replica that tells when each of these jobs has ended its last run.
    async fn store(jobs: &[(&str, Option<i64>)]) -> Locks {
        let node = Arc::new(MemoryNode::new("n1", Clock::system())) as Arc<dyn Node>;
        let locks = Locks::over(vec![node]).tag("aa").start().unwrap();
        let jobs = jobs.iter().map(|(name, ended)| JobPresence {
            name: (*name).to_owned(),
            coordination: "leader".to_owned(),
            last_ended: ended.and_then(at),
            ..JobPresence::default()
        });
        let replica = Presence {
            id: "h-1-x".to_owned(),
            tag: "aa".to_owned(),
            name: "w0".to_owned(),
            jobs: jobs.collect(),
            rev: 1,
            ..Presence::default()
        };
        write_all(&locks, &replica, DAY).await;
        locks
    }

    /// A run of the job that began at this second.
    async fn ran(locks: &Locks, job: &str, seq: u64, second: i64, outcome: &str) {
        let record = RunRecord {
            job: job.to_owned(),
            started: at(second),
            outcome: outcome.to_owned(),
            seq,
            ..RunRecord::default()
        };
        let (name, _) = RunRecord::documents(job, None, seq);
        let rev = RunRecord::revision(seq, Stage::Ended);
        let body = record.to_body();
        locks.put_doc(&name, rev, DAY, body).await.unwrap();
    }

    fn shown(found: &RecentRuns) -> Vec<(&str, u64)> {
        let runs = found.runs.iter();
        runs.map(|run| (run.job.as_str(), run.seq)).collect()
    }

    #[test]
    fn a_star_stands_for_any_characters_and_a_mark_for_one() {
        for (glob, name, fit) in [
            ("*", "", true),
            ("mail-*", "mail-de", true),
            ("mail-*", "mail", false),
            ("*-de", "mail-de-de", true),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "xxaxxbxx", false),
            ("ma?l", "mail", true),
            ("ma?l", "mal", false),
            ("mail", "mail", true),
            ("mail", "mails", false),
            ("", "mail", false),
        ] {
            assert_eq!(fits(glob, name), fit, "{glob:?} {name:?}");
        }
        assert!(JobPattern::new(Some("mail")).fits("mail.7"), "a shard");
        assert!(JobPattern::new(None).fits("mail"));
    }

    #[cfg(feature = "admin")]
    #[test]
    fn a_part_of_a_name_is_found_whatever_its_case() {
        for (part, fit) in [("", true), ("AIL", true), ("mail.7", true), ("*", false)] {
            assert_eq!(JobPattern::has(part).fits("Mail.7"), fit, "{part:?}");
        }
    }

    #[tokio::test]
    async fn the_newest_runs_of_all_jobs_are_found() {
        let jobs = [("a", Some(105)), ("b", Some(205)), ("c", None)];
        let locks = store(&jobs).await;
        ran(&locks, "a", 1, 90, "done").await;
        ran(&locks, "a", 2, 100, "failed").await;
        ran(&locks, "b", 1, 200, "done").await;
        ran(&locks, "c", 1, 50, "failed").await;
        // Configured, and run by no replica any more.
        ran(&locks, "d", 1, 40, "done").await;
        let gone = [("d".to_owned(), Spec::on("@hourly"))];
        let client = Fleet::over(&locks, "ann").configured(gone);
        let (all, filter) = (JobPattern::default(), RunFilter::default());
        let found = client
            .recent(&all, &filter, 10, MOST_READ, false)
            .await
            .unwrap();
        let newest_first = [("b", 1), ("a", 2), ("a", 1), ("c", 1), ("d", 1)];
        assert_eq!(shown(&found), newest_first);
        assert_eq!(found.unread, 0);
        let found = client
            .recent(&all, &filter, 2, MOST_READ, false)
            .await
            .unwrap();
        assert_eq!(shown(&found), [("b", 1), ("a", 2)]);

        let failed = RunFilter {
            outcomes: vec!["failed".to_owned()],
            ..RunFilter::default()
        };
        let found = client
            .recent(&all, &failed, 10, MOST_READ, false)
            .await
            .unwrap();
        assert_eq!(shown(&found), [("a", 2), ("c", 1)]);
        let one = JobPattern::new(Some("b"));
        let found = client
            .recent(&one, &filter, 10, MOST_READ, false)
            .await
            .unwrap();
        assert_eq!(shown(&found), [("b", 1)]);
        let none = JobPattern::new(Some("x*"));
        let error = client
            .recent(&none, &filter, 10, MOST_READ, false)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("\"x*\""), "{error}");
    }

    #[tokio::test]
    async fn however_many_jobs_there_are_few_histories_are_read() {
        let name = |n: usize| format!("job-{n:04}");
        let names: Vec<String> = (0..MOST_READ + 50).map(name).collect();
        let jobs: Vec<(&str, Option<i64>)> = names.iter().map(|n| (n.as_str(), None)).collect();
        let locks = store(&jobs).await;
        ran(&locks, &names[0], 1, 100, "done").await;
        // It is the last in their order.
        ran(&locks, &names[MOST_READ + 49], 1, 200, "done").await;
        let client = Fleet::over(&locks, "ann");
        let (all, filter) = (JobPattern::default(), RunFilter::default());
        let found = client
            .recent(&all, &filter, 10, MOST_READ, false)
            .await
            .unwrap();
        assert_eq!(shown(&found), [("job-0000", 1)]);
        assert_eq!(found.unread, 50);
        let last = JobPattern::new(Some("*49"));
        let found = client
            .recent(&last, &filter, 1, MOST_READ, false)
            .await
            .unwrap();
        assert_eq!(shown(&found).len(), 1);
        assert_eq!(found.unread, 0);
    }
}
