//! Pausing all jobs in one go, and ending all pauses.
//!
//! Each job gets a pause of its own, as if it had been paused by its name: so single ones are resumed by theirs, and a job that comes
//! later is not paused.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use serde::Serialize;

use super::{
    super::intent::{self, Intent, Pause},
    Fleet,
    error::FleetError,
    pausing::{pause_in, refuse_long},
};
use crate::{job::shard::whole, node::Doc};

/// Pauses that are written at one time.
const AT_ONCE: usize = 16;

/// What became of a pause of all jobs, or of the end of all pauses.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize)]
pub(crate) struct AllPaused {
    /// Whether they are paused, or go on.
    pub(crate) paused: bool,
    /// Pauses that were written, or ended.
    pub(crate) changed: usize,
    /// Jobs that were paused before.
    pub(crate) unchanged: usize,
    /// Pauses that could not be written, or ended.
    pub(crate) left: usize,
    /// Why the first of them could not; `null` where there is none.
    pub(crate) why: Option<String>,
    /// Names of the replicas that have said of all these jobs that they know.
    pub(crate) heard_by: Vec<String>,
    /// Names of those that have not, yet.
    pub(crate) unheard_by: Vec<String>,
    /// Whether the store could be asked for them.
    #[serde(skip)]
    pub(crate) known: bool,
}

impl Fleet {
    /// Pauses each job that a replica has, or that the configuration of this client names and does not disable; one that is paused
    /// keeps the reason that it has. Those that replicas say are paused come last: given again, an order that ran out of time gets further,
    /// however many there are. Waits as [`Fleet::pause`] does.
    ///
    /// # Errors
    /// As there: nothing was written then, as far as this client knows. Where some pauses were, the answer tells of the others.
    pub(crate) async fn pause_all(
        &self,
        reason: &str,
        patience: Duration,
    ) -> Result<AllPaused, FleetError> {
        refuse_long(reason)?;
        let presences = self.presences().await?;
        let configured = self.jobs.iter().filter(|(_, spec)| spec.enabled);
        let mut jobs: BTreeSet<String> = configured.map(|(name, _)| name.clone()).collect();
        let told = presences.iter().flat_map(|presence| &presence.jobs);
        jobs.extend(told.clone().map(|job| whole(&job.name).to_owned()));
        let is_open = told.clone().filter(|job| !job.paused);
        let open: BTreeSet<&str> = is_open.map(|job| whole(&job.name)).collect();
        let known: BTreeSet<&str> = told.map(|job| whole(&job.name)).collect();
        let is_paused =
            |job: &&String| known.contains(job.as_str()) && !open.contains(job.as_str());
        let (paused, first): (Vec<&String>, Vec<&String>) = jobs.iter().partition(is_paused);
        let mut written = self.pause_each(&first, reason).await;
        match written.iter().any(is_of_all) {
            // What replicas say of them has to do.
            true => written.extend(paused.iter().map(|_| Ok(false))),
            false => written.extend(self.pause_each(&paused, reason).await),
        }
        self.all_paused(true, &jobs, written, patience).await
    }

    /// Ends every pause that stands, of whole jobs and of single shards, also of jobs that no replica has. Waits as [`Fleet::pause`]
    /// does.
    ///
    /// # Errors
    /// As there: no pause has ended then, as far as this client knows. Where some have, the answer tells of the others.
    pub(crate) async fn resume_all(&self, patience: Duration) -> Result<AllPaused, FleetError> {
        let first = intent::pause_document("");
        let names = self.names().await?.into_iter().map(|doc| doc.name);
        let names: Vec<String> = names.filter(|name| name.starts_with(&first)).collect();
        let read = self.patiently(|| self.locks.docs_of(&names)).await?;
        let stands = read.into_iter().filter_map(|doc| {
            let pause = pause_in(&doc).filter(|pause| pause.paused)?;
            Some((doc, pause.job))
        });
        let stands: Vec<(Doc, String)> = stands.collect();
        let jobs = stands.iter().map(|(_, job)| job.clone()).collect();
        let mut written = Vec::with_capacity(stands.len());
        for some in stands.chunks(AT_ONCE) {
            let some = some
                .iter()
                .map(|(doc, job)| self.resume_with_others(doc, job));
            written.extend(join_all(some).await);
            if written.iter().any(is_of_all) {
                break;
            }
        }
        self.all_paused(false, &jobs, written, patience).await
    }

    /// Of each job whether it was not paused before, up to one whose trouble is that of all.
    async fn pause_each(&self, jobs: &[&String], reason: &str) -> Vec<Result<bool, FleetError>> {
        let mut written = Vec::with_capacity(jobs.len());
        for some in jobs.chunks(AT_ONCE) {
            let some = some.iter().map(|job| self.pause_with_others(job, reason));
            written.extend(join_all(some).await);
            if written.iter().any(is_of_all) {
                break;
            }
        }
        written
    }

    /// Whether it was not paused before.
    async fn pause_with_others(&self, job: &str, reason: &str) -> Result<bool, FleetError> {
        let read = self.read(&intent::pause_document(job)).await?;
        let last = read.as_ref().and_then(pause_in);
        if last.is_some_and(|pause| pause.paused) {
            return Ok(false);
        }
        let pause = Pause {
            job: job.to_owned(),
            paused: true,
            reason: reason.to_owned(),
            by: self.by.clone(),
            at: self.locks.wall(),
        };
        self.write_after(read, &Intent::Pause(pause)).await?;
        Ok(true)
    }

