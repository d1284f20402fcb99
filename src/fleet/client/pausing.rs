//! Pausing a job, and ending that.

use std::{collections::BTreeSet, time::Duration};

use serde::Serialize;

use super::{
    super::intent::{self, Intent, MOST_REASON, Pause},
    Fleet,
    error::FleetError,
};
use crate::{
    job::shard::{is_of, shard_of},
    node::Doc,
};

/// What became of a pause or of its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PauseAnswer {
    /// The job.
    pub job: String,
    /// Whether it is paused now.
    pub paused: bool,
    /// It was not so before.
    pub changed: bool,
    /// Why it is paused; may be empty.
    pub reason: String,
    /// Names of the replicas that have said that they know.
    pub heard_by: Vec<String>,
    /// Names of those that have not, yet.
    pub unheard_by: Vec<String>,
    /// Whether the store could be asked for them.
    #[serde(skip)]
    pub known: bool,
}

impl Fleet {
    /// Pauses the job: no tick of it starts on any replica until it is resumed. Waits until every replica that has the job
    /// says so, for `patience` at most. A job with shards is paused with all of them, also those that it gets later; one shard
    /// is paused by its own name.
    ///
    /// # Cancellation
    /// A dropped call may have written its intent, which then stands.
    ///
    /// # Errors
    /// On an error nothing was written, as far as this client knows; an error of the nodes ([`FleetError::TooFewNodes`],
    /// [`FleetError::Locks`]) may have left the intent on some. What is written on a majority is never said to have failed.
    pub async fn pause(
        &self,
        job: &str,
        reason: &str,
        patience: Duration,
    ) -> Result<PauseAnswer, FleetError> {
        self.known(job).await?;
        self.set_paused(job, true, reason, patience).await
    }

    /// Ends a pause; the job goes on with its next tick. Waits as [`Fleet::pause`] does. The pauses of single shards end with that
    /// of their job.
    ///
    /// # Cancellation
    /// A dropped call may have ended some of these pauses, or all.
    ///
    /// # Errors
    /// As [`Fleet::pause`], and the pauses of some shards may have ended then. [`FleetError::NotPossible`] for one shard of a job
    /// that is paused as a whole.
    pub async fn resume(&self, job: &str, patience: Duration) -> Result<PauseAnswer, FleetError> {
        self.known(job).await?;
        self.set_paused(job, false, "", patience).await
    }

    /// The same for a job of which it is not asked whether there is one.
    pub(crate) async fn set_paused(
        &self,
        job: &str,
        paused: bool,
        reason: &str,
        patience: Duration,
    ) -> Result<PauseAnswer, FleetError> {
        refuse_long(reason)?;
        let read = self.read(&intent::pause_document(job)).await?;
        let last = read.as_ref().and_then(pause_in);
        let was_whole = last.as_ref().is_some_and(|pause| pause.paused);
        let mut shards = false;
        if !paused {
            self.refuse_paused_with_all(job).await?;
            shards = self.resume_shards(job).await?;
        }
        let was_paused = was_whole || shards;
        let mut reason = reason.to_owned();
        let changed = was_paused != paused;
        if !changed && reason.is_empty() {
            reason = last.map(|pause| pause.reason).unwrap_or_default();
        } else if was_whole != paused || paused {
            let pause = Pause {
                job: job.to_owned(),
                paused,
                reason: reason.clone(),
                by: self.by.clone(),
                at: self.locks.wall(),
            };
            let written = self.write_after(read, &Intent::Pause(pause)).await;
            written.map_err(|error| error.after(shards))?;
        }
        let mut answer = PauseAnswer {
            job: job.to_owned(),
            paused,
            changed,
            reason,
            heard_by: Vec::new(),
            unheard_by: Vec::new(),
            known: false,
        };
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
            let names = |of: bool| {
                let told = presences
                    .iter()
                    .flat_map(|p| p.jobs.iter().map(move |j| (p, j)));
                let said = told.filter(|(_, j)| is_of(&j.name, job) && (j.paused == paused) == of);
                said.map(|(p, _)| p.name.clone()).collect::<BTreeSet<_>>()
            };
            // A replica that has heard of it for one shard alone has not.
            let (heard, unheard) = (names(true), names(false));
            answer.heard_by = heard.difference(&unheard).cloned().collect();
            answer.unheard_by = unheard.into_iter().collect();
            if answer.unheard_by.is_empty() || !self.again(until).await {
                return Ok(answer);
            }
        }
    }

    /// Refuses to resume a shard of a job that is paused as a whole: it would stay paused.
    async fn refuse_paused_with_all(&self, job: &str) -> Result<(), FleetError> {
        let Some((whole, _)) = shard_of(job) else {
            return Ok(());
        };
        let read = self.read(&intent::pause_document(whole)).await?;
        match read.as_ref().and_then(pause_in) {
            Some(pause) if pause.paused => Err(FleetError::NotPossible(format!(
                "{whole} is paused with all its shards: resume {whole}, and pause the others by their own names"
            ))),
            _ => Ok(()),
        }
    }

    /// Ends the pauses of single shards of the job; whether there were any.
    async fn resume_shards(&self, job: &str) -> Result<bool, FleetError> {
        let first = intent::pause_document("");
        let names = self.names().await?.into_iter().map(|doc| doc.name);
        let of_shard = |name: &String| {
            let of = name.strip_prefix(&first).and_then(shard_of);
            of.is_some_and(|(whole, _)| whole == job)
        };
        let names: Vec<String> = names.filter(of_shard).collect();
        let read = self.patiently(|| self.locks.docs_of(&names)).await?;
        let mut any = false;
        for doc in read {
            let Some(pause) = pause_in(&doc).filter(|pause| pause.paused) else {
                continue;
            };
            let over = Pause {
                paused: false,
                reason: String::new(),
                by: self.by.clone(),
                at: self.locks.wall(),
                ..pause
            };
            let written = self.write_after(Some(doc), &Intent::Pause(over)).await;
            written.map_err(|error| error.after(any))?;
            any = true;
        }
        Ok(any)
    }
}

pub(super) fn refuse_long(reason: &str) -> Result<(), FleetError> {
    let length = reason.len();
    match length > MOST_REASON {
        true => Err(FleetError::NotPossible(format!(
            "the reason is {length} bytes long, and every replica reads it again and again: {MOST_REASON} at most"
        ))),
        false => Ok(()),
    }
}

pub(super) fn pause_in(doc: &Doc) -> Option<Pause> {
    match Intent::from_doc(doc)? {
        Intent::Pause(pause) => Some(pause),
        _ => None,
    }
}
