//! The nodes of a store, asked one by one and past the keeper: for commands that look at all that a node remembers.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;

use super::failure::Failure;
use crate::{
    clock::Clock,
    config::{Backend, Config},
    node::{Answer, Call, Cursor, Life, Node, NodeError, NodeFacts, Op, Page},
    worker::{connect, store},
};

/// A connection has to be made first.
const PATIENCE: Duration = Duration::from_secs(2);

/// The same to a store with several addresses, of which the first may be silent.
const TO_REACH_THE_NEXT: Duration = Duration::from_secs(6);

/// How much of a node's memory is asked for at once, and at least where that takes too long.
const PAGE: (u32, u32) = (500, 8);

/// Where replicas tell of themselves.
const PRESENCE: &str = "presence/";

/// However long they say that they live: all of them.
const MOST_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);

/// What one node has shown: its name, and pages of its memory.
pub(super) type Pages = (String, Vec<Page>);

/// The nodes of one store.
pub(super) struct RawNodes {
    pub(super) nodes: Vec<Arc<dyn Node>>,
    pub(super) clock: Clock,
    /// How long a node is asked for one answer.
    pub(super) patience: Duration,
    /// What a node remembers that does not vote may be old, or gone.
    pub(super) guarded: bool,
}

pub(super) fn failed(node: &str, why: &str) -> Failure {
    Failure::of(format!("{node}: {why}"))
}

fn all_are_needed(node: &str, trouble: &NodeError) -> Failure {
    failed(node, &format!("{trouble}; all nodes are needed"))
}

// === impl RawNodes ===

impl RawNodes {
    pub(super) fn open(config: &Config) -> Result<Self, Failure> {
        let clock = Clock::system();
        let settings = connect::patient(&config.locks);
        let nodes = store::nodes(&settings, &config.worker.namespace, &clock)?;
        let patience = match config.locks.backend {
            Backend::Postgres | Backend::Etcd => TO_REACH_THE_NEXT,
            _ => PATIENCE,
        };
        Ok(Self {
            nodes,
            clock,
            patience,
            guarded: config.locks.fleet().is_some_and(|fleet| fleet.is_guarded()),
        })
    }

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
                Err(trouble) => Err(all_are_needed(&name, &trouble)),
            }
        });
        named.collect()
    }

    /// All pages of every node's memory; all of them must answer.
    pub(super) async fn pages(
        &self,
        op: impl Fn(Cursor, u32) -> Op,
    ) -> Result<Vec<Pages>, Failure> {
        let mut all = Vec::new();
        for (n, node) in self.nodes.iter().enumerate() {
            let name = node.name().to_owned();
            let pages = self.pages_of(n, &op).await;
            let pages = pages.map_err(|trouble| all_are_needed(&name, &trouble))?;
            all.push((name, pages));
        }
        Ok(all)
    }

    /// All pages of one node's memory.
    pub(super) async fn pages_of(
        &self,
        n: usize,
        op: impl Fn(Cursor, u32) -> Op,
    ) -> Result<Vec<Page>, NodeError> {
        let mut pages = Vec::new();
        let (mut next, mut count) = (Some(Cursor::default()), PAGE.0);
        while let Some(from) = next {
            match self.ask_one(n, op(from.clone(), count)).await {
                Ok(Answer::Page(page)) => {
                    next = page.next.clone();
                    pages.push(page);
                }
                // Large bodies: fewer of them at once.
                Err(NodeError::Timeout(_)) if count > PAGE.1 => {
                    (next, count) = (Some(from), (count / 4).max(PAGE.1));
                }
                Ok(_) => return Err(no_sense()),
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(pages)
    }

    /// One node's answer to one question.
    pub(super) async fn ask_one(&self, n: usize, op: Op) -> Result<Answer, NodeError> {
        match self.ask(n, vec![op]).await?.pop() {
            Some(Answer::Failed(trouble)) => Err(trouble),
            Some(answer) => Ok(answer),
            None => Err(no_sense()),
        }
    }

    /// What each node shows of replicas; all of them must answer.
    pub(super) async fn presence(&self) -> Result<Vec<Vec<Life>>, Failure> {
        let mut all = Vec::new();
        for (n, node) in self.nodes.iter().enumerate() {
            let shown = self.presence_on(n).await;
            all.push(shown.map_err(|trouble| all_are_needed(node.name(), &trouble))?);
        }
        Ok(all)
    }

    /// What a node shows of replicas, in the order of their names: that they are there, and how long ago they said so.
    pub(super) async fn presence_on(&self, n: usize) -> Result<Vec<Life>, NodeError> {
        let living = Op::Living {
            dir: PRESENCE.to_owned(),
            least: Duration::from_millis(1),
            most: MOST_LIFE,
            known: Vec::new(),
        };
        let Answer::Lives { mut docs, .. } = self.ask_one(n, living).await? else {
            return Err(no_sense());
        };
        docs.sort();
        Ok(docs)
    }

    pub(super) async fn ask(&self, n: usize, ops: Vec<Op>) -> Result<Vec<Answer>, NodeError> {
        let Some(node) = self.nodes.get(n) else {
            return Ok(Vec::new());
        };
        let until = self.clock.now() + self.patience;
        // Why it cannot be reached says more than that it took so long.
        let mut silent = NodeError::Timeout(self.patience);
        loop {
            let call = Call {
                not_after: None,
                ops: ops.clone(),
            };
            let answer = self.clock.timeout_at(until, node.call(call)).await;
            match answer {
                Ok(Ok(reply)) => return Ok(reply.answers),
                Ok(Err(trouble @ (NodeError::Unreachable(_) | NodeError::Timeout(_))))
                    if self.clock.now() < until =>
                {
                    silent = trouble;
                    self.clock.sleep(Duration::from_millis(50)).await;
                }
                Ok(Err(trouble)) => return Err(trouble),
                Err(_) => return Err(silent),
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

pub(super) fn no_sense() -> NodeError {
    NodeError::Protocol("it makes no sense".to_owned())
}

/// The first replica that may still act, as far as a node shows any. Pure.
pub(super) fn living(replicas: &[Life]) -> Option<String> {
    let replica = replicas.first()?.name.trim_start_matches(PRESENCE);
    Some(format!("the replica {replica} was there seconds ago"))
}
