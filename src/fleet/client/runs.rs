//! What became of a job's runs: its history, and why a tick ran or did not.

use jiff::Timestamp;

use super::{
    super::{
        explain::{self, Explanation, StoredJob},
        history::{LiveText, RUNNING, RunRecord},
        intent::{self, Intent, Pause},
        status::{FleetStatus, JobStatus},
    },
    Fleet,
    error::FleetError,
};
use crate::{
    job::shard::whole,
    lock::{LockError, Locks},
};

/// Which runs are wanted; all of them by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunFilter {
    /// That began then or later.
    pub(crate) since: Option<Timestamp>,
    /// That began before.
    pub(crate) until: Option<Timestamp>,
    /// With one of these outcomes; with any where there is none.
    pub(crate) outcomes: Vec<String>,
    /// On the replica of this name or id.
    pub(crate) replica: Option<String>,
    /// That stand before the run with this [place](RunRecord::place).
    pub(crate) before: Option<String>,
}

/// A record of the history, and the name of the document with what its run has left to read.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) run: RunRecord,
    pub(crate) beside: String,
}

/// Shards that are asked about one by one, and so many at a time.
const FEW: usize = 100;
const AT_ONCE: usize = 8;

impl Fleet {
    /// The last `limit` runs of the job, newest last, with what each left to read and how far those in flight are; of a job
    /// with shards those of all of them.
    ///
    /// # Errors
    /// [`FleetError::UnknownJob`] where nothing is known of the job; [`FleetError::NotPossible`] for more than a hundred shards
    /// at once; else while too few nodes answer.
    pub async fn history(&self, job: &str, limit: usize) -> Result<Vec<RunRecord>, FleetError> {
        self.history_of(job, &RunFilter::default(), limit).await
    }

    /// The same of those that are wanted.
    pub(crate) async fn history_of(
        &self,
        job: &str,
        filter: &RunFilter,
        limit: usize,
    ) -> Result<Vec<RunRecord>, FleetError> {
        let kept = self.kept_of(job, filter, limit).await?;
        self.with_outputs(kept).await
    }

    /// The same without what they left to read: for one that looks again and again.
    pub(crate) async fn kept_of(
        &self,
        job: &str,
        filter: &RunFilter,
        limit: usize,
    ) -> Result<Vec<Kept>, FleetError> {
        let fleet = self.documents().await?;
        let mut kept = match self.few_shards_of(job, &fleet)? {
            shards if shards.is_empty() => self.kept(job, filter, limit).await?,
            shards => self.kept_of_all(&shards, filter, limit).await?,
        };
        if kept.is_empty() {
            self.refuse_unknown(job, &fleet)?;
        }
        RunRecord::add_progress(kept.iter_mut().map(|kept| &mut kept.run), &fleet);
        Ok(kept)
    }

    /// The last `limit` records of the job that are wanted, newest last; none for one that is not known.
    pub(crate) async fn kept(
        &self,
        job: &str,
        filter: &RunFilter,
        limit: usize,
    ) -> Result<Vec<Kept>, FleetError> {
        self.patiently(|| last_kept(&self.locks, job, filter, limit))
            .await
    }

    /// The last records of all these shards together.
    async fn kept_of_all(
        &self,
        shards: &[String],
        filter: &RunFilter,
        limit: usize,
    ) -> Result<Vec<Kept>, FleetError> {
        let mut kept = Vec::new();
        for some in shards.chunks(AT_ONCE) {
            let read = some.iter().map(|shard| self.kept(shard, filter, limit));
            for found in futures_util::future::join_all(read).await {
                kept.extend(found?);
            }
        }
        kept.sort_by_cached_key(|kept| kept.run.place());
        kept.drain(..kept.len().saturating_sub(limit));
        Ok(kept)
    }

    /// With what each of them has left to read. One after the other: all of them at once would be one large answer in the way of
    /// everything else.
    pub(crate) async fn with_outputs(&self, kept: Vec<Kept>) -> Result<Vec<RunRecord>, FleetError> {
        let mut runs = Vec::with_capacity(kept.len());
        for mut one in kept {
            self.read_output(&mut one).await?;
            runs.push(one.run);
        }
        Ok(runs)
    }

    /// Reads what the run has left to read.
    pub(crate) async fn read_output(&self, kept: &mut Kept) -> Result<(), FleetError> {
        let output = self.patiently(|| output_of(&self.locks, kept)).await?;
        kept.run.output = output;
        Ok(())
    }

