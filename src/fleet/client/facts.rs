//! One job for a page: its runs without what they left to read, its ticks, and one run in full.

use super::{
    super::{
        explain::ticks::{self, JobTicks},
        history::RunRecord,
        status::FleetStatus,
        terms::{self, TermRecord},
    },
    Fleet,
    error::FleetError,
    runs::{RunFilter, records},
};

/// Shards of which the runs are shown together, and how many are asked about at a time.
const FEW: usize = 100;
const AT_ONCE: usize = 8;

/// What a page shows of a job besides its status.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct JobFacts {
    /// Its last runs, newest last, without what they left to read.
    pub(crate) runs: Vec<RunRecord>,
    /// Its ticks; why they are not known.
    pub(crate) ticks: Option<Result<JobTicks, String>>,
    /// Whose ticks they are, where the job is one of shards: those of the first.
    pub(crate) shard: Option<String>,
    /// Its last terms as its leaders have told them, the oldest first; none of a job with shards.
    pub(crate) terms: Vec<TermRecord>,
}

impl Fleet {
    /// What there is to know of a job.
    ///
    /// # Errors
    /// [`FleetError::UnknownJob`], and while too few nodes answer.
    pub(crate) async fn facts_of(&self, job: &str) -> Result<JobFacts, FleetError> {
        // Once for everything.
        let fleet = self.patiently(|| self.alone(job)).await?;
        self.refuse_unknown(job, &fleet)?;
        let shards = self.shards_of(job, &fleet);
        let Some(first) = shards.first() else {
            let (runs, ticks) = self.around_now(job, &fleet).await?;
            return Ok(JobFacts {
                runs,
                ticks: Some(ticks),
                shard: None,
                terms: self.terms_of(job).await?,
            });
        };
        let (_, ticks) = self.around_now(first, &fleet).await?;
        // What became of the ticks of one says nothing of the others.
        let ticks = ticks.map(|ticks| JobTicks {
            last: Vec::new(),
            decided_upto: None,
            ..ticks
        });
        Ok(JobFacts {
            runs: self.records_of(&shards).await?,
            ticks: Some(ticks),
            shard: Some(first.clone()),
            terms: Vec::new(),
        })
    }

    /// The last terms of a job, or of a shard of one, as its leaders have told them; the oldest first.
    pub(crate) async fn terms_of(&self, job: &str) -> Result<Vec<TermRecord>, FleetError> {
        let name = terms::document(job);
        let doc = self.patiently(|| self.locks.doc(&name)).await?;
        Ok(doc.as_ref().and_then(terms::read).unwrap_or_default())
    }

    async fn around_now(
        &self,
        job: &str,
        fleet: &FleetStatus,
    ) -> Result<(Vec<RunRecord>, Result<JobTicks, String>), FleetError> {
        let told = self.told_in(job, fleet).await?;
        let found = ticks::ticks(job, self.spec(job), &told, self.locks.wall());
        Ok((told.runs, found))
    }

    /// The runs of all these shards, newest last; none of more than may be asked about.
    async fn records_of(&self, shards: &[String]) -> Result<Vec<RunRecord>, FleetError> {
        let mut runs = Vec::new();
        if shards.len() > FEW {
            return Ok(runs);
        }
        for some in shards.chunks(AT_ONCE) {
            let read = some.iter().map(|shard| self.remembered(shard));
            for found in futures_util::future::join_all(read).await {
                runs.extend(found?);
            }
        }
        runs.sort_by(|a, b| (a.order(), &a.job).cmp(&(b.order(), &b.job)));
        Ok(runs)
    }

    async fn remembered(&self, job: &str) -> Result<Vec<RunRecord>, FleetError> {
        self.patiently(|| records(&self.locks, job)).await
    }

    /// One run of a job, or of a shard of one, with what it left to read; `None` when it is not remembered.
    ///
    /// # Errors
    /// [`FleetError`] while too few nodes answer.
    pub(crate) async fn run_of(
        &self,
        job: &str,
        run_id: &str,
    ) -> Result<Option<RunRecord>, FleetError> {
        let all = self.kept(job, &RunFilter::default(), usize::MAX).await?;
        let Some(mut found) = all.into_iter().find(|kept| kept.run.run_id == run_id) else {
            return Ok(None);
        };
        self.read_output(&mut found).await?;
        Ok(Some(found.run))
    }
}
