//! What the nodes show of a lock, and what follows for somebody who wants it: plain functions.

use std::time::Duration;

use crate::{
    lock::{cluster::most_seen, tally::majority},
    node::{NodeError, Record, Token, View},
};

/// What each node shows of one lock, in the order of the configuration.
#[derive(Clone, Debug)]
pub struct Sighting {
    /// The lock's key.
    pub key: String,
    /// Each node's view, or why it gave none.
    pub nodes: Vec<Result<View, NodeError>>,
}

impl Sighting {
    /// Nodes on which nobody holds the lock.
    #[must_use]
    pub fn takable(&self) -> usize {
        self.views().filter(|v| v.holder.is_none()).count()
    }

    /// Whether a majority of the configured nodes looks takable.
    #[must_use]
    pub fn looks_free(&self) -> bool {
        self.takable() >= majority(self.nodes.len())
    }

    /// The owner that a majority of the configured nodes shows; nobody else can be leading.
    #[must_use]
    pub fn holder(&self) -> Option<String> {
        let views: Vec<&View> = self.views().collect();
        let holder = most_seen(&views)?;
        let shown = views
            .iter()
            .filter(|v| v.holder.as_deref() == Some(holder.as_str()))
            .count();
        (shown >= majority(self.nodes.len())).then_some(holder)
    }

    /// When a majority would look takable if nobody extended: the q-th smallest remaining life. `None` when too few
    /// nodes answered, or keys without a time to live stand in the way.
    #[must_use]
    pub fn free_in(&self) -> Option<Duration> {
        let mut lives: Vec<u64> = self
            .views()
            .filter_map(|v| {
                if v.holder.is_none() {
                    Some(0)
                } else {
                    v.remaining_ms
                }
            })
            .collect();
        lives.sort_unstable();
        lives
            .get(majority(self.nodes.len()) - 1)
            .copied()
            .map(Duration::from_millis)
    }

    /// The largest token that any node shows.
    #[must_use]
    pub fn token(&self) -> Token {
        self.views().map(|v| v.token).max().unwrap_or_default()
    }

    /// The newest record body that any node shows.
    #[must_use]
    pub fn record(&self) -> Record {
        self.views()
            .map(|v| &v.record)
            .max_by_key(|r| r.version)
            .cloned()
            .unwrap_or_default()
    }

    fn views(&self) -> impl Iterator<Item = &View> {
        self.nodes.iter().filter_map(|n| n.as_ref().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(by: &str, ms: u64) -> Result<View, NodeError> {
        Ok(View {
            holder: Some(by.into()),
            remaining_ms: Some(ms),
            ..View::default()
        })
    }
    fn free() -> Result<View, NodeError> {
        Ok(View::default())
    }
    fn down() -> Result<View, NodeError> {
        Err(NodeError::Unreachable("test".into()))
    }
    fn sighting(nodes: Vec<Result<View, NodeError>>) -> Sighting {
        Sighting {
            key: "k".into(),
            nodes,
        }
    }

    #[test]
    fn a_lock_looks_free_only_on_a_majority_of_the_configured_nodes() {
        assert!(sighting(vec![free(), free(), held("a", 9)]).looks_free());
        assert!(!sighting(vec![free(), down(), down()]).looks_free());
        assert_eq!(sighting(vec![free(), down(), down()]).free_in(), None);
    }

    #[test]
    fn the_wait_is_the_remaining_life_on_the_deciding_node() {
        let s = sighting(vec![held("a", 900), held("a", 300), held("a", 500)]);
        assert_eq!(s.free_in(), Some(Duration::from_millis(500)));
        assert_eq!(s.holder().as_deref(), Some("a"));
        assert_eq!(
            sighting(vec![held("a", 1), held("b", 1), free()]).holder(),
            None
        );
    }
}