    async fn resume_with_others(&self, doc: &Doc, job: &str) -> Result<bool, FleetError> {
        let over = Pause {
            job: job.to_owned(),
            paused: false,
            reason: String::new(),
            by: self.by.clone(),
            at: self.locks.wall(),
        };
        let over = Intent::Pause(over);
        self.write_after(Some(doc.clone()), &over).await?;
        Ok(true)
    }

    /// What has come of all that was written, when replicas have heard of it.
    async fn all_paused(
        &self,
        paused: bool,
        jobs: &BTreeSet<String>,
        written: Vec<Result<bool, FleetError>>,
        patience: Duration,
    ) -> Result<AllPaused, FleetError> {
        let mut answer = AllPaused {
            paused,
            ..AllPaused::default()
        };
        // Those that were not come to.
        answer.left = jobs.len().saturating_sub(written.len());
        let mut failed = None;
        for written in written {
            match written {
                Ok(true) => answer.changed += 1,
                Ok(false) => answer.unchanged += 1,
                Err(error) => {
                    answer.left += 1;
                    failed.get_or_insert(error);
                }
            }
        }
        match failed {
            Some(error) if answer.changed + answer.unchanged == 0 => return Err(error),
            Some(error) => {
                answer.why = Some(error.of_a_part());
                return Ok(answer);
            }
            None => {}
        }
        let is_meant = |name: &str| jobs.contains(name) || jobs.contains(whole(name));
        let until = self.patience(patience);
        loop {
            // It is written: a replica that cannot be asked has not been heard of, and that is all.
            let Ok(presences) = self.presences_now().await else {
                match self.again(until).await {
                    true => continue,
                    false => return Ok(answer),
                }
            };
            answer.known = true;
            let (mut heard, mut unheard) = (BTreeSet::new(), BTreeSet::new());
            for presence in &presences {
                let meant = presence.jobs.iter().filter(|job| is_meant(&job.name));
                let late = meant.clone().any(|job| job.paused != paused);
                match (meant.count(), late) {
                    (0, _) => false,
                    (_, true) => unheard.insert(presence.name.clone()),
                    (_, false) => heard.insert(presence.name.clone()),
                };
            }
            // Of two replicas with one name neither has heard until both have.
            answer.heard_by = heard.difference(&unheard).cloned().collect();
            answer.unheard_by = unheard.into_iter().collect();
            if answer.unheard_by.is_empty() || !self.again(until).await {
                return Ok(answer);
            }
        }
    }
}

/// Whether what has failed would fail for all that follow, too: each of them would wait for it as long.
fn is_of_all(written: &Result<bool, FleetError>) -> bool {
    let is_of_one = |error: &FleetError| {
        matches!(
            error,
            FleetError::NotPossible(_) | FleetError::Unreadable(_)
        )
    };
    written.as_ref().is_err_and(|error| !is_of_one(error))
}

// === impl AllPaused ===

impl AllPaused {
    /// In a sentence: `12 jobs are paused now, 3 were before; heard by a, b`.
    pub(crate) fn in_words(&self) -> String {
        let counted = |count: usize, one: &str, many: &str| match count {
            1 => format!("1 {one}"),
            count => format!("{count} {many}"),
        };
        let mut said = match (self.paused, self.changed) {
            (true, count) => counted(count, "job is paused now", "jobs are paused now"),
            (false, 0) => "nothing was paused".to_owned(),
            (false, count) => counted(count, "pause has ended", "pauses have ended"),
        };
        if self.unchanged > 0 {
            said += &format!(", {}", counted(self.unchanged, "was before", "were before"));
        }
        let left = self.left;
        if let Some(why) = &self.why {
            said += &format!("; {left} could not be written ({why}): give the order again");
        } else if !self.unheard_by.is_empty() {
            let names = self.unheard_by.join(", ");
            said += &format!("; not heard yet by {names}: they find it when they answer again");
        } else if !self.heard_by.is_empty() {
            said += &format!("; heard by {}", self.heard_by.join(", "));
        } else if !self.known {
            said += "; too few lock nodes answer to tell who has heard of it";
        }
        said
    }

    /// Whether all of it is written, and every replica that it concerns knows.
    #[cfg(feature = "admin")]
    pub(crate) fn is_heard(&self) -> bool {
        self.left == 0 && self.known && self.unheard_by.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_all_jobs_is_told_in_a_sentence() {
        let mut answer = AllPaused {
            paused: true,
            changed: 12,
            unchanged: 1,
            heard_by: vec!["a".to_owned(), "b".to_owned()],
            known: true,
            ..AllPaused::default()
        };
        let said = "12 jobs are paused now, 1 was before; heard by a, b";
        assert_eq!(answer.in_words(), said);
        answer.unheard_by = vec!["c".to_owned()];
        assert!(answer.in_words().contains("not heard yet by c"));
        (answer.left, answer.why) = (3, Some("it is too late".to_owned()));
        let said = "12 jobs are paused now, 1 was before; 3 could not be written (it is too late): give the order again";
        assert_eq!(answer.in_words(), said);
        let none = AllPaused {
            known: true,
            ..AllPaused::default()
        };
        assert_eq!(none.in_words(), "nothing was paused");
    }
}
