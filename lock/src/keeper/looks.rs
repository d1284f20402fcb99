//! Looks at locks: as few calls to each node as all that is asked together needs, and what is seen there for all who asked.
//!
//! Locks on the `watchlist` go along when they are due, and what was seen of them is noted there. Which requests come together, and
//! how many locks are asked for at once, is for the `read_batcher`.

use futures_util::StreamExt;
use tokio::sync::oneshot;

use super::{
    read_batcher::{Came, GATHER, TOO_LATE},
    shared::Shared,
};
use crate::{
    expiry::LockState,
    node::{Answer, NodeError, Op, View},
    quorum::{link::Link, tally::majority},
};

impl Shared {
    /// Looks at what is listed and due, for ever. While too few nodes vote nothing can be taken, and there is nothing to watch for.
    pub(super) async fn keep_watch(self) {
        loop {
            let clock = &self.cluster.clock;
            self.watchlist.due(clock).await;
            let enough = self.votes.until_enough();
            let _ = clock.timeout(self.cluster.timing.ttl, enough).await;
            // What is due goes along with any look, and is noted there.
            let (reply, seen) = oneshot::channel();
            self.look_together(Vec::new(), reply).await;
            // It may be another one's look that it goes along with.
            let _ = seen.await;
        }
    }

    /// Looks at these locks together with all others that are asked for now.
    pub(super) async fn look_together(
        &self,
        keys: Vec<String>,
        reply: oneshot::Sender<Vec<LockState>>,
    ) {
        if !self.reads.add(keys, reply) {
            return;
        }
        let clock = &self.cluster.clock;
        clock.sleep(GATHER).await;
        let together = self.reads.take();
        let mut keys: Vec<String> = together.iter().flat_map(|r| r.keys.clone()).collect();
        keys.extend(self.watchlist.take_due(clock.now()));
        keys.sort_unstable();
        keys.dedup();
        let seen = self.look(keys).await;
        for request in together {
            request.answer(&seen);
        }
    }

    pub(super) async fn look(&self, keys: Vec<String>) -> Vec<LockState> {
        let (cluster, mut too_late) = (&self.cluster, 0);
        let mut judged = Vec::with_capacity(keys.len());
        let mut keys = keys.into_iter().peekable();
        while keys.peek().is_some() && too_late < TOO_LATE {
            let part: Vec<String> = keys.by_ref().take(self.reads.at_once()).collect();
            let asked = part.len();
            let (seen, came) = self.look_at_once(part).await;
            too_late = if came == Came::TooLate {
                too_late + 1
            } else {
                0
            };
            self.reads.took(asked, came, cluster.timing.node_timeout);
            judged.extend(seen);
        }
        let unseen = keys.map(|key| cluster.judge(key, self.unanswered().enumerate().collect()));
        judged.extend(unseen);
        self.watchlist.saw(&judged, cluster.clock.now());
        judged
    }

    fn unanswered(&self) -> impl Iterator<Item = Result<View, NodeError>> {
        let timeout = self.cluster.timing.node_timeout;
        let unanswered = move |_| Err(NodeError::Timeout(timeout));
        (0..self.cluster.links.len()).map(unanswered)
    }

    /// What the nodes show of these locks.
    async fn look_at_once(&self, keys: Vec<String>) -> (Vec<LockState>, Came) {
        let ops: Vec<_> = keys
            .iter()
            .map(|key| Op::Read { key: key.clone() })
            .collect();
        let cluster = &self.cluster;
        let row = || self.unanswered().collect();
        let mut shown: Vec<Vec<Result<View, NodeError>>> = keys.iter().map(|_| row()).collect();
        let (asked, mut waited, mut late) = (cluster.clock.now(), Vec::new(), false);
        let mut sent = cluster.send_to_all(&ops);
        while let Some((node, result)) = sent.next().await {
            match &result {
                Ok(_) => {
                    let way = cluster.links.get(node).map(Link::round_trip);
                    let took = cluster.clock.now().since(asked);
                    waited.push(took.saturating_sub(way.unwrap_or_default()));
                }
                Err(trouble) => {
                    late |= matches!(trouble, NodeError::Timeout(_) | NodeError::Overload)
                }
            }
            for (i, row) in shown.iter_mut().enumerate() {
                row[node] = match &result {
                    Ok(answers) => match answers.get(i) {
                        Some(Answer::View(view)) => {
                            // At the arrival: the watch of a holder begins here (O2).
                            cluster.saw(node, view);
                            Ok(view.clone())
                        }
                        Some(Answer::Failed(trouble)) => Err(trouble.clone()),
                        other => Err(NodeError::Protocol(format!("answer to read: {other:?}"))),
                    },
                    Err(trouble) => Err(trouble.clone()),
                };
            }
        }
        let q = majority(cluster.links.len());
        waited.sort_unstable();
        let seen = keys.into_iter().zip(shown);
        let seen =
            seen.map(|(key, nodes)| cluster.judge(key, nodes.into_iter().enumerate().collect()));
        let came = match waited.get(q - 1) {
            Some(waited) => Came::After(*waited),
            None if late => Came::TooLate,
            None => Came::Refused,
        };
        (seen.collect(), came)
    }
}