    /// The shards of the job, where they are so few that each may be asked about; none for a job without.
    fn few_shards_of(&self, job: &str, fleet: &FleetStatus) -> Result<Vec<String>, FleetError> {
        let shards = self.shards_of(job, fleet);
        refuse_many(job, shards.len())?;
        Ok(shards)
    }

    /// The last runs that are wanted, of all these shards of the job, or of a job without; newest last, without the progress of
    /// those in flight.
    #[cfg(feature = "admin")]
    pub(crate) async fn some_runs(
        &self,
        job: &str,
        shards: &[String],
        filter: &RunFilter,
        limit: usize,
    ) -> Result<Vec<RunRecord>, FleetError> {
        refuse_many(job, shards.len())?;
        let kept = match shards.is_empty() {
            true => self.kept(job, filter, limit).await?,
            false => self.kept_of_all(shards, filter, limit).await?,
        };
        self.with_outputs(kept).await
    }

    /// Why the job ran at a moment, or why it did not: of the tick at `at`, or the latest one before it; of now by default.
    /// Shards of which the same is to be said are told together.
    ///
    /// # Errors
    /// [`FleetError::UnknownJob`], and while too few nodes answer. As [`Fleet::history`] for a job with many shards.
    pub async fn explain(
        &self,
        job: &str,
        at: Option<Timestamp>,
    ) -> Result<Explanation, FleetError> {
        let fleet = self.documents().await?;
        let shards = self.few_shards_of(job, &fleet)?;
        if shards.is_empty() {
            return self.explain_one(job, at).await;
        }
        let mut told = Vec::with_capacity(shards.len());
        for some in shards.chunks(AT_ONCE) {
            let asked = some.iter().map(|shard| self.explain_one(shard, at));
            for explained in futures_util::future::join_all(asked).await {
                told.push(explained?);
            }
        }
        Ok(explain::together(job, told))
    }

