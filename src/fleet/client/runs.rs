//! What became of a job's runs: its history, and why a tick ran or did not.

use jiff::Timestamp;

use super::{
    super::{
        explain::{self, Explanation, Told},
        history::RunRecord,
        intent::{self, Intent},
        status::JobStatus,
    },
    Fleet,
    error::FleetError,
    refusals::refuse_unknown,
};
use crate::lock::{LockError, Locks};

/// Everything that a history keeps.
const ALL: usize = 1000;

impl Fleet {
    /// The last `limit` runs of the job, newest last, with what each left to read and how far those in flight are.
    ///
    /// # Errors
    /// [`FleetError::UnknownJob`] where nothing is known of the job; else while too few nodes answer.
    pub async fn history(&self, job: &str, limit: usize) -> Result<Vec<RunRecord>, FleetError> {
        let fleet = self.documents().await?;
        let mut runs = self.runs(job, limit).await?;
        if runs.is_empty() {
            refuse_unknown(job, &fleet, self.jobs.keys())?;
        }
        RunRecord::add_progress(&mut runs, &fleet);
        Ok(runs)
    }

    /// The same without the progress of those in flight, and none for a job that is not known.
    pub(crate) async fn runs(&self, job: &str, limit: usize) -> Result<Vec<RunRecord>, FleetError> {
        self.patiently(|| last(&self.locks, job, limit)).await
    }

    /// Why the job ran at a moment, or why it did not: of the tick at `at`, or the latest one before it; of now by default.
    ///
    /// # Errors
    /// [`FleetError::UnknownJob`], and while too few nodes answer.
    pub async fn explain(
        &self,
        job: &str,
        at: Option<Timestamp>,
    ) -> Result<Explanation, FleetError> {
        let told = self.told_of(job).await?;
        let spec = self.jobs.get(job).map(|spec| &**spec);
        explain::answer(job, spec, told, at, self.locks.wall()).map_err(FleetError::Unreadable)
    }

    async fn told_of(&self, job: &str) -> Result<Told, FleetError> {
        let fleet = self.patiently(|| self.fleet_of(job)).await?;
        refuse_unknown(job, &fleet, self.jobs.keys())?;
        let seen = self.locks.look(vec![format!("job/{job}")]).await?;
        // Of the latest writing that any node shows: the truth, or what the next leader makes it.
        let newest = seen.first().map(|seen| seen.record().body);
        let asked = self.locks.doc(&intent::pause_document(job)).await?;
        let pause = match asked.as_ref().and_then(Intent::from_doc) {
            Some(Intent::Pause(pause)) => Some(pause),
            _ => None,
        };
        let running = fleet.job(job);
        Ok(Told {
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
