//! Carries writings out: those of one moment together, each until the store has taken it. One that has to be tried again keeps no
//! other one waiting.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};

use super::{History, Waiting, Writing};
use crate::{
    lock::LockError,
    status::{
        RunRecord,
        runs::{EVERYWHERE_LIFETIME, HISTORY_LIFETIME, LiveText, RUNNING, Stage},
    },
};

/// Writings under way at a time: what is asked for at the same time shares a call to each node.
pub(super) const TOGETHER: usize = 64;
/// The pause between those of one moment and the next. What comes after a calm is written at once: a replica that dies a moment
/// later is shown as interrupted, with his name.
const GATHER: Duration = Duration::from_millis(50);
/// A store that does not answer is asked so often, with pauses between that double from the first to the longest: without its end
/// a run would be shown as running. Begins soon: what has not been told dies with the replica.
pub(super) const TRIES: u32 = 8;
pub(super) const BETWEEN_TRIES: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(1));
/// A record of batches takes another number so often, where another process has taken the one it had.
const RENUMBERED: usize = 20;

/// Writings under way, by their places.
type Busy = BTreeMap<u64, Arc<Writing>>;

impl History {
    pub(super) async fn write_all(self) {
        let mut under_way = FuturesUnordered::new();
        let mut busy = BTreeMap::new();
        loop {
            let together = self.waiting().take_together(&busy);
            for (place, writing) in together {
                busy.insert(place, Arc::clone(&writing));
                let history = &self;
                under_way.push(async move {
                    history.write_patiently(&writing).await;
                    place
                });
            }
            if under_way.is_empty() {
                return;
            }
            let mut gathered = pin!(self.0.clock.sleep(GATHER));
            loop {
                tokio::select! {
                    biased;
                    Some(place) = under_way.next() => {
                        busy.remove(&place);
                        let waiting = self.waiting();
                        let left = waiting.writings.len() + busy.len();
                        self.0.left.send_modify(|now| *now = left);
                    }
                    () = &mut gathered => break,
                }
            }
        }
    }

    async fn write_patiently(&self, writing: &Writing) {
        let (mut pause, longest) = BETWEEN_TRIES;
        for tries in 1..=TRIES {
            let Err(error) = self.write(writing).await else {
                return;
            };
            tracing::debug!(%error, tries, "history could not be written");
            if tries < TRIES {
                self.0.clock.sleep(pause).await;
            }
            pause = (pause * 2).min(longest);
        }
    }

    async fn write(&self, writing: &Writing) -> Result<(), LockError> {
        match writing {
            Writing::Record {
                record,
                stage,
                output,
            } => self.put(record, *stage, output.as_deref()).await,
            Writing::Interrupt(unknown) => {
                let (name, _) = self.documents(unknown);
                let found = self.0.locks.doc(&name).await?;
                let found = found.and_then(|doc| RunRecord::from_doc(&unknown.job, &doc));
                let mut record = found
                    .filter(|found| found.seq == unknown.seq)
                    .unwrap_or_else(|| (**unknown).clone());
                let left = self.left_by(&record, &name).await?;
                record.interrupt(self.0.locks.wall());
                if let Some(left) = &left {
                    record.output_bytes = left.len() as u64;
                }
                self.put(&record, Stage::Interrupted, left.as_deref()).await
            }
            Writing::Batch { record, seq } => self.put_batch(record, seq).await,
        }
    }

    /// What a run that has died had left to read, as far as it was told.
    async fn left_by(&self, record: &RunRecord, name: &str) -> Result<Option<String>, LockError> {
        if record.outcome != RUNNING {
            return Ok(None);
        }
        let told = self.0.locks.doc(&RunRecord::live_beside(name)).await?;
        Ok(told.and_then(|doc| LiveText::of_run(&record.run_id, &doc)))
    }

