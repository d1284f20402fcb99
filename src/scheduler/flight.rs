//! A run in flight, and what it sends back to the loop that leads its job.

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::execute::Ended;
use crate::{
    clock::Moment,
    job::{Checkpoints, JobError, Run},
    ledger::RunKey,
};

/// A run in flight.
pub(super) struct Flight {
    pub(super) key: RunKey,
    pub(super) run: Run,
    pub(super) end: oneshot::Receiver<Ended>,
    pub(super) started: Moment,
}

/// A checkpoint on its way to the ledger.
pub(super) type Saving = (Value, oneshot::Sender<Result<(), JobError>>);

/// Takes a run's checkpoints to the loop that keeps the ledger.
pub(super) struct CheckpointDesk(pub(super) mpsc::Sender<Saving>);

#[async_trait]
impl Checkpoints for CheckpointDesk {
    async fn save(&self, checkpoint: Value) -> Result<(), JobError> {
        let (reply, answer) = oneshot::channel();
        self.0.send((checkpoint, reply)).await?;
        answer.await?
    }
}

/// Waits for the end of a run; for ever when there is none.
pub(super) async fn end_of(flight: &mut Option<Flight>) -> Ended {
    match flight {
        Some(flight) => (&mut flight.end)
            .await
            .unwrap_or(Ended::Panicked("the run's task has vanished".to_owned())),
        None => std::future::pending().await,
    }
}
