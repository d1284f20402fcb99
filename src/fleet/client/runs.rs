//! What became of a job's runs: its history, and why a tick ran or did not.

use jiff::Timestamp;

use super::{
    super::{
        explain::{self, Explanation, StoredJob},
        history::RunRecord,
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

/// Shards that are asked about one by one, and so many at a time.
const FEW: usize = 100;
const AT_ONCE: usize = 8;

/// Everything that a history keeps.
const ALL: usize = 1000;

impl Fleet {
    /// The last `limit` runs of the job, newest last, with what each left to read and how far those in flight are; of a job
    /// with shards those of all of them.
    ///
    /// # Errors
    /// [`FleetError::UnknownJob`] where nothing is known of the job; [`FleetError::NotPossible`] for more than a hundred shards
    /// at once; else while too few nodes answer.
    pub async fn history(&self, job: &str, limit: usize) -> Result<Vec<RunRecord>, FleetError> {
        let fleet = self.documents().await?;
        let mut runs = match self.few_shards_of(job, &fleet)? {
            shards if shards.is_empty() => self.runs(job, limit).await?,
            shards => self.runs_of_all(&shards, limit).await?,
        };
        if runs.is_empty() {
            self.refuse_unknown(job, &fleet)?;
        }
        RunRecord::add_progress(&mut runs, &fleet);
        Ok(runs)
    }

    /// The same without the progress of those in flight, and none for a job that is not known.
    pub(crate) async fn runs(&self, job: &str, limit: usize) -> Result<Vec<RunRecord>, FleetError> {
        self.patiently(|| last(&self.locks, job, limit)).await
    }

    /// The last runs of all these shards together.
    async fn runs_of_all(
        &self,
        shards: &[String],
        limit: usize,
    ) -> Result<Vec<RunRecord>, FleetError> {
        let mut runs = Vec::new();
        for some in shards.chunks(AT_ONCE) {
            let read = some.iter().map(|shard| self.runs(shard, limit));
            for found in futures_util::future::join_all(read).await {
                runs.extend(found?);
            }
        }
        runs.sort_by(|a, b| (a.order(), &a.job).cmp(&(b.order(), &b.job)));
        runs.drain(..runs.len().saturating_sub(limit));
        Ok(runs)
    }

    /// The shards of the job, where they are so few that each may be asked about; none for a job without.
    fn few_shards_of(&self, job: &str, fleet: &FleetStatus) -> Result<Vec<String>, FleetError> {
        let shards = self.shards_of(job, fleet);
        refuse_many(job, shards.len())?;
        Ok(shards)
    }

    /// The last runs of all these shards of the job.
    #[cfg(feature = "admin")]
    pub(crate) async fn runs_of_few(
        &self,
        job: &str,
        shards: &[String],
        limit: usize,
    ) -> Result<Vec<RunRecord>, FleetError> {
        refuse_many(job, shards.len())?;
        self.runs_of_all(shards, limit).await
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
            runs: self.runs(job, ALL).await?,
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

/// The last `limit` runs of `job`, oldest first, with what they left to read.
pub(crate) async fn last(
    locks: &Locks,
    job: &str,
    limit: usize,
) -> Result<Vec<RunRecord>, LockError> {
    let docs = locks.docs(&RunRecord::directory(job)).await?;
    let read = docs.iter().filter_map(|doc| {
        let record = RunRecord::from_doc(job, doc)?;
        Some((record, RunRecord::output_beside(&doc.name)?))
    });
    let mut runs: Vec<(RunRecord, String)> = read.collect();
    runs.sort_by_key(|(run, _)| run.order());
    runs.drain(..runs.len().saturating_sub(limit));
    let mut shown = Vec::with_capacity(runs.len());
    // One after the other: all of them at once would be one large answer in the way of everything else.
    for (mut run, beside) in runs {
        if run.output_bytes > 0 {
            let doc = locks.doc(&beside).await?;
            // The place in the ring may belong to a newer run already.
            let doc = doc.filter(|doc| RunRecord::attempt_of(doc.rev) == run.seq);
            run.output = doc.map(|doc| doc.body);
        }
        shown.push(run);
    }
    Ok(shown)
}
