//! Which nodes' announcements reach this process.

use std::sync::atomic::{AtomicBool, Ordering};

/// Which nodes' announcements are heard at present.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions(Vec<AtomicBool>);

// === impl Subscriptions ===

impl Subscriptions {
    pub(crate) fn of(nodes: usize) -> Self {
        Self((0..nodes).map(|_| AtomicBool::new(false)).collect())
    }

    pub(crate) fn set(&self, node: usize, live: bool) {
        if let Some(flag) = self.0.get(node) {
            flag.store(live, Ordering::SeqCst);
        }
    }

    pub(crate) fn is_live(&self, node: usize) -> bool {
        self.0
            .get(node)
            .is_some_and(|flag| flag.load(Ordering::SeqCst))
    }
}
