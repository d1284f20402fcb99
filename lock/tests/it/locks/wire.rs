//! A client's connection to a node, which dies with the client.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;
use watchkeeper_lock::node::{Announcements, Answer, Call, Node, NodeError, Reply};

/// What is seen of a client from outside.
#[derive(Clone)]
pub(crate) struct Signs {
    /// Nothing of it reaches a node any more, nor does anything come back.
    pub(crate) dead: watch::Sender<bool>,
    /// It has been told how many are before it in a line.
    pub(crate) queued: watch::Sender<bool>,
    /// It listens to what nodes announce.
    pub(crate) hears: watch::Sender<bool>,
}

/// One connection.
pub(crate) struct Wire {
    node: Arc<dyn Node>,
    signs: Signs,
}

// === impl Signs ===

impl Signs {
    pub(crate) fn new() -> Self {
        Self {
            dead: watch::channel(false).0,
            queued: watch::channel(false).0,
            hears: watch::channel(true).0,
        }
    }

    async fn death(&self) {
        let _ = self.dead.subscribe().wait_for(|dead| *dead).await;
    }
}

// === impl Wire ===

impl Wire {
    pub(crate) fn new(node: Arc<dyn Node>, signs: &Signs) -> Self {
        let signs = signs.clone();
        Self { node, signs }
    }
}

#[async_trait]
impl Node for Wire {
    fn name(&self) -> &str {
        self.node.name()
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        let reply = tokio::select! {
            biased;
            () = self.signs.death() => std::future::pending().await,
            reply = self.node.call(call) => reply,
        };
        let answers = reply.iter().flat_map(|reply| &reply.answers);
        let mut refused = answers.filter_map(|answer| match answer {
            Answer::Refused(view) => view.ahead,
            _ => None,
        });
        if refused.next().is_some() {
            self.signs.queued.send_replace(true);
        }
        reply
    }

    async fn announcements(&self) -> Option<Announcements> {
        let _ = self.signs.hears.subscribe().wait_for(|hears| *hears).await;
        let mut news = self.node.announcements().await?;
        let (sender, receiver) = tokio::sync::mpsc::channel(64);
        let signs = self.signs.clone();
        watchkeeper_lock::spawn::Spawn::system().spawn(async move {
            while let Some(one) = news.recv().await {
                if *signs.dead.borrow() || sender.send(one).await.is_err() {
                    return;
                }
            }
        });
        Some(receiver)
    }
}
