//! Looks at locks: one call to each node for all that is asked together, and what is seen there for all who asked.
//!
//! Locks on the `watchlist` go along when they are due, and what was seen of them is noted there. Which requests come together is
//! for the `read_batcher`.

use futures_util::StreamExt;
use tokio::sync::oneshot;

use super::{read_batcher::GATHER, shared::Shared};
use crate::{
    expiry::LockState,
    node::{Answer, NodeError, Op, View},
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
        let ops: Vec<_> = keys
            .iter()
            .map(|key| Op::Read { key: key.clone() })
            .collect();
        let cluster = &self.cluster;
        let unanswered = || Err(NodeError::Timeout(cluster.timing.node_timeout));
        let row = || Vec::from_iter(cluster.links.iter().map(|_| unanswered()));
        let mut shown: Vec<Vec<Result<View, NodeError>>> = keys.iter().map(|_| row()).collect();
        let mut sent = cluster.send_to_all(&ops);
        while let Some((node, result)) = sent.next().await {
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
        let judged = keys.into_iter().zip(shown);
        let judged: Vec<LockState> = judged
            .map(|(key, nodes)| cluster.judge(key, nodes.into_iter().enumerate().collect()))
            .collect();
        self.watchlist.saw(&judged, cluster.clock.now());
        judged
    }
}
