//! Releases that nodes announce, passed on to the waiters of this process.
//!
//! A node announces the end of a lease whose record says that a client waits (W3 to W6), whichever client that was. Four parts
//! of a process make use of it:
//! - a waiter in a lock's queue, a candidate and a waiter for a slot have said so themselves, with attempts that were refused
//!   (`acquire::wait_queue`, `election`, `acquire::slots`): they are woken at once;
//! - the `watchlist` says nothing. What it does not hear it sees with its next look, which comes anyway: a release on any node
//!   tells since when a lock was free.
//!
//! What is announced before a process listens, or while its connection is made again, is not heard. Waiters in a queue look then, as
//! soon as it listens; a candidate sees it with its next look.
//!
//! The watch of other holders hears nothing. A node that has forgotten a record, which stood still there, announces the same as
//! one that was told of a release (W4), and the holder may live on the others. A candidate that is woken sees a release with the look
//! that follows; a waiter in a queue tries, and waits for what still stands.

use std::{sync::Arc, time::Duration};

use super::{releases::ReleaseListeners, watchlist::Watchlist};
use crate::{
    backoff::Backoff,
    node::Node,
    quorum::{cluster::Cluster, link::Link},
};

/// Questions to a node that was started again. After that time the next renewal asks, or the next announcement.
const MEETINGS: u32 = 20;

/// A node was started again, and nothing is asked of it now: it is to be known before another fleet takes it for new. Its other
/// connections may be found broken by the first question.
async fn meet(cluster: Cluster, number: usize) {
    let (first, longest) = (Duration::from_millis(20), Duration::from_millis(500));
    let mut backoff = Backoff::new(first, longest);
    for _ in 0..MEETINGS {
        let Some(link) = cluster.links.get(number) else {
            return;
        };
        if link.ask(Vec::new()).await.is_ok() {
            return;
        }
        let pause = backoff.next(&cluster.chance);
        cluster.clock.sleep(pause).await;
    }
}

/// Passes a node's release announcements on, for ever; a stream that ends is opened again.
///
/// The key's primary keeps the queue. While waiters queue it is told of a release last, when a majority knows, and
/// its announcement wakes them. An announcement of another node counts at once while the primary is not heard.
/// Otherwise it counts after the time in which the primary should have told: it may have stopped just now. A waiter
/// that has heard of a release is not woken by hearing of it again.
pub(super) async fn forward(
    cluster: Cluster,
    number: usize,
    node: Arc<dyn Node>,
    to: ReleaseListeners,
    list: Arc<Watchlist>,
) {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
    loop {
        if let Some(mut news) = node.announcements().await {
            cluster.subscriptions.set(number, true);
            // Those who have begun to wait before.
            let is_primary = |key: &str| cluster.primary(key) == number;
            to.tell_gap(is_primary);
            while let Some(announcement) = news.recv().await {
                backoff.reset();
                if announcement.is_gap() {
                    to.tell_gap(is_primary);
                    cluster.spawn.spawn(meet(cluster.clone(), number));
                    continue;
                }
                let (key, owner) = (&announcement.key, &announcement.owner);
                list.heard(key, owner, cluster.clock.now());
                let primary = cluster.primary(&announcement.key);
                let silent = cluster.links.get(primary).is_none_or(Link::is_down);
                // Without a waiter it is lost, which is fine.
                if primary == number || silent || !cluster.subscriptions.is_live(primary) {
                    to.tell(&announcement);
                } else if to.any(key) {
                    let (to, clock) = (to.clone(), cluster.clock.clone());
                    let patience = cluster.timing.node_timeout;
                    cluster.spawn.spawn(async move {
                        clock.sleep(patience).await;
                        to.tell(&announcement);
                    });
                }
            }
            cluster.subscriptions.set(number, false);
        }
        cluster.clock.sleep(backoff.next(&cluster.chance)).await;
    }
}
