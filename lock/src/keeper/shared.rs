//! What the tasks of a running keeper share, and what they hand back: releases, and places in queues.
//!
//! # Invariants
//! - R11 Release: the work is gone, the belief has ended, then all nodes are told.      (a_lease_is_released_after_its_work)

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::StreamExt;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::{lease_table::LeaseTable, read_batcher::ReadBatcher, watchlist::Watchlist};
use crate::{
    admission::Guard,
    event::Event,
    lease::{LeaseView, Loss, Note, Pulse, ReleaseReport},
    node::Op,
    quorum::{
        Votes,
        cluster::{Cluster, Progress},
    },
};

/// How often nodes are told again that a place in a queue is given up, until they have taken it.
const LEAVES: u32 = 4;

/// What the tasks of a running keeper share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) cluster: Cluster,
    pub(super) table: Arc<Mutex<LeaseTable>>,
    pub(super) bell: Arc<Notify>,
    pub(super) notes: mpsc::UnboundedSender<Note>,
    pub(super) pulse: Pulse,
    pub(super) reads: Arc<ReadBatcher>,
    pub(super) watchlist: Arc<Watchlist>,
    pub(super) votes: Arc<Votes>,
    /// What the clients of guarded nodes have in common; `None` for nodes without a guard.
    pub(super) guard: Option<Guard>,
}

// === impl Shared ===

impl Shared {
    pub(crate) fn table(&self) -> MutexGuard<'_, LeaseTable> {
        // The table is changed by short, complete steps.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives up a place in a lock's queue: sent behind the attempts that asked for it, and again where it was not taken, which is
    /// so where many give theirs up at one instant. Best effort: a place that is not given up ends by itself.
    pub(super) fn leave(&self, key: String, ticket: String) {
        let ops = [Op::Leave { key, ticket }];
        let mut sent = self.cluster.send_behind_all(&ops);
        // The end of the process waits for it, once: other waiters would be held up by one that has gone.
        let (shared, busy) = (self.clone(), self.cluster.busy());
        self.cluster.spawn.spawn(async move {
            let cluster = &shared.cluster;
            let (clock, slow) = (&cluster.clock, cluster.timing.node_timeout);
            let mut missing = (0..sent.len()).collect::<BTreeSet<_>>();
            let mut busy = Some(busy);
            for again in 1..=LEAVES {
                let answered = async {
                    while let Some((node, answer)) = sent.next().await {
                        if answer.is_ok() {
                            missing.remove(&node);
                        }
                    }
                };
                let _ = clock.timeout_at(clock.now() + slow * 2, answered).await;
                drop(busy.take());
                if missing.is_empty() {
                    return;
                }
                clock.sleep(cluster.chance.up_to(slow * again)).await;
                sent = missing
                    .iter()
                    .map(|node| cluster.send_behind(*node, &ops))
                    .collect();
            }
        });
    }

    pub(crate) fn ring(&self) {
        self.bell.notify_one();
    }

    /// Tells the listeners and watchers in this process that a lease has ended.
    pub(super) fn has_ended(&self, view: &LeaseView) {
        let now = self.cluster.clock.now();
        if self.cluster.events.are_heard() {
            let held = now.since(view.since());
            let loss = view.loss().unwrap_or(Loss::Released);
            let resource = self.cluster.events.resource(view.key());
            self.cluster.events.tell(Event::LeaseEnded {
                resource,
                loss,
                held,
            });
        }
        self.watchlist.given_back(view.key(), view.owner(), now);
    }

    /// Releases on all nodes, and repeats it to those that did not answer (R11). While waiters are known to queue,
    /// the key's primary is told last, to complete a majority: the waiter it calls finds the lock free. Elsewhere
    /// that order would cost a round trip and help no waiter. It is a courtesy, as the queue is.
    pub(super) fn release(&self, view: LeaseView, done: Option<oneshot::Sender<ReleaseReport>>) {
        self.has_ended(&view);
        let (told, mut progress) = watch::channel(Progress::default());
        let primary = self.cluster.primary(view.key());
        let op = self.cluster.release_of(&view);
        let last = view.is_from_queue().then_some(primary);
        let quiet = self.cluster.quiet_after(view.since());
        let telling = self.cluster.tell_until_known(vec![op], told, last, quiet);
        self.cluster.spawn.spawn(telling);
        let (shared, busy) = (self.clone(), self.cluster.busy());
        self.cluster.spawn.spawn(async move {
            let of = shared.cluster.links.len();
            let limit = shared.cluster.clock.now() + shared.cluster.timing.node_timeout * 2;
            let clock = &shared.cluster.clock;
            // The holder waits for every answer, but not for a node that is known to give none, nor for one told last.
            let asked = progress.wait_for(|told| told.asked);
            let _ = clock.timeout_at(limit, asked).await;
            if let Some(done) = done {
                let nodes = progress.borrow().nodes;
                let _ = done.send(ReleaseReport { nodes, of });
            }
            // The end of the process waits longer: a node that missed the release may hear the second one.
            let all = progress.wait_for(|told| told.nodes >= of);
            let _ = clock.timeout_at(limit, all).await;
            drop(busy);
        });
    }
}
