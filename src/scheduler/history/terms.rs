//! Tells of the terms in which this replica leads a job: [`crate::fleet::terms`] says what is told.
//!
//! Nothing here is waited for by the loop that leads a job, nor by a lease: each telling is a task of its own, and those that wait are
//! read and written together, so many at a time. A term is read and written twice, however long it lasts.
//!
//! # Invariants
//! - T3 A term is told when it has lasted for a moment, and when it has ended: nothing is told by its renewals.
//!   (a_term_is_told_twice_however_long_it_lasts)
//! - T4 What a predecessor has told of its end is not lost to its successor.   (a_successor_keeps_what_its_predecessor_told)
//! - T5 Terms that begin together are told in few calls.   (terms_that_begin_together_share_their_calls)

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::sync::{Mutex, oneshot};

use super::{
    History, Inner,
    tellings::{Telling, Tellings},
    write,
};
use crate::{
    fleet::terms::{self, TermRecord},
    job,
    lock::LockError,
    node::Token,
    status::runs::HISTORY_LIFETIME,
};

/// A term is told when it is so old: then its predecessor has told of its end, unless it cannot.
const SETTLES: Duration = Duration::from_secs(2);
/// Bytes of a reason that are kept: each term of a job is read and written with all others.
const MAX_DETAIL: usize = 200;

/// The task that sees to those that wait.
struct Attendant {
    history: History,
    is_done: bool,
}

/// A term that this replica is in.
pub(in crate::scheduler) struct TermEntry {
    history: History,
    job: String,
    record: Arc<Mutex<TermRecord>>,
}

// === impl History ===

impl History {
    /// This replica has begun to lead a job.
    pub(in crate::scheduler) fn term_began(
        &self,
        job: &str,
        token: Token,
        leaderless: Option<Duration>,
    ) -> TermEntry {
        let Inner {
            author,
            locks,
            clock,
            spawn,
            ..
        } = &*self.0;
        let leaderless = leaderless.map(|gap| u64::try_from(gap.as_millis()).unwrap_or(u64::MAX));
        let record = Arc::new(Mutex::new(TermRecord {
            token,
            replica: author.id.clone(),
            name: author.name.clone(),
            began: locks.wall(),
            leaderless_ms: leaderless,
            ..TermRecord::default()
        }));
        let entry = TermEntry {
            history: self.clone(),
            job: job.to_owned(),
            record: record.clone(),
        };
        let (history, job, clock) = (self.clone(), job.to_owned(), clock.clone());
        drop(spawn.spawn(async move {
            clock.sleep(SETTLES).await;
            let record = record.lock().await;
            if record.ended.is_none() {
                history.tell_term(&job, &record).await;
            }
        }));
        entry
    }

    async fn tell_term(&self, job: &str, record: &TermRecord) {
        let clock = &self.0.clock;
        let (mut pause, longest) = write::BETWEEN_TRIES;
        for tries in 1..=write::TRIES {
            let Err(error) = self.put_with_others(job, record).await else {
                return;
            };
            tracing::debug!(job, %error, tries, "a term could not be told");
            if tries < write::TRIES {
                clock.sleep(pause).await;
            }
            pause = (pause * 2).min(longest);
        }
    }

    /// Writes it with all that wait at the same time: by itself each would be two calls to every node.
    async fn put_with_others(&self, job: &str, record: &TermRecord) -> Result<(), LockError> {
        let (told, answer) = oneshot::channel();
        let telling = Telling {
            job: job.to_owned(),
            record: record.clone(),
            told,
        };
        if self.tellings().add(telling) {
            let history = self.clone();
            drop(self.0.spawn.spawn(async move {
                let mut attendant = Attendant {
                    history,
                    is_done: false,
                };
                while let Some(some) = attendant.history.next_tellings() {
                    attendant.history.put_terms(some).await;
                }
                attendant.is_done = true;
            }));
        }
        answer.await.unwrap_or(Err(LockError::Closed))
    }

    fn tellings(&self) -> std::sync::MutexGuard<'_, Tellings> {
        // Changed in one step.
        let tellings = self.0.tellings.lock();
        tellings.unwrap_or_else(PoisonError::into_inner)
    }

    fn next_tellings(&self) -> Option<Vec<Telling>> {
        self.tellings().take_together()
    }

    async fn put_terms(&self, tellings: Vec<Telling>) {
        let put = tellings.into_iter().map(async |telling| {
            let put = self.put_term(&telling.job, &telling.record).await;
            // A telling that is given up needs no answer.
            _ = telling.told.send(put);
        });
        join_all(put).await;
    }

    async fn put_term(&self, job: &str, record: &TermRecord) -> Result<(), LockError> {
        let locks = &self.0.locks;
        let name = terms::document(job);
        let found = locks.doc(&name).await?;
        let rev = terms::revision(record.token, found.as_ref().map(|doc| doc.rev));
        let known = match &found {
            Some(doc) => terms::read(doc),
            None => Some(Vec::new()),
        };
        // Of another version: it knows what to do with it.
        let Some(known) = known else { return Ok(()) };
        let body = terms::to_body(&terms::with(known, record));
        let lifetime = locks.timing().retention.max(HISTORY_LIFETIME);
        locks.put_doc(&name, rev, lifetime, body).await
    }
}

// === impl Attendant ===

impl Drop for Attendant {
    fn drop(&mut self) {
        if !self.is_done {
            // It has died: those who wait begin another one.
            *self.history.tellings() = Tellings::default();
        }
    }
}

// === impl TermEntry ===

impl TermEntry {
    /// It has ended, in a word and in the words of a check.
    pub(in crate::scheduler) fn ended(self, why: &'static str, detail: String) {
        let Self {
            history,
            job,
            record,
        } = self;
        let at = history.0.locks.wall();
        history.0.ends.send_modify(|left| *left += 1);
        let spawn = history.0.spawn.clone();
        drop(spawn.spawn(async move {
            {
                let mut record = record.lock().await;
                record.ended = Some(at);
                why.clone_into(&mut record.why);
                record.detail = job::cut(detail, MAX_DETAIL);
                history.tell_term(&job, &record).await;
            }
            history.0.ends.send_modify(|left| *left -= 1);
        }));
    }
}