    /// Two replicas of one machine that have no names share a ring: the number that one of them takes may be the other's by
    /// then, and of two documents of one revision a node keeps the first. So it is looked whose it is.
    async fn put_batch(&self, record: &RunRecord, seq: &AtomicU64) -> Result<(), LockError> {
        let mut taken = None;
        for _ in 0..RENUMBERED {
            let number = match (seq.load(Ordering::Relaxed), taken) {
                (number, None) if number > 0 => number,
                (_, taken) => self.next_number(&record.job, taken).await?,
            };
            seq.store(number, Ordering::Relaxed);
            let record = RunRecord {
                seq: number,
                ..record.clone()
            };
            self.put(&record, Stage::Ended, None).await?;
            let (name, _) = self.documents(&record);
            let Some(found) = self.0.locks.doc(&name).await? else {
                return Ok(());
            };
            let whose = RunRecord::from_doc(&record.job, &found);
            if whose.is_some_and(|found| found.seq == number && found.replica == record.replica) {
                return Ok(());
            }
            taken = Some(RunRecord::attempt_of(found.rev));
        }
        tracing::debug!(
            job = record.job,
            "a record of batches found no place in the history"
        );
        Ok(())
    }

    /// The next number in this replica's ring of a job; `taken` is one that another process has used meanwhile.
    async fn next_number(&self, job: &str, taken: Option<u64>) -> Result<u64, LockError> {
        let mut numbers = self.0.numbers.lock().await;
        let known = numbers.get(job).copied();
        let last = match (known, taken) {
            (Some(last), None) => last,
            (Some(last), Some(taken)) if last > taken => last,
            _ => {
                let docs = self.0.locks.docs(&RunRecord::directory(job)).await?;
                RunRecord::last_of_ring(job, &self.0.author.ring, &docs)
                    .max(known.unwrap_or(0))
                    .max(taken.unwrap_or(0))
            }
        };
        numbers.insert(job.to_owned(), last.saturating_add(1));
        Ok(last.saturating_add(1))
    }

    async fn put(
        &self,
        record: &RunRecord,
        stage: Stage,
        output: Option<&str>,
    ) -> Result<(), LockError> {
        let locks = &self.0.locks;
        let (name, beside) = self.documents(record);
        let least = match record.is_of_replica() {
            false => HISTORY_LIFETIME,
            true => EVERYWHERE_LIFETIME,
        };
        let lifetime = locks.timing().retention.max(least);
        let rev = RunRecord::revision(record.seq, stage);
        if let Some(output) = output {
            // First what the record speaks of.
            locks
                .put_doc(&beside, rev, lifetime, output.to_owned())
                .await?;
        }
        locks.put_doc(&name, rev, lifetime, record.to_body()).await
    }

    pub(super) fn documents(&self, record: &RunRecord) -> (String, String) {
        let ring = record.is_of_replica().then_some(&*self.0.author.ring);
        RunRecord::documents(&record.job, ring, record.seq)
    }
}

// === impl Waiting, Writing ===

impl Waiting {
    /// The oldest writings beside those under way, up to the first that depends on another one. Without any the task may end.
    fn take_together(&mut self, busy: &Busy) -> Vec<(u64, Arc<Writing>)> {
        let mut together: Vec<(u64, Arc<Writing>)> = Vec::new();
        while busy.len() + together.len() < TOGETHER
            && let Some(next) = self.writings.first_entry()
        {
            let mut earlier = busy.values().chain(together.iter().map(|(_, one)| one));
            if earlier.any(|earlier| next.get().depends_on(earlier)) {
                break;
            }
            together.push((*next.key(), Arc::new(next.remove())));
        }
        self.attended = !busy.is_empty() || !together.is_empty();
        together
    }
}

impl Writing {
    /// What an interruption finds there is what was written before it, and what follows it knows more.
    fn depends_on(&self, earlier: &Self) -> bool {
        let (Self::Record { record: one, .. } | Self::Interrupt(one)) = self else {
            return false;
        };
        let (Self::Record { record: two, .. } | Self::Interrupt(two)) = earlier else {
            return false;
        };
        let interrupts =
            matches!(self, Self::Interrupt(_)) || matches!(earlier, Self::Interrupt(_));
        interrupts && one.seq == two.seq && one.job == two.job
    }
}
