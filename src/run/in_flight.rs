//! Runs in flight, and how their ends reach the engine of their job.

use std::{future::poll_fn, pin::Pin, task::Poll};

use futures_util::Future;
use jiff::Timestamp;
use tokio::sync::oneshot;

use super::execute::Ended;
use crate::{clock::Moment, job::Run};

/// A run in flight. `K` is what its engine knows it by: an attempt, or a batch.
pub(crate) struct RunInFlight<K> {
    pub(crate) key: K,
    pub(crate) run: Run,
    pub(crate) end: oneshot::Receiver<Ended>,
    pub(crate) started: Moment,
    /// The same by the fleet's time.
    pub(crate) at: Timestamp,
    /// Dropped when its outcome is written, for a task that keeps the lease until then.
    pub(crate) noted: Option<oneshot::Sender<()>>,
}

/// The runs of one job that are in flight, in the order of their starts.
pub(crate) struct InFlight<K>(Vec<RunInFlight<K>>);

// === impl InFlight ===

impl<K> Default for InFlight<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Clone + PartialEq> InFlight<K> {
    pub(crate) fn add(&mut self, entry: RunInFlight<K>) {
        self.0.push(entry);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What counts as alive when ticks are decided.
    pub(crate) fn keys(&self) -> Vec<K> {
        self.0.iter().map(|entry| entry.key.clone()).collect()
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.0.iter().map(|entry| &entry.run)
    }

    /// When the first of them started.
    pub(crate) fn since(&self) -> Option<Moment> {
        self.0.iter().map(|entry| entry.started).min()
    }

    /// Whether this one is in flight.
    pub(crate) fn has(&self, key: &K) -> bool {
        self.0.iter().any(|entry| entry.key == *key)
    }

    /// Tells this one to stop; nothing when it has ended.
    pub(crate) fn stop(&self, key: &K, why: &str) {
        let entry = self.0.iter().find(|entry| entry.key == *key);
        if let Some(entry) = entry {
            entry.run.stop(why);
        }
    }

    /// Tells all of them to stop.
    pub(crate) fn stop_all(&self, why: &str) {
        self.runs().for_each(|run| run.stop(why));
    }

    /// Waits for the end of any of them; for ever when there is none. It stays here until [`InFlight::remove`]: what is
    /// decided before its end is recorded counts it as alive. Cancel-safe.
    pub(crate) async fn next_end(&mut self) -> (K, Ended) {
        poll_fn(|cx| {
            for entry in &mut self.0 {
                if let Poll::Ready(ended) = Pin::new(&mut entry.end).poll(cx) {
                    let vanished = || Ended::Panicked("the run's task has vanished".to_owned());
                    return Poll::Ready((entry.key.clone(), ended.unwrap_or_else(|_| vanished())));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Takes the run whose end was told.
    pub(crate) fn remove(&mut self, key: &K) -> Option<RunInFlight<K>> {
        let place = self.0.iter().position(|entry| entry.key == *key)?;
        Some(self.0.remove(place))
    }
}