    /// The same of a job of which no store tells yet.
    #[cfg(feature = "cli")]
    pub(crate) fn explain_unasked(
        job: &str,
        spec: &crate::job::Spec,
        at: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Explanation, FleetError> {
        explain::answer(job, Some(spec), StoredJob::default(), at, now)
            .map_err(FleetError::Unreadable)
    }

    async fn explain_one(
        &self,
        job: &str,
        at: Option<Timestamp>,
    ) -> Result<Explanation, FleetError> {
        let told = self.told_of(job).await?;
        let spec = self.spec(job);
        explain::answer(job, spec, told, at, self.locks.wall()).map_err(FleetError::Unreadable)
    }

    async fn pause_of(&self, job: &str) -> Result<Option<Pause>, FleetError> {
        let asked = self.locks.doc(&intent::pause_document(job)).await?;
        Ok(match asked.as_ref().and_then(Intent::from_doc) {
            Some(Intent::Pause(pause)) => Some(pause),
            _ => None,
        })
    }

    async fn told_of(&self, job: &str) -> Result<StoredJob, FleetError> {
        let fleet = self.patiently(|| self.fleet_of(job)).await?;
        self.refuse_unknown(job, &fleet)?;
        self.told_in(job, &fleet).await
    }

    /// What the store tells of a job, in a fleet that looks like this.
    pub(super) async fn told_in(
        &self,
        job: &str,
        fleet: &FleetStatus,
    ) -> Result<StoredJob, FleetError> {
        let seen = self.locks.look(vec![format!("job/{job}")]).await?;
        // Of the latest writing that any node shows: the truth, or what the next leader makes it.
        let newest = seen.first().map(|seen| seen.record().body);
        let pause = match self.pause_of(whole(job)).await? {
            Some(all) if all.paused || whole(job) == job => Some(all),
            _ => self.pause_of(job).await?,
        };
        let running = fleet.job(job);
        Ok(StoredJob {
            coordination: running.map(|job| job.coordination.clone()),
            schedule: running.map(|job| (job.schedule.clone(), job.zone.clone())),
            leader: running.and_then(|job| match &job.leader {
                Some(leader) => Some(leader.shown().to_owned()),
                None if job.leader_known => None,
                None => Some("a replica that cannot be seen now".to_owned()),
            }),
            ledger: newest.filter(|body| !body.is_empty()),
            runs: self.patiently(|| records(&self.locks, job)).await?,
            pause,
            disagreement: running.map(JobStatus::disagreement).unwrap_or_default(),
        })
    }
}

fn refuse_many(job: &str, shards: usize) -> Result<(), FleetError> {
    match shards {
        0..=FEW => Ok(()),
        many => Err(FleetError::NotPossible(format!(
            "{job} has {many} shards, and each would be asked about: name one of them, {job}.0 and so on"
        ))),
    }
}

/// The runs of `job` that are remembered, oldest first, without what they left to read.
pub(super) async fn records(locks: &Locks, job: &str) -> Result<Vec<RunRecord>, LockError> {
    let docs = locks.docs(&RunRecord::directory(job)).await?;
    let read = docs.iter().filter_map(|doc| RunRecord::from_doc(job, doc));
    let mut runs: Vec<RunRecord> = read.collect();
    runs.sort_by_key(RunRecord::order);
    Ok(runs)
}

/// The last `limit` runs of `job`, oldest first, with what they left to read.
#[cfg(test)]
pub(crate) async fn last(
    locks: &Locks,
    job: &str,
    limit: usize,
) -> Result<Vec<RunRecord>, LockError> {
    let mut shown = Vec::new();
    for mut kept in last_kept(locks, job, &RunFilter::default(), limit).await? {
        kept.run.output = output_of(locks, &kept).await?;
        shown.push(kept.run);
    }
    Ok(shown)
}

/// The last `limit` records of `job` that are wanted, oldest first.
async fn last_kept(
    locks: &Locks,
    job: &str,
    filter: &RunFilter,
    limit: usize,
) -> Result<Vec<Kept>, LockError> {
    let docs = locks.docs(&RunRecord::directory(job)).await?;
    let read = docs.iter().filter_map(|doc| {
        let run = RunRecord::from_doc(job, doc)?;
        let beside = RunRecord::output_beside(&doc.name)?;
        Some(Kept { run, beside })
    });
    let mut kept: Vec<Kept> = read.filter(|kept| filter.wants(&kept.run)).collect();
    kept.sort_by_cached_key(|kept| kept.run.place());
    kept.drain(..kept.len().saturating_sub(limit));
    Ok(kept)
}

/// What the run has left to read, so far where it runs; nothing where that could not be kept.
async fn output_of(locks: &Locks, kept: &Kept) -> Result<Option<String>, LockError> {
    if kept.run.outcome == RUNNING {
        let told = locks.doc(&RunRecord::live_beside(&kept.beside)).await?;
        return Ok(told.and_then(|doc| LiveText::of_run(&kept.run.run_id, &doc)));
    }
    if kept.run.output_bytes == 0 {
        return Ok(None);
    }
    let doc = locks.doc(&kept.beside).await?;
    // The place in the ring may belong to a newer run already.
    let doc = doc.filter(|doc| RunRecord::attempt_of(doc.rev) == kept.run.seq);
    Ok(doc.map(|doc| doc.body))
}

// === impl RunFilter ===

impl RunFilter {
    /// Whether the run is one of those that are wanted.
    pub(crate) fn wants(&self, run: &RunRecord) -> bool {
        let (began, _) = run.order();
        let ended_so = |outcome: &String| *outcome == run.outcome;
        let ran_on = |name: &String| *name == run.replica_name || *name == run.replica;
        self.since.is_none_or(|since| began >= since)
            && self.until.is_none_or(|until| began < until)
            && (self.outcomes.is_empty() || self.outcomes.iter().any(ended_so))
            && self.replica.as_ref().is_none_or(ran_on)
            && self
                .before
                .as_ref()
                .is_none_or(|before| run.place() < *before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_wants_what_it_names_and_all_without_names() {
        let at = |second| Timestamp::from_second(second).ok();
        let run = RunRecord {
            started: at(100),
            outcome: "failed".to_owned(),
            replica: "h-1-x".to_owned(),
            replica_name: "alpha".to_owned(),
            ..RunRecord::default()
        };
        let wants = |filter: RunFilter| filter.wants(&run);
        assert!(wants(RunFilter::default()));
        for (since, until, wanted) in [
            (at(100), at(101), true),
            (at(101), None, false),
            (None, at(100), false),
        ] {
            let filter = RunFilter {
                since,
                until,
                ..RunFilter::default()
            };
            assert_eq!(wants(filter), wanted, "{since:?} {until:?}");
        }
        for (outcomes, wanted) in [(&["failed", "timeout"][..], true), (&["done"], false)] {
            let filter = RunFilter {
                outcomes: outcomes.iter().map(ToString::to_string).collect(),
                ..RunFilter::default()
            };
            assert_eq!(wants(filter), wanted, "{outcomes:?}");
        }
        for (replica, wanted) in [("alpha", true), ("h-1-x", true), ("beta", false)] {
            let filter = RunFilter {
                replica: Some(replica.to_owned()),
                ..RunFilter::default()
            };
            assert_eq!(wants(filter), wanted, "{replica}");
        }
    }
}
