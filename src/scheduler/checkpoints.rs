//! Checkpoints of runs, on their way to the ledger that the term's loop keeps.

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::term::TermLoop;
use crate::{
    job::{Checkpoints, JobError},
    ledger::{Ledger, RunKey},
    run::InFlight,
};

/// Checkpoints of a job that may wait.
const WAITING: usize = 4;

/// A checkpoint of a run on its way to the ledger. Boxed on its way: a channel has room for many, and every leader has one.
pub(super) struct Saving {
    pub(super) key: RunKey,
    pub(super) checkpoint: Value,
    /// The run may have ended meanwhile.
    pub(super) reply: oneshot::Sender<Result<(), JobError>>,
}

/// Takes a run's checkpoints to the loop that keeps the ledger.
pub(super) struct CheckpointSender {
    pub(super) key: RunKey,
    pub(super) to: mpsc::Sender<Box<Saving>>,
}

#[async_trait]
impl Checkpoints for CheckpointSender {
    async fn save(&self, checkpoint: Value) -> Result<(), JobError> {
        let (reply, answer) = oneshot::channel();
        let key = self.key.clone();
        let saving = Box::new(Saving {
            key,
            checkpoint,
            reply,
        });
        // The loop listens while anything of the job is under way.
        self.to.send(saving).await.map_err(|_| ended())?;
        answer.await?
    }
}

type Channel = (mpsc::Sender<Box<Saving>>, mpsc::Receiver<Box<Saving>>);

/// Where the checkpoints of a term's runs come in. Made with the first run, and given up when none is left: most terms are at
/// rest.
#[derive(Default)]
pub(super) struct CheckpointQueue(Option<Channel>);

fn ended() -> JobError {
    JobError::retry("the run has ended")
}

// === impl CheckpointQueue ===

impl CheckpointQueue {
    /// For a run that is to begin.
    pub(super) fn sender(&mut self) -> mpsc::Sender<Box<Saving>> {
        let (sender, _) = self.0.get_or_insert_with(|| mpsc::channel(WAITING));
        sender.clone()
    }

    /// The next checkpoint; never without a run. Cancel-safe.
    pub(super) async fn next(&mut self) -> Box<Saving> {
        let next = match &mut self.0 {
            Some((_, saving)) => saving.recv().await,
            None => None,
        };
        match next {
            Some(saving) => saving,
            None => std::future::pending().await,
        }
    }

    /// No run is left.
    pub(super) fn close(&mut self) {
        self.0 = None;
    }
}

impl TermLoop<'_> {
    pub(super) async fn save(
        &self,
        ledger: &mut Ledger,
        in_flight: &InFlight<RunKey>,
        saving: Box<Saving>,
    ) {
        let Saving {
            key,
            checkpoint,
            reply,
        } = *saving;
        let saved = async {
            if !in_flight.has(&key) {
                return Err(ended());
            }
            let mut next = ledger.clone();
            next.save_checkpoint(&key, self.token(), checkpoint)
                .map_err(JobError::fatal)?;
            next.note_checkpoint(&key, self.wall());
            self.write(&next, None).await?;
            *ledger = next;
            Ok(())
        };
        // The run may have ended meanwhile.
        let _ = reply.send(saved.await);
    }
}
