//! A node in memory: for single processes, for tests and for the simulation.

mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::{broadcast, mpsc};

use super::{Announcement, Announcements, Call, Node, NodeError, NodeMs, Reply};
use crate::clock::Clock;
pub use state::NodeState;

/// A node in memory. Clones share one memory.
#[derive(Clone, Debug)]
pub struct MemoryNode {
    name: String,
    clock: Clock,
    state: Arc<Mutex<NodeState>>,
    releases: broadcast::Sender<Announcement>,
}

impl MemoryNode {
    /// An empty node.
    #[must_use]
    pub fn new(name: &str, clock: Clock) -> Self {
        let releases = broadcast::Sender::new(256);
        Self {
            name: name.to_owned(),
            clock,
            state: Arc::default(),
            releases,
        }
    }

    /// Executes a call now.
    ///
    /// # Errors
    /// [`NodeError::Late`].
    pub fn execute(&self, call: &Call) -> Result<Reply, NodeError> {
        let reply = self
            .state()
            .apply(self.now(), self.clock.wall().as_millisecond(), call)?;
        for (key, owner) in NodeState::announced(call) {
            // Nobody listening is fine.
            let _ = self.releases.send(Announcement {
                key: key.into(),
                owner: owner.into(),
            });
        }
        Ok(reply)
    }

    /// The node's clock.
    #[must_use]
    pub fn now(&self) -> NodeMs {
        NodeMs(u64::try_from(self.clock.now().since_boot().as_millis()).unwrap_or(u64::MAX))
    }

    /// The node's memory, for checkers.
    pub fn state(&self) -> MutexGuard<'_, NodeState> {
        // Every call leaves the state complete.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Node for MemoryNode {
    fn name(&self) -> &str {
        &self.name
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        self.execute(&call)
    }

    async fn announcements(&self) -> Option<Announcements> {
        let (tell, announcements) = mpsc::channel(64);
        let mut releases = self.releases.subscribe();
        // Forwarded when asked: the stream is drained by whoever reads it, so a task is needed; the caller's runtime
        // has one.
        let forward = async move {
            while !tell.is_closed() {
                match releases.recv().await {
                    Ok(news) => {
                        if tell.send(news).await.is_err() {
                            return;
                        }
                    }
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return,
                }
            }
        };
        crate::spawn::Spawn::system().spawn(forward);
        Some(announcements)
    }
}
