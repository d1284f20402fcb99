//! The nodes of a guarded store, asked one by one and past the keeper.

use std::{future::Future, sync::Arc, time::Duration};

use futures_util::future::join_all;

use super::super::{ask::on_a_runtime, failure::Failure};
use crate::{
    clock::Clock,
    config::Config,
    lock::FleetConfig,
    node::{Answer, Call, Cursor, Life, Node, NodeError, NodeFacts, Op, Page},
    worker::store,
};

/// A connection has to be made first.
const PATIENCE: Duration = Duration::from_secs(2);

/// How much of a node's memory is asked for at once.
pub(super) const PAGE: u32 = 500;

/// Where replicas tell of themselves.
const PRESENCE: &str = "presence/";

/// However long they say that they live: all of them.
const MOST_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);

/// What one node has shown: its name, and pages of its memory.
pub(super) type Pages = (String, Vec<Page>);

pub(super) struct Guarded {
    pub(super) nodes: Vec<Arc<dyn Node>>,
    pub(super) fleet: FleetConfig,
    pub(super) clock: Clock,
}

/// Does something with all nodes; refuses stores that have no guard.
pub(super) fn with_nodes<F>(config: &Config, deed: impl FnOnce(Guarded) -> F) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>>,
{
    let Some(fleet) = config.locks.fleet() else {
        return Err(Failure::Usage(
            "no node here names its fleet: only servers are shared by programs that may be configured differently"
                .to_owned(),
        ));
    };
    on_a_runtime(async {
        let clock = Clock::system();
        let nodes = store::nodes(&config.locks, &config.worker.namespace, &clock)?;
        deed(Guarded {
            nodes,
            fleet,
            clock,
        })
        .await
    })
}

pub(super) fn failed(node: &str, why: &str) -> Failure {
    Failure::Failed(format!("{node}: {why}"))
}

// === impl Guarded ===

impl Guarded {
    /// Every node's answers; all of them must answer.
    pub(super) async fn ask_all(
        &self,
        ops: Vec<Op>,
    ) -> Result<Vec<(String, Vec<Answer>)>, Failure> {
        let asked = (0..self.nodes.len()).map(|n| self.ask(n, ops.clone()));
        let answers = join_all(asked).await;
        let named = self.nodes.iter().zip(answers).map(|(node, answers)| {
            let name = node.name().to_owned();
            match answers {
                Ok(answers) => Ok((name, answers)),
                Err(trouble) => Err(failed(&name, &format!("{trouble}; all nodes are needed"))),
            }
        });
        named.collect()
    }

    /// All pages of every node's memory; all of them must answer.
    pub(super) async fn pages(&self, op: impl Fn(Cursor) -> Op) -> Result<Vec<Pages>, Failure> {
        let mut all = Vec::new();
        for (n, node) in self.nodes.iter().enumerate() {
            let name = node.name().to_owned();
            let mut pages = Vec::new();
            let mut next = Some(Cursor::default());
            while let Some(from) = next {
                let answers = self.ask(n, vec![op(from)]).await;
                let answers = answers.map_err(|trouble| {
                    failed(&name, &format!("{trouble}; all nodes are needed"))
                })?;
                let Some(Answer::Page(page)) = answers.into_iter().next() else {
                    return Err(failed(&name, "it gives no sensible answer"));
                };
                next = page.next.clone();
                pages.push(page);
            }
            all.push((name, pages));
        }
        Ok(all)
    }

    /// What each node shows of replicas, in the order of their names: that they are there, and how long ago they said so.
    pub(super) async fn presence(&self) -> Result<Vec<Vec<Life>>, Failure> {
        let mut all = Vec::new();
        for (n, node) in self.nodes.iter().enumerate() {
            let living = Op::Living {
                dir: PRESENCE.to_owned(),
                least: Duration::from_millis(1),
                most: MOST_LIFE,
                known: Vec::new(),
            };
            let answers = self.ask(n, vec![living]).await;
            let answers = answers.map_err(|trouble| {
                failed(node.name(), &format!("{trouble}; all nodes are needed"))
            })?;
            let Some(Answer::Lives { mut docs, .. }) = answers.into_iter().next() else {
                return Err(failed(node.name(), "it gives no sensible answer"));
            };
            docs.sort();
            all.push(docs);
        }
        Ok(all)
    }

    pub(super) async fn ask(&self, n: usize, ops: Vec<Op>) -> Result<Vec<Answer>, NodeError> {
        let Some(node) = self.nodes.get(n) else {
            return Ok(Vec::new());
        };
        let until = self.clock.now() + PATIENCE;
        loop {
            let call = Call {
                not_after: None,
                ops: ops.clone(),
            };
            let answer = self.clock.timeout_at(until, node.call(call)).await;
            match answer.unwrap_or(Err(NodeError::Timeout(PATIENCE))) {
                Ok(reply) => return Ok(reply.answers),
                Err(NodeError::Unreachable(_) | NodeError::Timeout(_))
                    if self.clock.now() < until =>
                {
                    self.clock.sleep(Duration::from_millis(50)).await;
                }
                Err(trouble) => return Err(trouble),
            }
        }
    }

    /// What each server tells of itself.
    pub(super) async fn facts(&self) -> Vec<NodeFacts> {
        let asked = self.nodes.iter().map(|node| async {
            let asked = self.clock.timeout(PATIENCE, node.inspect()).await;
            asked.ok().and_then(Result::ok).unwrap_or_default()
        });
        join_all(asked).await
    }
}
