//! Runs in flight, and what they send back to the loop that leads their job.

use std::{future::poll_fn, pin::Pin, task::Poll};

use async_trait::async_trait;
use futures_util::Future;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::execute::Ended;
use crate::{
    clock::Moment,
    job::{Checkpoints, JobError, Run},
    ledger::RunKey,
};

/// A run in flight.
pub(crate) struct Flight {
    pub(crate) key: RunKey,
    pub(crate) run: Run,
    pub(crate) end: oneshot::Receiver<Ended>,
    pub(crate) started: Moment,
    /// Dropped when its outcome is written: the lease is not let go before that, as far as there is time.
    pub(crate) noted: oneshot::Sender<()>,
}

/// The runs of one job that are in flight, in the order of their starts; a ledger holds few open.
#[derive(Default)]
pub(crate) struct Flights(Vec<Flight>);

/// A checkpoint of a run on its way to the ledger. Boxed on its way: a channel has room for many, and every leader has one.
pub(crate) struct Saving {
    pub(crate) key: RunKey,
    pub(crate) checkpoint: Value,
    /// The run may have ended meanwhile.
    pub(crate) reply: oneshot::Sender<Result<(), JobError>>,
}

/// Takes a run's checkpoints to the loop that keeps the ledger.
pub(crate) struct CheckpointDesk {
    pub(crate) key: RunKey,
    pub(crate) to: mpsc::Sender<Box<Saving>>,
}

#[async_trait]
impl Checkpoints for CheckpointDesk {
    async fn save(&self, checkpoint: Value) -> Result<(), JobError> {
        let (reply, answer) = oneshot::channel();
        let key = self.key.clone();
        let saving = Box::new(Saving {
            key,
            checkpoint,
            reply,
        });
        self.to.send(saving).await?;
        answer.await?
    }
}

// === impl Flights ===

impl Flights {
    pub(crate) fn add(&mut self, flight: Flight) {
        self.0.push(flight);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What counts as alive when ticks are decided.
    pub(crate) fn keys(&self) -> Vec<RunKey> {
        self.0.iter().map(|flight| flight.key.clone()).collect()
    }

    pub(crate) fn runs(&self) -> Vec<Run> {
        self.0.iter().map(|flight| flight.run.clone()).collect()
    }

    /// Whether this attempt is in flight.
    pub(crate) fn has(&self, key: &RunKey) -> bool {
        self.0.iter().any(|flight| flight.key == *key)
    }

    /// Tells this attempt to stop; nothing when it has ended.
    pub(crate) fn stop(&self, key: &RunKey, why: &str) {
        let flight = self.0.iter().find(|flight| flight.key == *key);
        if let Some(flight) = flight {
            flight.run.stop(why);
        }
    }

    /// Tells all of them to stop.
    pub(crate) fn stop_all(&self, why: &str) {
        for flight in &self.0 {
            flight.run.stop(why);
        }
    }

    /// Waits for the end of any of them; for ever when there is none. It stays here until [`Flights::remove`]: what is
    /// decided before its end is recorded counts it as alive. Cancel-safe.
    pub(crate) async fn next_end(&mut self) -> (RunKey, Ended) {
        poll_fn(|cx| {
            for flight in &mut self.0 {
                if let Poll::Ready(ended) = Pin::new(&mut flight.end).poll(cx) {
                    let vanished = || Ended::Panicked("the run's task has vanished".to_owned());
                    return Poll::Ready((flight.key.clone(), ended.unwrap_or_else(|_| vanished())));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Takes the run whose end was told.
    pub(crate) fn remove(&mut self, key: &RunKey) -> Option<Flight> {
        let place = self.0.iter().position(|flight| flight.key == *key)?;
        Some(self.0.remove(place))
    }
}
